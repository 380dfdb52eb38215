"""`/v1/changes`: the log of changes, for operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from serve_apps.requests.access import Asking
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.routes.runs import Limit
from serve_apps.schemas.history import RecordedChangesView
from serve_apps.schemas.moments import QueriedTime
from serve_apps.services import change_listing

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
    since: Annotated[QueriedTime | None, Query(description="Only changes at this time or later, like `2026-01-31T09:00:00Z`.")] = None,
    after: Annotated[
        int | None, Query(ge=0, le=1 << 53, description="`next` of an earlier response: only what has come since. Default: the newest.")
    ] = None,
    limit: Limit = 50,
) -> RecordedChangesView:
    """List changes that were made or refused, oldest first. Without `after`, the newest ones."""
    return change_listing.list_changes(
        ports.changes,
        lambda: ports.shown().tree,
        principal,
        tenant=tenant,
        user=user,
        since_ms=since or 0,
        after=after,
        limit=limit,
    )
