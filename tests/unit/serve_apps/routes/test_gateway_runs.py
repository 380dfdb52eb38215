"""Answers of `/v1/runs`, on stores in memory."""

import base64
import hashlib
import json
import pickle

import httpx
import msgpack
import pytest

from dag.backlog import BacklogLimits
from dag.errors import BacklogFull, KeyConflict
from dag.run.states import NodeState, RunState
from dag.spec.columns import MEDIA_TYPE
from dag.spec.spec import load, parse
from federation.durability import Durability
from federation.quota.policies import QueueSettings, TenantPolicies
from federation.store.memory.durability import MemoryDurability
from federation.store.memory.store import MemoryStore
from federation.tenants import Tenant, TenantTree
from mesh.core.clock import rfc3339
from mesh.core.ids import RunId
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from serve_apps.gateway_fixtures import ACME, NOW_MS, RESEARCH, RIVAL, SALES, TENANTS, GatewayWorld, spec_of
from serve_apps.views import run_graphs


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


def submitted(world: GatewayWorld, *nodes: str, tenant: str = RESEARCH, **fields: object) -> str:
    """Submit a run and return its id."""
    answer = world.http(tenant).post("/v1/runs", json=spec_of(*nodes, **fields))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def code_of(answer: httpx.Response) -> str:
    return str(answer.json()["code"])


def test_a_new_run_is_202_with_its_location(world):
    answer = world.http().post("/v1/runs", json=spec_of("a", "b", id="night"))
    assert answer.status_code == 202
    assert answer.headers["location"] == "/v1/runs/night"
    assert answer.json() == {"id": "night", "tenant": RESEARCH, "state": "PENDING", "created": True, "durability": "D0"}
    assert world.record("night").nodes.keys() == {"a", "b"}


def test_same_graph_and_id_is_200_with_the_same_run(world):
    http = world.http()
    http.post("/v1/runs", json=spec_of("a", id="night"))
    again = http.post("/v1/runs", json=spec_of("a", id="night"))
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert len(world.runs.list(ACME)) == 1


def test_another_graph_under_the_same_id_is_409(world):
    http = world.http()
    http.post("/v1/runs", json=spec_of("a", id="night"))
    answer = http.post("/v1/runs", json=spec_of("a", "b", id="night"))
    assert (answer.status_code, code_of(answer)) == (409, "run_conflict")


def test_an_idempotency_key_names_the_run_so_a_retry_finds_it(world):
    http, headers = world.http(), {"Idempotency-Key": "order-7"}
    first = http.post("/v1/runs", json=spec_of("a"), headers=headers)
    again = http.post("/v1/runs", json=spec_of("a"), headers=headers)
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [(f"00-{'a' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-01"), ("00-wrong", "")],
    ids=["a right one", "a wrong one"],
)
def test_trace_context_of_the_caller_is_kept_with_the_run(world, sent, kept):
    run = world.http().post("/v1/runs", json=spec_of("a"), headers={"traceparent": sent}).json()["id"]
    assert world.record(run).traceparent == kept
    trace_id = world.http().get(f"/v1/runs/{run}").json()["trace_id"]
    assert trace_id == world.record(run).trace.trace_id
    assert (trace_id == "a" * 32) is bool(kept)


def test_the_same_idempotency_key_of_two_tenants_names_two_runs(world):
    headers = {"Idempotency-Key": "order-7"}
    ids = {world.http(tenant).post("/v1/runs", json=spec_of("a"), headers=headers).json()["id"] for tenant in (RESEARCH, SALES)}
    assert len(ids) == 2


def test_without_id_and_key_every_submission_is_a_new_run(world):
    assert submitted(world, "a") != submitted(world, "a")


def test_every_spec_error_has_its_place(world):
    broken = spec_of("a", "b")
    broken["nodes"]["b"]["args"] = [{"$ref": "nobody"}]
    broken["nodes"]["a"]["after"] = ["nowhere"]
    answer = world.http().post("/v1/runs", json=broken)
    assert (answer.status_code, code_of(answer)) == (422, "invalid_spec")
    places = [problem["place"] for problem in answer.json()["problems"]]
    assert len(places) == 2
    assert all(place.startswith("/nodes/") for place in places)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\xfe", b""], ids=["cut off", "a list", "not UTF-8", "nothing at all"])
