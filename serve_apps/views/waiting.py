"""Views of waiting work, its reasons and the changes it needs. Pure.

A view reveals of other tenants only that one exists: a needed change may name a tenant above the caller's own, which the caller
knows anyway, and victims are named only to callers whose key covers them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dag.dry_run import DryRun
from dag.run.node_facts import Words
from dag.run.run_events import RunEvent
from dag.run.run_status import shown_state
from dag.run.runs import RunRecord, RunSummary, StageRecord
from dag.run.states import NodeState, StageState
from federation.dispatch import QueuedStage
from federation.explaining.forecast import Forecast, LeaseVictim
from federation.leases import LeaseEvent
from federation.planning.values import Unmet
from federation.quota.explain import Change
from federation.quota.starts import Allowance
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.stages.spec import StageSpec
from serve_apps.schemas.explanations import RunExplanation, StageExplanation
from serve_apps.schemas.history import LeaseEventView
from serve_apps.schemas.plans import PlannedStageView, PlanView
from serve_apps.schemas.queues import ChangeView, KeptBackView, UnmetView, VictimView, WaitingView
from serve_apps.snapshot_cache.waits import detail_of, words_of
from serve_apps.views.federation import Within, quantities, quantity
from serve_apps.views.runs import BLOCKED_NAMED, blocked_in, blocked_of, event_view, waiting_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Queued stage, its position among competing stages (0 is next), and its explanation."""

    stage: QueuedStage
    mesh: str
    place: int
    reason: Reason | None = None  #: Why it waits, if there is no outlook; None: the mesh's own reason.
    forecast: Forecast | None = None


def waiting_view(one: Waiting) -> WaitingView:
    stage, forecast = one.stage, one.forecast
    reason = (forecast.reason if forecast is not None else one.reason) or stage.reason
    return WaitingView(
        stage=stage.stage,
        run=stage.run,
        tenant=stage.tenant,
        mesh=one.mesh,
        position=one.place + 1,
        tenant_position=forecast.ahead + 1 if forecast is not None else None,
        priority=stage.priority,
        reason=reason.value,
        changes=[change_view(change) for change in forecast.changes] if forecast is not None else [],
        start_ms=forecast.start_ms if forecast is not None else None,
        overdue_ms=forecast.overdue_ms if forecast is not None else 0,
        slot=quantities(stage.slot),
        width=stage.width,
    )


def kept_back_views(runs: Iterable[RunSummary]) -> list[KeptBackView]:
    """Return runs with unsent nodes, oldest first; each position counts the runs before it that wait for the same reason."""
    before: Counter[Reason | None] = Counter()
    views = []
    for run in sorted(runs, key=lambda run: (run.created_ms, run.run)):
        before[run.reason] += 1
        views.append(
            KeptBackView(
                run=run.run,
                tenant=run.tenant,
                user=run.user,
                position=before[run.reason],
                reason=run.reason.value if run.reason is not None else "",
                detail=run.detail,
                created_ms=run.created_ms,
            )
        )
    return views


def unmet_view(unmet: Unmet, now_ms: int) -> UnmetView:
    demand = unmet.demand
    return UnmetView(
        mesh=demand.mesh,
        tenant=demand.tenant,
        flavor=demand.flavor,
        slots=unmet.slots,
        beyond=demand.beyond,
        slot=quantities(demand.slot),
        reason=unmet.reason.value,
        detail=unmet.detail,
        waiting_ms=max(0, now_ms - demand.since_ms),
    )


def change_view(change: Change) -> ChangeView:
    """Return the needed change, also in words."""
    return ChangeView(
        lever=change.lever.value,
        tenant=change.tenant,
        flavor=change.flavor,
        resource=change.resource,
        amount=quantity(change.resource, change.units),
        words=words_of(change),
    )


def victim_view(one: LeaseVictim, within: Within) -> VictimView:
    """Return the preempted lease; its tenant is named only if the caller's key covers it."""
    return VictimView(
        mesh=one.mesh,
        tenant=one.tenant if within(one.tenant) else None,
        flavor=one.flavor,
        amounts=quantities(dict(one.amounts.items())),
        reason=one.reason.value,
        stages=list(one.stages) if within(one.tenant) else [],
        shrinking=list(one.shrinking) if within(one.tenant) else [],
    )


