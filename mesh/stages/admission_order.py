"""Order of stages under `strict_order`: the head of each tenant's queue.

A stage with a reservation comes first, even before more urgent ones that arrive later: its victims have stopped for it, and the room
that they free is reserved for it alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from mesh.core.ids import TenantPath
from mesh.stages.admission_kinds import Turn


@dataclass(slots=True)
class _StrictQueue:
    """Stages of one tenant that have not started, of all shapes; sorted."""

    turns: list[Turn] = field(default_factory=list)
    reserved: list[Turn] = field(default_factory=list)  #: Stages among them that have a reservation.

    @property
    def first(self) -> Turn | None:
        return next(iter(self.reserved or self.turns), None)


@dataclass(slots=True)
class StrictQueues:
    """One queue for each tenant with `strict_order`.

    Each change returns the old head and the new head of the queue, or nothing if the head stays the same.
    """

    _queues: dict[TenantPath, _StrictQueue] = field(default_factory=dict)

    def first(self, tenant: TenantPath) -> Turn | None:
        """Return the stage that may start next; None if none waits."""
        queue = self._queues.get(tenant)
        return queue.first if queue is not None else None

    def add(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """Queue a stage."""
        return self._change(tenant, lambda queue: insort(queue.turns, turn))

    def remove(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """Remove a stage that has started or is gone. Harmless if it is not queued."""

        def take_out(queue: _StrictQueue) -> None:
            _take_out(queue.turns, turn)
            _take_out(queue.reserved, turn)

        changed = self._change(tenant, take_out)
        if not self._queues[tenant].turns:
            del self._queues[tenant]
        return changed

    def start_reservation(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """Move a stage with a reservation before those without."""
        return self._change(tenant, lambda queue: insort(queue.reserved, turn))

    def end_reservation(self, tenant: TenantPath, turn: Turn) -> tuple[Turn, ...]:
        """Return a stage to its old position. Harmless if it has no reservation."""
        return self._change(tenant, lambda queue: _take_out(queue.reserved, turn))

    def sort_again(self, turn_of: Callable[[Turn], Turn]) -> None:
        """Replace each turn by its new one, after a change of settings."""
        for queue in self._queues.values():
            queue.turns = sorted(map(turn_of, queue.turns))
            queue.reserved = sorted(map(turn_of, queue.reserved))

    def _change(self, tenant: TenantPath, change: Callable[[_StrictQueue], None]) -> tuple[Turn, ...]:
        queue = self._queues.setdefault(tenant, _StrictQueue())
        before = queue.first
        change(queue)
        now = queue.first
        return tuple(turn for turn in (before, now) if turn is not None) if now != before else ()


def _take_out(turns: list[Turn], turn: Turn) -> None:
    place = bisect_left(turns, turn)
    if turns[place : place + 1] == [turn]:
        del turns[place]
