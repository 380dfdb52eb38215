"""Explanations of why work waits, and dry runs: reads the stores once, then calls the pure core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

from dag.dry_run import dry_run
from dag.errors import UnknownStage
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, RunSummary, StageRecord, graph_of
from dag.run.stage_dispatch import spec_of
from dag.run.states import RUN_ENDS, SHOWN_FOR_PLANNED, STAGE_ENDS, RunState, StageState
from dag.spec.plans import plans_of
from dag.spec.spec import digest, kept_form
from dag.starting import under_way
from dag.store.rows import reach_of
from federation.api_keys import EVERYBODY
from federation.explaining.forecast import Forecast
from federation.explaining.forecasts import Forecasts
from federation.explaining.pending_stages import PendingStage
from federation.explaining.preemption_preview import StartedStage
from federation.quota.starts import Starts, Tally
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import FederationSnapshot
from federation.tenants import TenantTree
from mesh.core.ids import MeshId, NodeId, RunId, TenantPath
from mesh.core.reasons import PASSING, Reason
from mesh.core.resources import ResourceSet
from serve_apps.requests.access import reaches, tops
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies
from serve_apps.schemas.explanations import RunExplanation, StageExplanation
from serve_apps.schemas.history import HistoryView
from serve_apps.schemas.plans import PlanView
from serve_apps.schemas.queues import QueueView
from serve_apps.services.draining import check_known
from serve_apps.services.stopping import check_reach
from serve_apps.services.submission import check_against, check_runnable, read_spec, tenant_of, user_of
from serve_apps.snapshot_cache.snapshots import snapshot_now
from serve_apps.snapshot_cache.waits import QUEUE_DEPTH_MAX, Queues, queues_of, without_moved
from serve_apps.views.waiting import (
    Waiting,
    kept_back_views,
    lease_event_view,
    plan_view,
    run_explanation,
    stage_explanation,
    unmet_view,
    waiting_view,
)

#: Runs per tenant that are searched for unsent nodes and for work that counts towards a running limit.
RUNS_MAX = 1_000
#: Lease events that are searched if no tenant is named.
LEASE_EVENTS_MAX = 5_000
#: Most stages of a dry run that are explained one by one; a larger graph gets no explanations.
STAGES_MAX = 100


def explain_queue(ports: Dependencies, principal: Principal, tenant: TenantPath | None, limit: int) -> QueueView:
    """Return the waiting work of a tenant and the tenants below it, or of all that the key covers; the first `limit` stages are explained.

    Raises:
        OutOfReach: The key covers no such tenant.
        StoreUnavailable: A store does not answer.
    """
    snapshot, read = _look(ports)
    queues = without_moved(read, ports.queue)
    if tenant is not None:
        check_reach(principal, tenant, snapshot.tree.tenants)

    def within(path: TenantPath) -> bool:
        return reaches(principal, path) and (tenant is None or snapshot.tree.is_within(path, tenant))

    forecasts = Forecasts(snapshot, ports.tenant_policies.in_force(), queues, ports.costs, ports.queue.ages())
    found = [
        Waiting(stage=stage, mesh=mesh, place=forecasts.place(stage.stage))
        for mesh, queued in queues.items()
        for stage in queued
        if within(stage.tenant)
    ]
    explained = [
        Waiting(stage=one.stage, mesh=one.mesh, place=one.place, forecast=forecasts.of(one.stage.stage, asks_planner=False))
        for one in found[:limit]
    ]
    asked = _lists_of(snapshot.tree, tenant) if tenant is not None else tops(principal, snapshot)
    runs = [run for path in asked for run in ports.runs.list(path, limit=RUNS_MAX) if within(run.tenant)]
    queued_runs = {stage.run for queued in queues.values() for stage in queued}
    return QueueView(
        tenant=tenant or EVERYBODY,
        at_ms=snapshot.at_ms,
        waiting=[waiting_view(one) for one in (*explained, *(_listed(one, forecasts) for one in found[limit:]))],
        cut_short=_cut_short(ports, read),
        kept_back=kept_back_views(run for run in runs if _is_kept_back(run, queued=run.run in queued_runs)),
        unmet=[unmet_view(unmet, snapshot.at_ms) for unmet in forecasts.unmet() if within(unmet.demand.tenant)],
    )


def _cut_short(ports: Dependencies, queues: Queues) -> dict[str, int]:
    """Return how many stages of each queue lie behind those that were read."""
    full = [mesh for mesh, queued in queues.items() if len(queued) >= QUEUE_DEPTH_MAX]
    behind = {str(mesh): len(ports.queue.queued(mesh)) - QUEUE_DEPTH_MAX for mesh in full}
    return {mesh: count for mesh, count in behind.items() if count > 0}


def explain_run(ports: Dependencies, principal: Principal, record: RunRecord) -> RunExplanation:
    """Explain why the run has not ended. Raises StoreUnavailable."""
    snapshot, queues = _look(ports)
    forecasts = Forecasts(snapshot, ports.tenant_policies.in_force(), queues, ports.costs, ports.queue.ages())
    slots = _slots_of(record)
    open_stages = [stage for stage in record.stages.values() if stage.state not in STAGE_ENDS]
    stages = [
        stage_explanation(record, stage, slots[stage.stage], forecasts.of(stage.stage, asks_planner=False), partial(reaches, principal))
        for stage in open_stages
    ]
    return run_explanation(record, stages, snapshot.at_ms)


def explain_stage(ports: Dependencies, principal: Principal, record: RunRecord, stage: str) -> StageExplanation:
    """Explain why the stage waits, with its history.

    Raises:
        UnknownStage: The run has no such stage.
        StoreUnavailable: A store does not answer.
    """
    kept = _stage_of(record, stage)
    snapshot, queues = _look(ports)
    tenant_policies, running = ports.tenant_policies.in_force(), partial(_running_of, ports)
    forecast = Forecasts(snapshot, tenant_policies, queues, ports.costs, ports.queue.ages(), running).of(kept.stage)
    history = [event for event in ports.runs.events(record.run, 0, 10_000) if event.kind == "stage" and event.stage == kept.stage]
    return stage_explanation(record, kept, _slots_of(record)[kept.stage], forecast, partial(reaches, principal), history)


def plan_run(ports: Dependencies, principal: Principal, body: bytes, *, is_columns: bool = False) -> PlanView:
    """Plan a graph without storing it. Raises as `submission.accept`, except for a run of the same id."""
    spec = read_spec(body, is_columns=is_columns)
    tenant, user = tenant_of(spec, principal), user_of(spec, principal)
    snapshot, queues = _look(ports)
    tenant_policies = ports.tenant_policies.in_force()
    check_against(spec, snapshot, tenant, ports.configured_meshes, tenant_policies.filed)
    record = RunRecord(
        run=RunId(spec.id or "new"),
        tenant=tenant,
        user=user,
        digest=digest(spec),
        spec=kept_form(spec),
        created_ms=snapshot.at_ms,
        nodes=NodeTable(map(NodeId, spec.nodes)),
    )
    ports.runs.check_room(record, spec.blob_bytes())
    check_runnable(ports, spec, record, snapshot, tenant_policies.filed)
    dry_run_result = dry_run(record, snapshot, ports.costs, tenant_policies.filed.settings_of(tenant))
    forecasts = Forecasts(snapshot, tenant_policies, queues, ports.costs, ports.queue.ages(), cache(partial(_running_of, ports)))
    shown: list[Forecast] = []
    before: list[PendingStage] = []
    for stage, sent in dry_run_result.stages:
        pending = PendingStage(
            stage=f"{stage.stage} of a dry run",
            tenant=tenant,
            mesh=stage.mesh,
            slot=sent.slot,
            priority=sent.priority,
            is_gang=sent.gang is not None,
            user=user,
            arrival=QUEUE_DEPTH_MAX + len(before),
            created_ms=sent.created_ms,
        )
        shown.append(forecasts.would_be(pending, before) if len(shown) < STAGES_MAX else Forecast(pending=pending, reason=None))
        if stage.state is StageState.QUEUED:
            before.append(pending)
    allowed = _starts(ports, snapshot, tenant_policies, tenant).allowed(tenant, user, snapshot.at_ms)
    return plan_view(record, dry_run_result, shown, allowed, partial(reaches, principal), snapshot.at_ms)


def lease_history(
    ports: Dependencies, principal: Principal, *, tenant: TenantPath | None, mesh: MeshId | None, flavor: str | None, limit: int
) -> HistoryView:
    """Return the last lease events within reach, oldest first; for a tenant, with those of the tenants below it.

    Raises:
        OutOfReach: The key covers no such tenant.
        UnknownMesh: The mesh has no history, and nobody knows it.
        StoreUnavailable: A store does not answer.
    """
    tree = ports.shown().tree
    of = {path for path in tree.tenants if tree.is_within(path, tenant)} | {tenant} if tenant is not None else None
    if tenant is not None and not reaches(principal, tenant):
        check_reach(principal, tenant, tree.tenants)
    lease_events = ports.ledger.history(mesh, of, LEASE_EVENTS_MAX)
    if mesh is not None and not lease_events:
        check_known(_look(ports)[0], mesh)  # A mesh that nobody knows any more still has its history.
    visible = [
        lease_event
        for lease_event in lease_events
        if lease_event.lease is None or (reaches(principal, lease_event.lease.tenant) and flavor in (None, lease_event.lease.flavor))
    ]
    if tenant is not None and not any(lease_event.lease for lease_event in lease_events):
        check_reach(principal, tenant, tree.tenants)  # A tenant removed from the tree still has its history.
    return HistoryView(lease_events=[lease_event_view(lease_event) for lease_event in visible[-limit:]])


def _look(ports: Dependencies) -> tuple[FederationSnapshot, Queues]:
    snapshot = snapshot_now(ports.shown, ports.registry, ports.configured_meshes)
    return snapshot, queues_of(snapshot, ports.queue)


def _listed(one: Waiting, forecasts: Forecasts) -> Waiting:
    """Return the stage with its reason alone."""
    why = forecasts.why(one.stage.stage)
    return replace(one, reason=why.reason) if why is not None else one


def _lists_of(tree: TenantTree, tenant: TenantPath) -> tuple[TenantPath, ...]:
    """Return the paths that list all runs of the tenant and the tenants below it; a child may have a path outside its parent's."""
    below = {path for path in tree.tenants if tree.is_within(path, tenant)}
    return tuple(path for path in sorted(below) if below.isdisjoint(map(TenantPath, reach_of(path)[:-1])))


