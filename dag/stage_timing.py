"""Observations of stages from the events of their runs, for the scheduling metrics of the federation.

A coordinator observes what it has committed itself. One that begins knows nothing, and of a stage that was sent before only its wait.
"""

from __future__ import annotations

from collections.abc import Mapping

from dag.run.run_events import RunEvent
from dag.run.runs import RunChange, RunRecord, StageRecord
from dag.run.states import StageState
from dag.spec.plans import NodePlan, priority_of
from federation.stage_metrics import StageMetrics, StageObservations, tier_of
from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.reasons import Reason

#: Reasons of a preemption; other stages are stopped because their mesh leaves, or taken back before they begin.
PREEMPTIONS = frozenset({Reason.QUOTA_RECLAIMED, Reason.PREEMPTED_WITHIN_TENANT})


class StageTiming:
    """Observations of one coordinator.

    Args:
        since_ms: When it began, since the epoch.
    """

    def __init__(self, since_ms: int) -> None:
        self._since_ms = since_ms
        self._seen = StageObservations()
        self._answered: dict[RunId, set[StageId]] = {}  #: Stages in a queue whose reason is known.

    def note(self, record: RunRecord, plans: Mapping[NodeId, NodePlan], change: RunChange) -> None:
        """Observe the stages that a step has changed."""
        for event in change.events:
            if isinstance(event, RunEvent) and event.kind == "stage" and event.stage in record.stages:
                self._note(record, record.stages[event.stage], plans, event)

    def forget(self, run: RunId) -> None:
        """Forget a run that has ended."""
        self._answered.pop(run, None)

    def metrics(self, now_ms: int, at_ms: int) -> StageMetrics:
        """Return the metrics of the last minute; arguments as for `StageObservations.metrics`."""
        return self._seen.metrics(now_ms, at_ms)

    def _note(self, record: RunRecord, stage: StageRecord, plans: Mapping[NodeId, NodePlan], event: RunEvent) -> None:
        queued, running = StageState.QUEUED.value, StageState.RUNNING.value
        at_ms, tenant = event.at_ms, record.tenant
        if event.before == event.after == queued and event.reason is not None:
            self._answer(record, stage, plans, at_ms)
        elif event.before == queued and event.after == running:
            self._answer(record, stage, plans, at_ms)
            self._seen.start(tenant, _tier(stage, plans), at_ms, at_ms - stage.sent_ms)
        elif event.before == queued and event.after == StageState.LOST.value:
            self._seen.fail_start(tenant, _tier(stage, plans), at_ms)
        elif event.before == running and event.after == StageState.STOPPED.value and event.reason in PREEMPTIONS:
            self._seen.preempt(tenant, _tier(stage, plans), at_ms)
        elif event.before == running and event.after == StageState.ENDED.value:
            self._seen.end(tenant, _tier(stage, plans), at_ms, at_ms - stage.started_ms)
        if event.before == queued != event.after:
            self._answered.get(record.run, set()).discard(stage.stage)

    def _answer(self, record: RunRecord, stage: StageRecord, plans: Mapping[NodeId, NodePlan], at_ms: int) -> None:
        answered = self._answered.setdefault(record.run, set())
        if stage.stage not in answered and stage.sent_ms >= self._since_ms:
            self._seen.answer(record.tenant, _tier(stage, plans), at_ms, at_ms - stage.sent_ms)
        answered.add(stage.stage)


def _tier(stage: StageRecord, plans: Mapping[NodeId, NodePlan]) -> str:
    return tier_of(priority_of(plans, stage.nodes))
