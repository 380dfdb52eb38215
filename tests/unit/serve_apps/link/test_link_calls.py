"""Decoding of a mesh's calls: exactly the verb's fields, within limits, for the mesh itself only."""

import json
from dataclasses import replace

import pytest

from federation.dispatch import Claim
from federation.errors import BatchTooLarge
from federation.leases import HeartbeatReport, Lease, LeaseAck, QuotaDemand, Session
from federation.link import (
    ACQUIRE,
    APPEND_OUTPUT,
    CLAIM,
    HEARTBEAT,
    JOIN,
    LONG_TEXTS,
    NOTIFICATIONS,
    QUEUED,
    RELEASE,
    REMEMBERED,
    REPORT,
    TEXT_MAX,
    VERBS,
    Acquire,
    AppendOutput,
    AwaitNotifications,
    ClaimStage,
    Heartbeat,
    Join,
    Queued,
    Release,
    Remembered,
    Report,
)
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.report_parts import PART_TASKS
from mesh.core.ids import FlavorName, MeshId, NodeId, PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import AMOUNT_MAX, ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.core.wire import encode
from mesh.ray.worker.execution import class_name
from mesh.stages.messages import OUTPUT_CHARS_MAX, OUTPUT_LINES_MAX, Failure, NodeFailed, NodeOutput, NodesSucceeded, StageLost
from serve_apps.link.calls import read_call
from serve_apps.requests.errors import MalformedBody, MalformedCall, WrongMesh

EAST, WEST = MeshId("east"), MeshId("west")
CPU = FlavorName("cpu")
ONE = ResourceSet.of({"cpu": 1})
POOL = PoolRecord(pool=PoolName("general"), flavor=CPU, capacity=ONE, groups=GroupPoolSpec(reserved=(GroupShape((ONE,)),)))
RECORD = MeshRecord(mesh=EAST, labels={"mesh": "the word is free"}, pools=(POOL,), cluster="c")
SESSION = Session(mesh=EAST, incarnation=5, ttl_ms=1_000, epoch=1, ledger="l")
DEMAND = QuotaDemand(tenant=TenantPath("acme"), flavor=CPU, slot=ONE)
LEASE = Lease(tenant=TenantPath("acme"), mesh=EAST, flavor=CPU, held=ONE, target=ONE, token=7, version=8)
CLAIMED = Claim(stage=StageId("s"), mesh=EAST, incarnation=5, token=9)
HEARTBEAT_REPORT = HeartbeatReport(
    number=1, acks=(LeaseAck(tenant=TenantPath("acme"), flavor=CPU, version=8, amounts=ONE),), demands=(DEMAND,), claims=(LEASE,)
)
FAILED = NodeFailed(
    stage=StageId("s"), node="n", attempt=1, started_ms=1, finished_ms=2,
    failure=Failure(reason=Reason.USER_ERROR, type_name="ValueError", message="m" * 40_000, traceback="t" * 40_000),
)  # fmt: skip
ENDS = NodesSucceeded(
    stage=StageId("s"), tasks=tuple(range(PART_TASKS)), since_ms=1, started=(0,) * PART_TASKS, took=(1,) * PART_TASKS, workers=("h:1",)
)

PRINTED = NodeOutput(
    stage=StageId("s"),
    node=NodeId("n"),
    attempt=1,
    number=3,
    at_ms=2,
    stream="stderr",
    lines=("\x1b[31m\u202e\t", "ü" * OUTPUT_CHARS_MAX, *[""] * (OUTPUT_LINES_MAX - 2)),
)
SAID = [
    (JOIN, Join(record=RECORD, seen=3)),
    (HEARTBEAT, Heartbeat(session=SESSION, record=RECORD, heartbeat_report=HEARTBEAT_REPORT)),
    (ACQUIRE, Acquire(session=SESSION, demands=(DEMAND, replace(DEMAND, slots=0)))),
    (CLAIM, ClaimStage(session=SESSION, stage=StageId("s"), lease=LEASE)),
    (CLAIM, ClaimStage(session=SESSION, stage=StageId("s"), lease=None)),
    (REPORT, Report(claim=CLAIMED, batch=1, messages=(FAILED,))),
    (REPORT, Report(claim=CLAIMED, batch=2, messages=(ENDS,))),
    (APPEND_OUTPUT, AppendOutput(claim=CLAIMED, batch=1, output=(PRINTED,))),
    (QUEUED, Queued(mesh=EAST)),
    (REMEMBERED, Remembered(mesh=EAST, stages=(StageId("s"),))),
]


