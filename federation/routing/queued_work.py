"""Work that comes before a stage at a mesh: the wait, and the load relative to the mesh's size."""

from federation.estimates import wait_ms
from federation.snapshot import MeshView
from mesh.core.resources import ResourceSet

#: Loads are compared in millionths of a pool.
_PARTS = 1_000_000


def wait_behind_ms(slot: ResourceSet, view: MeshView, room: int, run_ms: int, planned: ResourceSet, *, running: int) -> int:
    """Return the wait behind the mesh's queue and the work planned for it.

    Args:
        run_ms: Run time of each stage that has to end first.
        running: Number of these stages that run at once.
    """
    if not slot:
        return 0  # An empty request always has room.
    ours = max([planned[name] // units for name, units in slot.items()]) if planned else 0
    return wait_ms(waiting=view.waiting + ours, room=room, running=running, run_ms=run_ms)


def load_before(slot: ResourceSet, view: MeshView, planned: ResourceSet) -> int:
    """Return the work that comes first, in millionths of the mesh's capacity: planned work, and a slot for each waiting stage.

    The sizes of waiting stages are unknown here, so each counts as large as this one.
    """
    if not view.waiting and not planned:
        return 0
    pools = view.record.pools
    before = [(planned[name] + view.waiting * units, sum([pool.capacity[name] for pool in pools])) for name, units in slot.items()]
    return max([units * _PARTS // held for units, held in before if held], default=view.waiting)
