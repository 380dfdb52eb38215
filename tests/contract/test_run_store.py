"""Contract of run stores, in memory and on a real Redis."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256

import pytest
import redis
import redis.asyncio
from patience import PATIENCE_S

from dag.backlog import BacklogLimits
from dag.errors import BacklogFull, KeyConflict, RunConflict, StoreFull, UnknownRun
from dag.run.dead_letters import DeadLetter
from dag.run.events import SignalSent
from dag.run.node_facts import PART_ROWS, KeptCheckpoint, TimerKind
from dag.run.node_table import NodeTable
from dag.run.run_events import NodesEnded, NodesMoved, RunEvent, runs_of, singly
from dag.run.runs import (
    CancelStage,
    DeliverInput,
    DropValue,
    ForgetRun,
    RunChange,
    RunPlace,
    RunRecord,
    RunStore,
    SendAgain,
    SendStage,
    SignalAnswer,
    StageRecord,
    StopNode,
)
from dag.run.states import NodeState, RunState, StageState
from dag.store.event_feed import EventFeed, RedisEventFeed
from dag.store.memory import MemoryEventFeed, MemoryRunStore
from dag.store.redis_runs import RedisRunStore
from federation.leases import QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from federation.store.memory.store import MemoryStore
from federation.store.redis.client import connect_async, home_of
from federation.store.redis.fixtures import ANSWER_MS_MAX
from federation.store.redis.keys import Keys
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.ids import FlavorName, MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue, json_value
from mesh.core.wire import decode
from mesh.errors import LedgerError
from mesh.preemption.stage_preemption import NEVER_PREEMPTS
from mesh.stages.messages import Failure, NodeOutput
from mesh.stages.spec import StageSpec, TaskSpec

LAB = TenantPath("acme/lab")
RUN = RunId("digits-1")
EAST = MeshId("east")
BYTES, EMPTY, X, NOWHERE = (sha256(data).hexdigest() for data in (b"\x00\xff", b"", b"x", b"nowhere"))


def a_record(run: str = RUN, *, tenant: str = LAB, created_ms: int = 1000, nodes: int = 3, **fields: object) -> RunRecord:
    names = [NodeId(f"n{number:05}") for number in range(nodes)]
    return RunRecord(
        run=RunId(run),
        tenant=TenantPath(tenant),
        digest="d" * 64,
        spec=b'{"spec": "dag/1", "\xc3\xa9": 1}',
        created_ms=created_ms,
        nodes=NodeTable(names),
        **fields,
    )


def stored(name: str, uri: str | None = None) -> StoredValue:
    return StoredValue(sha256=name * 64, size_bytes=7, encoding=Encoding.PICKLE, uri=uri)


def a_stage(run: str = RUN, number: int = 1) -> StageSpec:
    task = TaskSpec(node=NodeId("n00000"), attempt=1, function="call:m:f", args=(1, {"$ref": "n00001"}), inputs=(NodeId("n00001"),))
    slot = ResourceSet.of({"cpu": 1, "memory": "1GiB"})
    return StageSpec(stage=StageId(f"{run}.{number}"), run=RunId(run), tenant=LAB, tasks=(task,), slot=slot, width=1)


def event(record: RunRecord, after: str, kind: str = "node", **fields: object) -> RunEvent:
    """Return the record's next event; increments `record.seq` as the run machine does."""
    record.seq += 1
    return RunEvent(seq=record.seq, at_ms=5, run=record.run, kind=kind, after=after, **fields)


def end(record: RunRecord, *, at_ms: int, state: RunState = RunState.SUCCEEDED) -> RunChange:
    record.state, record.ended_ms = state, at_ms
    return RunChange(events=(event(record, state.value, kind="run"),))


def add_event(record: RunRecord, after: str = "RUNNING") -> RunChange:
    return RunChange(events=(event(record, after),))


@dataclass(frozen=True, slots=True)
class Kept:
    """Run store and the stores beside it."""

    runs: RunStore
    feed: Callable[[], AbstractAsyncContextManager[EventFeed]]
    client: "redis.Redis | None" = None
    admin: "redis.Redis | None" = None


@pytest.fixture
def kept(store, request) -> Kept:
    if isinstance(store.queue, MemoryStore):
        runs = MemoryRunStore(store.queue)

        @asynccontextmanager
        async def memory_feed() -> AsyncIterator[EventFeed]:
            yield MemoryEventFeed(runs)

        return Kept(runs=runs, feed=memory_feed)
    client, keys = store.client, Keys("contract")

    @asynccontextmanager
    async def redis_feed() -> AsyncIterator[EventFeed]:
        async with connect_async(store.url, timeout_ms=ANSWER_MS_MAX) as watcher:
            yield RedisEventFeed(watcher, keys, patience_s=PATIENCE_S)

    return Kept(runs=RedisRunStore(client, keys), feed=redis_feed, client=client, admin=store.admin)


@pytest.fixture
def runs(kept) -> RunStore:
    return kept.runs


def loaded(runs: RunStore, run: RunId = RUN) -> RunRecord:
    record = runs.load(run)
    assert record is not None
    return record


# ---- create and load


@pytest.mark.every_form
def test_a_run_comes_back_as_it_was_created(runs):
    context = f"00-{'a' * 32}-{'b' * 16}-01"
    record = a_record(detail="Größe, 数", outbox=(CancelStage(stage=StageId("digits-1.1")),), traceparent=context)
    assert runs.create(record, {})
    assert runs.load(RUN) == record


def test_an_unknown_run_is_no_error(runs):
    assert runs.load(RUN) is None
    assert runs.summary(RUN) is None
    assert runs.events(RUN) == ()
    assert runs.commit(a_record(), RunChange()) is False


def test_creation_enters_the_inbox_once_and_keeps_the_blobs(store, runs):
    assert runs.create(a_record(), {BYTES: b"\x00\xff", EMPTY: b""})
    assert runs.create(a_record(), {BYTES: b"\x00\xff", EMPTY: b""}) is False
    assert [(entry.run, entry.kind, entry.body) for entry in store.queue.inbox(0)] == [(RUN, "submitted", b"")]
    assert store.blobs.get(RUN, (BYTES, EMPTY, NOWHERE)) == {BYTES: b"\x00\xff", EMPTY: b""}