def _is_kept_back(run: RunSummary, *, queued: bool) -> bool:
    """Return whether the run is open and waits for something outside every mesh's queue.

    Args:
        queued: Whether one of its stages is in a queue.
    """
    in_a_queue = (Reason.WAITING_IN_QUEUE, Reason.POOL_BUSY, *((Reason.LEASES_AT_LIMIT,) if queued else ()))
    return run.state in (RunState.PENDING, *SHOWN_FOR_PLANNED) and run.reason in _BEFORE_QUEUES and run.reason not in in_a_queue


_IN_QUEUES = {
    Reason.QUOTA_EXHAUSTED,
    Reason.QUOTA_CONTESTED,
    Reason.LEDGER_UNREACHABLE,
    Reason.LEDGER_RECOVERING,
    Reason.PREEMPTION_LIMIT,
}
_BEFORE_QUEUES = (PASSING - _IN_QUEUES) | {
    Reason.NO_MESH_FITS,
    Reason.LABEL_MISMATCH,
    Reason.TENANT_NOT_ALLOWED,
    Reason.CLUSTER_NOT_SHARED,
    Reason.MESH_UNKNOWN,
    Reason.POOL_TOO_SMALL,
    Reason.NO_NODE_FITS,
    Reason.QUOTA_TOO_SMALL,
    Reason.FLAVOR_CLOSED,
}