def test_a_body_that_is_no_json_object_is_400(world, body):
    answer = world.http().post("/v1/runs", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, code_of(answer)) == (400, "malformed_json")


def test_a_body_that_says_it_is_a_form_is_415(world):
    answer = world.http().post("/v1/runs", data={"spec": "dag/1"})
    assert (answer.status_code, code_of(answer)) == (415, "unsupported_media_type")


def test_a_graph_as_columns_is_the_same_run_as_its_json(world):
    document = {**spec_of("a", "b"), "id": "night"}
    columns = parse(json.dumps(document).encode()).columns.packed()
    first = world.http().post("/v1/runs", content=columns, headers={"Content-Type": MEDIA_TYPE})
    again = world.http().post("/v1/runs", json=document)
    assert (first.status_code, again.status_code) == (202, 200)
    for path in ("/v1/runs", "/v1/plan"):
        assert world.http().post(path, content=columns, headers={"Content-Type": MEDIA_TYPE}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(b"\xc1", 400, "malformed_json", id="no msgpack"),
        pytest.param(msgpack.packb([1]), 400, "malformed_json", id="a list"),
        pytest.param(msgpack.packb({"ids": "a"}), 422, "invalid_spec", id="columns that are not whole"),
    ],
)
def test_columns_that_cannot_be_read_are_refused(world, body, status, code):
    answer = world.http().post("/v1/runs", content=body, headers={"Content-Type": MEDIA_TYPE})
    assert (answer.status_code, code_of(answer)) == (status, code)


def test_functions_that_the_tenant_may_not_call_are_422(world):
    spec = spec_of("a")
    spec["nodes"]["a"]["call"] = "os:system"
    answer = world.http().post("/v1/runs", json=spec)
    assert answer.status_code == 422
    assert "/nodes/a" in answer.json()["problems"][0]["place"]
    assert world.runs.list(ACME) == ()


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Bearer smk_00000000_{'a' * 43}"}],
    ids=["no key", "an empty key", "an unknown key"],
)
def test_without_a_known_key_every_route_is_401_and_says_how(world, headers):
    http = world.http(None)
    for path in ("/v1/runs", "/v1/runs/x", "/v1/runs/x/events", "/v1/tenants", "/v1/meshes", "/v1/leases", "/v1/queues/acme"):
        answer = http.get(path, headers=headers)
        assert (answer.status_code, code_of(answer)) == (401, "unauthorized"), path
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_revoked_key_is_401(world):
    http = world.http()
    world.keys.revoke(http.headers["authorization"].split("_")[1])
    assert http.get("/v1/runs").status_code == 401


def test_a_tenant_outside_the_keys_subtree_is_403(world):
    answer = world.http(RESEARCH).post("/v1/runs", json=spec_of("a", tenant=SALES))
    assert (answer.status_code, code_of(answer)) == (403, "forbidden")


def test_a_tenant_below_the_keys_own_is_accepted(world):
    answer = world.http(ACME).post("/v1/runs", json=spec_of("a", tenant=SALES))
    assert (answer.status_code, answer.json()["tenant"]) == (202, SALES)


def test_an_operators_key_has_to_name_the_tenant(world):
    http = world.http("*")
    assert http.post("/v1/runs", json=spec_of("a")).json()["problems"][0]["place"] == "/tenant"
    assert http.post("/v1/runs", json=spec_of("a", tenant=RIVAL)).status_code == 202


def test_a_tenant_that_is_nobodys_is_422(world):
    answer = world.http("*").post("/v1/runs", json=spec_of("a", tenant="acme/reserch"))
    assert (answer.status_code, code_of(answer)) == (422, "unknown_tenant")
    assert RESEARCH in answer.json()["detail"]


