"""`/v1/changes`: who changed what, for operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from federation.change_log import NumberedChange
from mesh.core.ids import TenantPath
from serve_apps.requests.access import Asking, reaches
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.routes.runs import Limit
from serve_apps.schemas.history import RecordedChangesView, RecordedChangeView
from serve_apps.services.change_listing import ChangeFilter, changes_after, newest_changes
from serve_apps.services.stopping import check_reach

router = APIRouter(prefix="/v1/changes", tags=["changes"])


@router.get("", responses=refused(403))
def list_changes(
    ports: Ports,
    principal: Asking,
    tenant: Annotated[
        str | None,
        Query(max_length=1_000, description="Only changes about this tenant and the tenants below it. Default: all that the key covers."),
    ] = None,
    user: Annotated[str | None, Query(max_length=200, description="Only changes by this user.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Only changes at this time or later, like `2026-01-31T09:00:00Z`.")] = None,
    after: Annotated[
        int | None, Query(ge=0, le=1 << 53, description="`next` of an earlier response: only what has come since. Default: the newest.")
    ] = None,
    limit: Limit = 50,
) -> RecordedChangesView:
    """List changes that were made or refused, oldest first. Without `after`, the newest ones."""
    top = TenantPath(tenant) if tenant is not None else principal.tenant
    if not reaches(principal, top):
        check_reach(principal, top, ())
    wanted = ChangeFilter(top=top, user=user, since_ms=round(since.timestamp() * 1000) if since is not None else 0)
    found, last = newest_changes(ports.changes, wanted, limit) if after is None else changes_after(ports.changes, wanted, after, limit)
    return RecordedChangesView(changes=[_view(entry) for entry in found], next=last)


def _view(entry: NumberedChange) -> RecordedChangeView:
    change = entry.change
    return RecordedChangeView(
        number=entry.number,
        at_ms=change.at_ms,
        operation=change.operation,
        tenant=change.tenant,
        target=change.target,
        details=dict(change.details),
        key=change.key,
        user=change.user,
        source=change.source,
        request_id=change.request_id,
        outcome=change.outcome,
        code=change.code,
    )
