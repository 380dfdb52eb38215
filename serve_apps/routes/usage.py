"""`/v1/usage`: what tenants and users have used, by day, for bills."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.exceptions import RequestValidationError

from federation.api_keys import covers
from federation.usage.accounting import day_of
from federation.usage.report import UsageBy, date_of, day_number
from mesh.core.ids import TenantPath
from serve_apps.requests.access import Asking, looking, reaches
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.schemas.moments import QueriedDay
from serve_apps.schemas.tenants import UsageView
from serve_apps.services.stopping import check_covered, check_reach, paths_in
from serve_apps.views.usage import usage_view

#: Days of one report.
DAYS_MAX = 100
#: Days of a report that names none, up to today.
DAYS = 30

router = APIRouter(prefix="/v1/usage", tags=["usage"], dependencies=[Depends(looking)])


@router.get("", responses=refused(403))
def report_usage(
    ports: Ports,
    principal: Asking,
    first: Annotated[QueriedDay | None, Query(alias="from", description="First day, in UTC, like `2026-01-31`. Default: 30 days.")] = None,
    last: Annotated[QueriedDay | None, Query(alias="to", description="Last day. Default: today.")] = None,
    tenant: Annotated[
        str | None, Query(max_length=1_000, description="Only this tenant and the tenants below it. Default: all that the key covers.")
    ] = None,
    by: Annotated[list[UsageBy] | None, Query(description="Columns that the rows tell apart; repeatable. Default: `tenant`.")] = None,
) -> UsageView:
    """Report what stages held, what of it was borrowed, and what preemptions lost; 100 days at most."""
    now_ms = ports.clock.wall_ms()
    last = last or date_of(day_of(now_ms))
    first = first or date_of(max(day_number(date.min), day_number(last) - DAYS + 1))
    if not 0 <= (last - first).days < DAYS_MAX:
        words = f"the report is of {(last - first).days + 1} days; ask for 1 to {DAYS_MAX}, the first day before the last"
        raise RequestValidationError([{"loc": ("query", "from"), "msg": words}])
    asked = TenantPath(tenant) if tenant is not None else None
    if asked is not None:
        check_covered(principal, asked)
    reading = ports.usage.read(day_number(first), day_number(last))
    wanted = [UsageBy.TENANT] if by is None else [column for column in UsageBy if column in by]
    view = usage_view(
        reading, first, last, wanted, lambda path: reaches(principal, path) and (asked is None or covers(asked, path)), now_ms
    )
    if asked is not None and not view.rows:
        check_reach(principal, asked, paths_in(ports.shown().tree))
    return view
