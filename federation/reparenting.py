"""Tenant tree in which one tenant, with all tenants below it, has moved to another parent."""

from federation.errors import TenantCycle
from federation.tenants import TenantTree
from mesh.core.ids import TenantPath


def moved(tree: TenantTree, tenant: TenantPath, parent: TenantPath | None) -> TenantTree:
    """Return the tree after the move. Paths are names and stay.

    Raises:
        UnknownTenant: The tenant or the parent is not in the tree.
        TenantCycle: The parent is the tenant, or below it.
        ConfigError: The tenant would become a root and has limits; a root may have none.
    """
    if parent is not None and tree.is_within(tree.tenant(parent).path, tree.tenant(tenant).path):
        raise TenantCycle(f"{tenant} would be its own ancestor under {parent}; choose a parent outside of it")
    return tree.with_parent(tenant, parent)
