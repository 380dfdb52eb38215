"""History of evictions, so that no chain of evictions returns to its start.

Every eviction is recorded while both workloads live. No workload evicts one that evicted it, directly or through others; only a queue
that reclaims its own quota skips the check. Suppose evictions went on for ever among finitely many workloads: following evictors back,
some would form a cycle of evictions that each happen again and again. But no eviction of a recorded cycle is allowed again, unless all of
them are reclaims. No proof excludes a cycle of reclaims; in a reclaim the preemptor ends within its quota and the victim's queue was
beyond its own, and a search through random worlds found no cycle.
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
        """Record that the first workload evicted the second."""
        self._victims.setdefault(by, set()).add(victim)

    def forget(self, workload: str) -> None:
        """Forget a workload that has ended. Its evictors inherit its victims, so chains through it stay known."""
        below = self._victims.pop(workload, set())
        for victims in self._victims.values():
            if workload in victims:
                victims.discard(workload)
                victims.update(below)

    def displaced(self, by: Workload, victim: Workload) -> bool:
        """Return whether `victim` evicted `by` before, directly or through others, so that `by` may not evict it."""
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
