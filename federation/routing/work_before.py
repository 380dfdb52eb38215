"""The work that comes before a piece of work at a mesh: how long until its turn, and how much that is for the size of the mesh."""

from federation.estimates import wait_ms
from federation.snapshot import MeshView
from mesh.resources import ResourceSet

#: Loads are compared in millionths of a pool.
_PARTS = 1_000_000


def wait_behind_ms(slot: ResourceSet, view: MeshView, room: int, run_ms: int, planned: ResourceSet, *, running: int) -> int:
    """The wait behind the mesh's queue and behind what is planned for it.

    Args:
        run_ms: How long each stage runs that has to end first.
        running: How many of these run at once.
    """
    if not slot:
        return 0  # What asks for nothing has room always.
    ours = max([planned[name] // units for name, units in slot.items()]) if planned else 0
    return wait_ms(waiting=view.waiting + ours, room=room, running=running, run_ms=run_ms)


def load_before(slot: ResourceSet, view: MeshView, planned: ResourceSet) -> int:
    """Work that comes first, in millionths of the mesh's capacity: what is planned, and a slot for each waiting stage.

    Nobody knows here how large the waiting stages are, so they count as large as this one.
    """
    if not view.waiting and not planned:
        return 0
    pools = view.record.pools
    before = [(planned[name] + view.waiting * units, sum([pool.capacity[name] for pool in pools])) for name, units in slot.items()]
    return max([units * _PARTS // held for units, held in before if held], default=view.waiting)
