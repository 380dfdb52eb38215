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
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

from federation.quota.ledger import Amounts
from federation.quota.nomination import Nomination
from federation.quota.past_use import PastUse
from federation.quota.share_ranks import Request
from federation.quota.snapshot import QuotaSnapshot

T = TypeVar("T")
#: Past use, priority with the sign turned, creation, name: what does not change while a head waits.
_Urgency = tuple[int, int, int, str]
#: Borrows with the request, share with the request, what the head itself brings; and the node.
_Standing = tuple[bool, int, _Urgency, int]
#: From a node up: the node, the cohort above it, the cohort's heap, and the place of that cohort among a head's prepared requests.
_Step = tuple[int, int, list[_Standing], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(Generic[T]):
    """First request of a queue, as the order sees it."""

    queue: int
    amounts: Amounts
    priority: int
    created_ms: int
    name: str  #: Decides between equals.
    item: T


def by_priority(snapshot: QuotaSnapshot, nominated: Iterable[Nomination], past: PastUse) -> Iterator[Nomination]:
    """Yield the heads in the classical order; fixed for the whole pass."""
    index = snapshot.forest.index

    def place(one: Nomination) -> tuple[int, int, int, int, str]:
        work = one.workload
        return one.assignment.level, past.of(index[work.queue]), -work.priority, work.created_ms, work.workload

    return iter(sorted(nominated, key=place))


def by_shares(snapshot: QuotaSnapshot, nominated: Iterable[Nomination], past: PastUse) -> Iterator[Nomination]:
    """Yield the heads by shares; each `next` reads the snapshot as it is then."""
    index = snapshot.forest.index
    heads = [
        Head(
            queue=index[one.workload.queue],
            amounts=one.assignment.amounts,
            priority=one.workload.priority,
            created_ms=one.workload.created_ms,
            name=one.workload.workload,
            item=one,
        )
        for one in nominated
    ]
    order = ShareOrder(snapshot, heads, past)
    while (head := order.next()) is not None:
        yield head.item
        order.settle(head)


class ShareOrder(Generic[T]):
    """Order by shares among one head of each queue. Trees come one after the other, since they share nothing."""

    def __init__(self, snapshot: QuotaSnapshot, heads: Iterable[Head[T]], past: PastUse) -> None:
        self._forest, self._shares, self._past = snapshot.forest, snapshot.shares, past
        self._heads: dict[int, Head[T]] = {}
        #: By queue: `ShareRanks.prepared` of its head, and what the head itself brings.
        self._entries: dict[int, tuple[tuple[Request | None, ...], _Urgency]] = {}
        for head in heads:
            self._enter(head)
        self._winner: dict[int, int] = {}  #: Node to the queue that stands for it.
        self._heaps: dict[int, list[_Standing]] = {}  #: Cohort to its children, best first. Outdated standings are skipped at the top.
        self._standings: dict[int, _Standing | None] = {}  #: Present standing of each child that takes part.
        self._climbs: dict[int, tuple[_Step, ...]] = {}  #: By node, made when it is first ranked anew.
        self._roots: list[int] = []
        self._build()

    def next(self) -> Head[T] | None:
        """Return the head that is next; None if none is left."""
        while self._roots:
            queue = self._winner.get(self._roots[-1])
            if queue is not None:
                return self._heads[queue]
            self._roots.pop()
        return None

    def settle(self, head: Head[T], following: Head[T] | None = None) -> None:
        """Rank anew after the head's decision, with the next head of its queue; None: the queue takes part no longer."""
        queue = head.queue
        if following is not None:
            if following is not head:
                self._enter(following)
        else:
            del self._heads[queue], self._winner[queue]
        self._rank_above(queue)

    def refresh(self, queues: Iterable[int]) -> None:
        """Rank these queues and the nodes above them anew, since their use has changed outside of `settle`."""
        for queue in queues:
            self._rank_above(queue)

    def _enter(self, head: Head[T]) -> None:
        queue = head.queue
        self._heads[queue] = head
        urgency = self._past.of(queue), -head.priority, head.created_ms, head.name
        self._entries[queue] = self._shares.prepared(queue, head.amounts), urgency

    def _build(self) -> None:
        forest = self._forest
        nodes = {step for queue in self._heads for step in forest.paths[queue]}
        children: dict[int, list[int]] = {}
        for node in sorted(nodes, key=lambda node: -len(forest.paths[node])):  # leaves first
            if node in self._heads:
                self._winner[node] = node
            elif node in children:
                depth = len(forest.paths[node])
                self._heaps[node] = heap = [self._standing(child, depth) for child in children[node]]
                heapify(heap)
                self._winner[node] = self._winner[heap[0][-1]]
            if forest.parents[node] < 0:
                self._roots.append(node)
            else:
                children.setdefault(forest.parents[node], []).append(node)
        self._roots.sort(key=lambda node: forest.names[node], reverse=True)

    def _climb(self, below: int) -> tuple[_Step, ...]:
        """Return the steps from the node up; none if no head of its cohort ever took part."""
        cohort = self._forest.parents[below]
        heap = self._heaps.get(cohort)
        if heap is None:
            return ()
        self._standings.setdefault(below, None)
        above = self._climbs.get(cohort) or self._climb(cohort)
        self._climbs[below] = climb = (below, cohort, heap, len(self._forest.paths[cohort]) - 1), *above
        return climb

    def _rank_above(self, queue: int) -> None:
        winner, standings, entries = self._winner, self._standings, self._entries
        winning = winner.get(queue)
        for below, cohort, heap, place in self._climbs.get(queue) or self._climb(queue):
            if winning is None:
                standings[below] = None
            else:
                requests, urgency = entries[winning]
                request = requests[place]
                would_borrow, share = self._rank(winning, below) if request is None else request.rank(below)
                before = standings[below]
                standings[below] = after = would_borrow, share, urgency, below
                if heap[0] is before:
                    heapreplace(heap, after)
                else:
                    heappush(heap, after)
            while heap:
                best = heap[0]
                if standings[best[3]] is best:
                    winner[cohort] = winning = winner[best[3]]
                    break
                heappop(heap)
            else:
                winner.pop(cohort, None)
                winning = None

    def _standing(self, child: int, depth: int) -> _Standing:
        """Record and return the rank of the child among its siblings, including its winner's request.

        Args:
            depth: Number of nodes above the child.
        """
        queue = self._winner[child]
        requests, urgency = self._entries[queue]
        request = requests[depth - 1]
        would_borrow, share = self._rank(queue, child) if request is None else request.rank(child)
        self._standings[child] = found = would_borrow, share, urgency, child
        return found

    def _rank(self, queue: int, child: int) -> tuple[bool, int]:
        return self._shares.rank_charging(queue, child, self._heads[queue].amounts)


def in_order(snapshot: QuotaSnapshot, nominated: Iterable[Nomination], past: PastUse) -> Iterator[Nomination]:
    """Return the heads in the order of the snapshot's rules."""
    return by_shares(snapshot, nominated, past) if snapshot.rules.fair_sharing else by_priority(snapshot, nominated, past)
