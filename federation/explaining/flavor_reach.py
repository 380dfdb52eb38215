"""Which flavors a piece of work could take: what its mesh has, and what its tenant could be granted."""

from __future__ import annotations

from collections.abc import Mapping

from federation.explaining.pieces import Piece
from federation.explaining.queue_places import Flavors
from federation.snapshot import MeshView
from federation.tenants import TenantTree
from mesh.ids import FlavorName, MeshId, TenantPath
from mesh.resources import ResourceSet


class FlavorReach:
    """Over the limits and the meshes of one snapshot; what is asked often is looked up once."""

    def __init__(self, tree: TenantTree, meshes: Mapping[MeshId, MeshView]) -> None:
        self._tree = tree
        self._meshes = meshes
        self._could_take: dict[tuple[MeshId, TenantPath, ResourceSet], Flavors] = {}

    def at_mesh(self, piece: Piece) -> tuple[FlavorName, ...]:
        """Those of the mesh's pools that could hold it when empty, or all where none could; none of a mesh that is away, as any may do."""
        view = self._meshes.get(piece.mesh)
        pools = view.record.pools if view is not None else ()
        return tuple(sorted({pool.flavor for pool in pools if piece.slot <= pool.capacity} or {pool.flavor for pool in pools}))

    def of(self, piece: Piece) -> Flavors:
        """Those that it could ever take: its mesh has a pool that is large enough, its tenant could be granted as much. All of the
        mesh's where that is none."""
        key = (piece.mesh, piece.tenant, piece.slot)
        known = self._could_take.get(key)
        if known is None:
            flavors = self.at_mesh(piece)
            self._could_take[key] = known = frozenset(flavor for flavor in flavors if self._may_ever(piece, flavor)) or frozenset(flavors)
        return known

    def _may_ever(self, piece: Piece, flavor: FlavorName) -> bool:
        return piece.tenant in self._tree.tenants and all(
            units <= self._tree.potential(piece.tenant, (flavor, name)) for name, units in piece.slot.items()
        )
