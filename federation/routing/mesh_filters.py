"""Openness of a mesh to work, before any question of room: labels, tenants, whether the mesh is there to stay, and its largest nodes."""

from federation.mesh_access import may_use
from federation.routing.routing_request import RoutingRequest
from federation.snapshot import AbsentMesh, MeshRecord, MeshView, PoolRecord, Whereabouts
from mesh.core.clock import clock_time
from mesh.core.counting import counted, times
from mesh.core.ids import TenantPath
from mesh.core.labels import mismatch
from mesh.core.node_sizes import may_grow
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang

#: Node sizes that an explanation names; more are only counted.
SIZES_SHOWN = 4


def words_of_crowd(together: tuple[TenantPath, ...]) -> str:
    """Explain why a mesh on a crowded cluster admits nothing. No tenant is named, since a reader may see only one of them."""
    return f"its Ray cluster admits {len(together)} top-level tenants, and is not `shared`: it admits nothing new"


def refusal_of_absent(request: RoutingRequest, absent: AbsentMesh) -> tuple[Reason, str] | None:
    """Return why an absent mesh does not admit the work; None if nobody would expect it to.

    The root's file says what the mesh would admit. A mesh that the file lacks is expected only by work that is pinned to it.
    """
    record = absent.record
    if request.mesh not in (None, record.mesh):
        return None
    if not _might_take(request, record) and (request.mesh is None or record.pools):
        if request.mesh is None:
            return None
        return refusal_of_kind(request, record) or (Reason.POOL_TOO_SMALL, words_of_pools(request, record))
    drain = absent.condition.drain
    return Reason.MESH_UNREACHABLE, _WHERE[absent.whereabouts] + (
        "; it is drained" + (f" ({drain.reason})" if drain.reason else "") if drain is not None else ""
    )


_WHERE = {
    Whereabouts.NOT_JOINED: "it has not joined yet",
    Whereabouts.LEFT: "it has left in good order, and may join again",
    Whereabouts.LOST: "it was lost, and has not reported since",
}


def _might_take(request: RoutingRequest, record: MeshRecord) -> bool:
    """Return whether the root's file lets the mesh admit the work."""
    return (
        mismatch(request.labels, record.labels) is None
        and may_use(record.tenants, request.tenant)
        and any(holds(request, pool) for pool in record.pools)
    )


def holds(request: RoutingRequest, pool: PoolRecord) -> bool:
    """Return whether the pool could hold a slot of the work when it is empty."""
    return pool.could_hold(request.slot, request.priority, is_gang=request.gang is not None)


def words_of_pools(request: RoutingRequest, record: MeshRecord) -> str:
    """Explain that no pool of the mesh could hold the slot, even when empty."""
    slot, pools = request.slot, sorted(record.pools, key=lambda pool: pool.pool)
    large = [pool for pool in pools if slot <= pool.capacity]
    sizes = ", ".join(f"{pool.pool} {pool.capacity!r}" for pool in large or pools) or "none"
    if not large:
        return f"needs {slot!r}, more than any pool holds when empty ({sizes})"
    takers = "no gang takes" if request.gang is not None else "only urgent slots of their size or less take"
    return f"needs {slot!r}, more than any pool has beside its reserved groups, which {takers} ({sizes})"


def words_of_nodes(slot: ResourceSet, record: MeshRecord, gang: Gang | None = None) -> str | None:
    """Explain that no node of the mesh could hold the slot, even when empty; None if one could, or if that is unknown.

    The nodes together must hold the bundles of a gang.

    It is unknown while the mesh has not listed its nodes, and while its pools declare more of a resource than its nodes have: an
    autoscaler may then add nodes of any size.
    """
    sizes_there = [(size.total, size.nodes) for size in record.nodes]
    if not slot or not record.nodes or (gang or Gang(size=1, bundle=slot)).copies_in(sizes_there):
        return None
    if may_grow(slot, (pool.capacity for pool in record.pools), (size.total.times(size.nodes) for size in record.nodes)):
        return None
    sizes = ", ".join(f"{size.nodes} of {_only(slot, size.total)!r}" for size in record.nodes[:SIZES_SHOWN])
    more = f", and {counted(len(record.nodes) - SIZES_SHOWN, 'other size')}" if len(record.nodes) > SIZES_SHOWN else ""
    if gang is not None:
        return f"needs {gang.words()}, and its nodes hold {gang.places_in(sizes_there)} of them when empty ({sizes}{more})"
    return f"needs {slot!r} on one node, more than any of its nodes has when empty ({sizes}{more})"


def _only(slot: ResourceSet, total: ResourceSet) -> ResourceSet:
    return ResourceSet({name: total[name] for name in slot})


def refusal_of_kind(request: RoutingRequest, record: MeshRecord) -> tuple[Reason, str] | None:
    """Return why the mesh is not meant for the work: labels or tenants; None if it is."""
    if request.mesh is not None and request.mesh != record.mesh:
        return Reason.LABEL_MISMATCH, f"the work is pinned to {request.mesh}"
    lacking = mismatch(request.labels, record.labels)
    if lacking is not None:
        return Reason.LABEL_MISMATCH, lacking
    if not may_use(record.tenants, request.tenant):
        return Reason.TENANT_NOT_ALLOWED, f"open to {', '.join(record.tenants) or 'nobody'}, not to {request.tenant}"
    return None


def refusal_of(
    request: RoutingRequest, view: MeshView, now_ms: int, queue_max: int, together: tuple[TenantPath, ...] = ()
) -> tuple[Reason, str] | None:
    """Return why the mesh does not admit the work, whatever the work's size; None if it might.

    Args:
        together: Top-level tenants that would meet on its unshared Ray cluster, as in `routing.domains`.
    """
    record = view.record
    refusal = refusal_of_kind(request, record)
    if refusal is not None:
        return refusal
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
    until = clock_time(kept.stable_ms)
    return f"it was lost {times(len(kept.losses_ms))} lately and came back; it gets nothing new before {until}"
