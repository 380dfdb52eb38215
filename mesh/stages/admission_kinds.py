"""Queued workloads of one kind: the same tenant, the same slot. What refuses one of them refuses all, and is asked once."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.pools import Pool
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

KindKey = tuple[TenantPath, ResourceSet]
#: Priority, negated; arrival; name: the least goes first.
Turn = tuple[int, int, StageId]


@dataclass(slots=True, kw_only=True)
class Kind:
    """One kind, as long as one of it is queued or asks for its lease."""

    slot: ResourceSet
    queue: list[Turn] = field(default_factory=list)  #: Sorted.
    refused_by: dict[PoolName, tuple[Reason, str]] = field(default_factory=dict)  #: Since room last came; these pools are not tried.
    crowded: set[PoolName] = field(default_factory=set)  #: Of these pools, those that had no room; the others' leases were refused.
    asking: int = 0  #: How many ask for their lease.

    def add(self, turn: Turn) -> None:
        """One more is queued."""
        insort(self.queue, turn)

    def remove(self, turn: Turn) -> None:
        """One is not queued any more."""
        del self.queue[bisect_left(self.queue, turn)]

    def refuse_room(self, pool: PoolName, reported: tuple[Reason, str]) -> None:
        """The pool has no room for a slot."""
        self.refused_by[pool] = reported
        self.crowded.add(pool)

    def refuse_lease(self, pool: PoolName, reported: tuple[Reason, str]) -> None:
        """Nobody pays for a slot there. Room in the pool does not change that."""
        self.refused_by[pool] = reported
        self.crowded.discard(pool)

    def lift(self, pools: Mapping[PoolName, Pool]) -> bool:
        """Try those pools again that have room by now; are there any?"""
        roomy = [pool for pool in self.crowded if pools[pool].fits(self.slot)]
        for pool in roomy:
            del self.refused_by[pool]
            self.crowded.remove(pool)
        return bool(roomy)

    def reopen(self) -> None:
        """Try every pool again."""
        self.refused_by.clear()
        self.crowded.clear()

    def explanation(self, passing: Collection[Reason]) -> tuple[Reason, str]:
        """Why it waits, when every pool has refused: a reason that may pass goes before those that never will."""
        reasons = list(self.refused_by.values())
        reason = next((reported[0] for reported in reasons if reported[0] in passing), reasons[0][0])
        return reason, "; ".join(dict.fromkeys(words for _, words in reasons))
