"""Who evicted whom, so that no chain of evictions comes back to where it began.

Every eviction is remembered while the two live. Nobody evicts a workload that evicted it, directly or by others; only a
queue that takes back what is its own does not ask. Suppose that evictions went on for ever among finitely many workloads:
following evictors back, some would form a circle of evictions that each happen again and again. But of a circle that is
remembered no eviction is allowed again, unless all of them are reclaims. That such a circle cannot be is not proven; in a
reclaim the taker ends within its quota and the giver was beyond its own, and a search through random worlds found none.
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