def test_repeated_creation_keeps_later_changes(runs):
    record = a_record()
    runs.create(record, {})
    record.state = RunState.RUNNING
    runs.commit(record, add_event(record))
    assert runs.create(a_record(created_ms=2000), {}) is False
    assert runs.load(RUN) == record


@pytest.mark.parametrize("other", [{"digest": "e" * 64}, {"tenant": TenantPath("acme/ops")}], ids=["another graph", "another tenant"])
def test_same_id_with_other_content_is_a_conflict(store, runs, other):
    runs.create(a_record(), {})
    with pytest.raises(RunConflict, match=RUN):
        runs.create(replace(a_record(), **other), {X: b"x"})
    assert runs.load(RUN) == a_record()
    assert store.blobs.get(RUN, (X,)) == {}
    assert len(store.queue.inbox(0)) == 1


def test_returned_records_are_copies(runs):
    runs.create(a_record(), {})
    loaded(runs).nodes[NodeId("n00000")].state = NodeState.FAILED
    assert runs.load(RUN) == a_record()


# ---- commit


@pytest.mark.every_form
def test_commit_writes_all_changed_fields(runs):
    record = a_record()
    runs.create(record, {})
    node, failing = record.nodes[NodeId("n00000")], record.nodes[NodeId("n00001")]
    node.state, node.attempt, node.exported, node.stage, node.mesh, node.incarnation = (
        NodeState.SUCCEEDED,
        3,
        True,
        StageId("digits-1.1"),
        EAST,
        2**52 + 1,
    )
    node.stored, node.started_ms, node.finished_ms, node.waits_since_ms = stored("a", "file:///x"), 2**41, 2**41 + 300, 5
    failing.checkpoint, failing.progress = KeptCheckpoint(attempt=2, number=7, saved_ms=5, stored=stored("c")), 0.25
    failing.state, failing.roots, failing.reason, failing.detail = NodeState.SKIPPED, (NodeId("n00002"),), Reason.USER_ERROR, "wörds"
    failing.retries_used, failing.losses, failing.kills, failing.timers = 1, 2, 3, {TimerKind.RETRY: 2**41}
    failing.failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="nein", traceback="…", pickled=stored("b"))
    stage = StageRecord(
        stage=StageId("digits-1.1"), mesh=EAST, level=0, nodes=(node.node,), state=StageState.RUNNING, delivered=(node.node,)
    )
    record.stages[stage.stage] = stage
    record.state, record.reason, record.detail, record.last_entry = RunState.RUNNING, Reason.CANCELLED_BY_USER, "why", "17-3"
    record.outbox = (
        SendAgain(stage=stage.stage, preemption=NEVER_PREEMPTS),
        DeliverInput(stage=stage.stage, node=node.node, value=stored("a")),
        StopNode(stage=stage.stage, node=node.node),
        DeliverInput(stage=stage.stage, node=failing.node, value=None),
        CancelStage(stage=stage.stage),
        DropValue(value=stored("d", "file:///d")),
        ForgetRun(meshes=(EAST,), uris=("file:///x",), keep=(X,)),
    )
    events = (event(record, "RUNNING", kind="run"),)
    change = RunChange(nodes=record.nodes.take_changes(), stages=(stage,), events=events, expected_ms={"call:m:f": 250})
    assert runs.commit(record, change)
    assert record.version == 1
    assert runs.load(RUN) == replace(record, expected_ms={"call:m:f": 250})


def test_one_of_two_concurrent_commits_wins_alone(runs):
    runs.create(a_record(), {})
    winner, loser = loaded(runs), loaded(runs)
    assert runs.commit(winner, add_event(winner, "RUNNING"))
    node = loser.nodes[NodeId("n00000")]
    node.state = NodeState.FAILED
    stage = StageRecord(stage=StageId("digits-1.1"), mesh=EAST, level=0, nodes=(node.node,))
    lost = replace(end(loser, at_ms=9), nodes=loser.nodes.take_changes(), stages=(stage,))
    assert runs.commit(loser, lost) is False
    assert loser.version == 0
    assert runs.load(RUN) == winner
    assert [event.after for event in runs.events(RUN)] == ["RUNNING"]
    assert runs.active() == (RUN,)
    assert runs.retire(10_000) == ()


def test_run_is_reloaded_and_continues_after_a_conflict(runs):
    runs.create(a_record(), {})
    first, second = loaded(runs), loaded(runs)
    assert runs.commit(first, add_event(first))
    assert runs.commit(second, add_event(second)) is False
    again = loaded(runs)
    assert runs.commit(again, add_event(again))
    assert [event.seq for event in runs.events(RUN)] == [1, 2]


@pytest.mark.parametrize(
    ("counted", "numbers"), [(2, [2]), (2, [1, 3]), (3, [1, 2]), (1, [2]), (0, [1])], ids=lambda value: f"{value}".replace(" ", "")
)
def test_events_with_a_gap_in_their_numbers_are_refused_whole(runs, counted, numbers):
    runs.create(a_record(), {})
    record = loaded(runs)
    record.state, record.seq = RunState.RUNNING, counted
    events = tuple(RunEvent(seq=number, at_ms=1, run=RUN, kind="run", after="RUNNING") for number in numbers)
    with pytest.raises(LedgerError, match=RUN):
        runs.commit(record, RunChange(events=events))
    assert runs.load(RUN) == a_record()
    assert runs.events(RUN) == ()


def test_the_outbox_holds_a_stage_by_its_name(runs):
    record = a_record()
    runs.create(record, {})
    record.outbox = (SendStage(mesh=EAST, spec=a_stage()),)
    runs.commit(record, RunChange())
    assert loaded(runs).outbox == (SendAgain(stage=a_stage().stage, preemption=NEVER_PREEMPTS),)
    record.outbox = ()
    runs.commit(record, RunChange())
    assert loaded(runs).outbox == ()


