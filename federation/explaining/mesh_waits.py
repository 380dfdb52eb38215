"""Wait in the queue of a mesh: room, and the time until it is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federation.estimates import overdue_ms, wait_ms
from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.pending_stages import PendingStage
from federation.explaining.run_times import RunTimes
from federation.snapshot import MeshView, PoolRecord
from mesh.core.ids import MeshId
from mesh.core.resources import NOTHING, ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshWait:
    """Wait for room; no wait for an empty request, and no known wait at an absent mesh."""

    is_wait: bool = False
    wait_ms: int = 0
    overdue_ms: int = 0  #: All stages there are overdue by so much, so the wait is unknown.


class MeshWaits:
    """Waits at the meshes of one snapshot."""

    def __init__(self, meshes: Mapping[MeshId, MeshView], reach: FlavorReach, times: RunTimes) -> None:
        self._meshes = meshes
        self._reach = reach
        self._times = times

    def of(self, pending: PendingStage, ahead: int) -> MeshWait:
        """Return the wait, by the pools that the piece could take: stages in other pools make no room for it, nor for those before it.

        The number of stages in a pool is unknown here. So the used part of the pool counts in slots of the piece, up to the number of
        stages that run on the mesh.

        Args:
            ahead: Stages before it in the queue.
        """
        view = self._meshes.get(pending.mesh)
        if view is None or not pending.slot:
            return MeshWait()
        pools = [pool for pool in view.record.pools if pool.flavor in self._reach.of(pending)]
        free = [_slots(pool, pending.slot, used=pool.used) for pool in pools]
        taken = sum(_slots(pool, pending.slot) for pool in pools) - sum(free)
        room, run_ms, age_ms = max(free, default=0), self._times.run_ms(pending.mesh), self._times.age_ms(pending.mesh)
        return MeshWait(
            is_wait=ahead + 1 > room,
            wait_ms=wait_ms(waiting=ahead, room=room, running=min(taken, view.claimed), run_ms=run_ms, age_ms=age_ms),
            overdue_ms=overdue_ms(waiting=ahead, room=room, run_ms=run_ms, age_ms=age_ms),
        )


def _slots(pool: PoolRecord, slot: ResourceSet, *, used: ResourceSet = NOTHING) -> int:
    """Return how many slots fit into the unused part of the pool."""
    return min(max(0, pool.capacity[name] - used[name]) // units for name, units in slot.items())