def test_submissions_in_a_row_read_the_ledger_once(monkeypatch):
    world, looks = GatewayWorld(snapshot_ttl_ms=250), []
    look = MemoryStore.snapshot
    monkeypatch.setattr(MemoryStore, "snapshot", lambda store: looks.append(0) or look(store))
    for _ in range(3):
        submitted(world, "a")
    assert len(looks) == 1
    world.clock.advance(250)
    submitted(world, "a")
    assert len(looks) == 2


def test_new_tenants_and_settings_count_at_once():
    world = GatewayWorld(snapshot_ttl_ms=250)
    submitted(world, "a")
    world.store.configure(TenantTree([*TENANTS, Tenant(path="new", parent=None, functions=("*",))]))
    submitted(world, "a", tenant="new")
    limited = TenantPolicies(settings={RESEARCH: QueueSettings(priority_max=3)})
    assert world.http().post("/v1/runs", json=spec_of("a", defaults={"priority": 5})).status_code == 202
    world.tenant_policies.publish(limited)
    world.clock.advance(250)
    assert world.http().post("/v1/runs", json=spec_of("a", defaults={"priority": 5})).status_code == 422
    world.tenant_policies.publish(TenantPolicies())
    assert world.http().post("/v1/runs", json=spec_of("a", defaults={"priority": 5})).status_code == 202


def test_a_run_of_another_tenant_is_not_there(world):
    run = submitted(world, "a", tenant=RIVAL)
    http = world.http(ACME)
    for path in ("", "/summary", "/nodes", "/events", "/result", "/result/a"):
        answer = http.get(f"/v1/runs/{run}{path}")
        assert (answer.status_code, code_of(answer)) == (404, "unknown_run"), path
    assert http.post(f"/v1/runs/{run}/cancel").status_code == 404
    assert http.get("/v1/runs").json() == {"runs": [], "next": None}


def test_runs_are_listed_newest_first_for_the_subtree(world):
    first = submitted(world, "a")
    world.clock.advance(1_000)
    second = submitted(world, "a", tenant=SALES)
    listed = world.http(ACME).get("/v1/runs").json()["runs"]
    assert [line["id"] for line in listed] == [second, first]
    assert [line["id"] for line in world.http("*").get("/v1/runs", params={"limit": 1}).json()["runs"]] == [second]
    assert world.http(RESEARCH).get("/v1/runs", params={"tenant": SALES}).status_code == 403


def test_a_run_shows_its_stages_meshes_and_failures(world):
    run = submitted(world, "a", "b", "c")
    world.start(run, "a", "b")
    world.fail(run, "a", ValueError("bad"), skipped=("b", "c"))
    shown = world.http().get(f"/v1/runs/{run}").json()
    assert shown["state"] == "FAILED"
    assert shown["outputs"] == ["c"]
    assert shown["counts"] == {"FAILED": 1, "SKIPPED": 2}
    (stage,) = shown["stages"]
    assert (stage["mesh"], stage["cluster"], stage["slots"], stage["why_here"]) == ("east", "c1", 2, "ONLY_FEASIBLE_MESH east/general")
    assert stage["counts"] == {"FAILED": 1, "SKIPPED": 1}
    assert [mesh["mesh"] for mesh in shown["meshes"]] == ["east"]
    (failure,) = shown["failures"]
    assert (failure["node"], failure["type"], failure["message"], failure["pickled"]) == ("a", "builtins.ValueError", "bad", None)
    assert shown["skipped"] == [{"node": "b", "roots": ["a"]}, {"node": "c", "roots": ["a"]}]


def test_nodes_that_no_mesh_takes_have_reason_and_detail(world):
    run = submitted(world, "a", "b")
    blocked = {"state": NodeState.BLOCKED, "reason": Reason.LABEL_MISMATCH, "detail": "east: zone=moon is required"}
    world.move(run, RunState.RUNNING, nodes={"a": blocked})
    body = world.http().get(f"/v1/runs/{run}").json()["blocked"]
    assert body == [{"reason": "LABEL_MISMATCH", "detail": "east: zone=moon is required", "count": 1, "nodes": ["a"]}]