def test_nodes_keep_their_order_and_stages_are_by_creation(runs):
    record = a_record(nodes=200)
    record.nodes = NodeTable(reversed(record.nodes.names))
    runs.create(record, {})
    stages = [StageRecord(stage=StageId(f"{RUN}.{number}"), mesh=EAST, level=0, nodes=()) for number in range(1, 201)]
    record.stages = {stage.stage: stage for stage in stages}
    runs.commit(record, RunChange(stages=tuple(stages)))
    assert list(loaded(runs).nodes) == list(record.nodes)
    assert list(loaded(runs).stages) == [stage.stage for stage in stages]


def test_thousands_of_nodes_and_events_go_in_one_commit(runs):
    record = a_record(nodes=9000)
    assert runs.create(record, {f"h{number}": b"x" for number in range(5000)})
    for node in record.nodes.values():
        node.state = NodeState.SUCCEEDED
    events = tuple(event(record, "SUCCEEDED", node=name) for name in record.nodes)
    assert runs.commit(record, RunChange(nodes=record.nodes.take_changes(), events=events))
    assert runs.load(RUN) == record
    assert len(runs.events(RUN, limit=10_000)) == 9000
    summary = runs.summary(RUN)
    assert summary is not None
    assert summary.counts == {"SUCCEEDED": 9000}


@pytest.mark.every_form
def test_few_changed_nodes_of_many_are_stored(runs):
    record = a_record(nodes=3 * PART_ROWS + 5)
    runs.create(record, {})
    for row in (0, PART_ROWS - 1, 2 * PART_ROWS, 3 * PART_ROWS + 4):
        node = record.nodes.at(row)
        node.state, node.finished_ms, node.stored = NodeState.SUCCEEDED, 10 ** row.bit_length(), stored("a")
    assert runs.commit(record, RunChange(nodes=record.nodes.take_changes()))
    assert runs.load(RUN) == record
    record.nodes.at(0).stored = None
    record.nodes.at(1).detail = "why"
    assert runs.commit(record, RunChange(nodes=record.nodes.take_changes()))
    assert runs.load(RUN) == record


def test_reasons_that_no_node_has_any_more_are_dropped(runs):
    record = a_record()
    runs.create(record, {})
    for number in range(1_000):
        record.nodes.at(number % 3).detail = f"why {number}"
        assert runs.commit(record, RunChange(nodes=record.nodes.take_changes()))
    assert runs.load(RUN) == record
    assert len(loaded(runs).nodes.words) < 200


# ---- summaries, lists, events


def test_a_summary_counts_nodes_by_state(runs):
    record = a_record()
    runs.create(record, {})
    record.nodes[NodeId("n00001")].state = NodeState.FAILED
    record.reason, record.detail = Reason.USER_ERROR, "n00001: ValueError: nein"
    runs.commit(record, replace(end(record, at_ms=77, state=RunState.FAILED), nodes=record.nodes.take_changes()))
    summary = runs.summary(RUN)
    assert summary is not None
    assert (summary.run, summary.tenant, summary.state, summary.created_ms, summary.ended_ms) == (RUN, LAB, RunState.FAILED, 1000, 77)
    assert (summary.reason, summary.detail) == (Reason.USER_ERROR, "n00001: ValueError: nein")
    assert summary.counts == {"WAITING": 2, "FAILED": 1}


def test_tenant_lists_runs_of_its_subtree_newest_first(runs):
    for run, tenant, created_ms in [
        ("r1", "acme", 1),
        ("r2", "acme/lab", 3),
        ("r3", "acme/lab/nlp", 2),
        ("r4", "acme/laboratory", 9),
        ("r5", "other", 9),
        ("r6", "acme/lab", 3),
    ]:
        runs.create(a_record(run, tenant=tenant, created_ms=created_ms), {})
    assert [summary.run for summary in runs.list(LAB)] == ["r6", "r2", "r3"]
    assert [summary.run for summary in runs.list(TenantPath("acme"))] == ["r4", "r6", "r2", "r3", "r1"]
    assert [summary.run for summary in runs.list(TenantPath("acme"), limit=2)] == ["r4", "r6"]
    assert runs.list(TenantPath("acme"), limit=0) == ()
    assert runs.list(TenantPath("nobody")) == ()
    assert runs.list(LAB)[0] == runs.summary(RunId("r6"))


@pytest.mark.every_form
def test_a_list_goes_on_below_a_place(runs):
    for number, created_ms in enumerate([5, 5, 5, 3, 9, 5]):
        runs.create(a_record(f"r{number}", created_ms=created_ms, labels={"odd": str(number % 2)}), {})
    whole = [summary.run for summary in runs.list(LAB)]
    assert whole == ["r4", "r5", "r2", "r1", "r0", "r3"]
    for summary in runs.list(LAB):
        rest = whole[whole.index(summary.run) + 1 :]
        assert [found.run for found in runs.list(LAB, below=summary.place)] == rest
        assert [found.run for found in runs.list(LAB, 1, below=summary.place)] == rest[:1]
    assert [found.run for found in runs.list(LAB, below=RunPlace(5, ""))] == ["r3"]
    assert [found.run for found in runs.list(LAB, labels={"odd": "1"}, below=RunPlace(5, "r5"))] == ["r1", "r3"]
    assert [found and found.run for found in runs.summaries([RunId("r1"), RunId("no"), RunId("r0")])] == ["r1", None, "r0"]


def test_a_summary_names_the_meshes_of_all_stages(runs):
    record = a_record()
    runs.create(record, {})
    for name in ("west", "east"):
        stage = StageRecord(stage=StageId(f"{RUN}.{name}"), mesh=MeshId(name), level=0, nodes=())
        record.stages[stage.stage] = stage
        assert runs.commit(record, RunChange(stages=(stage,)))
    assert runs.commit(record, add_event(record))
    assert runs.summary(RUN).meshes == ("east", "west")


