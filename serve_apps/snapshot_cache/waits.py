"""Why queued work waits, the same wherever it is shown.

A run's record holds the mesh's last reason, and a mesh knows only its own room and leases. `federation.explaining.forecasts` adds what
the quota tree knows, from a snapshot of the ledger; views of runs and stages replace the recorded reason by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dag.run.run_status import waiting_state
from dag.run.runs import RunSummary, StageRecord
from dag.run.states import SHOWN_FOR_PLANNED, RunState, StageState
from federation.dispatch import QueuedStage, StageQueue
from federation.estimates import CostRules
from federation.explaining.forecasts import PARTIAL_REASONS, Forecasts
from federation.explaining.pending_stages import queue_order
from federation.quota.explain import Change, Lever
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import FederationSnapshot
from mesh.core.ids import MeshId, RunId, StageId
from mesh.core.reasons import PASSING, Reason
from mesh.core.resources import format_units

#: Most stages read from a mesh's queue.
QUEUE_DEPTH_MAX = 1_000

Queues = dict[MeshId, tuple[QueuedStage, ...]]

#: Each text completes the sentence "it would start if …".
_WORDS = {
    Lever.FREE: "{amount} {resource} of {flavor} became free in {tenant}",
    Lever.BORROWED: "{tenant}, which borrows already, returned {amount} {resource} of {flavor}, or could borrow that much more",
    Lever.BORROWING_LIMIT: "{tenant} could borrow {amount} {resource} of {flavor} more",
    Lever.NOMINAL: "{tenant} had {amount} {resource} of {flavor} more nominal quota",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a queued stage waits."""

    reported: Reason  #: The mesh's last reason.
    reason: Reason
    changes: tuple[Change, ...] = ()  #: Changes that the start needs, if `reason` differs from `reported`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Why the first stages of all queues wait, at one time."""

    stages: Mapping[str, Wait] = field(default_factory=dict)
    by_run: Mapping[RunId, tuple[StageId, ...]] = field(default_factory=dict)  #: Stages by run.

    def stage(self, stage: StageRecord) -> StageRecord:
        """Return the stage with its current reason; unchanged if it is in no queue."""
        wait = self.stages.get(stage.stage) if is_reason_partial(stage) else None
        if wait is None or wait.reason is stage.reason:
            return stage
        return replace(stage, reason=wait.reason, detail=detail_of(wait.changes))

    def line(self, summary: RunSummary) -> RunSummary:
        """Return the run with the current reason of its first stage that has the run's reason, and with the state that follows.

        It is unchanged if that stage is in no queue.
        """
        if not is_run_reason_partial(summary):
            return summary
        own = sorted(self.by_run.get(summary.run, ()), key=_number)
        wait = next((wait for stage in own if (wait := self.stages[stage]).reported is summary.reason), None)
        if wait is None or wait.reason is summary.reason:
            return summary
        state = summary.state
        if state is not RunState.RUNNING:
            lasting = all(self.stages[stage].reason not in PASSING for stage in own)
            state = waiting_state(wait.reason) if lasting else RunState.WAITING
        return replace(summary, state=state, reason=wait.reason, detail=detail_of(wait.changes))


def is_reason_partial(stage: StageRecord) -> bool:
    """Return whether the quota tree may know more than the mesh about why the stage waits."""
    return stage.state is StageState.QUEUED and stage.reason in PARTIAL_REASONS


def is_run_reason_partial(summary: RunSummary) -> bool:
    """Return whether the quota tree may know more than the mesh about why the run waits."""
    return summary.state in SHOWN_FOR_PLANNED and summary.reason in PARTIAL_REASONS


def queues_of(snapshot: FederationSnapshot, queue: StageQueue) -> Queues:
    """Return the queued stages of each mesh, next first. Raises StoreUnavailable."""
    records = (view.record for view in snapshot.meshes if view.waiting)
    return {record.mesh: queue_order(queue.waiting(record.mesh, QUEUE_DEPTH_MAX), record.settings, snapshot.at_ms) for record in records}


def without_moved(queues: Queues, queue: StageQueue) -> Queues:
    """Leave out stages that have left their queue since it was read.

    The queues are read one after the other. Meanwhile a stage may be taken back at one mesh and its nodes sent to another, and would be
    listed at both. The first is taken back before the second is sent, so a second look at its queue is enough. Raises StoreUnavailable.
    """
    seen: set[RunId] = set()
    doubtful: dict[MeshId, set[RunId]] = {}
    for mesh, queued in reversed(queues.items()):
        runs = {stage.run for stage in queued}
        doubtful[mesh] = runs & seen
        seen |= runs
    return {mesh: _still_queued(queue, mesh, queued, doubtful[mesh]) for mesh, queued in queues.items()}


def _still_queued(queue: StageQueue, mesh: MeshId, queued: tuple[QueuedStage, ...], doubtful: Collection[RunId]) -> tuple[QueuedStage, ...]:
    if not doubtful:
        return queued
    there = set(queue.queued(mesh))
    return tuple(stage for stage in queued if stage.run not in doubtful or stage.stage in there)


def waits_in(
    snapshot: FederationSnapshot, tenant_policies: PoliciesInForce, queues: Mapping[MeshId, Sequence[QueuedStage]], rules: CostRules
) -> Waits:
    """Return why each stage of the queues waits."""
    forecasts = Forecasts(snapshot, tenant_policies, queues, rules, ages={})  # Ages serve only start estimates, which are not needed here.
    stages: dict[str, Wait] = {}
    by_run: dict[RunId, list[StageId]] = {}
    for one in (one for queued in queues.values() for one in queued):
        why = forecasts.why(one.stage)
        if why is not None:
            stages[one.stage] = Wait(reported=one.reason, reason=why.reason, changes=why.changes)
            by_run.setdefault(one.run, []).append(one.stage)
    return Waits(stages=stages, by_run={run: tuple(own) for run, own in by_run.items()})


def with_reasons(summaries: Iterable[RunSummary], look: Callable[[], Waits]) -> list[RunSummary]:
    """Return the runs with their current reasons; `look` is called only if it may say more."""
    found = list(summaries)
    if not any(map(is_run_reason_partial, found)):
        return found
    waits = look()
    return [waits.line(summary) for summary in found]


def words_of(change: Change) -> str:
    """Return the change in words, as the end of "it would start if …"."""
    amount = format_units(change.resource, change.units)
    return _WORDS[change.lever].format(amount=amount, resource=change.resource, flavor=change.flavor, tenant=change.tenant)


def detail_of(changes: Sequence[Change]) -> str:
    """Return the needed changes in words; empty if there are none."""
    return f"it would start if {', and '.join(map(words_of, changes))}" if changes else ""


def _number(stage: StageId) -> tuple[int, str]:
    """Return the stage's number; stages are numbered in order of creation."""
    number = stage.rpartition(".")[2]
    return (int(number) if number.isdecimal() else 0, stage)
