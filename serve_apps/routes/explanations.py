"""Routes that explain why work waits, plan dry runs, show the history of leases, and hold or release tenants."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from federation.quota.policies import Stop
from mesh.core.ids import MeshId, TenantPath
from serve_apps.requests.access import Asking, looking, record_within
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.routes.runs import PAGE_MAX, SPEC_BODY, RunPath, expects_columns
from serve_apps.schemas.explanations import RunExplanation, StageExplanation
from serve_apps.schemas.history import HistoryView
from serve_apps.schemas.plans import PlanView
from serve_apps.schemas.queues import QueueView
from serve_apps.schemas.stops import StopRequest, StopView
from serve_apps.services.explaining import explain_queue, explain_run, explain_stage, lease_history, plan_run
from serve_apps.services.stopping import resume_tenant, stop_tenant
from serve_apps.views.federation import stop_view

router = APIRouter(prefix="/v1", tags=["explaining"], dependencies=[Depends(looking)])

TenantPathParameter = Annotated[str, Path(description="Path of the tenant.", max_length=1_000)]
Explained = Annotated[int, Query(ge=0, le=PAGE_MAX, description="Number of stages to explain; the others are only listed.")]


@router.get("/queues")
def show_queues(ports: Ports, principal: Asking, limit: Explained = 100) -> QueueView:
    """Show the waiting work of all tenants that the key covers."""
    return explain_queue(ports, principal, None, limit)


@router.get("/queues/{tenant:path}", responses=refused(403))
def show_queue(tenant: TenantPathParameter, ports: Ports, principal: Asking, limit: Explained = 100) -> QueueView:
    """Show the waiting work of the tenant and the tenants below it: mesh, position, reason, needed changes, estimated start."""
    return explain_queue(ports, principal, TenantPath(tenant), limit)


@router.get("/leases/history", responses=refused(403, 404))
def show_history(
    ports: Ports,
    principal: Asking,
    tenant: Annotated[
        str | None, Query(description="Only leases of this tenant and the tenants below it. Default: all that the key covers.")
    ] = None,
    mesh: Annotated[str | None, Query(description="Only leases of this mesh.")] = None,
    flavor: Annotated[str | None, Query(description="Only leases of this flavor.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX, description="At most this many, the latest.")] = 100,
) -> HistoryView:
    """Show the history of leases: grants, new targets, shrinks, expiries and ends."""
    of = TenantPath(tenant) if tenant is not None else None
    return lease_history(ports, principal, tenant=of, mesh=MeshId(mesh) if mesh is not None else None, flavor=flavor, limit=limit)


@router.get("/runs/{run_id}/explain", responses=refused(404))
def show_why(run_id: RunPath, ports: Ports, principal: Asking) -> RunExplanation:
    """Explain why the run has not ended: stages that have not ended, and nodes that fit no mesh."""
    return explain_run(ports, principal, record_within(ports, principal, run_id))


@router.get("/runs/{run_id}/stages/{stage_id}/explain", responses=refused(404))
def show_why_of_stage(
    run_id: RunPath,
    stage_id: Annotated[str, Path(description="Id of the stage, or its number in the run.")],
    ports: Ports,
    principal: Asking,
) -> StageExplanation:
    """Explain why a stage waits: position, reason, needed changes, estimated start, preemption victims, history."""
    return explain_stage(ports, principal, record_within(ports, principal, run_id), stage_id)


@router.post("/plan", openapi_extra=SPEC_BODY, responses=refused(403, 415))
async def show_plan(request: Request, ports: Ports, principal: Asking) -> PlanView:
    """Plan a graph without submitting it: its stages, their meshes, why they would wait, what they would preempt."""
    is_columns = expects_columns(request)
    return await run_in_threadpool(partial(plan_run, ports, principal, await request.body(), is_columns=is_columns))


@router.post("/tenants/{tenant:path}/suspend", responses=refused(403))
def suspend(tenant: TenantPathParameter, ports: Ports, principal: Asking, body: StopRequest | None = None) -> StopView:
    """Start no new work of the tenant and the tenants below it until `resume`. Running work continues."""
    reason = body.reason if body is not None else ""
    tenant_policies = stop_tenant(ports.ledger, ports.tenant_policies, TenantPath(tenant), Stop.HOLD, reason=reason, principal=principal)
    return stop_view(TenantPath(tenant), tenant_policies)


@router.post("/tenants/{tenant:path}/drain", responses=refused(403))
def drain_tenant(tenant: TenantPathParameter, ports: Ports, principal: Asking, body: StopRequest | None = None) -> StopView:
    """Start no new work, as with `suspend`, and preempt running work. Preempted work runs again after `resume`."""
    reason = body.reason if body is not None else ""
    tenant_policies = stop_tenant(ports.ledger, ports.tenant_policies, TenantPath(tenant), Stop.DRAIN, reason=reason, principal=principal)
    return stop_view(TenantPath(tenant), tenant_policies)


@router.post("/tenants/{tenant:path}/resume", responses=refused(403))
def resume(tenant: TenantPathParameter, ports: Ports, principal: Asking) -> StopView:
    """Let the tenant's work start again. Does nothing if no command stopped the tenant; a `stop` in the file stays in force."""
    tenant_policies, was_stopped = resume_tenant(ports.ledger, ports.tenant_policies, TenantPath(tenant), principal=principal)
    return stop_view(TenantPath(tenant), tenant_policies, changed=was_stopped)
