"""Workloads of one kind that want slots: the same tenant, the same slot. A refusal of one holds for all, so each question is asked once.

Running workloads that could use more slots of their pool are kinds of their own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import SlotShape
from mesh.stages.stage_settings import NO_QUEUE, QueueRules

#: Tenant, shape of the slot, and the pool in which running workloads of the kind grow; empty: they are queued.
KindKey = tuple[TenantPath, SlotShape, PoolName]
NO_POOL = PoolName("")
#: Key of `QueueRules.key`; arrival; name: the least goes first. Turns of one kind never change; those of two kinds are compared by
#: `Kind.first_at`.
Turn = tuple[int, int, StageId]


@dataclass(slots=True, kw_only=True)
class Kind:
    """One kind, kept while a workload of it is queued, could grow, or requests its lease."""

    slot: ResourceSet
    shape: SlotShape  #: Room that the slot takes of nodes.
    rules: QueueRules = NO_QUEUE  #: Aging of its workloads; workloads that grow do not age.
    queue: list[Turn] = field(default_factory=list)  #: Sorted.
    refused_by: dict[PoolName, tuple[Reason, str]] = field(default_factory=dict)  #: Since room last came; these pools are not tried.
    crowded: set[PoolName] = field(default_factory=set)  #: The refusing pools without room; the others refused the lease.
    asking: int = 0  #: Number of pending lease requests.

    def add(self, turn: Turn) -> None:
        """Queue a workload."""
        insort(self.queue, turn)

    def remove(self, turn: Turn) -> None:
        """Take a workload out of the queue."""
        del self.queue[bisect_left(self.queue, turn)]

    def first_at(self, now_ms: int) -> Turn:
        """Return the turn of its first workload as it compares with those of other kinds now."""
        return aged(self.queue[0], self.rules, now_ms)

    def refuse_room(self, pool: PoolName, refusal: tuple[Reason, str]) -> None:
        """Note that the pool has no room for a slot."""
        self.refused_by[pool] = refusal
        self.crowded.add(pool)

    def refuse_lease(self, pool: PoolName, refusal: tuple[Reason, str]) -> None:
        """Note that no lease was granted in the pool. New room in the pool does not lift this refusal."""
        self.refused_by[pool] = refusal
        self.crowded.discard(pool)

    def lift(self, has_room: Callable[[Kind, PoolName], bool]) -> bool:
        """Lift the refusals of pools that have room by now; return whether there is such a pool."""
        roomy = [pool for pool in self.crowded if has_room(self, pool)]
        for pool in roomy:
            del self.refused_by[pool]
            self.crowded.remove(pool)
        return bool(roomy)

    def reopen(self) -> None:
        """Try every pool again."""
        self.refused_by.clear()
        self.crowded.clear()

    def explanation(self, passing: Collection[Reason]) -> tuple[Reason, str]:
        """Return why the kind waits after all pools have refused; a `passing` reason comes before a permanent one."""
        refusals = list(self.refused_by.values())
        reason = next((reason for reason, _ in refusals if reason in passing), refusals[0][0])
        return reason, "; ".join(dict.fromkeys(detail for _, detail in refusals))


def aged(turn: Turn, rules: QueueRules, now_ms: int) -> Turn:
    """Return the turn as it compares with those of other queues now."""
    key, arrival, name = turn
    return key - rules.gained(now_ms), arrival, name