def test_nodes_come_in_pages_and_by_state(world):
    names = [f"n{number}" for number in range(5)]
    run = submitted(world, *names)
    http = world.http()
    first = http.get(f"/v1/runs/{run}/nodes", params={"limit": 3}).json()
    rest = http.get(f"/v1/runs/{run}/nodes", params={"limit": 3, "after": first["next"]}).json()
    assert [node["node"] for node in first["nodes"] + rest["nodes"]] == names
    assert rest["next"] is None
    assert http.get(f"/v1/runs/{run}/nodes", params={"state": "FAILED"}).json()["nodes"] == []
    wrong = http.get(f"/v1/runs/{run}/nodes", params={"state": "BROKEN", "limit": 0})
    assert (wrong.status_code, code_of(wrong), len(wrong.json()["problems"])) == (422, "invalid_parameters", 2)


def test_pages_of_nodes_read_their_graph_once(world, monkeypatch):
    loaded = []
    monkeypatch.setattr(run_graphs, "load", lambda kept: loaded.append(kept) or load(kept))
    run = submitted(world, "once1", "once2")
    http = world.http()
    pages = [http.get(f"/v1/runs/{run}/nodes", params={"limit": 1, "after": after}).json() for after in ("", "once1")]
    assert ([page["nodes"][0]["node"] for page in pages], len(loaded)) == (["once1", "once2"], 1)


def test_nodes_named_alike_are_one_group_with_failed_ones_first(world):
    run = submitted(world, "load", "train-1", "train-2")
    world.start(run, "train-1", "train-2")
    failed = {"state": NodeState.FAILED}
    world.move(run, RunState.RUNNING, nodes={"train-1": failed, "train-2": {"progress": 0.5}})
    groups = world.http().get(f"/v1/runs/{run}").json()["groups"]
    assert groups == [
        {"name": "train", "is_array": False, "total": 2, "counts": {"RUNNING": 1, "FAILED": 1}, "part": 0.5},
        {"name": "load", "is_array": False, "total": 1, "counts": {"WAITING": 1}, "part": 0.0},
    ]


def test_a_running_run_has_an_estimated_end(world):
    run = submitted(world, "f-1", "f-2")
    world.start(run, "f-1", "f-2")
    assert world.http().get(f"/v1/runs/{run}").json()["estimated_end"] is None
    world.move(run, RunState.RUNNING, nodes={"f-1": {"state": NodeState.SUCCEEDED, "finished_ms": NOW_MS + 8_000}})
    assert world.http().get(f"/v1/runs/{run}").json()["estimated_end"] == rfc3339(NOW_MS + 8_000)
    world.succeed(run, {"f-2": 1})
    assert world.http().get(f"/v1/runs/{run}").json()["estimated_end"] is None


def test_events_stream_with_their_numbers_and_resume_after_one(world):
    run = submitted(world, "a")
    world.start(run, "a")
    world.succeed(run, {"a": 1})
    http = world.http()
    whole = http.get(f"/v1/runs/{run}/events")
    assert whole.headers["content-type"].startswith("text/event-stream")
    assert [line for line in whole.text.splitlines() if line.startswith("id:")] == ["id: 1", "id: 2", "id: 3", "id: 4"]
    resumed = http.get(f"/v1/runs/{run}/events", headers={"Last-Event-ID": "3"})
    assert [line for line in resumed.text.splitlines() if line.startswith("id:")] == ["id: 4"]
    last = json.loads(next(line for line in resumed.text.splitlines() if line.startswith("data:")).removeprefix("data: "))
    assert (last["kind"], last["after"]) == ("run", "SUCCEEDED")


def test_events_are_a_list_for_those_who_ask_for_json(world):
    run = submitted(world, "a")
    world.start(run, "a")
    http, headers = world.http(), {"Accept": "application/json"}
    listed = http.get(f"/v1/runs/{run}/events", params={"after": 1}, headers=headers).json()
    assert [event["seq"] for event in listed["events"]] == [2]
    assert http.get(f"/v1/runs/{run}/events", params={"after": 2}, headers=headers).json() == {"events": [], "next": 2}