@pytest.mark.parametrize(("verb", "asked"), SAID, ids=[verb.name for verb, _ in SAID])
def test_call_is_decoded_as_it_was_encoded(verb, asked):
    assert read_call(verb, encode(asked), EAST) == asked


def test_error_report_is_read_whatever_its_classes():
    base = type("Base", (Exception,), {"__qualname__": "a|b\n\x1b[31m" + "B" * 5_000})
    error = type("Own", (base,), {"__qualname__": "c\td" + "O" * 5_000})
    failure = replace(FAILED.failure, type_name=class_name(error), bases=(class_name(base), "builtins.Exception"))
    assert len(failure.bases[0]) == LONG_TEXTS["bases"]
    asked = Report(claim=CLAIMED, batch=1, messages=(replace(FAILED, failure=failure),))
    assert read_call(REPORT, encode(asked), EAST) == asked


def test_every_verb_has_one_name_and_a_port_or_none_at_all():
    assert len({verb.name for verb in VERBS}) == len(VERBS)
    assert {verb.port for verb in VERBS} == {"", "ledger", "queue", "registry", "run_log"}
    root_only = {"configure", "reparent", "sweep", "elect", "plan_apply", "revoke", "snapshot", "audit", "history"}
    root_only |= {"submit", "waiting", "deliver", "cancel", "forget", "notify", "inbox", "acknowledge"}
    root_only |= {"drain", "undrain", "note", "conditions", "publish_settings"}
    assert not root_only & {verb.method for verb in VERBS}


@pytest.mark.parametrize(
    ("verb", "asked"),
    [
        pytest.param(JOIN, Join(record=replace(RECORD, mesh=WEST)), id="in its record"),
        pytest.param(
            HEARTBEAT, Heartbeat(session=replace(SESSION, mesh=WEST), record=RECORD, heartbeat_report=HEARTBEAT_REPORT), id="in its session"
        ),
        pytest.param(
            HEARTBEAT,
            Heartbeat(session=SESSION, record=replace(RECORD, mesh=WEST), heartbeat_report=HEARTBEAT_REPORT),
            id="in the record of a heartbeat",
        ),
        pytest.param(
            HEARTBEAT,
            Heartbeat(
                session=SESSION, record=RECORD, heartbeat_report=replace(HEARTBEAT_REPORT, claims=(LEASE, replace(LEASE, mesh=WEST)))
            ),
            id="in one of its leases",
        ),
        pytest.param(CLAIM, ClaimStage(session=SESSION, stage=StageId("s"), lease=replace(LEASE, mesh=WEST)), id="in the lease that pays"),
        pytest.param(REPORT, Report(claim=replace(CLAIMED, mesh=WEST), batch=1, messages=()), id="in a claim"),
        pytest.param(
            REPORT,
            Report(
                claim=CLAIMED, batch=1, messages=(StageLost(stage=StageId("s"), mesh=WEST, incarnation=1, reason=Reason.LEASE_EXPIRED),)
            ),
            id="in a message",
        ),
        pytest.param(REMEMBERED, Remembered(mesh=WEST, stages=(StageId("s"),)), id="whose stages it asks for"),
        pytest.param(QUEUED, Queued(mesh=WEST), id="whose queue it reads"),
    ],
)
def test_a_mesh_speaks_for_itself_only(verb, asked):
    with pytest.raises(WrongMesh, match="west"):
        read_call(verb, encode(asked), EAST)


def said(**changed: object) -> bytes:
    return json.dumps({**json.loads(encode(Join(record=RECORD))), **changed}).encode()


