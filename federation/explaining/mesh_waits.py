"""What the queue of a mesh has a piece of work wait for: room, when it comes about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federation.estimates import overdue_ms, wait_ms
from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.pieces import Piece
from federation.explaining.run_times import RunTimes
from federation.snapshot import MeshView, PoolRecord
from mesh.ids import MeshId
from mesh.resources import NOTHING, ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshWait:
    """The wait for room; none for what needs none, and none that anybody knows of at a mesh that is away."""

    is_wait: bool = False
    wait_ms: int = 0
    overdue_ms: int = 0  #: All that runs there should have ended so long ago, so the wait says nothing.


class MeshWaits:
    """Over the meshes of one snapshot."""

    def __init__(self, meshes: Mapping[MeshId, MeshView], reach: FlavorReach, times: RunTimes) -> None:
        self._meshes = meshes
        self._reach = reach
        self._times = times

    def of(self, piece: Piece, ahead: int) -> MeshWait:
        """All three numbers are of the pools that it could take: what ends on others makes no room for it, nor for those before it. How
        many stages run in a pool nobody tells here, so what is taken of it counts in its slots, and as no more than run on the mesh.

        Args:
            ahead: Stages that stand before it in the queue.
        """
        view = self._meshes.get(piece.mesh)
        if view is None or not piece.slot:
            return MeshWait()
        pools = [pool for pool in view.record.pools if pool.flavor in self._reach.of(piece)]
        free = [_slots(pool, piece.slot, used=pool.used) for pool in pools]
        taken = sum(_slots(pool, piece.slot) for pool in pools) - sum(free)
        room, run_ms, age_ms = max(free, default=0), self._times.run_ms(piece.mesh), self._times.age_ms(piece.mesh)
        return MeshWait(
            is_wait=ahead + 1 > room,
            wait_ms=wait_ms(waiting=ahead, room=room, running=min(taken, view.claimed), run_ms=run_ms, age_ms=age_ms),
            overdue_ms=overdue_ms(waiting=ahead, room=room, run_ms=run_ms, age_ms=age_ms),
        )


def _slots(pool: PoolRecord, slot: ResourceSet, *, used: ResourceSet = NOTHING) -> int:
    """How many fit into what is not used of the pool."""
    return min(max(0, pool.capacity[name] - used[name]) // units for name, units in slot.items())
