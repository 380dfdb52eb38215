"""The root's side of the link: authentication, rights, rate limits and errors."""

import hashlib
from dataclasses import replace

import httpx
import pytest

from dag.run.runs import RunRecord
from federation.configured_meshes import ConfiguredMeshes
from federation.dispatch import Claim, NotificationKind
from federation.errors import EpochChanged, LinkRefused, SessionSuperseded, SessionUnknown, StoreUnavailable
from federation.leases import HeartbeatReport
from federation.link import (
    BLOB_BYTES_MAX,
    CALL_BYTES_MAX,
    CODES,
    INPUTS_OF,
    LINK_PATH,
    PROOF_HEADER,
    SESSION_HEADER,
    VERBS,
    AskTerms,
    InputsOf,
)
from federation.receipts import ReceiptKeys
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.http_link import HttpBlobs, HttpLedger, HttpLink, HttpSettings, HttpStageQueue, ask_terms
from mesh.core.ids import MeshId, NodeId, PoolName, RunId, StageId
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import encode
from mesh.errors import AmountError
from mesh.preemption.stage_preemption import MICROS, PreemptionLimits
from mesh.stages.spec import StageSpec
from mesh.stages.stage_settings import DEFAULT_SETTINGS, NodeWeights, QueueRules, StageSettings
from serve_apps.gateway_fixtures import ADDRESS, NOW_MS, RESEARCH, STANDARD, GatewayWorld, InProcess, spec_of
from serve_apps.link.routes import CALLS_BURST, HEARTBEATS_PER_S_MIN, LinkHandler
from serve_apps.link_fixtures import PATIENCE
from serve_apps.requests.auth import issue_for_mesh
from serve_apps.requests.dependencies import WRONG_BURST
from serve_apps.requests.errors import meaning_of
from serve_apps.root.gateway import create_app
from serve_apps.schemas.errors import ProblemDetails

EAST, WEST = MeshId("east"), MeshId("west")
RECORD = MeshRecord(
    mesh=EAST, labels={}, pools=(PoolRecord(pool=PoolName("p"), flavor=STANDARD, capacity=ResourceSet.of({"cpu": 1})),), cluster="c"
)
#: Heartbeats that a mesh may send at once, at two seconds between them.
BEATS_BURST = int(4 * HEARTBEATS_PER_S_MIN)
VALUE = StoredValue(sha256="a" * 64, size_bytes=1, encoding=Encoding.JSON)
RECEIPTS = ReceiptKeys(keys={1: b"of the root"})
SPEC = StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=RESEARCH, tasks=(), slot=ResourceSet(), width=1)


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


def http(world: GatewayWorld, header: str | None, app: object = None) -> httpx.Client:
    headers = {"Authorization": header} if header is not None else {}
    return httpx.Client(transport=InProcess(app or world.app), base_url=ADDRESS, headers=headers)


def key_of(world: GatewayWorld, mesh: MeshId = EAST) -> str:
    return issue_for_mesh(world.keys, mesh, NOW_MS)


def link(world: GatewayWorld, mesh: MeshId = EAST, app: object = None) -> HttpLink:
    return HttpLink((ADDRESS,), "in the headers", http=http(world, f"Bearer {key_of(world, mesh)}", app), patience=PATIENCE)


def post(client: httpx.Client, verb: str, body: bytes = b"{}") -> httpx.Response:
    return client.post(f"{LINK_PATH}/{verb}", content=body, headers={"Content-Type": "application/json"})


# ---- authentication


def test_mesh_learns_the_common_terms_before_it_joins(world):
    terms = ask_terms(link(world), EAST)
    assert (terms.heartbeat_ms, terms.inline_limit_bytes, terms.storage_url, terms.ledger) == (2_000, 65_536, "", "ours")


CONFIGURED = ConfiguredMeshes(
    flavors={STANDARD: {"zone": "e"}},
    meshes={EAST: replace(RECORD, labels={"zone": "e"}, tenants=(RESEARCH,))},
)


