"""Order of the nominated heads of all queues.

By priority: first the head whose subtree of borrowing is lower, then the higher priority, then the older one. By shares: in every cohort
a contest among its children, of queues with their heads, of cohorts with the winners inside. A child that stays within its own quota for
the request goes first, then the lower share *with the request*, then the higher priority, then the older one. The winner's use is charged
before the next contest. Only shares on the path from the winner's queue up have changed then, so a heap per cohort keeps the rest: n
heads cost O(n · depth · log n).

Where past use counts (`Rules.history_half_life_ms`), it ranks after borrowing and shares and before priority; less is better.
Source: Kueue `scheduler.go`, `fair_sharing_iterator.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import pairwise

from federation.quota.ledger import Amounts
from federation.quota.nomination import Nomination
from federation.quota.past_use import PastUse
from federation.quota.shares import ShareKey, dominant_share
from federation.quota.snapshot import QuotaSnapshot
from federation.tenants import FlavorResource

_Standing = tuple[bool, ShareKey, int, int, int, str]


def by_priority(snapshot: QuotaSnapshot, nominated: Iterable[Nomination], past: PastUse) -> Iterator[Nomination]:
    """Yield the heads in the classical order; fixed for the whole pass."""
    index = snapshot.forest.index

    def place(one: Nomination) -> tuple[int, int, int, int, str]:
        work = one.workload
        return one.assignment.level, past.of(index[work.queue]), -work.priority, work.created_ms, work.workload

    return iter(sorted(nominated, key=place))


class FairOrder:
    """Order by shares; each `next` reads the snapshot as it is then."""

    def __init__(self, snapshot: QuotaSnapshot, nominated: Iterable[Nomination], past: PastUse) -> None:
        self._snapshot, self._past = snapshot, past
        self._heads = {snapshot.forest.index[one.workload.queue]: one for one in nominated}
        self._winner: dict[int, int] = {}  #: Node to the queue that stands for it.
        self._heaps: dict[int, list[tuple[_Standing, int]]] = {}  #: Cohort to its children, best first.
        self._roots: list[int] = []
        self._last: int | None = None
        self._build()

    def __iter__(self) -> Iterator[Nomination]:
        return self

    def __next__(self) -> Nomination:
        if self._last is not None:
            self._settle(self._last)
            self._last = None
        while self._roots and self._roots[-1] not in self._winner:
            self._roots.pop()
        if not self._roots:
            raise StopIteration
        queue = self._winner[self._roots[-1]]
        self._last = queue
        return self._heads[queue]

    def _build(self) -> None:
        forest = self._snapshot.forest
        nodes = {step for queue in self._heads for step in forest.paths[queue]}
        children: dict[int, list[int]] = {}
        for node in sorted(nodes, key=lambda node: -len(forest.paths[node])):  # leaves first
            if node in self._heads:
                self._winner[node] = node
            elif node in children:
                self._heaps[node] = [(self._standing(child), child) for child in children[node]]
                heapify(self._heaps[node])
                self._winner[node] = self._winner[self._heaps[node][0][1]]
            if forest.parents[node] < 0:
                self._roots.append(node)
            else:
                children.setdefault(forest.parents[node], []).append(node)
        self._roots.sort(key=lambda node: forest.names[node], reverse=True)

    def _settle(self, queue: int) -> None:
        """Remove the queue's head, which has been decided, and rank the nodes above it anew."""
        forest = self._snapshot.forest
        del self._winner[queue]
        for below, cohort in pairwise(forest.paths[queue]):
            heap = self._heaps[cohort]  # The node below is first, since it won.
            if below in self._winner:
                heapreplace(heap, (self._standing(below), below))
            else:
                heappop(heap)
            if not heap:
                self._winner.pop(cohort, None)
            else:
                self._winner[cohort] = self._winner[heap[0][1]]

    def _standing(self, child: int) -> _Standing:
        """Return the rank of the child among its siblings, including its winner's request."""
        queue = self._winner[child]
        head, ledger = self._heads[queue], self._snapshot.ledger
        extra = self._arriving(queue, child, head.assignment.amounts)
        asked = [key for key, units in head.assignment.amounts.items() if units > 0]  # A resource that is not requested is not borrowed.
        borrows = any(ledger.excess(child, key) + extra.get(key, 0) > 0 for key in asked)
        share = dominant_share(ledger, child, extra)
        work = head.workload
        return borrows, share.key, self._past.of(queue), -work.priority, work.created_ms, work.workload

    def _arriving(self, queue: int, node: int, amounts: Amounts) -> dict[FlavorResource, int]:
        """Return the use that charging `amounts` to the queue would add at `node`."""
        forest, ledger = self._snapshot.forest, self._snapshot.ledger
        arriving = dict(amounts)
        for step in forest.paths[queue]:
            if step == node:
                break
            for key, units in arriving.items():
                kept = forest.rows(key).kept[step]
                if kept:
                    use = ledger.use(step, key)
                    arriving[key] = max(0, use + units - kept) - max(0, use - kept)
        return arriving


def in_order(snapshot: QuotaSnapshot, nominated: Iterable[Nomination], past: PastUse) -> Iterator[Nomination]:
    """Return the heads in the order of the snapshot's rules."""
    return FairOrder(snapshot, nominated, past) if snapshot.rules.fair_sharing else by_priority(snapshot, nominated, past)
