"""Taking a mesh out of use and back: checked against what is known, then written into the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches

from federation.errors import UnknownMesh
from federation.leases import LeaseLedger
from federation.registry import MeshRegistry, enrolled
from federation.snapshot import Snapshot
from federation.standing import Drain
from mesh.ids import MeshId


def drain_mesh(ledger: LeaseLedger, registry: MeshRegistry, mesh: MeshId, *, reason: str, by: str) -> Snapshot:
    """Let the mesh finish what it has and get nothing new; what the federation looks like then. Again: the later reason counts.

    Args:
        by: Who asks: the id of an API key, or a word for where from.
    Raises:
        UnknownMesh: Nobody ever saw a mesh of this name.
        StoreUnavailable: The store does not answer; safe to repeat.
    """
    snapshot = snapshot_now(ledger.snapshot, registry)
    _check_known(snapshot, registry, mesh)
    registry.drain(mesh, Drain(reason=reason, by=by, since_ms=snapshot.at_ms))
    return snapshot_now(ledger.snapshot, registry)


def undrain_mesh(ledger: LeaseLedger, registry: MeshRegistry, mesh: MeshId) -> tuple[Snapshot, bool]:
    """Give the mesh work again; what the federation looks like then, and whether the mesh was drained. Raises as `drain_mesh`."""
    was_drained = registry.undrain(mesh)
    snapshot = snapshot_now(ledger.snapshot, registry)
    if not was_drained:
        _check_known(snapshot, registry, mesh)
    return snapshot, was_drained


def snapshot_now(look: Callable[[], Snapshot], registry: MeshRegistry) -> Snapshot:
    """What a look at the ledger shows, with what is remembered of each mesh. Raises StoreUnavailable."""
    standings = registry.standings()
    return enrolled(look(), standings)


def only(snapshot: Snapshot, mesh: MeshId) -> Snapshot:
    """The snapshot with this mesh alone; with none, when the mesh is not there at present."""
    return replace(snapshot, meshes=tuple(view for view in snapshot.meshes if view.record.mesh == mesh))


def _check_known(snapshot: Snapshot, registry: MeshRegistry, mesh: MeshId) -> None:
    """A mesh that is away may be drained before it comes back; one that nobody ever saw is a slip of the pen."""
    known = {view.record.mesh for view in snapshot.meshes} | registry.standings().meshes.keys()
    if mesh not in known:
        near = get_close_matches(mesh, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known)) or 'none yet'}"
        raise UnknownMesh(f"no mesh {mesh} has ever joined{hint}")
