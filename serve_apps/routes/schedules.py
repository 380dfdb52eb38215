"""`/v1/schedules`: run templates that start by cron."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import AfterValidator

from mesh.core.printable import check_printable
from serve_apps.requests.access import Asking
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.routes.runs import Limit
from serve_apps.schemas.runs import SubmittedView
from serve_apps.schemas.schedules import ScheduleDeletedView, ScheduleDetailView, ScheduleRequest, SchedulesView, ScheduleView
from serve_apps.services import scheduling
from serve_apps.views.schedules import detail_view, schedule_view

NamePath = Annotated[str, Path(description="Name of the schedule.", max_length=200)]
OwnerQuery = Annotated[str | None, Query(max_length=1_000, description="Tenant of the schedule. Default: the key's own.")]

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


@router.get("", responses=refused(403))
def list_schedules(
    ports: Ports,
    principal: Asking,
    tenant: Annotated[
        str | None, Query(max_length=1_000, description="Only of this tenant and the tenants below it. Default: all that the key covers.")
    ] = None,
    cursor: Annotated[str, Query(max_length=1_300, description="`next` of the previous page.")] = "",
    limit: Limit = 50,
) -> SchedulesView:
    """List schedules by tenant and name, in pages."""
    listed, following = scheduling.list_schedules(ports, principal, tenant, cursor, limit)
    return SchedulesView(schedules=[schedule_view(schedule) for schedule in listed], next=following)


@router.put(
    "/{name}",
    responses={201: {"model": ScheduleView, "description": "The schedule is new."}, **refused(403, 409)},
)
def put_schedule(
    name: NamePath, body: ScheduleRequest, response: Response, ports: Ports, principal: Asking, tenant: OwnerQuery = None
) -> ScheduleView:
    """Create a schedule, or replace its rules and template. The same request again changes nothing; a pause stays."""
    schedule, is_new = scheduling.put_schedule(ports, principal, name, tenant, body)
    if is_new:
        response.status_code = HTTPStatus.CREATED
    return schedule_view(schedule)


@router.get("/{name}", responses=refused(404))
def show_schedule(name: NamePath, ports: Ports, principal: Asking, tenant: OwnerQuery = None) -> ScheduleDetailView:
    """Show a schedule with its last firings and runs."""
    schedule = scheduling.schedule_within(ports, principal, name, tenant)
    return detail_view(schedule, scheduling.runs_of(ports, schedule))


@router.delete("/{name}", responses=refused(404))
def delete_schedule(name: NamePath, ports: Ports, principal: Asking, tenant: OwnerQuery = None) -> ScheduleDeletedView:
    """Delete a schedule. Its runs go on."""
    schedule = scheduling.schedule_within(ports, principal, name, tenant)
    scheduling.delete(ports, schedule)
    return ScheduleDeletedView(name=schedule.name, tenant=schedule.tenant)


@router.post("/{name}/pause", responses=refused(404, 409))
def pause_schedule(name: NamePath, ports: Ports, principal: Asking, tenant: OwnerQuery = None) -> ScheduleView:
    """Start nothing by cron until `resume`; a queued firing is dropped. Runs go on."""
    schedule = scheduling.schedule_within(ports, principal, name, tenant)
    return schedule_view(scheduling.pause(ports, schedule, is_paused=True))


@router.post("/{name}/resume", responses=refused(404, 409))
def resume_schedule(name: NamePath, ports: Ports, principal: Asking, tenant: OwnerQuery = None) -> ScheduleView:
    """Start by cron again, from the next time on."""
    schedule = scheduling.schedule_within(ports, principal, name, tenant)
    return schedule_view(scheduling.pause(ports, schedule, is_paused=False))


@router.post("/{name}/trigger", status_code=HTTPStatus.ACCEPTED, responses=refused(404, 409))
def trigger_schedule(
    name: NamePath,
    ports: Ports,
    principal: Asking,
    tenant: OwnerQuery = None,
    idempotency_key: Annotated[
        Annotated[str, AfterValidator(check_printable)] | None,
        Header(min_length=1, max_length=200, description="Makes repeats of this call return the same run."),
    ] = None,
) -> SubmittedView:
    """Start a run of the schedule now, beside earlier ones, also while it is paused."""
    return scheduling.trigger(ports, principal, scheduling.schedule_within(ports, principal, name, tenant), idempotency_key)
