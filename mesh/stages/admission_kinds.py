"""Workloads of one kind that want slots: the same tenant, slot and reserved groups. A refusal of one holds for all, so each question is
asked once.

Running workloads that could use more slots of their pool are kinds of their own.

Whether a pool has room for a slot is the same question for all kinds with this slot. `Crowds` lists the kinds that wait for its answer, so
that room which comes costs a question for each slot size, and a trial for each kind that gets some of it; not one for each kind.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sortedcontainers import SortedDict  # type: ignore[import-untyped]  # it carries no types

from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import SlotShape, amounts_of
from mesh.stages.stage_settings import NO_QUEUE, QueueRules

#: Tenant, shape of the slot, the pool in which running workloads of the kind grow (empty: they are queued), and `Kind.reserves`.
KindKey = tuple[TenantPath, SlotShape, PoolName, frozenset[PoolName]]
#: Key of `QueueRules.key`; arrival; name: the least goes first. Turns of one kind never change; those of two kinds are compared by
#: `Kind.first_at`.
Turn = tuple[int, int, StageId]


class CrowdKey(NamedTuple):
    """Room for which kinds wait in one order. That order never changes, since their turns are of equal rules."""

    pool: PoolName  #: The pool without room.
    shape: SlotShape  #: Slot without room there.
    may_take_reserved: bool  #: Room of the pool's reserved groups counts.
    rules: QueueRules


class Crowds:
    """Kinds with a queue that a pool has refused for want of room, by that room; each listed by the turn of its first workload."""

    def __init__(self) -> None:
        self._crowds: dict[CrowdKey, SortedDict] = {}

    def __iter__(self) -> Iterator[CrowdKey]:
        return iter(tuple(self._crowds))

    def add(self, crowd: CrowdKey, turn: Turn, key: KindKey) -> None:
        """List a kind."""
        self._crowds.setdefault(crowd, SortedDict())[turn] = key

    def remove(self, crowd: CrowdKey, turn: Turn) -> None:
        """Take a kind off the list."""
        kinds = self._crowds[crowd]
        del kinds[turn]
        if not kinds:
            del self._crowds[crowd]

    def first(self, crowd: CrowdKey) -> tuple[Turn, KindKey] | None:
        """Return the kind whose first workload comes first; None if none waits for this room."""
        kinds = self._crowds.get(crowd)
        return kinds.peekitem(0) if kinds else None

    def listed(self, crowd: CrowdKey) -> tuple[tuple[Turn, KindKey], ...]:
        """Return all kinds that wait for this room, in order."""
        return tuple(self._crowds[crowd].items())


@dataclass(slots=True, kw_only=True)
class Kind:
    """One kind, kept while a workload of it is queued, could grow, or requests its lease."""

    key: KindKey
    crowds: Crowds = field(repr=False)  #: Lists this kind under each pool in `crowded` while it has a queue.
    rules: QueueRules = NO_QUEUE  #: Aging of its workloads; workloads that grow do not age.
    queue: list[Turn] = field(default_factory=list)  #: Sorted.
    refused_by: dict[PoolName, tuple[Reason, str]] = field(default_factory=dict)  #: Since room last came; these pools are not tried.
    crowded: set[PoolName] = field(default_factory=set)  #: The refusing pools without room; the others refused the lease.
    asking: int = 0  #: Number of pending lease requests.

    @property
    def shape(self) -> SlotShape:
        """Room that a slot of its workloads takes of nodes."""
        return self.key[1]

    @property
    def slot(self) -> ResourceSet:
        """Slot of its workloads."""
        return amounts_of(self.shape)

    @property
    def reserves(self) -> frozenset[PoolName]:
        """Pools whose reserved groups it may take."""
        return self.key[3]

    def room_in(self, pool: PoolName) -> CrowdKey:
        """Return the room of the pool for which it waits, if it waits there."""
        return CrowdKey(pool, self.shape, pool in self.reserves, self.rules)

    def add(self, turn: Turn) -> None:
        """Queue a workload."""
        first = self.queue[0] if self.queue else None
        insort(self.queue, turn)
        self._list_again(first)

    def remove(self, turn: Turn) -> None:
        """Take a workload out of the queue."""
        first = self.queue[0]
        del self.queue[bisect_left(self.queue, turn)]
        self._list_again(first)

    def _list_again(self, first: Turn | None) -> None:
        """Change its position among the kinds that wait for room, from that of the workload that was its first."""
        now = self.queue[0] if self.queue else None
        if now == first:
            return
        for pool in self.crowded:
            if first is not None:
                self.crowds.remove(self.room_in(pool), first)
            if now is not None:
                self.crowds.add(self.room_in(pool), now, self.key)

    def first_at(self, now_ms: int) -> Turn:
        """Return the turn of its first workload as it compares with those of other kinds now."""
        return aged(self.queue[0], self.rules, now_ms)

    def refuse_room(self, pool: PoolName, refusal: tuple[Reason, str]) -> None:
        """Note that the pool has no room for a slot."""
        self.refused_by[pool] = refusal
        if pool not in self.crowded:
            self.crowded.add(pool)
            if self.queue:
                self.crowds.add(self.room_in(pool), self.queue[0], self.key)

    def refuse_lease(self, pool: PoolName, refusal: tuple[Reason, str]) -> None:
        """Note that no lease was granted in the pool. New room in the pool does not lift this refusal."""
        self._leave_crowd(pool)
        self.refused_by[pool] = refusal

    def lift(self, pool: PoolName) -> None:
        """Try the pool again, which has room for a slot by now."""
        self._leave_crowd(pool)
        self.refused_by.pop(pool, None)

    def _leave_crowd(self, pool: PoolName) -> None:
        if pool in self.crowded:
            self.crowded.remove(pool)
            if self.queue:
                self.crowds.remove(self.room_in(pool), self.queue[0])

    def reopen(self) -> None:
        """Try every pool again."""
        for pool in tuple(self.crowded):
            self._leave_crowd(pool)
        self.refused_by.clear()

    def sort_again(self, rules: QueueRules, turns: Iterable[Turn]) -> None:
        """Follow other rules, by which its workloads have these turns, and try every pool again."""
        self.reopen()
        self.rules, self.queue = rules, sorted(turns)

    def explanation(self, passing: Collection[Reason]) -> tuple[Reason, str]:
        """Return why the kind waits after all pools have refused; a `passing` reason comes before a permanent one."""
        refusals = list(self.refused_by.values())
        reason = next((reason for reason, _ in refusals if reason in passing), refusals[0][0])
        return reason, "; ".join(dict.fromkeys(detail for _, detail in refusals))


def aged(turn: Turn, rules: QueueRules, now_ms: int) -> Turn:
    """Return the turn as it compares with those of other queues now."""
    key, arrival, name = turn
    return key - rules.gained(now_ms), arrival, name
