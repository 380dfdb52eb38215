"""Who evicted whom, so that no chain of evictions comes back to where it began.

An eviction outside a queue's own quota may only extend one order: nobody evicts a workload that evicted it, directly or by
others. Of finitely many workloads the first in that order is never evicted by it, so it is admitted once and evicts once; and so on down:
evictions end. Reclaiming what is a queue's own asks no order: its victims stand beyond their own quota, the taker does not.
Source: ADR 0018; Kueue loops in #14543 and #13662.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.quota.workloads import Workload


@dataclass(slots=True)
class EvictionOrder:
    """Evictions among workloads that have not ended."""

    _victims: dict[str, set[str]] = field(default_factory=dict)

    def record(self, by: str, victim: str) -> None:
        """One made the other give way."""
        self._victims.setdefault(by, set()).add(victim)

    def forget(self, workload: str) -> None:
        """It ended. Whom its victims' victims are stays known: each of its evictors evicted those too."""
        below = self._victims.pop(workload, set())
        for victims in self._victims.values():
            if workload in victims:
                victims.discard(workload)
                victims.update(below)

    def displaced(self, by: Workload, victim: Workload) -> bool:
        """Did `victim` evict `by` before, directly or by others? Then `by` may not evict it."""
        return victim.workload in self._victims and self._reaches(victim.workload, by.workload)

    def _reaches(self, start: str, end: str) -> bool:
        seen, open_ends = {start}, [start]
        while open_ends:
            for below in self._victims.get(open_ends.pop(), ()):
                if below == end:
                    return True
                if below not in seen:
                    seen.add(below)
                    open_ends.append(below)
        return False