@pytest.mark.every_form
def test_runs_are_listed_by_their_labels(runs):
    for number, labels in enumerate([{"team": "ads"}, {"team": "ads", "kind": "a=b|c"}, {"team": "ops"}, {}]):
        runs.create(a_record(f"r{number}", created_ms=number, labels=labels), {})

    def found(**labels):
        return [summary.run for summary in runs.list(TenantPath("acme"), labels=labels)]

    assert (found(team="ads"), found(team="ops"), found(team="x")) == (["r1", "r0"], ["r2"], [])
    assert (found(team="ads", kind="a=b|c"), found(kind="a=b|c", team="ops"), len(found())) == (["r1"], [], 4)
    assert runs.list(TenantPath("acme"), 1, {"team": "ads"})[0].labels == {"team": "ads", "kind": "a=b|c"}
    assert runs.load(RunId("r1")).labels == {"team": "ads", "kind": "a=b|c"}
    record = loaded(runs, RunId("r1"))
    runs.commit(record, end(record, at_ms=5))
    runs.settle(record.run)
    runs.retire(1000)
    assert (found(team="ads"), found(kind="a=b|c")) == (["r0"], [])


def test_a_run_is_active_until_it_has_ended_and_was_settled(runs):
    for run in ("b", "a"):
        runs.create(a_record(run), {})
    assert runs.active() == ("a", "b")
    record = loaded(runs, RunId("a"))
    runs.commit(record, end(record, at_ms=5))
    assert runs.active() == ("a", "b")
    assert runs.settle(RunId("a"))
    assert not runs.settle(RunId("a"))
    assert runs.active() == ("b",)


def test_events_are_read_on_from_any_number(runs):
    record = a_record()
    runs.create(record, {})
    written = []
    for _ in range(3):
        change = RunChange(events=(event(record, "RUNNING", node=NodeId("n00000"), mesh=EAST, reason=Reason.LOCALITY), event(record, "X")))
        written.extend(change.events)
        runs.commit(record, change)
    assert runs.events(RUN) == tuple(written)
    assert runs.events(RUN, after=4) == tuple(written[4:])
    assert runs.events(RUN, after=1, limit=2) == tuple(written[1:3])
    assert runs.events(RUN, after=6) == runs.events(RUN, after=99) == runs.events(RUN, limit=0) == ()


@pytest.mark.every_form
def test_events_of_many_nodes_are_read_on_from_any_number(runs):
    record = a_record(nodes=5)
    runs.create(record, {})
    of_stage = {"stage": StageId(f"{RUN}.1"), "mesh": EAST, "cluster": "c"}
    ended = {"since_ms": 100, "workers": ("h:1", "h:2"), **of_stage}
    logged = (
        RunEvent(seq=1, at_ms=5, run=RUN, kind="run", after="RUNNING"),
        NodesMoved(seq=2, at_ms=6, run=RUN, rows=runs_of([0, 1, 2, 4]), before="WAITING", after="ASSIGNED", **of_stage),
        NodesEnded(seq=6, run=RUN, rows=runs_of([2, 0, 1]), started=(1, 2, 3), took=(4, 5, 6), worker=(1, 0, 1), **ended),
        NodesEnded(seq=12, run=RUN, rows=runs_of([4]), attempts=(2,), started=(9,), took=(0,), with_starts=False, **ended),
    )
    for events in (logged[:3], logged[3:]):
        record.seq = events[-1].last
        assert runs.commit(record, RunChange(events=events))
    written = tuple(singly(logged, record.nodes.names))
    assert [(each.seq, each.node, each.after, each.at_ms, each.detail) for each in written[5:8]] == [
        (6, "n00002", "RUNNING", 101, ""),
        (7, "n00002", "SUCCEEDED", 105, "h:2"),
        (8, "n00000", "RUNNING", 102, ""),
    ]
    assert (written[-1].seq, written[-1].attempt, written[-1].before) == (12, 2, "RUNNING")
    for after in range(14):
        assert runs.events(RUN, after) == written[after:]
        assert runs.events(RUN, after, limit=2) == written[after : after + 2]


# ---- cancel


def test_a_cancel_goes_to_the_inbox_with_its_reason(store, runs):
    runs.create(a_record(), {})
    runs.request_cancel(RUN, "zu teuer")
    runs.request_cancel(RUN, "all", also_cleanup=True)
    asked = [(entry.run, entry.kind, entry.body) for entry in store.queue.inbox(0)][1:]
    assert asked == [(RUN, "cancel", b"zu teuer"), (RUN, "cancel_all", b"all")]


def test_a_cancel_of_an_unknown_run_says_so(store, runs):
    with pytest.raises(UnknownRun, match="digits-1"):
        runs.request_cancel(RUN, "x")
    assert store.queue.inbox(0) == ()


def test_a_cancel_of_an_ended_run_is_harmless(store, runs):
    record = a_record()
    runs.create(record, {})
    runs.commit(record, end(record, at_ms=5))
    runs.request_cancel(RUN, "x")
    assert [entry.kind for entry in store.queue.inbox(0)] == ["submitted"]


# ---- resume


def failed_run(runs: RunStore, *, forget_ms: int = 0) -> RunRecord:
    """Return an ended run with a dead letter whose values are kept until `forget_ms`."""
    record = a_record()
    runs.create(record, {})
    record.forget_ms, record.forgotten = forget_ms, not forget_ms
    runs.commit(record, replace(end(record, at_ms=5, state=RunState.FAILED), dead=(a_letter("n00000"),)))
    return record


def resumed(record: RunRecord) -> RunChange:
    record.state, record.ended_ms, record.forget_ms, record.forgotten, record.resumed_ms = RunState.RUNNING, 0, 0, False, 9
    return add_event(record)


@pytest.mark.every_form
def test_a_resumed_run_is_active_again_without_its_letters(store, runs):
    record = failed_run(runs, forget_ms=100)
    runs.settle(RUN)
    assert store.queue.forget(RUN, (), version=record.version)
    assert runs.commit(record, resumed(record))
    assert (runs.active(), runs.dead(), runs.to_forget(1000)) == ((RUN,), (), ())
    assert [entry.kind for entry in store.queue.inbox(0)] == ["submitted", "resumed"]
    assert runs.load(RUN) == record
    assert store.queue.submit(EAST, a_stage(RUN))
    assert not runs.settle(RUN)
    assert runs.retire(1000) == ()