def strict(world: GatewayWorld) -> HttpLink:
    """Return a link to a root that has a file."""
    return link(world, app=create_app(replace(world.dependencies(), configured_meshes=CONFIGURED)))


def test_record_against_the_roots_file_is_refused_everywhere(world):
    fitting = replace(RECORD, labels={"zone": "e"})
    strict_link, misfit = strict(world), "mesh east cannot offer standard .*zone=e is required"
    with pytest.raises(LinkRefused, match=misfit):
        ask_terms(strict_link, EAST, RECORD)
    ledger = HttpLedger(strict_link)
    with pytest.raises(LinkRefused, match=misfit):
        ledger.join(RECORD)
    session = ledger.join(fitting)
    with pytest.raises(LinkRefused, match=misfit):
        ledger.heartbeat(session, RECORD, HeartbeatReport(number=1))


def test_roots_file_overrides_reported_tenants(world):
    fitting, ledger = replace(RECORD, labels={"zone": "e"}), HttpLedger(strict(world))
    session = ledger.join(fitting)
    assert [view.record.tenants for view in world.store.snapshot().meshes] == [(RESEARCH,)]
    ledger.heartbeat(session, fitting, HeartbeatReport(number=1))
    assert [view.record.tenants for view in world.store.snapshot().meshes] == [(RESEARCH,)]


def test_mesh_reads_and_reports_its_settings(world):
    own = HttpSettings(link(world))
    assert own.settings_of(EAST) is None
    limits = PreemptionLimits(threshold=500_000, lost_work_per_s=1, per_minute_max=3, protected_pools=(PoolName("p"),))
    settings = StageSettings(weights=NodeWeights(contention=1), preemption=limits, queues={RESEARCH: QueueRules(aging_per_s=10_000)})
    world.registry.publish_settings({EAST: settings})
    assert own.settings_of(EAST) == settings
    HttpLedger(link(world)).join(replace(RECORD, settings=settings))
    assert [view.record.settings for view in world.store.snapshot().meshes] == [settings]
    with pytest.raises(LinkRefused, match="the key belongs to mesh east"):
        own.settings_of(WEST)


def test_mesh_differing_from_the_roots_file_is_warned(world):
    differing = replace(RECORD, labels={"zone": "e", "tier": "spot"}, tenants=(RESEARCH,))
    assert ask_terms(strict(world), EAST, differing).warnings == ("its labels are tier=spot, zone=e; the root's file says zone=e",)
    assert ask_terms(strict(world), EAST).warnings == ()


def test_mesh_with_overruled_settings_is_warned(world):
    """Only keys that it sets itself are named, and only if the root's file says otherwise."""
    own = StageSettings(
        weights=NodeWeights(contention=2),
        preemption=PreemptionLimits(threshold=MICROS, per_minute_max=3),
        queues={RESEARCH: QueueRules(aging_per_s=10_000)},
    )
    fitting = replace(RECORD, labels={"zone": "e"}, tenants=(RESEARCH,), settings=own)
    assert ask_terms(strict(world), EAST, fitting).warnings == ()
    filed = StageSettings(weights=NodeWeights(availability=5, contention=1), preemption=PreemptionLimits(per_minute_max=3))
    world.registry.publish_settings({EAST: filed})
    keys = f"weights.contention, preemption.threshold, queues.{RESEARCH}.priority, queues.{RESEARCH}.aging_per_s"
    words = f"its own settings differ from those of the root's file, which count: {keys}"
    assert ask_terms(strict(world), EAST, fitting).warnings == (words,)
    assert ask_terms(strict(world), EAST, replace(fitting, settings=DEFAULT_SETTINGS)).warnings == ()


