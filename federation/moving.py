"""A tenant tree with one tenant, and all below it, under another parent."""

from federation.errors import TenantCycle
from federation.tenants import TenantTree
from mesh.ids import TenantPath


def moved(tree: TenantTree, tenant: TenantPath, parent: TenantPath | None) -> TenantTree:
    """The tree after the move. Paths are names and stay.

    Raises:
        UnknownTenant: One of them is not in the tree.
        TenantCycle: The parent is the tenant, or below it.
        ConfigError: A root may have no limits, and neither may the moved tenant have them as one.
    """
    if parent is not None and tree.is_within(tree.tenant(parent).path, tree.tenant(tenant).path):
        raise TenantCycle(f"{tenant} would be its own ancestor under {parent}; choose a parent outside of it")
    return tree.with_parent(tenant, parent)