def recorded(**changed: object) -> bytes:
    return said(record={**json.loads(encode(RECORD)), **changed})


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half a document"),
        pytest.param(b"\xff\xfe{}", id="no text"),
        pytest.param(b'{"seen": ' + b"9" * 5_000 + b"x}", id="an endless number"),
    ],
)
def test_invalid_json_is_reported(body):
    with pytest.raises((MalformedBody, MalformedCall)):
        read_call(JOIN, body, EAST)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"null", id="nothing in JSON"),
        pytest.param(b"[]", id="a list"),
        pytest.param(said(more=1), id="an unknown key"),
        pytest.param(recorded(more=1), id="an unknown nested key"),
        pytest.param(said(seen="3"), id="text where a number belongs"),
        pytest.param(said(seen=True), id="a boolean where a number belongs"),
        pytest.param(said(seen=1.5), id="a fraction"),
        pytest.param(b'{"record": NaN}', id="not a number"),
        pytest.param(b'{"record": -Infinity}', id="infinity"),
        pytest.param(said(seen=AMOUNT_MAX + 1), id="an integer of 2^53"),
        pytest.param(said(seen=-(10**18)), id="a negative one as large"),
        pytest.param(b'{"seen": ' + b"9" * 100_000 + b"}", id="an integer without end"),
        pytest.param(b'{"seen": 1, "seen": 2}', id="a duplicate key"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="endless nesting"),
        pytest.param(said(record=json.loads("[" * 40 + "]" * 40)), id="forty levels"),
        pytest.param(recorded(cluster="c" * (TEXT_MAX + 1)), id="long text"),
        pytest.param(recorded(labels={"k" * (TEXT_MAX + 1): "v"}), id="a long key"),
        pytest.param(recorded(pools=[{**json.loads(encode(POOL)), "capacity": {"cpu": -1}}]), id="a negative amount"),
        pytest.param(said(record=None), id="null where a record belongs"),
    ],
)
def test_unknown_field_is_refused(body):
    with pytest.raises(MalformedCall) as refused:
        read_call(JOIN, body, EAST)
    assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("cursor", ["abc", "+", "$", "1", "1-", "99999999999999999999-1", "1-1\n", "-1-1"])
def test_no_other_cursor_than_one_of_a_mailbox_is_taken(cursor):
    for good in ("", "0-0", "1700000000000-3"):
        assert read_call(NOTIFICATIONS, encode(AwaitNotifications(mesh=EAST, cursor=good, wait_ms=0)), EAST).cursor == good
    with pytest.raises(MalformedCall, match="cursor"):
        read_call(NOTIFICATIONS, encode(AwaitNotifications(mesh=EAST, cursor=cursor, wait_ms=0)), EAST)


def test_no_version_is_negative():
    for verb, asked in (
        (ACQUIRE, Acquire(session=SESSION, demands=(replace(DEMAND, version=-1),))),
        (RELEASE, Release(session=SESSION, parts=(LeaseAck(tenant=TenantPath("acme"), flavor=CPU, version=-1, amounts=ONE),))),
    ):
        with pytest.raises(MalformedCall, match="version"):
            read_call(verb, encode(asked), EAST)


@pytest.mark.parametrize("name", ["a|b", "a\nb", "\x00", "a\u2029b"])
@pytest.mark.parametrize("changed", ["tenant", "flavor", "slot"])
def test_unstorable_names_are_refused_before_any_script(changed, name):
    demand = replace(DEMAND, **{changed: ResourceSet({name: 1}) if changed == "slot" else name})
    for verb, asked in (
        (ACQUIRE, Acquire(session=SESSION, demands=(demand,))),
        (HEARTBEAT, Heartbeat(session=SESSION, record=RECORD, heartbeat_report=replace(HEARTBEAT_REPORT, demands=(demand,)))),
    ):
        with pytest.raises(MalformedCall, match=r"demands\.0|is a control character"):
            read_call(verb, encode(asked), EAST)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(recorded(tenants=["t"] * 1_001), id="a long list"),
        pytest.param(recorded(labels={str(number): "v" for number in range(1_001)}), id="many keys"),
    ],
)
def test_too_many_rows_are_refused_by_name(body):
    with pytest.raises(BatchTooLarge, match="1001"):
        read_call(JOIN, body, EAST)


def test_values_at_the_limits_are_accepted():
    labels = {str(number): "v" * TEXT_MAX for number in range(1_000)}
    asked = Join(record=replace(RECORD, labels=labels, tenants=("t",) * 1_000), seen=AMOUNT_MAX)
    assert read_call(JOIN, encode(asked), EAST) == asked