def test_a_run_whose_end_is_carried_out_is_not_resumed(runs):
    record = failed_run(runs)
    assert not runs.commit(record, resumed(record))
    assert loaded(runs).state is RunState.FAILED
    runs.settle(RUN)
    record = loaded(runs)
    assert runs.commit(record, resumed(record))


def test_values_that_were_kept_are_due_once(runs):
    record = failed_run(runs, forget_ms=100)
    runs.settle(RUN)
    assert (runs.to_forget(99), runs.to_forget(100)) == ((), (RUN,))
    record.forgotten = True
    assert runs.commit(record, add_event(record))
    assert runs.to_forget(100) == (RUN,)
    again = loaded(runs)
    assert not runs.commit(again, resumed(again))
    runs.note_forgotten(RUN)
    assert runs.to_forget(100) == ()
    again = loaded(runs)
    assert runs.commit(again, resumed(again))


@pytest.mark.every_form
def test_a_run_that_is_being_removed_is_not_resumed(runs):
    record = failed_run(runs)
    runs.settle(RUN)
    early = loaded(runs)
    record.is_removing = True
    assert runs.commit(record, RunChange())
    assert loaded(runs).is_removing
    late = loaded(runs)
    for known in (early, late):
        assert not runs.commit(known, resumed(known))
    assert loaded(runs) == record
    assert runs.remove(RUN)


# ---- forget


@pytest.mark.every_form
def test_a_run_is_forgotten_only_as_the_caller_knows_it(store, runs):
    record = failed_run(runs)
    runs.settle(RUN)
    known = record.version
    assert runs.commit(record, resumed(record))
    store.blobs.put(RUN, X, b"x")
    assert store.queue.submit(EAST, a_stage(RUN))
    for version in (None, known, record.version + 1):
        assert not store.queue.forget(RUN, (EAST,), keep=(), version=version)
    assert (len(store.queue.waiting(EAST)), store.blobs.get(RUN, (X,))) == (1, {X: b"x"})
    assert store.queue.forget(RUN, (EAST,), keep=(), version=record.version)
    assert (store.queue.waiting(EAST), store.blobs.get(RUN, (X,))) == ((), {})


def test_forget_keeps_the_named_blobs_of_that_run_alone(store):
    blobs = {sha256(data).hexdigest(): data for data in (b"x", b"y", b"z")}
    first, *_ = names = tuple(blobs)
    for run in (RUN, RunId("other")):
        for name, data in blobs.items():
            store.blobs.put(run, name, data)
    assert store.queue.forget(RUN, (), keep=(first, "nobody's"))
    assert set(store.blobs.get(RUN, names)) == {first}
    assert store.blobs.get(RunId("other"), names) == blobs
    assert store.queue.forget(RUN, ())
    assert set(store.blobs.get(RUN, names)) == {first}


# ---- signals


def test_a_signal_goes_to_the_inbox_and_its_value_stays(store, runs):
    runs.create(a_record(), {})
    signal = SignalSent(name="approve", value=json_value(b"true"))
    assert runs.send_signal(RUN, signal, b"true") is SignalAnswer.SENT
    (_, entry) = store.queue.inbox(0)
    assert (entry.run, entry.kind, decode(SignalSent, entry.body)) == (RUN, "signal", signal)
    assert store.blobs.get(RUN, (signal.value.sha256,)) == {signal.value.sha256: b"true"}


@pytest.mark.every_form
def test_the_first_value_of_a_signal_counts(store, runs):
    runs.create(a_record(), {})
    yes, no = (SignalSent(name="approve", value=json_value(data)) for data in (b"true", b"false"))
    other = replace(no, name="publish")
    answers = [runs.send_signal(RUN, *sent) for sent in ((yes, b"true"), (no, b"false"), (yes, b"true"), (other, b"false"))]
    assert answers == [SignalAnswer.SENT, SignalAnswer.CONFLICT, SignalAnswer.REPEATED, SignalAnswer.SENT]
    assert [decode(SignalSent, entry.body) for entry in store.queue.inbox(0)[1:]] == [yes, yes, other]


def test_threads_with_two_values_agree_on_one(runs):
    runs.create(a_record(), {})
    values = [b"%d" % number for number in range(8)]
    with ThreadPoolExecutor(len(values)) as threads:
        answers = list(threads.map(lambda data: runs.send_signal(RUN, SignalSent(name="approve", value=json_value(data)), data), values))
    assert Counter(answers) == {SignalAnswer.SENT: 1, SignalAnswer.CONFLICT: 7}


@pytest.mark.every_form
def test_a_resumed_run_takes_a_signal_anew(runs):
    record = a_record()
    runs.create(record, {})
    signals = [SignalSent(name="approve", value=json_value(data)) for data in (b"1", b"2")]
    assert runs.send_signal(RUN, signals[0], b"1") is SignalAnswer.SENT
    runs.commit(record, end(record, at_ms=5, state=RunState.FAILED))
    runs.settle(RUN)
    assert runs.commit(record, resumed(record))
    assert runs.send_signal(RUN, signals[1], b"2") is SignalAnswer.SENT


def test_a_signal_of_an_unknown_run_says_so(runs):
    with pytest.raises(UnknownRun, match="digits-1"):
        runs.send_signal(RUN, SignalSent(name="approve", value=json_value(b"1")), b"1")


def test_a_signal_of_an_ended_run_has_no_effect(store, runs):
    record = a_record()
    runs.create(record, {})
    runs.commit(record, end(record, at_ms=5))
    signal = SignalSent(name="approve", value=json_value(b"1"))
    assert runs.send_signal(RUN, signal, b"1") is SignalAnswer.ENDED
    assert [entry.kind for entry in store.queue.inbox(0)] == ["submitted"]
    assert store.blobs.get(RUN, (signal.value.sha256,)) == {}


# ---- retire