def test_a_result_that_is_not_there_yet_is_202_with_the_run(world):
    run = submitted(world, "a")
    answer = world.http().get(f"/v1/runs/{run}/result", params={"wait_s": 0.05})
    assert (answer.status_code, answer.json()["state"]) == (202, "PENDING")


def test_a_json_result_comes_as_its_value(world):
    run = submitted(world, "a", "b")
    world.succeed(run, {"a": 0, "b": {"score": 0.97, "name": "é"}})
    answer = world.http().get(f"/v1/runs/{run}/result")
    (output,) = answer.json()["outputs"].values()
    assert (answer.status_code, output["encoding"], output["value"]) == (200, "json", {"score": 0.97, "name": "é"})


def test_pickled_result_is_returned_as_unread_bytes(world):
    run = submitted(world, "a")
    world.succeed(run, {"a": {1, 2}})
    output = world.http().get(f"/v1/runs/{run}/result").json()["outputs"]["a"]
    data = base64.b64decode(output["data"])
    assert (output["encoding"], output["size_bytes"], hashlib.sha256(data).hexdigest()) == ("pickle", len(data), output["sha256"])
    assert pickle.loads(data) == {1, 2}  # noqa: S301  written by this very test


def test_one_output_is_served_as_bytes_with_their_hash(world):
    run = submitted(world, "a")
    world.succeed(run, {"a": [1, 2]})
    answer = world.http().get(f"/v1/runs/{run}/result/a")
    assert (answer.content, answer.headers["content-type"]) == (b"[1, 2]", "application/json")
    assert answer.headers["x-content-sha256"] == hashlib.sha256(b"[1, 2]").hexdigest()
    assert code_of(world.http().get(f"/v1/runs/{run}/result/b")) == "unknown_output"


def test_a_large_output_is_streamed_from_its_file(tmp_path):
    world = GatewayWorld(storage_url=tmp_path.as_uri())
    data = bytes(range(256)) * 20_000
    run = submitted(world, "a")
    file = tmp_path / run / "value"
    file.parent.mkdir()
    file.write_bytes(data)
    stored = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.PICKLE, uri=file.as_uri())
    world.move(run, RunState.SUCCEEDED, nodes={"a": {"state": NodeState.SUCCEEDED, "stored": stored}}, ended_ms=1)
    http = world.http()
    output = http.get(f"/v1/runs/{run}/result").json()["outputs"]["a"]
    assert (output["inline"], output["uri"]) == (False, file.as_uri())
    assert http.get(output["href"]).content == data
    file.unlink()
    assert http.get(output["href"]).status_code == 404


@pytest.mark.parametrize("place", ["{storage}/another-run/value", "{storage}/{run}/../value", "file:///etc/hostname", "http://10.0.0.1/x"])
def test_file_outside_the_runs_values_is_not_opened(tmp_path, place):
    world = GatewayWorld(storage_url=tmp_path.as_uri())
    run = submitted(world, "a")
    uri = place.format(storage=tmp_path.as_uri(), run=run)
    stored = StoredValue(sha256="0" * 64, size_bytes=1, encoding=Encoding.PICKLE, uri=uri)
    world.move(run, RunState.SUCCEEDED, nodes={"a": {"state": NodeState.SUCCEEDED, "stored": stored}}, ended_ms=1)
    assert world.http().get(f"/v1/runs/{run}/result/a").status_code == 404


def test_result_of_a_failed_run_is_409_with_its_failures(world):
    run = submitted(world, "a", "b")
    world.fail(run, "a", ValueError("bad"), skipped=("b",))
    answer = world.http().get(f"/v1/runs/{run}/result", params={"wait_s": 5})
    body = answer.json()
    assert (answer.status_code, code_of(answer), body["state"]) == (409, "run_failed", "FAILED")
    (failure,) = body["failures"]
    assert (failure["node"], failure["reason"], "Traceback" in failure["traceback"]) == ("a", "USER_ERROR", True)
    assert isinstance(pickle.loads(base64.b64decode(failure["pickled"])), ValueError)  # noqa: S301  written by this very test
    assert body["skipped"] == [{"node": "b", "roots": ["a"]}]


