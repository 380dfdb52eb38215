"""`/v1/cache`: values of nodes that later nodes of the tenant take instead of running."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from serve_apps.requests.access import Asking
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.schemas.cached import CacheDroppedView, CacheDropRequest, CacheView
from serve_apps.services.caching import drop_cached, list_cached

LISTED_MAX = 1_000

router = APIRouter(prefix="/v1/cache", tags=["cache"])


@router.get("", responses=refused(403))
def list_entries(
    ports: Ports,
    principal: Asking,
    tenant: Annotated[str | None, Query(description="Only values of this tenant. Default: of all tenants that the key covers.")] = None,
    limit: Annotated[int, Query(ge=1, le=LISTED_MAX, description="At most this many.")] = 100,
) -> CacheView:
    """List cached values, newest first."""
    return list_cached(ports.cache, ports.shown().tree, principal, tenant, limit)


@router.post("/drop", responses=refused(403))
def drop_entries(ports: Ports, principal: Asking, body: CacheDropRequest) -> CacheDroppedView:
    """Remove cached values of a tenant. Runs that have taken them keep their copies."""
    return CacheDroppedView(entries=drop_cached(ports.cache, ports.shown().tree, principal, body))
