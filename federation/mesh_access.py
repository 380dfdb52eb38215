"""Access of tenants: to meshes, by what a mesh opens itself to, within what the root's file allows; to flavors, by their quotas."""

from collections.abc import Iterable

from mesh.core.ids import FlavorName, TenantPath


def may_use(record_tenants: Iterable[str], tenant: TenantPath) -> bool:
    """Return whether a mesh that is open to `record_tenants` (paths with all below them, or `*`) admits work of the tenant."""
    return any(allowed in ("*", tenant) or tenant.startswith(f"{allowed}/") for allowed in record_tenants)


def narrowed(reported: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Return the tenants of a mesh that opens itself to `reported`, within those that are `allowed`; empty if there are none.

    Args:
        reported: Paths or `*`, as for `may_use`.
        allowed: Paths or `*`, as for `may_use`.
    """
    ceiling, kept = tuple(allowed), []
    for path in reported:
        is_allowed = may_use(ceiling, TenantPath(path))
        kept += [path] if is_allowed else [below for below in ceiling if may_use((path,), TenantPath(below))]
    return tuple(dict.fromkeys(kept))


def words_of_closed(tenant: TenantPath, flavor: FlavorName, resource: str) -> str:
    """Explain FLAVOR_CLOSED, with the remedy."""
    return (
        f"tenant {tenant} names no quota of flavor {flavor}, nor does a tenant above it; add one, "
        f"or `quotas: {{{flavor}: {{{resource}: {{nominal: 0}}}}}}` to open the flavor for borrowing"
    )