def test_a_cancelled_runs_result_is_409_and_says_so(world):
    run = submitted(world, "a")
    world.move(run, RunState.CANCELLED, ended_ms=1, reason=Reason.CANCELLED_BY_USER, detail="enough")
    answer = world.http().get(f"/v1/runs/{run}/result")
    assert (answer.status_code, code_of(answer), answer.json()["run_detail"]) == (409, "run_cancelled", "enough")


def test_bytes_with_a_wrong_hash_are_never_a_result(world):
    run = submitted(world, "a")
    world.store.put(RunId(run), "0" * 64, b'"forged"')
    stored = StoredValue(sha256="0" * 64, size_bytes=8, encoding=Encoding.JSON)
    world.move(run, RunState.SUCCEEDED, nodes={"a": {"state": NodeState.SUCCEEDED, "stored": stored}}, ended_ms=1)
    for path in ("result", "result/a"):
        answer = world.http().get(f"/v1/runs/{run}/{path}")
        assert (answer.status_code, code_of(answer)) == (502, "corrupt_value")


def test_cancel_puts_the_reason_into_the_inbox(world):
    run = submitted(world, "a")
    answer = world.http().post(f"/v1/runs/{run}/cancel", json={"reason": "enough"})
    assert answer.status_code == 202
    world.http().post(f"/v1/runs/{run}/cancel", json={"reason": "all", "cleanup": False})
    asked = [(entry.kind, entry.body) for entry in world.store.inbox(0)]
    assert asked == [("submitted", b""), ("cancel", b"enough"), ("cancel_all", b"all")]


def test_cancel_takes_an_empty_body_and_refuses_unknown_keys(world):
    run = submitted(world, "a")
    assert world.http().post(f"/v1/runs/{run}/cancel").status_code == 202
    wrong = world.http().post(f"/v1/runs/{run}/cancel", json={"raeson": "x"})
    assert (wrong.status_code, wrong.json()["problems"][0]["place"]) == (400, "/raeson")


# -- durability, limits, idempotency -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "default", "reaches", "confirms", "reached"),
    [
        pytest.param(None, "D0", "D1", "D1", "D0", id="the default asks for the least"),
        pytest.param("D1", "D0", "D1", "D1", "D1", id="a requested level is reached"),
        pytest.param(None, "D1", "D1", "D1", "D1", id="the root's level is reached"),
        pytest.param(None, "D1", "D0", "D0", "D0", id="the root's level cannot be reached"),
        pytest.param("D1", "D0", "D1", "D0", "D0", id="the disk timed out"),
    ],
)
def test_the_answer_names_the_level_that_was_reached(asked, default, reaches, confirms, reached):
    durable = MemoryDurability(Durability(reaches), Durability(confirms))
    http = GatewayWorld(durable=durable, durability=Durability(default)).http()
    query = f"?durability={asked}" if asked else ""
    answer = http.post(f"/v1/runs{query}", json=spec_of("a"))
    assert (answer.status_code, answer.json()["durability"]) == (202, reached)


@pytest.mark.parametrize("asked", ["D1", "D2"])
def test_unreachable_durability_is_refused_and_stores_nothing(world, asked):
    answer = world.http().post(f"/v1/runs?durability={asked}", json=spec_of("a"))
    assert (answer.status_code, code_of(answer)) == (422, "durability_unreachable")
    assert world.runs.list(ACME) == ()


def test_unknown_parameter_is_refused_with_the_nearest_one(world):
    answer = world.http().get("/v1/runs?tenent=acme&limit=1")
    assert (answer.status_code, code_of(answer)) == (422, "invalid_parameters")
    assert answer.json()["problems"] == [{"place": "query/tenent", "problem": "there is no such parameter; did you mean tenant?"}]
    (problem,) = world.http().get("/v1/tenants?color=red").json()["problems"]
    assert problem["problem"] == "there is no such parameter; known parameters: none"
    assert world.http().get("/v1/runs?limit=1").status_code == 200