def an_ended_run(store, runs, run: str, ended_ms: int, tenant: str = LAB) -> None:
    """Ended run with stages, inputs, blobs, values in files and events that nothing has cleaned up."""
    record = a_record(run, tenant=tenant, created_ms=ended_ms - 1)
    runs.create(record, {X: b"x"})
    node, failing = list(record.nodes.values())[:2]
    node.stored = stored("a", f"file:///{run}/a")
    failing.failure = Failure(
        reason=Reason.USER_ERROR, type_name="ValueError", message="", pickled=stored("b", f"file:///{run}/b")
    )  # A pickled exception too large for the store.
    stage = StageRecord(stage=StageId(f"{run}.1"), mesh=EAST, level=0, nodes=(node.node,))
    record.stages[stage.stage] = stage
    store.queue.submit(EAST, a_stage(run))
    store.queue.deliver(stage.stage, node.node, stored("a"))
    runs.commit(record, replace(end(record, at_ms=ended_ms), nodes=record.nodes.take_changes(), stages=(stage,)))
    runs.settle(record.run)


@pytest.mark.every_form
def test_a_retired_run_leaves_nothing_and_names_its_files(store, kept):
    runs = kept.runs
    an_ended_run(store, runs, "before", 100)
    runs.retire(1000)
    store.queue.acknowledge(tuple(entry.entry for entry in store.queue.inbox(0)))
    before = set(kept.admin.keys("*")) if kept.client else set()
    an_ended_run(store, runs, RUN, 100, tenant="acme/lab/nlp")
    store.queue.acknowledge(tuple(entry.entry for entry in store.queue.inbox(0)))
    assert sorted(runs.retire(101)) == [(RUN, f"file:///{RUN}/a"), (RUN, f"file:///{RUN}/b")]
    assert (runs.load(RUN), runs.summary(RUN), runs.events(RUN), runs.list(TenantPath("acme"))) == (None, None, (), ())
    assert store.blobs.get(RUN, (X,)) == {}
    assert store.queue.waiting(EAST) == ()
    assert store.queue.inputs_of(StageId(f"{RUN}.1")) == {}
    assert (set(kept.admin.keys("*")) if kept.client else set()) == before
    assert runs.retire(101) == ()


def test_a_retired_run_leaves_no_log_and_no_count_of_stages(store, kept):
    flavor, slot = FlavorName("standard"), ResourceSet.of({"cpu": 1})
    store.ledger.configure(TenantTree([Tenant(path=TenantPath(LAB), parent=None, quotas={(flavor, "cpu"): Quota(nominal=10_000)})]))
    east = ManualMesh(store.ledger, MeshRecord(mesh=EAST, labels={}, pools=(), cluster="c"))
    east.acquire(TenantPath(LAB), flavor, slot)
    an_ended_run(store, kept.runs, RUN, 100)
    stage = replace(a_stage(), stage=StageId(f"{RUN}.2"), slot=slot)
    store.queue.submit(EAST, stage)
    claim = store.queue.claim(east.session, stage.stage, east.lease(TenantPath(LAB), flavor)).claim
    printed = NodeOutput(stage=stage.stage, node=NodeId("a"), attempt=1, number=1, at_ms=0, stream="stdout", lines=("one",))
    store.run_log.append(claim, 1, (printed,))
    assert [entry.output for entry in store.run_log.read(RUN)] == [printed]
    store.queue.submit(EAST, replace(stage, stage=StageId(f"{RUN}.3")))
    east.heartbeat(demands=(QuotaDemand(tenant=TenantPath(LAB), flavor=flavor, slot=slot),))
    kept.runs.retire(101)
    snapshot = store.ledger.snapshot()
    assert (store.queue.claims_of(east.session), snapshot.running, snapshot.demands) == ((), (), ())
    assert store.run_log.read(RUN) == ()
    keys = Keys("contract")
    counts = keys.taken(EAST), keys.running(EAST), keys.queued_slots(EAST), keys.demands(EAST), keys.demanding
    counts += keys.run_log(RUN), keys.run_log_use(RUN)
    assert kept.client is None or kept.admin.exists(*counts) == 0


def test_an_ended_run_is_removed_when_it_is_settled(store, runs):
    record = a_record()
    runs.create(record, {BYTES: b"\x00\xff"})
    assert not runs.remove(RUN)
    runs.commit(record, end(record, at_ms=100))
    assert not runs.remove(RUN)
    runs.settle(RUN)
    an_ended_run(store, runs, "other", 100)
    assert runs.remove(RUN)
    assert (runs.load(RUN), [summary.run for summary in runs.list(LAB)], store.blobs.get(RUN, (BYTES,))) == (None, ["other"], {})
    assert not runs.remove(RUN)


def test_only_runs_that_ended_before_the_time_are_retired(store, runs):
    an_ended_run(store, runs, "old", 100)
    an_ended_run(store, runs, "young", 101)
    runs.create(a_record("active", created_ms=1), {})
    assert len(runs.retire(101)) == 2
    assert {summary.run for summary in runs.list(LAB)} == {"young", "active"}
    assert runs.active() == ("active",)


def test_retiring_is_bounded_and_takes_the_oldest_first(store, runs):
    for run, ended_ms in (("c", 30), ("a", 10), ("b", 20)):
        an_ended_run(store, runs, run, ended_ms)
    assert sorted(runs.retire(1000, limit=2)) == [("a", "file:///a/a"), ("a", "file:///a/b"), ("b", "file:///b/a"), ("b", "file:///b/b")]
    assert [summary.run for summary in runs.list(LAB)] == ["c"]


def test_the_id_of_a_retired_run_is_free_again(store, runs):
    an_ended_run(store, runs, RUN, 100)
    runs.retire(1000)
    record = a_record()
    assert runs.create(replace(record, digest="e" * 64), {})
    assert runs.active() == (RUN,)


# ---- the feed


async def _follow(kept: Kept, run: RunId = RUN, after: int = 0) -> list[int]:
    async with kept.feed() as feed:
        return [event.seq async for event in feed.follow(run, after)]


def test_a_follower_of_an_ended_run_gets_the_rest_and_is_done(kept):
    record = a_record()
    kept.runs.create(record, {})
    kept.runs.commit(record, RunChange(events=tuple(event(record, "X") for _ in range(1200))))
    kept.runs.commit(record, end(record, at_ms=5))
    assert asyncio.run(_follow(kept)) == list(range(1, 1202))
    assert asyncio.run(_follow(kept, after=1199)) == [1200, 1201]
    assert asyncio.run(_follow(kept, after=1201)) == []


