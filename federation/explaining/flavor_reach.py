"""Flavors that a pending stage could take: those of its mesh that its tenant could be granted."""

from __future__ import annotations

from collections.abc import Mapping

from federation.explaining.pending_stages import PendingStage
from federation.explaining.queue_positions import Flavors
from federation.snapshot import MeshView
from federation.tenants import TenantTree
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import ResourceSet


class FlavorReach:
    """Reachable flavors by the limits and meshes of one snapshot, cached."""

    def __init__(self, tree: TenantTree, meshes: Mapping[MeshId, MeshView]) -> None:
        self._tree = tree
        self._meshes = meshes
        self._could_take: dict[tuple[MeshId, TenantPath, ResourceSet], Flavors] = {}

    def at_mesh(self, pending: PendingStage) -> tuple[FlavorName, ...]:
        """Return the flavors of the mesh's pools that could hold the stage when empty; all of the mesh's if none could.

        The result is empty for an absent mesh, where any flavor may do.
        """
        view = self._meshes.get(pending.mesh)
        pools = view.record.pools if view is not None else ()
        return tuple(sorted({pool.flavor for pool in pools if pending.slot <= pool.capacity} or {pool.flavor for pool in pools}))

    def of(self, pending: PendingStage) -> Flavors:
        """Return the flavors of `at_mesh` that the tenant could be granted for the stage; all of `at_mesh` if there is none."""
        key = (pending.mesh, pending.tenant, pending.slot)
        known = self._could_take.get(key)
        if known is None:
            flavors = self.at_mesh(pending)
            self._could_take[key] = known = frozenset(flavor for flavor in flavors if self._may_ever(pending, flavor)) or frozenset(flavors)
        return known

    def _may_ever(self, pending: PendingStage, flavor: FlavorName) -> bool:
        return pending.tenant in self._tree.tenants and all(
            units <= self._tree.potential(pending.tenant, (flavor, name)) for name, units in pending.slot.items()
        )