def test_runs_of_one_state_are_listed_without_the_others(world):
    run = submitted(world, "a")
    ids = {state: [found["id"] for found in world.http().get(f"/v1/runs?state={state}").json()["runs"]] for state in ("PENDING", "FAILED")}
    assert ids == {"PENDING": [run], "FAILED": []}
    assert world.http().get("/v1/runs?state=ENDED").status_code == 422


def test_run_list_of_an_unknown_tenant_is_refused(world):
    answer = world.http().get(f"/v1/runs?tenant={RESEARCH}/nobody")
    assert (answer.status_code, code_of(answer)) == (403, "forbidden")
    empty = world.http().get(f"/v1/runs?tenant={RESEARCH}")
    assert (empty.status_code, empty.json()["runs"]) == (200, [])


def test_too_much_that_is_open_is_429_with_a_time_to_come_again():
    world = GatewayWorld(limits=BacklogLimits(runs_max=1))
    submitted(world, "a")
    answer = world.http().post("/v1/runs", json=spec_of("a"))
    assert (answer.status_code, code_of(answer), answer.headers["retry-after"]) == (429, "backlog_full", "5")
    with pytest.raises(BacklogFull) as full:
        world.client().submit_spec(spec_of("a"))
    assert full.value.retry_after_ms == 5_000


def test_a_resumption_meets_the_limits_of_a_submission():
    world = GatewayWorld(limits=BacklogLimits(runs_max=1))
    first = submitted(world, "a", wait_for_capacity=True)
    world.runs.request_cancel(RunId(first), "")
    world.coordinator().step(0)
    second = submitted(world, "b", wait_for_capacity=True)
    answer = world.http().post(f"/v1/runs/{first}/resume")
    assert (answer.status_code, code_of(answer), answer.headers["retry-after"]) == (429, "backlog_full", "5")
    world.runs.request_cancel(RunId(second), "")
    world.coordinator().step(0)
    assert world.http().post(f"/v1/runs/{first}/resume").status_code == 202


def test_dry_run_and_submit_name_the_same_limit():
    world = GatewayWorld(limits=BacklogLimits(runs_max=1))
    submitted(world, "a")
    answers = [world.http().post(path, json=spec_of("a")) for path in ("/v1/runs", "/v1/plan")]
    assert [(answer.status_code, code_of(answer)) for answer in answers] == [(429, "backlog_full")] * 2
    assert {answer.json()["detail"] for answer in answers} == {
        f"{str(ACME).partition('/')[0]} has 1 open run, which is its limit (dispatch.runs_max: 1); retry when some have ended"
    }


def test_a_full_store_is_503_for_submissions_and_nothing_else(world):
    run = submitted(world, "a")
    world.memory_percent = 81
    answer = world.http().post("/v1/runs", json=spec_of("a"))
    assert (answer.status_code, code_of(answer), answer.headers["retry-after"]) == (503, "store_full", "5")
    assert world.http().post(f"/v1/runs/{run}/cancel").status_code == 202
    world.succeed(run, {"a": 1})
    assert world.http().get(f"/v1/runs/{run}/result").status_code == 200


@pytest.mark.parametrize("ids", [{}, {"id": "night"}], ids=["named by the key", "with an id of its own"])
def test_another_body_under_the_same_key_is_a_named_conflict(world, ids):
    http, headers = world.http(), {"Idempotency-Key": "order-7"}
    http.post("/v1/runs", json=spec_of("a", **ids), headers=headers)
    for other in (spec_of("a", "b", **ids), spec_of("a", id="another")):
        answer = http.post("/v1/runs", json=other, headers=headers)
        assert (answer.status_code, code_of(answer)) == (409, "key_conflict")
    assert len(world.runs.list(ACME)) == 1


def test_a_python_client_repeats_a_submission_under_its_key(world):
    first = world.client().submit_spec(spec_of("a"), idempotency_key="order-7")
    assert world.client().submit_spec(spec_of("a"), idempotency_key="order-7").id == first.id
    with pytest.raises(KeyConflict):
        world.client().submit_spec(spec_of("a", "b"), idempotency_key="order-7")
    assert world.record(first.id).key == "order-7"
