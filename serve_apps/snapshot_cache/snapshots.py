"""Snapshot of the whole federation: the ledger's snapshot and the registry's data of each mesh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from federation.configured_meshes import NO_CONFIGURED_MESHES, ConfiguredMeshes
from federation.registry import MeshRegistry, enrolled
from federation.snapshot import FederationSnapshot
from mesh.core.ids import MeshId


def snapshot_now(
    look: Callable[[], FederationSnapshot], registry: MeshRegistry, configured_meshes: ConfiguredMeshes = NO_CONFIGURED_MESHES
) -> FederationSnapshot:
    """Return the ledger's snapshot with the registry's data of each mesh, and the absent meshes. Raises StoreUnavailable."""
    conditions = registry.conditions()
    return enrolled(look(), conditions, configured_meshes)


def only(snapshot: FederationSnapshot, mesh: MeshId) -> FederationSnapshot:
    """Return the snapshot with this mesh alone, present or absent."""
    there = tuple(view for view in snapshot.meshes if view.record.mesh == mesh)
    return replace(snapshot, meshes=there, absent=tuple(away for away in snapshot.absent if away.record.mesh == mesh))