def stage_explanation(
    record: RunRecord, stage: StageRecord, slot: ResourceSet, forecast: Forecast | None, within: Within, history: Iterable[RunEvent] = ()
) -> StageExplanation:
    reason, detail = _why(record, stage, forecast)
    return StageExplanation(
        stage=stage.stage,
        run=record.run,
        tenant=record.tenant,
        user=record.user,
        mesh=stage.mesh,
        state=stage.state.value,
        reason=reason.value if reason is not None else None,
        detail=detail,
        why_here=stage.why_here,
        nodes=len(stage.nodes),
        slot=quantities(dict(slot.items())),
        slots=stage.slots,
        width=stage.width,
        position=forecast.mesh_ahead + 1 if forecast is not None else None,
        tenant_position=forecast.ahead + 1 if forecast is not None else None,
        changes=[change_view(change) for change in forecast.changes] if forecast is not None else [],
        start_ms=forecast.start_ms if forecast is not None else None,
        overdue_ms=forecast.overdue_ms if forecast is not None else 0,
        victims=[victim_view(one, within) for one in forecast.victims] if forecast is not None else [],
        history=[event_view(event) for event in history],
    )


def run_explanation(record: RunRecord, stages: list[StageExplanation], now_ms: int) -> RunExplanation:
    return RunExplanation(
        id=record.run,
        tenant=record.tenant,
        user=record.user,
        state=shown_state(record).value,
        reason=record.reason.value if record.reason is not None else None,
        detail=record.detail,
        at_ms=now_ms,
        stages=stages,
        blocked=blocked_of(blocked_in(record)),
        waiting=blocked_of(waiting_in(record)),
    )


def plan_view(
    record: RunRecord, dry_run_result: DryRun, forecasts: Sequence[Forecast], allowed: Allowance, within: Within, now_ms: int
) -> PlanView:
    """Return the plan of a run, with one outlook per stage."""
    keeps_back = allowed.is_closed and allowed.gate is not None
    blocked = [(NodeId(node), Words(why.reason, why.detail)) for node, why in dry_run_result.blockages.items()]
    return PlanView(
        tenant=record.tenant,
        user=record.user,
        at_ms=now_ms,
        reason=allowed.gate.reason.value if keeps_back and allowed.gate is not None else None,
        detail=allowed.detail if keeps_back else "",
        stages=[
            _planned_view(stage, sent, forecast, within) for (stage, sent), forecast in zip(dry_run_result.stages, forecasts, strict=True)
        ],
        blocked=blocked_of(blocked),
    )


def lease_event_view(lease_event: LeaseEvent) -> LeaseEventView:
    lease = lease_event.lease
    if lease is None:
        return LeaseEventView(at_ms=lease_event.at_ms, verb=lease_event.verb, why=lease_event.why, lease=None)
    return LeaseEventView(
        at_ms=lease_event.at_ms,
        verb=lease_event.verb,
        why=lease_event.why,
        lease=lease.lease,
        tenant=lease.tenant,
        mesh=lease.mesh,
        flavor=lease.flavor,
        held=quantities(dict(lease.held.items())),
        target=quantities(dict(lease.target.items())),
    )


def _planned_view(stage: StageRecord, sent: StageSpec, forecast: Forecast, within: Within) -> PlannedStageView:
    goes_first = stage.state is StageState.QUEUED
    reason = forecast.reason if goes_first else Reason.WAITING_FOR_INPUTS
    return PlannedStageView(
        stage=stage.stage,
        mesh=stage.mesh,
        level=stage.level,
        nodes=list(stage.nodes[:BLOCKED_NAMED]),
        count=len(stage.nodes),
        width=stage.width,
        slot=quantities(sent.slot),
        why_here=stage.why_here,
        goes_first=goes_first,
        reason=reason.value if reason is not None else None,
        position=forecast.mesh_ahead + 1,
        tenant_position=forecast.ahead + 1,
        changes=[change_view(change) for change in forecast.changes],
        start_ms=forecast.start_ms if goes_first else None,
        overdue_ms=forecast.overdue_ms if goes_first else 0,
        victims=[victim_view(each, within) for each in forecast.victims] if goes_first else [],
    )


def _why(record: RunRecord, stage: StageRecord, forecast: Forecast | None) -> tuple[Reason | None, str]:
    if stage.state is StageState.QUEUED:
        if forecast is None or forecast.reason is stage.reason:
            return stage.reason, stage.detail
        return forecast.reason, detail_of(forecast.changes)
    if stage.state is StageState.PLANNED and stage.reason is None:
        needs = sum(1 for node in stage.nodes if record.nodes[node].state is NodeState.WAITING)
        return Reason.WAITING_FOR_INPUTS, f"{needs} of its nodes wait for the nodes before them"
    return stage.reason, stage.detail
