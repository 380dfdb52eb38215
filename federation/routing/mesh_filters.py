"""Openness of a mesh to work, before any question of room: labels, tenants, and whether the mesh is there to stay."""

from datetime import datetime, timezone

from federation.mesh_access import may_use
from federation.routing.demand import RoutingRequest
from federation.snapshot import AbsentMesh, MeshRecord, MeshView, Whereabouts
from mesh.core.counting import counted, times
from mesh.core.ids import TenantPath
from mesh.core.labels import mismatch
from mesh.core.reasons import Reason


def words_of_crowd(together: tuple[TenantPath, ...]) -> str:
    """Explain why a mesh on a crowded cluster admits nothing. No tenant is named, since a reader may see only one of them."""
    return f"its Ray cluster admits {len(together)} top-level tenants, and is not `shared`: it admits nothing new"


def words_of_absence(demand: RoutingRequest, absent: AbsentMesh) -> str | None:
    """Explain where an absent mesh is that might admit the work; None if it would not."""
    is_meant = demand.mesh == absent.record.mesh if demand.mesh is not None else _might_take(demand, absent.record)
    if not is_meant:
        return None
    drain = absent.condition.drain
    return _WHERE[absent.whereabouts] + ("; it is drained" + (f" ({drain.reason})" if drain.reason else "") if drain is not None else "")


_WHERE = {
    Whereabouts.NOT_JOINED: "it has not joined yet",
    Whereabouts.LEFT: "it has left in good order, and may join again",
    Whereabouts.LOST: "it was lost, and has not reported since",
}


def _might_take(demand: RoutingRequest, record: MeshRecord) -> bool:
    """Return whether the root's file lets the mesh admit the work."""
    return (
        mismatch(demand.labels, record.labels) is None
        and may_use(record.tenants, demand.tenant)
        and any(demand.slot <= pool.capacity for pool in record.pools)
    )


def refusal_of(
    demand: RoutingRequest, view: MeshView, now_ms: int, queue_max: int, together: tuple[TenantPath, ...] = ()
) -> tuple[Reason, str] | None:
    """Return why the mesh does not admit the work, whatever its size; None if it might.

    Args:
        together: Top-level tenants that would meet on its unshared Ray cluster, as in `routing.domains`.
    """
    record = view.record
    if demand.mesh is not None and demand.mesh != record.mesh:
        return Reason.LABEL_MISMATCH, f"the work is pinned to {demand.mesh}"
    lacking = mismatch(demand.labels, record.labels)
    if lacking is not None:
        return Reason.LABEL_MISMATCH, lacking
    if not may_use(record.tenants, demand.tenant):
        return Reason.TENANT_NOT_ALLOWED, f"open to {', '.join(record.tenants) or 'nobody'}, not to {demand.tenant}"
    if together:
        return Reason.CLUSTER_NOT_SHARED, words_of_crowd(together)
    if not view.alive:
        return Reason.MESH_UNREACHABLE, "its heartbeat is overdue"  # Without the age, since events repeat the words on each change.
    if not record.cluster_answers:
        return Reason.MESH_UNREACHABLE, "its Ray cluster does not respond"
    if view.condition.drain is not None:
        why = view.condition.drain.reason
        return Reason.MESH_DRAINING, f"it is draining and admits nothing new{f' ({why})' if why else ''}"
    if view.flapping_ms(now_ms):
        return Reason.MESH_FLAPPING, _flapping(view)
    if view.waiting >= queue_max:
        return Reason.QUEUE_FULL, f"{counted(queue_max, 'stage')} or more are queued for it"
    return None


def _flapping(view: MeshView) -> str:
    """Name the end of the probation and not the rest of it, since events repeat the words on each change."""
    kept = view.condition.flap_history
    assert kept is not None  # noqa: S101  asked only of a mesh that is on probation
    until = datetime.fromtimestamp(kept.stable_ms / 1_000, tz=timezone.utc).strftime("%H:%M:%SZ")
    return f"it was lost {times(len(kept.losses_ms))} lately and came back; it gets nothing new before {until}"
