"""Draining and undraining of meshes: checks that the mesh is known, then writes to the registry."""

from __future__ import annotations

from federation.configured_meshes import NO_CONFIGURED_MESHES, ConfiguredMeshes
from federation.errors import UnknownMesh
from federation.leases import LeaseLedger
from federation.mesh_conditions import Drain
from federation.registry import MeshRegistry
from federation.snapshot import FederationSnapshot
from mesh.core.ids import MeshId
from mesh.core.near_names import nearest
from serve_apps.snapshot_cache.snapshots import snapshot_now


def drain_mesh(
    ledger: LeaseLedger,
    registry: MeshRegistry,
    mesh: MeshId,
    *,
    reason: str,
    by: str,
    configured_meshes: ConfiguredMeshes = NO_CONFIGURED_MESHES,
) -> FederationSnapshot:
    """Drain the mesh and return the changed snapshot. A repeated drain replaces the reason.

    Args:
        by: Id of the caller's API key, or a word for where the call comes from.
        configured_meshes: Meshes that the root's file names.
    Raises:
        UnknownMesh: No mesh of this name has ever joined, and the file has none.
        StoreUnavailable: The store does not answer; safe to repeat.
    """
    snapshot = snapshot_now(ledger.snapshot, registry, configured_meshes)
    check_known(snapshot, mesh)
    registry.drain(mesh, Drain(reason=reason, by=by, since_ms=snapshot.at_ms))
    return snapshot_now(ledger.snapshot, registry, configured_meshes)


def undrain_mesh(
    ledger: LeaseLedger, registry: MeshRegistry, mesh: MeshId, *, configured_meshes: ConfiguredMeshes = NO_CONFIGURED_MESHES
) -> tuple[FederationSnapshot, bool]:
    """Undrain the mesh; return the changed snapshot and whether the mesh was drained. Raises as `drain_mesh`."""
    was_drained = registry.undrain(mesh)
    snapshot = snapshot_now(ledger.snapshot, registry, configured_meshes)
    if not was_drained:
        check_known(snapshot, mesh)
    return snapshot, was_drained


def check_known(snapshot: FederationSnapshot, mesh: MeshId) -> None:
    """Refuse a mesh that never joined and that the file does not name: its name is a typing error. An absent mesh may join later.

    Raises:
        UnknownMesh: The message suggests a near name, or lists the known ones.
    """
    known = {view.record.mesh for view in snapshot.meshes} | {away.record.mesh for away in snapshot.absent}
    if mesh not in known:
        hint = nearest(mesh, known) or f"; known meshes: {', '.join(sorted(known)) or 'none yet'}"
        raise UnknownMesh(f"no mesh {mesh} has ever joined{hint}")
