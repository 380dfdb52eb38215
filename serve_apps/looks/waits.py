"""Why what stands in queues waits, told alike wherever it is shown.

A run's record keeps what the mesh said when it looked last, and a mesh knows its own room and leases only. What the quota tree knows
beside that is worked out on a look at the ledger, by `federation.explaining.outlook`; whoever shows a run or a stage puts it in place of
what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dag.runs import RunSummary, StageRecord
from dag.states import RunState, StageState
from federation.dispatch import QueuedStage, StageQueue
from federation.estimates import CostRules
from federation.explaining.outlook import SAID_IN_PART, Outlooks
from federation.quota.explain import Change, Lever
from federation.snapshot import Snapshot
from federation.tenant_orders import OrdersInForce
from mesh.ids import MeshId, RunId, StageId
from mesh.reasons import Reason
from mesh.resources import format_units

#: How far into the queue of a mesh is looked.
QUEUE_DEPTH_MAX = 1_000

Queues = dict[MeshId, tuple[QueuedStage, ...]]

#: Each goes on where "it would start if" ends.
_WORDS = {
    Lever.FREE: "{amount} {resource} of {flavor} came free in {tenant}",
    Lever.BORROWED: "{tenant}, which borrows already, gave back {amount} {resource} of {flavor}, or might borrow that much more",
    Lever.BORROWING_LIMIT: "{tenant} might borrow {amount} {resource} of {flavor} more",
    Lever.NOMINAL: "{tenant} had {amount} {resource} of {flavor} more of its own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a stage of a queue waits."""

    said: Reason  #: By its mesh, when it looked last.
    reason: Reason
    changes: tuple[Change, ...] = ()  #: What would have to change, where the reason is not what the mesh said.


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Why the first stages of all queues wait, as of one look."""

    stages: Mapping[str, Wait] = field(default_factory=dict)
    by_run: Mapping[RunId, tuple[StageId, ...]] = field(default_factory=dict)  #: Which stages of a run these are.

    def stage(self, stage: StageRecord) -> StageRecord:
        """The stage with the reason that holds now; as it is, when it stands in no queue."""
        wait = self.stages.get(stage.stage) if is_told_in_part(stage) else None
        if wait is None or wait.reason is stage.reason:
            return stage
        return replace(stage, reason=wait.reason, detail=detail_of(wait.changes))

    def line(self, summary: RunSummary) -> RunSummary:
        """The run with the reason of its first stage that waits for what its mesh said; as it is, when that stands in no queue."""
        if not is_line_told_in_part(summary):
            return summary
        own = sorted(self.by_run.get(summary.run, ()), key=_number)
        wait = next((wait for stage in own if (wait := self.stages[stage]).said is summary.reason), None)
        if wait is None or wait.reason is summary.reason:
            return summary
        return replace(summary, reason=wait.reason, detail=detail_of(wait.changes))


def is_told_in_part(stage: StageRecord) -> bool:
    """Whether the quota tree may know more of why the stage waits than its mesh did."""
    return stage.state is StageState.QUEUED and stage.reason in SAID_IN_PART


def is_line_told_in_part(summary: RunSummary) -> bool:
    """The same of a run."""
    return summary.state is RunState.RUNNING and summary.reason in SAID_IN_PART


def queues_of(snapshot: Snapshot, queue: StageQueue) -> Queues:
    """What waits at each mesh, the next one first. Raises StoreUnavailable."""
    waiting = (view.record.mesh for view in snapshot.meshes if view.waiting)
    return {mesh: tuple(queue.waiting(mesh, QUEUE_DEPTH_MAX)) for mesh in waiting}


def waits_in(snapshot: Snapshot, orders: OrdersInForce, queues: Mapping[MeshId, Sequence[QueuedStage]], rules: CostRules) -> Waits:
    """Why each stage of the queues waits."""
    outlooks = Outlooks(snapshot, orders, queues, rules, ages={})  # Starts are not asked for.
    stages: dict[str, Wait] = {}
    by_run: dict[RunId, list[StageId]] = {}
    for one in (one for queued in queues.values() for one in queued):
        why = outlooks.why(one.stage)
        if why is not None:
            stages[one.stage] = Wait(said=one.reason, reason=why.reason, changes=why.changes)
            by_run.setdefault(one.run, []).append(one.stage)
    return Waits(stages=stages, by_run={run: tuple(own) for run, own in by_run.items()})


def lines_told(summaries: Iterable[RunSummary], look: Callable[[], Waits]) -> list[RunSummary]:
    """The runs, each with the reason that holds now; the look is taken only where it may tell more."""
    found = list(summaries)
    if not any(map(is_line_told_in_part, found)):
        return found
    waits = look()
    return [waits.line(summary) for summary in found]


def words_of(change: Change) -> str:
    """What would have to change, in words that go on where "it would start if" ends."""
    amount = format_units(change.resource, change.units)
    return _WORDS[change.lever].format(amount=amount, resource=change.resource, flavor=change.flavor, tenant=change.tenant)


def detail_of(changes: Sequence[Change]) -> str:
    """A reason of the quota tree in words; empty where nothing would have to change."""
    return f"it would start if {', and '.join(map(words_of, changes))}" if changes else ""


def _number(stage: StageId) -> tuple[int, str]:
    """Stages are numbered in the order in which they were made."""
    number = stage.rpartition(".")[2]
    return (int(number) if number.isdecimal() else 0, stage)