def test_mesh_for_incompatible_tenants_is_warned(world):
    words = "its Ray cluster admits 2 top-level tenants, and is not `shared`: it admits nothing new; join with --tenant of one of them"
    assert ask_terms(link(world), EAST, RECORD).warnings == (words,)
    assert ask_terms(link(world), EAST, replace(RECORD, tenants=(RESEARCH,))).warnings == ()
    assert ask_terms(link(world), EAST, replace(RECORD, shared=True)).warnings == ()


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_no_verb_is_taken_without_a_key(world, verb):
    answer = post(http(world, None), verb)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_no_blob_is_given_or_taken_without_a_key(world, method):
    path = f"{LINK_PATH}/blobs/r/{'a' * 64}"
    assert http(world, None).request(method, path, content=b"x").status_code == 401
    assert world.http(RESEARCH).request(method, path, content=b"x").status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        pytest.param("Bearer {tenants}", id="a tenant's key"),
        pytest.param("Bearer smm_{tenants_tail}", id="a tenant's key that calls itself a mesh's"),
        pytest.param("Bearer {revoked}", id="a revoked key"),
        pytest.param("Bearer smm_00000000_" + "a" * 43, id="an unknown key"),
        pytest.param("Bearer {head}" + "a" * 43, id="a wrong secret"),
        pytest.param("Bearer {good}x", id="a letter too many"),
        pytest.param("Basic {good}", id="another scheme"),
        pytest.param("{good}", id="no scheme"),
        pytest.param("Bearer", id="no key"),
    ],
)
def test_no_other_key_is_a_meshs(world, header):
    tenants = world.http(RESEARCH).headers["Authorization"].removeprefix("Bearer ")
    good, revoked = key_of(world), key_of(world)
    world.keys.revoke(revoked[4:12])
    text = header.format(tenants=tenants, tenants_tail=tenants[4:], revoked=revoked, head=good[:13], good=good)
    answer = post(http(world, text), "terms", encode(AskTerms(mesh=EAST)))
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert not [secret for secret in (good[13:], revoked[13:], tenants[13:]) if secret in answer.text]


def test_a_meshs_key_reaches_no_tenant(world):
    for text in (key_of(world), f"smk_{key_of(world)[4:]}"):
        client = http(world, f"Bearer {text}")
        assert {client.get(path).status_code for path in ("/v1/runs", "/v1/tenants", "/v1/meshes", "/v1/leases")} == {401}


def test_a_revoked_key_is_refused_from_then_on(world):
    text = key_of(world)
    ledger = HttpLedger(HttpLink((ADDRESS,), "", http=http(world, f"Bearer {text}"), patience=PATIENCE))
    session = ledger.join(RECORD)
    world.keys.revoke(text[4:12])
    with pytest.raises(LinkRefused, match="revoked"):
        ledger.heartbeat(session, RECORD, HeartbeatReport(number=1))


def test_call_with_a_revoked_key_is_not_read(world):
    text = key_of(world)
    client = http(world, f"Bearer {text}")
    statuses = [post(client, "terms", b"no JSON").status_code for _ in range(2)]
    world.keys.revoke(text[4:12])
    assert (statuses, post(client, "terms", b"no JSON").status_code) == ([400, 400], 401)


def test_a_mesh_cannot_join_as_another(world):
    with pytest.raises(LinkRefused, match="east"):
        HttpLedger(link(world, WEST)).join(RECORD)
    answer = post(http(world, f"Bearer {key_of(world, WEST)}"), "terms", encode(AskTerms(mesh=EAST)))
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_mesh")
    assert world.store.snapshot().meshes == ()


def test_only_the_last_session_of_the_same_mesh_is_resumed(world):
    east, west = HttpLedger(link(world, EAST)), HttpLedger(link(world, WEST))
    first = east.join(RECORD)
    with pytest.raises(LinkRefused, match="east"):
        west.join(RECORD, adopt=first.incarnation)
    with pytest.raises(SessionUnknown):
        west.join(replace(RECORD, mesh=WEST), adopt=first.incarnation)
    with pytest.raises(SessionSuperseded):
        east.join(RECORD, adopt=first.incarnation - 1)
    successor = east.join(RECORD, adopt=first.incarnation)
    with pytest.raises(SessionSuperseded):
        east.heartbeat(first, RECORD, HeartbeatReport(number=1))
    assert [view.incarnation for view in world.store.snapshot().meshes] == [successor.incarnation]


