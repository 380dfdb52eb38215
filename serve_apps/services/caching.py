"""Lists and removes cached values, as far as a key covers them."""

from __future__ import annotations

from dag.errors import SpecError
from dag.result_cache import ENTRIES_MAX, CacheEntry, CacheStore
from federation.api_keys import EVERYBODY
from federation.tenants import TenantTree
from mesh.core.ids import TenantPath
from serve_apps.requests.access import reaches
from serve_apps.requests.auth import Principal
from serve_apps.schemas.cached import CacheDropRequest, CachedView, CacheView
from serve_apps.services.stopping import check_reach


def list_cached(cache: CacheStore, tree: TenantTree, principal: Principal, tenant: str | None, limit: int) -> CacheView:
    """Return the newest entries of a tenant, or of all tenants that the key covers.

    Raises:
        OutOfReach: The key does not cover the tenant, or there is none.
    """
    if tenant is not None:
        check_reach(principal, TenantPath(tenant), tree.tenants)
    asked = [TenantPath(tenant)] if tenant is not None else [path for path in tree.tenants if reaches(principal, path)]
    entries = [entry for path in asked for entry in cache.entries(path, limit)]
    entries.sort(key=lambda entry: (entry.created_ms, entry.key), reverse=True)
    return CacheView(entries=[cached_view(entry) for entry in entries[:limit]])


def drop_cached(cache: CacheStore, tree: TenantTree, principal: Principal, asked: CacheDropRequest) -> int:
    """Remove entries of a tenant; return their number. Their files go within seconds.

    Raises:
        OutOfReach: As `list_cached`.
        SpecError: The request names no tenant or no entries.
    """
    if asked.tenant is None and principal.tenant == EVERYBODY:
        raise SpecError((("/tenant", "is missing; this API key covers every tenant, so name the tenant of the values"),))
    if not (asked.keys or asked.run or asked.all):
        raise SpecError((("", "names no values; give `keys`, `run`, or `all: true`"),))
    tenant = TenantPath(asked.tenant) if asked.tenant is not None else principal.tenant
    check_reach(principal, tenant, tree.tenants)
    keys = tuple(asked.keys)
    if asked.run or asked.all:
        entries = cache.entries(tenant, ENTRIES_MAX)
        keys += tuple(entry.key for entry in entries if asked.all or entry.run == asked.run)
    return cache.expire(tenant, tuple(dict.fromkeys(keys)))


def cached_view(entry: CacheEntry) -> CachedView:
    """Return an entry as users see it."""
    return CachedView(
        key=entry.key,
        tenant=entry.tenant,
        function=entry.function,
        run=entry.run,
        node=entry.node,
        size_bytes=entry.value.size_bytes,
        created_ms=entry.created_ms,
        expires_ms=entry.expires_ms,
        took_ms=entry.took_ms,
        hits=entry.hits,
    )
