"""Why something waits, what would happen if, and what has happened to leases; holding and releasing tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from federation.quota.policies import Stop
from mesh.ids import MeshId, TenantPath
from serve_apps.answers.explaining import explain_queue, explain_run, explain_stage, plan_run, tell_story
from serve_apps.answers.stopping import release_tenant, stop_tenant
from serve_apps.requests.access import Asking, looking, record_within
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.described import refused
from serve_apps.routes.runs import PAGE_MAX, SPEC_BODY, RunPath, expect_json
from serve_apps.schemas.explanations import RunExplanation, StageExplanation
from serve_apps.schemas.plans import PlanView
from serve_apps.schemas.queues import QueueView
from serve_apps.schemas.stops import StopRequest, StopView
from serve_apps.schemas.stories import StoryView
from serve_apps.views.federation import stop_view

router = APIRouter(prefix="/v1", tags=["explaining"], dependencies=[Depends(looking)])

TenantPathParameter = Annotated[str, Path(description="The tenant's path.", max_length=1_000)]
Explained = Annotated[int, Query(ge=0, le=PAGE_MAX, description="How many stages are explained; the others are only listed.")]


@router.get("/queues")
def show_queues(ports: Ports, principal: Asking, limit: Explained = 100) -> QueueView:
    """What waits, of all tenants that the key reaches."""
    return explain_queue(ports, principal, None, limit)


@router.get("/queues/{tenant:path}", responses=refused(403))
def show_queue(tenant: TenantPathParameter, ports: Ports, principal: Asking, limit: Explained = 100) -> QueueView:
    """What waits, of the tenant and of all below it: where, at which position, why, what would have to change, when it starts."""
    return explain_queue(ports, principal, TenantPath(tenant), limit)


@router.get("/leases/story", responses=refused(403))
def show_story(
    ports: Ports,
    principal: Asking,
    tenant: Annotated[
        str | None, Query(description="Only leases of this tenant and those below; left out: all that the key reaches.")
    ] = None,
    mesh: Annotated[str | None, Query(description="Only leases of this mesh.")] = None,
    flavor: Annotated[str | None, Query(description="Only leases of this flavor.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX, description="At most this many, the last ones.")] = 100,
) -> StoryView:
    """What happened to leases: grants, plans, shrinks, cuts, ends."""
    of = TenantPath(tenant) if tenant is not None else None
    return tell_story(ports, principal, tenant=of, mesh=MeshId(mesh) if mesh is not None else None, flavor=flavor, limit=limit)


@router.get("/runs/{run_id}/explain", responses=refused(404))
def show_why(run_id: RunPath, ports: Ports, principal: Asking) -> RunExplanation:
    """Why the run is not further: each stage that has not ended, and the nodes that no mesh takes."""
    return explain_run(ports, principal, record_within(ports, principal, run_id))


@router.get("/runs/{run_id}/stages/{stage_id}/explain", responses=refused(404))
def show_why_of_stage(
    run_id: RunPath, stage_id: Annotated[str, Path(description="Its id, or its number in the run.")], ports: Ports, principal: Asking
) -> StageExplanation:
    """Why a stage is where it is: position, reason, what would have to change, when it starts, who would give way; its story."""
    return explain_stage(ports, principal, record_within(ports, principal, run_id), stage_id)


@router.post("/plan", openapi_extra=SPEC_BODY, responses=refused(403, 415))
async def show_plan(request: Request, ports: Ports, principal: Asking) -> PlanView:
    """What would become of a graph if it were submitted now: its stages, where, what they would wait for, who would give way."""
    expect_json(request)
    return await run_in_threadpool(plan_run, ports, principal, await request.body())


@router.post("/tenants/{tenant:path}/hold", responses=refused(403))
def hold(tenant: TenantPathParameter, ports: Ports, principal: Asking, body: StopRequest | None = None) -> StopView:
    """Let nothing new of the tenant, and of all below it, start; what runs goes on. It stays so until `release`."""
    reason = body.reason if body is not None else ""
    orders = stop_tenant(ports.ledger, ports.orders, TenantPath(tenant), Stop.HOLD, reason=reason, principal=principal)
    return stop_view(TenantPath(tenant), orders)


@router.post("/tenants/{tenant:path}/drain", responses=refused(403))
def drain_tenant(tenant: TenantPathParameter, ports: Ports, principal: Asking, body: StopRequest | None = None) -> StopView:
    """As `hold`, and what runs is stopped as well, to run again after `release`."""
    reason = body.reason if body is not None else ""
    orders = stop_tenant(ports.ledger, ports.orders, TenantPath(tenant), Stop.DRAIN, reason=reason, principal=principal)
    return stop_view(TenantPath(tenant), orders)


@router.post("/tenants/{tenant:path}/release", responses=refused(403))
def release(tenant: TenantPathParameter, ports: Ports, principal: Asking) -> StopView:
    """Let the tenant's work start again. Harmless when it was not stopped; what the file says stands."""
    orders, was_stopped = release_tenant(ports.ledger, ports.orders, TenantPath(tenant), principal=principal)
    return stop_view(TenantPath(tenant), orders, changed=was_stopped)