@pytest.mark.every_form
def test_a_follower_gets_events_as_they_come_until_the_last(kept):
    record = a_record()
    kept.runs.create(record, {})

    async def watch_and_write() -> list[str]:
        seen = []
        async with kept.feed() as feed:
            stream = feed.follow(RUN)
            for step in ("one", "two"):
                coming = asyncio.ensure_future(anext(stream))
                await asyncio.to_thread(kept.runs.commit, record, add_event(record, step))
                seen.append((await coming).after)
            await asyncio.to_thread(kept.runs.commit, record, end(record, at_ms=5))
            seen.extend([event.after async for event in stream])
        return seen

    assert asyncio.run(watch_and_write()) == ["one", "two", "SUCCEEDED"]


@pytest.mark.every_form
def test_the_feed_of_all_runs_has_every_change(store, kept):
    async def watch() -> list[list[tuple[str, str]]]:
        async with kept.feed() as feed:
            begun = await feed.changes()
            seen, mark = [], begun.mark
            assert not begun.runs

            async def look() -> None:
                nonlocal mark
                await feed.wait_for_changes(mark)
                found = await feed.changes(mark)
                assert not found.has_gap
                seen.append(sorted(found.runs.items()))
                mark = found.mark

            record = a_record("other", tenant="acme/sales")
            await asyncio.to_thread(kept.runs.create, record, {})
            await look()
            await asyncio.to_thread(kept.runs.commit, record, add_event(record))
            await asyncio.to_thread(an_ended_run, store, kept.runs, RUN, 100)
            await look()
            waiting = asyncio.ensure_future(look())
            await asyncio.to_thread(kept.runs.retire, 101)
            await waiting
            lost = await feed.changes("999999999999999-0")
            assert (lost.has_gap, lost.runs, lost.mark) == (True, {}, mark)
        return seen

    kept.runs.create(a_record("before"), {})
    assert asyncio.run(watch()) == [[("other", "acme/sales")], [(RUN, LAB), ("other", "acme/sales")], [(RUN, LAB)]]


def test_follower_of_an_unknown_run_gets_an_error(kept):
    with pytest.raises(UnknownRun, match="digits-1"):
        asyncio.run(_follow(kept))


def test_follower_reconnects_without_a_gap(redis_server):
    runs, record = RedisRunStore(redis_server, Keys("contract")), a_record()
    runs.create(record, {})

    async def watch_while_cutting() -> list[int]:
        seen = []
        async with redis.asyncio.Redis(unix_socket_path=redis_server.connection_pool.connection_kwargs["path"]) as watcher:
            stream = RedisEventFeed(watcher, Keys("contract"), patience_s=PATIENCE_S).follow(RUN)
            for _ in range(5):
                coming = asyncio.ensure_future(anext(stream))
                await asyncio.to_thread(redis_server.client_kill_filter, _type="normal", skipme=True)
                await asyncio.to_thread(runs.commit, record, add_event(record))
                seen.append((await coming).seq)
        return seen

    assert asyncio.run(watch_while_cutting()) == [1, 2, 3, 4, 5]


# ---- dead letters


def a_letter(node: str, *, run: str = RUN, at_ms: int = 5) -> DeadLetter:
    return DeadLetter(
        run=RunId(run),
        node=NodeId(node),
        tenant=LAB,
        stage=StageId(f"{run}.1"),
        mesh=EAST,
        reason=Reason.POISON_TASK,
        type_name="x.Y",
        message="nö",
        attempts=3,
        retries_used=1,
        losses=0,
        kills=2,
        at_ms=at_ms,
    )


def with_letters(runs: RunStore, *letters: DeadLetter) -> RunRecord:
    record = a_record(letters[0].run)
    runs.create(record, {})
    runs.commit(record, RunChange(dead=letters))
    return record


def test_dead_letters_come_with_the_commit_newest_first(runs):
    early, late = a_letter("n00001", at_ms=5), a_letter("n00000", at_ms=9)
    with_letters(runs, early, late)
    assert runs.dead() == (late, early)
    assert runs.dead(1) == (late,)
    assert runs.dead(0) == ()
    assert runs.dead_letter("digits-1:n00001") == early
    assert (runs.dead_letter("digits-1:n00002"), runs.dead_letter("nobody:a"), runs.dead_letter("no-colon")) == (None, None, None)


def test_a_commit_that_comes_too_late_leaves_no_letter(runs):
    record = a_record()
    runs.create(record, {})
    stale = runs.load(RUN)
    runs.commit(record, add_event(record))
    assert runs.commit(stale, RunChange(dead=(a_letter("n00000"),))) is False
    assert runs.dead() == ()


def test_dropping_a_dead_letter_twice_is_harmless(runs):
    kept = a_letter("n00001")
    with_letters(runs, a_letter("n00000"), kept)
    assert runs.drop_dead(("digits-1:n00000", "digits-1:n00002", "nobody:a")) == 1
    assert runs.drop_dead(("digits-1:n00000",)) == 0
    assert runs.drop_dead(()) == 0
    assert runs.dead() == (kept,)


def test_letters_go_with_their_run(runs):
    record = with_letters(runs, a_letter("n00000"))
    runs.commit(record, end(record, at_ms=100, state=RunState.FAILED))
    runs.settle(RUN)
    assert len(runs.dead()) == 1
    runs.retire(1000)
    assert (runs.dead(), runs.dead_letter("digits-1:n00000")) == ((), None)


# ---- how much may be open


@pytest.fixture
def tight(store, kept) -> RunStore:
    """Limits of two open runs per tenant subtree, or of a hundred bytes."""
    limits = BacklogLimits(runs_max=2, bytes_max=100)
    if isinstance(store.queue, MemoryStore):
        return MemoryRunStore(store.queue, limits)
    return RedisRunStore(kept.client, Keys("contract"), limits)


