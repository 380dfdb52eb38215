"""Removal of an ended run, beside a resumption of the same run."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dag.errors import NotRemoved, NotResumed, UnknownRun
from dag.removing import remove_run
from dag.resuming import resume
from dag.run.node_table import NodeTable
from dag.run.runs import RunChange, RunRecord, StageRecord
from dag.run.states import RunState
from dag.spec.spec import digest, parse
from dag.store.memory import MemoryRunStore
from federation.dispatch import NotificationKind
from federation.store.memory.store import MemoryStore
from mesh.core.clock import ManualClock
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath

RUN, EAST = RunId("night"), MeshId("east")


class Interrupted(Exception):
    """Death of the process that removes a run."""


class Bed:
    """A failed run that is settled, and a hook before each call of its stores."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.store = MemoryStore(clock=self.clock, ttl_ms=3_000, grace_ms=1_000)
        self.runs = MemoryRunStore(self.store)
        self.cleared: list[RunId] = []
        self.before: dict[str, Callable[[], None]] = {}  #: Method to a callback just before it, once.
        node = {"call": "work:do"}
        body = json.dumps({"spec": "dag/1", "id": RUN, "tenant": "acme", "nodes": {"a": node}, "outputs": {"a": {"$ref": "a"}}}).encode()
        record = RunRecord(
            run=RUN, tenant=TenantPath("acme"), digest=digest(parse(body)), spec=body, created_ms=1, nodes=NodeTable([NodeId("a")])
        )
        assert self.runs.create(record, {})
        stage = StageRecord(stage=StageId(f"{RUN}.1"), mesh=EAST, level=0, nodes=(NodeId("a"),))
        record.stages[stage.stage] = stage
        record.state, record.ended_ms, record.forget_ms = RunState.FAILED, 5, 2_000_000
        assert self.runs.commit(record, RunChange(stages=(stage,)))
        assert self.runs.settle(RUN)

    def __getattr__(self, name: str):
        owner = self.runs if hasattr(MemoryRunStore, name) else self.store
        hook = self.before.pop(name, None)
        if hook is not None:
            hook()
        return getattr(owner, name)

    def clear(self, run: RunId) -> None:
        hook = self.before.pop("clear", None)
        if hook is not None:
            hook()
        self.cleared.append(run)

    def remove_it(self) -> None:
        remove_run(self, self, RUN, self.clear)

    def resume_it(self) -> None:
        resume(self.runs, self.store, RUN, self.clock, self.clock.advance)


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_a_removed_run_leaves_no_row_no_file_and_no_value(bed):
    cursor, _ = bed.store.notifications(EAST, "", 0)
    bed.remove_it()
    assert (bed.runs.load(RUN), bed.cleared) == (None, [RUN])
    _, sent = bed.store.notifications(EAST, cursor, 0)
    assert [(each.kind, each.subject) for each in sent] == [(NotificationKind.FORGET, RUN)]
    with pytest.raises(UnknownRun):
        bed.remove_it()


@pytest.mark.parametrize("call", ["load", "active", "commit", "forget", "clear", "remove"])
def test_of_a_removal_and_a_resumption_one_succeeds(bed, call):
    outcomes = []

    def resume_meanwhile() -> None:
        try:
            bed.resume_it()
            outcomes.append("resumed")
        except NotResumed:
            outcomes.append("refused")

    bed.before[call] = resume_meanwhile
    try:
        bed.remove_it()
        outcomes.append("removed")
    except NotRemoved:
        outcomes.append("kept")
    record = bed.runs.load(RUN)
    if outcomes == ["resumed", "kept"]:
        assert record is not None
        assert (record.state, bed.runs.active(), bed.cleared) == (RunState.RUNNING, (RUN,), [])
    else:
        assert outcomes == ["refused", "removed"]
        assert (record, bed.cleared) == (None, [RUN])


@pytest.mark.parametrize("call", ["forget", "clear", "remove"])
def test_an_interrupted_removal_is_completed_by_the_next(bed, call):
    def die() -> None:
        raise Interrupted

    bed.before[call] = die
    with pytest.raises(Interrupted):
        bed.remove_it()
    with pytest.raises(NotResumed, match="is being removed"):
        bed.resume_it()
    bed.remove_it()
    assert (bed.runs.load(RUN), bed.cleared[-1]) == (None, RUN)


def test_a_retired_run_needs_no_second_removal(bed):
    bed.before["clear"] = lambda: bed.runs.retire(1_000_000)
    with pytest.raises(NotRemoved):
        bed.remove_it()
    assert bed.runs.load(RUN) is None
