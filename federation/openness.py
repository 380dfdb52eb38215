"""Whether a mesh is open to a piece of work at all, before anybody asks about room: its labels, its tenants, and is it there to stay."""

from collections.abc import Iterable
from datetime import datetime, timezone

from federation.demand import Demand
from federation.snapshot import MeshView
from mesh.ids import TenantPath
from mesh.labels import mismatch
from mesh.reasons import Reason


def may_use(record_tenants: Iterable[str], tenant: TenantPath) -> bool:
    """Whether a mesh that is open to `record_tenants` (paths with all below them, or `*`) takes work of the tenant."""
    return any(allowed in ("*", tenant) or tenant.startswith(f"{allowed}/") for allowed in record_tenants)


def refusal_of(demand: Demand, view: MeshView, now_ms: int, queue_max: int) -> tuple[Reason, str] | None:
    """Why the mesh does not take the work whatever its size; None when it might."""
    record = view.record
    if demand.mesh is not None and demand.mesh != record.mesh:
        return Reason.LABEL_MISMATCH, f"the work is pinned to {demand.mesh}"
    lacking = mismatch(demand.labels, record.labels)
    if lacking is not None:
        return Reason.LABEL_MISMATCH, lacking
    if not may_use(record.tenants, demand.tenant):
        return Reason.TENANT_NOT_ALLOWED, f"open to {', '.join(record.tenants) or 'nobody'}, not to {demand.tenant}"
    if not view.alive:
        return Reason.MESH_UNREACHABLE, "its heartbeat is overdue"  # Without the age: the words go into events, once per change.
    if view.is_draining:
        why = view.standing.drain.reason if view.standing.drain is not None else ""
        return Reason.MESH_DRAINING, f"it is draining and takes nothing new{f' ({why})' if why else ''}"
    if view.unsteady_ms(now_ms):
        return Reason.MESH_UNSTEADY, _unsteady(view)
    if view.waiting >= queue_max:
        return Reason.QUEUE_FULL, f"{queue_max} stages or more wait for it"
    return None


def _unsteady(view: MeshView) -> str:
    """Until when, and not how much longer: the words go into events, once per change."""
    kept = view.standing.steadiness
    assert kept is not None  # noqa: S101  asked only of a mesh that is on probation
    until = datetime.fromtimestamp(kept.steady_ms / 1_000, tz=timezone.utc).strftime("%H:%M:%SZ")
    times = "once" if len(kept.losses_ms) == 1 else f"{len(kept.losses_ms)} times"
    return f"it was lost {times} lately and came back; it gets nothing new before {until}"