def _stage_of(record: RunRecord, stage: str) -> StageRecord:
    """Find the stage by its id, or by its number (the part of its id after the run's id and a dot)."""
    found = next((kept for kept in record.stages.values() if stage in (kept.stage, kept.stage.rpartition(".")[2])), None)
    if found is None:
        last = f"its stages have the numbers 1 to {len(record.stages)}" if record.stages else "none of its nodes has a mesh yet"
        raise UnknownStage(f"run {record.run} has no stage {stage}; {last}; `schedulemesh explain {record.run}` shows the open ones")
    return found


def _slots_of(record: RunRecord) -> dict[str, ResourceSet]:
    """Return the resources that each stage needs to start."""
    spec = graph_of(record)
    plans = plans_of(spec)
    return {
        stage.stage: spec_of(record, stage, plans, spec.code.runtime_env).slot if stage.nodes else ResourceSet()
        for stage in record.stages.values()
    }


def _running_of(ports: Dependencies, tenant: TenantPath) -> tuple[StartedStage, ...]:
    """Return what the tenant runs, as its run records say. Raises StoreUnavailable."""
    found: list[StartedStage] = []
    for summary in ports.runs.list(tenant, limit=RUNS_MAX):
        record = ports.runs.load(summary.run) if summary.tenant == tenant and summary.state not in RUN_ENDS else None
        if record is not None:
            found += _running_in(record)
    return tuple(found)


def _running_in(record: RunRecord) -> Iterator[StartedStage]:
    spec = graph_of(record)
    plans = plans_of(spec)
    for stage in record.stages.values():
        if stage.state is StageState.RUNNING and stage.nodes:
            sent = spec_of(record, stage, plans, spec.code.runtime_env)
            yield StartedStage(
                stage=stage.stage,
                tenant=record.tenant,
                mesh=stage.mesh,
                slot=sent.slot,
                slots=stage.slots,
                priority=sent.priority,
                started_ms=stage.started_ms,
                created_ms=sent.created_ms,
                saved_ms=_saved_ms(record, stage),
            )


def _saved_ms(record: RunRecord, stage: StageRecord) -> int | None:
    """Return when a node of the stage last saved a checkpoint, as its mesh counts: those of earlier starts save no work of this one."""
    kept = (record.nodes[node].checkpoint for node in stage.nodes)
    return max((one.saved_ms for one in kept if one is not None and one.saved_ms >= stage.started_ms), default=None)


def _starts(ports: Dependencies, snapshot: FederationSnapshot, tenant_policies: PoliciesInForce, tenant: TenantPath) -> Starts:
    """Return the tenant's start gate with its running work; runs are read only if their number is limited."""
    starts = Starts(snapshot.tree, tenant_policies)
    if starts.limits_running and tenant in snapshot.tree.tenants:
        *_, root = tenant, *snapshot.tree.ancestors(tenant)
        for summary in (found for top in snapshot.tree.first_names(root) for found in ports.runs.list(top, limit=RUNS_MAX)):
            record = ports.runs.load(summary.run) if summary.state not in RUN_ENDS else None
            if record is not None:
                starts.count(Tally(tenant=record.tenant, user=record.user, started=0), under_way(record))
    return starts