def test_a_tenant_with_all_below_it_may_have_so_many_runs_open(store, tight):
    tight.create(a_record("r-1", tenant="acme/lab"), {})
    tight.create(a_record("r-2", tenant="acme/ops"), {})
    with pytest.raises(BacklogFull, match=r"acme has 2 open runs, which is its limit \(dispatch.runs_max: 2\)") as full:
        tight.create(a_record("r-3", tenant="acme/lab"), {X: b"x"})
    assert full.value.retry_after_ms > 0
    assert (tight.load(RunId("r-3")), store.blobs.get(RunId("r-3"), (X,)), len(store.queue.inbox(0))) == (None, {}, 2)
    assert tight.create(a_record("r-4", tenant="rival"), {})


def test_the_repeat_of_what_was_accepted_is_never_refused(tight):
    tight.create(a_record("r-1"), {})
    tight.create(a_record("r-2"), {})
    assert tight.create(a_record("r-1"), {}) is False


def test_room_check_answers_as_a_submission_and_stores_nothing(store, tight):
    tight.check_room(a_record("r-1", tenant="acme/lab"), {X: b"x" * 50})
    assert (tight.load(RunId("r-1")), store.queue.inbox(0)) == (None, ())
    with pytest.raises(BacklogFull, match=r"dispatch\.bytes_max"):
        tight.check_room(a_record("r-1"), {X: b"x" * 100})
    for run in ("r-1", "r-2"):
        tight.create(a_record(run, tenant="acme/lab"), {})
    with pytest.raises(BacklogFull, match="acme has 2 open runs"):
        tight.check_room(a_record("r-3", tenant="acme/ops"), {})
    tight.check_room(a_record("r-1", tenant="acme/lab"), {})  # A repeat is never refused.
    tight.check_room(a_record("r-3", tenant="rival"), {})


@pytest.mark.every_form
def test_a_resumed_run_meets_the_limits_of_a_new_one(store, tight):
    record = a_record("r-1", tenant="acme/lab")
    tight.create(record, {})
    tight.commit(record, end(record, at_ms=5, state=RunState.FAILED))
    tight.settle(record.run)
    for run in ("r-2", "r-3"):
        tight.create(a_record(run, tenant="acme/ops"), {})
    entries = len(store.queue.inbox(0))
    with pytest.raises(BacklogFull, match=r"acme has 2 open runs, which is its limit \(dispatch.runs_max: 2\)"):
        tight.commit(record, resumed(record))
    stored = tight.load(record.run)
    assert (stored.state, len(store.queue.inbox(0))) == (RunState.FAILED, entries)
    other = tight.load(RunId("r-2"))
    tight.commit(other, end(other, at_ms=6))
    tight.settle(other.run)
    assert tight.commit(stored, resumed(stored))


def test_a_tenant_may_have_so_many_bytes_open(tight):
    with pytest.raises(BacklogFull, match=r"this one has 1\d\d bytes .* \(dispatch.bytes_max: 100\)"):
        tight.create(a_record(), {X: b"x" * 100})
    assert tight.create(a_record(), {X: b"x" * 50})


@pytest.mark.parametrize("is_settled", [True, False], ids=["settled", "retired before it was settled"])
def test_ended_run_is_subtracted_from_open_runs_once(tight, is_settled):
    for _ in range(2):
        for run in ("r-1", "r-2"):
            record = a_record(run)
            assert tight.create(record, {X: b"x" * 10})
            tight.commit(record, end(record, at_ms=100))
            if is_settled:
                assert (tight.settle(RunId(run)), tight.settle(RunId(run))) == (True, False)
        tight.retire(1000)
    for run in ("r-1", "r-2"):
        tight.create(a_record(run), {})
    with pytest.raises(BacklogFull, match="has 2 open runs"):
        tight.create(a_record("r-3"), {})


def test_nearly_full_store_refuses_runs_but_takes_commits(store, kept):
    record = a_record()
    kept.runs.create(record, {})
    if kept.client is None:
        full = MemoryRunStore(store.queue, memory_percent=lambda: 81)
        free = MemoryRunStore(store.queue, memory_percent=lambda: 80)
    else:
        full = free = RedisRunStore(kept.client, Keys("contract"))
        server = home_of(kept.admin, Keys("contract").meta)
        server.set(f"{Keys('contract').prefix}ballast", b"x" * (16 << 20))  # Connections take little beside it.
        server.config_set("maxmemory", int(server.info("memory")["used_memory"] * 1.1))
    try:
        with pytest.raises(StoreFull):
            full.create(a_record("late"), {})
        with pytest.raises(StoreFull):
            full.check_room(a_record("late"), {})
        assert kept.runs.commit(record, add_event(record))
    finally:
        if kept.client is not None:
            home_of(kept.admin, Keys("contract").meta).config_set("maxmemory", 0)
    assert free.create(a_record("later"), {})


# ---- idempotency keys


def test_the_same_key_with_the_same_graph_is_the_same_run(store, runs):
    assert runs.create(a_record(key="k"), {})
    assert runs.create(a_record(key="k"), {}) is False
    assert len(store.queue.inbox(0)) == 1
    assert loaded(runs).key == "k"


def test_idempotency_key_with_another_graph_is_a_named_conflict(store, runs):
    runs.create(a_record(key="k"), {})
    for other in (replace(a_record(key="k"), digest="e" * 64), a_record("other", key="k")):
        with pytest.raises(KeyConflict, match=RUN):
            runs.create(other, {})
    assert (runs.load(RunId("other")), len(store.queue.inbox(0))) == (None, 1)


def test_keys_of_tenants_are_their_own(runs):
    runs.create(a_record(key="k"), {})
    assert runs.create(a_record("other", tenant="acme/ops", key="k"), {})


def test_a_key_is_free_again_when_its_run_is_retired(runs):
    record = a_record(key="k")
    runs.create(record, {})
    runs.commit(record, end(record, at_ms=100))
    runs.retire(1000)
    assert runs.create(a_record("other", key="k"), {})


def test_hundred_submissions_under_one_key_are_one_run(store, runs):
    created: list[bool] = []
    threads = [threading.Thread(target=lambda: created.extend(runs.create(a_record(key="k"), {}) for _ in range(10))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(created), sum(created), len(store.queue.inbox(0))) == (100, 1, 1)