# ---- decoding


def test_the_verbs_of_the_root_have_no_route(world):
    client = http(world, f"Bearer {key_of(world)}")
    for verb in ("configure", "sweep", "plan_apply", "plan-apply", "revoke", "submit", "cancel", "deliver", "inbox", "forget", "snapshot"):
        assert post(client, verb).status_code == 404


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        pytest.param(b"{", "application/json", 400, id="no JSON"),
        pytest.param(b"{}", "text/plain", 415, id="declared as text"),
        pytest.param(b"{}", "", 415, id="declared as nothing"),
        pytest.param(b"{}", "application/json", 422, id="an unknown encoding"),
        pytest.param(b'{"mesh": "' + b"e" * CALL_BYTES_MAX + b'"}', "application/json", 413, id="too large"),
        pytest.param(b'{"mesh": [' + b"1," * 1_001 + b"1]}", "application/json", 413, id="too many rows"),
    ],
)
def test_call_refused_by_its_verb_has_its_own_status(world, content, kind, status):
    client = http(world, f"Bearer {key_of(world)}")
    answer = client.post(f"{LINK_PATH}/terms", content=content, headers={"Content-Type": kind})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert ProblemDetails.model_validate(answer.json()).status == status


class Broken:
    """Ledger that raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def join(self, *_: object, **__: object) -> None:
        raise self._error


def broken(world: GatewayWorld, error: Exception) -> HttpLink:
    return link(world, app=create_app(replace(world.dependencies(), ledger=Broken(error))))


@pytest.mark.parametrize("kind", CODES.values(), ids=CODES)
def test_an_error_of_a_port_comes_out_as_what_it_was(world, kind):
    error = EpochChanged("in words", epoch=7, recovery_ms=30) if kind is EpochChanged else kind("in words")
    with pytest.raises(kind) as raised:
        HttpLedger(broken(world, error)).join(RECORD)
    assert type(raised.value) is kind
    assert kind is not EpochChanged or (raised.value.epoch, raised.value.recovery_ms) == (7, 30)


def test_every_code_of_the_link_is_that_of_the_table_of_errors():
    errors = {code: EpochChanged("", epoch=1, recovery_ms=1) if kind is EpochChanged else kind("") for code, kind in CODES.items()}
    assert {code: meaning_of(error).code for code, error in errors.items()} == {code: code for code in CODES}
    assert meaning_of(AmountError("")).status == 422


@pytest.mark.parametrize("error", [ZeroDivisionError("secret"), StoreUnavailable("redis://:secret@h")], ids=repr)
def test_internal_error_hides_its_details(world, error):
    with pytest.raises(StoreUnavailable) as gone:
        HttpLedger(broken(world, error)).join(RECORD)
    assert "secret" not in str(gone.value)


# ---- rights


def claimed(world: GatewayWorld, mesh: MeshId = EAST) -> tuple[HttpStageQueue, Claim]:
    stages, ledger = HttpStageQueue(link(world, mesh), mesh), HttpLedger(link(world, mesh))
    world.store.submit(mesh, SPEC)
    taken = stages.claim(ledger.join(replace(RECORD, mesh=mesh)), SPEC.stage, None)
    assert taken is not None
    return stages, taken.claim


def test_mesh_gets_the_inputs_of_its_claimed_stage(world):
    stages, _ = claimed(world)
    world.store.deliver(SPEC.stage, NodeId("x"), VALUE)
    assert stages.inputs_of(SPEC.stage) == {"x": VALUE}


def test_mesh_gets_the_inputs_of_its_waiting_stage(world):
    world.store.submit(EAST, SPEC)
    world.store.deliver(SPEC.stage, NodeId("x"), VALUE)
    assert HttpStageQueue(link(world), EAST).inputs_of(SPEC.stage) == {"x": VALUE}


def test_mesh_gets_no_inputs_of_another_meshs_stage(world):
    _, claim = claimed(world)
    world.store.deliver(SPEC.stage, NodeId("x"), VALUE)
    other = link(world, WEST)
    for forged in (None, replace(claim, mesh=WEST)):
        assert other.call(INPUTS_OF, InputsOf(mesh=WEST, stage=SPEC.stage, claim=forged)) == {}
    with pytest.raises(LinkRefused):
        other.call(INPUTS_OF, InputsOf(mesh=WEST, stage=SPEC.stage, claim=claim))


def test_a_claim_on_one_stage_opens_no_other(world):
    _, claim = claimed(world)
    world.store.submit(WEST, replace(SPEC, stage=StageId("r.2")))
    world.store.deliver(StageId("r.2"), NodeId("x"), VALUE)
    assert link(world).call(INPUTS_OF, InputsOf(mesh=EAST, stage=StageId("r.2"), claim=claim)) == {}


def a_run(world: GatewayWorld) -> RunRecord:
    answer = world.http(RESEARCH).post("/v1/runs", json=spec_of("a", wait_for_capacity=True))
    return world.record(answer.json()["id"])


def with_claim(world: GatewayWorld, run: RunId, mesh: MeshId = EAST) -> HttpLink:
    """Return the link of a mesh that has claimed a stage of the run."""
    world.store.submit(mesh, replace(SPEC, stage=StageId(f"{run}.{mesh}"), run=run))
    mine = link(world, mesh)
    session = HttpLedger(mine).join(replace(RECORD, mesh=mesh))
    assert HttpStageQueue(mine, mesh).claim(session, StageId(f"{run}.{mesh}"), None) is not None
    return mine


def test_blob_is_kept_only_for_an_existing_run(world):
    run, name = a_run(world).run, hashlib.sha256(b"data").hexdigest()
    for each in (run, RunId("nobody-knows-it")):
        HttpBlobs(with_claim(world, each)).put(each, name, b"data")
    assert HttpBlobs(link(world)).get(run, (name,)) == {name: b"data"}
    assert world.store.get(RunId("nobody-knows-it"), (name,)) == {}


def test_blob_is_dropped_without_a_claim_on_the_run(world):
    run, other, name = a_run(world).run, a_run(world).run, hashlib.sha256(b"data").hexdigest()
    earlier = with_claim(world, run)
    (view,) = world.store.snapshot().meshes
    never_joined, joined = link(world, WEST), link(world, WEST)
    HttpLedger(joined).join(replace(RECORD, mesh=WEST))
    elsewhere = with_claim(world, other)  # A later session of the same mesh, so the earlier one has lost its claim.
    guessing = http(world, f"Bearer {key_of(world, WEST)}")
    guessing.headers[SESSION_HEADER] = str(view.incarnation)
    for mine in (never_joined, joined, elsewhere, earlier, HttpLink((ADDRESS,), "", http=guessing, patience=PATIENCE)):
        HttpBlobs(mine).put(run, name, b"data")
    assert world.store.get(run, (name,)) == {}


def test_blobs_of_a_run_are_capped_by_its_nodes(world, monkeypatch):
    monkeypatch.setattr("serve_apps.link.routes.RUN_BYTES_MIN", 10)
    monkeypatch.setattr("serve_apps.link.routes.VALUES_PER_NODE", 0)
    run = a_run(world).run
    blobs = HttpBlobs(with_claim(world, run))
    for data in (b"12345", b"67890"):
        blobs.put(run, hashlib.sha256(data).hexdigest(), data)
    with pytest.raises(LinkRefused, match="more than it can need"):
        blobs.put(run, hashlib.sha256(b"x").hexdigest(), b"x")
    other = a_run(world).run
    HttpBlobs(with_claim(world, other)).put(other, hashlib.sha256(b"x").hexdigest(), b"x")


def test_bytes_under_the_name_of_others_are_refused(world):
    run, name = a_run(world).run, hashlib.sha256(b"others").hexdigest()
    with pytest.raises(LinkRefused, match="do not have the SHA-256"):
        HttpBlobs(link(world)).put(run, name, b"data")
    assert world.store.get(run, (name,)) == {}


@pytest.mark.parametrize("name", ["A" * 64, "a" * 63, "..", "a" * 65])
def test_invalid_digest_names_no_blob(world, name):
    answer = http(world, f"Bearer {key_of(world)}").get(f"{LINK_PATH}/blobs/r/{name}")
    assert answer.status_code in (404, 422)


# ---- rate limits


def test_throttled_mesh_may_still_send_heartbeats(world):
    text = key_of(world)
    client = http(world, f"Bearer {text}")
    body = encode(AskTerms(mesh=EAST))
    statuses = [post(client, "terms", body).status_code for _ in range(CALLS_BURST + 1)]
    assert statuses == [200] * CALLS_BURST + [429]
    refused = post(client, "terms", body)
    assert (refused.json()["code"], refused.headers["Retry-After"]) == ("too_many_calls", "1")
    mine = HttpLink((ADDRESS,), "", http=client, patience=PATIENCE)
    assert HttpLedger(mine).join(RECORD).mesh == EAST
    assert ask_terms(link(world, WEST), WEST).heartbeat_ms == 2_000
    assert world.http(RESEARCH).get("/v1/tenants").status_code == 200
    world.clock.advance(1_000)
    assert post(client, "terms", body).status_code == 200


def test_heartbeats_have_a_budget_too(world):
    ledger = HttpLedger(link(world))
    for _ in range(BEATS_BURST):
        ledger.join(RECORD)
    with pytest.raises(StoreUnavailable, match="over its limit of calls"):
        ledger.join(RECORD)
    world.clock.advance(60_000)
    assert ledger.join(RECORD).mesh == EAST


def test_unknown_session_is_refused_as_unknown(world):
    session = HttpLedger(link(world)).join(RECORD)
    with pytest.raises(SessionUnknown):
        HttpLedger(link(world, WEST)).heartbeat(replace(session, mesh=WEST), replace(RECORD, mesh=WEST), HeartbeatReport(number=1))


# ---- before authentication


def test_a_body_is_not_looked_at_before_the_key_was(world):
    stranger = http(world, "Bearer smm_00000000_" + "a" * 43)
    large = b"x" * (BLOB_BYTES_MAX + 1)
    assert stranger.post(f"{LINK_PATH}/heartbeat", content=large, headers={"Content-Type": "text/x"}).status_code == 401
    assert stranger.put(f"{LINK_PATH}/blobs/r/{'a' * 64}", content=large).status_code == 401


def test_wrong_keys_throttle_an_address_but_not_its_good_keys(world):
    good, stranger, late = http(world, f"Bearer {key_of(world)}"), http(world, "Bearer smm_00000000_" + "a" * 43), key_of(world, WEST)
    body = encode(AskTerms(mesh=EAST))
    assert post(good, "terms", body).status_code == 200
    statuses = [post(stranger, "terms").status_code for _ in range(WRONG_BURST + 1)]
    assert statuses == [401] * WRONG_BURST + [429]
    assert post(good, "terms", body).status_code == 200
    assert post(http(world, f"Bearer {late}"), "terms", encode(AskTerms(mesh=WEST))).status_code == 200
    refused = post(stranger, "terms")
    assert (refused.json()["code"], refused.headers["Retry-After"]) == ("too_many_calls", "2")
    world.clock.advance(2_000)
    assert post(stranger, "terms").status_code == 401


def test_revoked_key_counts_as_a_wrong_one(world):
    text = key_of(world)
    client = http(world, f"Bearer {text}")
    assert post(client, "terms", encode(AskTerms(mesh=EAST))).status_code == 200
    world.keys.revoke(text.split("_")[1])
    assert [post(client, "terms").status_code for _ in range(WRONG_BURST + 1)] == [401] * WRONG_BURST + [429]


# ---- believed tokens


@pytest.fixture
def signing() -> GatewayWorld:
    world = GatewayWorld()
    world.app = create_app(replace(world.app.state.dependencies, receipts=RECEIPTS))
    return world


def learns(world: GatewayWorld) -> bool:
    return world.store.snapshot().recovery_ms > 0


def test_mesh_with_a_lost_token_proves_it(signing):
    before = signing.store.copied()
    mesh = link(signing)
    session = HttpLedger(mesh).join(RECORD)
    for name, value in before.items():
        setattr(signing.store, name, value)
    with pytest.raises(EpochChanged):
        HttpLedger(mesh).heartbeat(session, RECORD, HeartbeatReport(number=1))
    assert learns(signing)


@pytest.mark.parametrize("proof", ["", "of nobody", "7.1.aa.memory", "{token}.1.{signature}.another", "{ahead}.1.{signature}.memory"])
def test_no_token_is_believed_without_the_roots_word_for_it(signing, proof):
    text = f"Bearer {key_of(signing)}"
    session = HttpLedger(HttpLink((ADDRESS,), "", http=http(signing, text), patience=PATIENCE)).join(RECORD)
    ahead = replace(session, mark=session.incarnation + 30_000_000, incarnation=session.incarnation + 30_000_000)
    signature = RECEIPTS.proof("memory", EAST, session.incarnation).split(".")[2]
    stranger = http(signing, text)
    stranger.headers[PROOF_HEADER] = proof.format(token=session.incarnation, ahead=ahead.mark, signature=signature)
    with pytest.raises(SessionSuperseded):
        HttpLedger(HttpLink((ADDRESS,), "", http=stranger, patience=PATIENCE)).heartbeat(ahead, RECORD, HeartbeatReport(number=1))
    HttpLedger(HttpLink((ADDRESS,), "", http=stranger, patience=PATIENCE)).join(RECORD, seen=ahead.mark)
    assert not learns(signing)


def test_the_proof_of_one_mesh_is_none_of_another(signing):
    HttpLedger(link(signing)).join(RECORD)
    token = signing.store.snapshot().epoch + 30_000_000
    other = http(signing, f"Bearer {key_of(signing, WEST)}")
    other.headers[PROOF_HEADER] = RECEIPTS.proof("memory", EAST, token)
    HttpLedger(HttpLink((ADDRESS,), "", http=other, patience=PATIENCE)).join(replace(RECORD, mesh=WEST), seen=token)
    assert not learns(signing)
    other.headers[PROOF_HEADER] = RECEIPTS.proof("memory", WEST, token)
    HttpLedger(HttpLink((ADDRESS,), "", http=other, patience=PATIENCE)).join(replace(RECORD, mesh=WEST), seen=token)
    assert learns(signing)


def test_session_continues_over_many_calls(signing):
    ledger = HttpLedger(link(signing))
    session = ledger.join(RECORD)
    for number in range(1, 4):
        response = ledger.heartbeat(session, RECORD, HeartbeatReport(number=number))
        session = replace(session, mark=response.mark)
    ledger.leave(session)
    assert signing.store.snapshot().meshes == ()


# ---- notifications


def test_letters_come_over_the_link(world):
    stages = HttpStageQueue(link(world), EAST)
    cursor, nothing = stages.notifications(EAST, "", 0)
    world.store.submit(EAST, SPEC)
    _, (notification,) = stages.notifications(EAST, cursor, 1_000)
    assert (nothing, notification.kind, notification.subject) == ((), NotificationKind.STAGE, SPEC.stage)


def test_notifications_arrive_when_all_threads_are_busy(world, monkeypatch):
    monkeypatch.setattr(LinkHandler, "has_room", lambda *_: False)
    stages = HttpStageQueue(link(world), EAST)
    cursor, _ = stages.notifications(EAST, "", 1_000)
    assert stages.notifications(EAST, cursor, 0) == (cursor, ())
    world.store.submit(EAST, SPEC)
    assert [notification.subject for notification in stages.notifications(EAST, cursor, 1_000)[1]] == [SPEC.stage]
    with pytest.raises(LinkRefused):
        stages.notifications(WEST, cursor, 0)
