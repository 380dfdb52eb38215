"""The tournament: order among claims that want to borrow.

At each node of the tree the child with the least dominant share wins; among equal shares the child whose oldest want has waited
longest. The winner of the winner's children, and so on down to a leaf, is next. A grant changes only the shares on the leaf's path to
the root, and these are the tops of the heaps on that path: a pick costs a few heap steps, however many compete.

A node stands for its descendant that is next. Where past use counts, it decides between equal shares, and waiting time comes last.
Without fair sharing past use comes first, and shares decide where it is equal.

Source: Kueue's fair sharing, where the tournament is rerun after each pick; `federation.quota.order` ranks past use in the same way.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import pairwise

from federation.planning.planning_state import PlannedDemand, PlanningState
from federation.quota.past_use import NO_PAST, PastUse

#: Share and past use (or past use and share), the start of the oldest want, and the node: orders the children of a node.
_Entry = tuple[int, int, int, int]


class Tournament:
    """Order among claims of one priority. Call `refresh` after a change of shares other than those of the claim that was next."""

    def __init__(
        self, planning_state: PlanningState, claims: Iterable[PlannedDemand], past: PastUse = NO_PAST, *, is_by_shares: bool = True
    ) -> None:
        self._planning_state, self._past = planning_state, past
        self._share_at, self._past_at = (0, 1) if is_by_shares else (1, 0)
        self._claims: defaultdict[int, deque[PlannedDemand]] = defaultdict(deque)
        for claim in sorted(claims, key=lambda claim: (past.of(claim.node), *_age(claim)) if past.half_life_ms else _age(claim)):
            self._claims[claim.node].append(claim)
        self._heaps: dict[int, list[_Entry]] = {}  #: Outdated entries are skipped when they reach the top.
        self._entries: dict[int, _Entry] = {}  #: Present entry of each child that takes part.
        self._roots: list[int] = []
        self._rank_all()

    def refresh(self, leaves: Iterable[int]) -> None:
        """Rank these leaves and their ancestors anew, since their use has changed outside of `settle`."""
        rank, paths = self._planning_state.shares.rank, self._planning_state.forest.paths
        for below, node in {step for leaf in leaves for step in pairwise(paths[leaf])}:
            before = self._entries.get(below)
            if before is not None and before[self._share_at] != rank(below):
                heapq.heappush(self._heaps[node], self._enter(below, before[self._past_at], before[2]))

    def _enter(self, node: int, past: int, since_ms: int) -> _Entry:
        """Record and return the node's new entry among its siblings."""
        share = self._planning_state.shares.rank(node)
        self._entries[node] = entry = (past, share, since_ms, node) if self._share_at else (share, past, since_ms, node)
        return entry

    def _rank_all(self) -> None:
        paths, parents = self._planning_state.forest.paths, self._planning_state.forest.parents
        standings = {leaf: (self._past.of(leaf), claims[0].demand.since_ms) for leaf, claims in self._claims.items()}
        self._roots = list(dict.fromkeys(paths[leaf][-1] for leaf in standings))
        levels: defaultdict[int, list[int]] = defaultdict(list)
        for node in {node for leaf in standings for node in paths[leaf]}:
            levels[len(paths[node])].append(node)
        for depth in range(max(levels, default=1), 1, -1):
            for node in levels[depth]:
                standing = standings.get(node) or self._standing(self._heaps[node][0])
                self._heaps.setdefault(parents[node], []).append(self._enter(node, *standing))
            for parent in {parents[node] for node in levels[depth]}:
                heapq.heapify(self._heaps[parent])

    def _standing(self, best: _Entry) -> tuple[int, int]:
        """Return past use and age of a node: those of its child that is next."""
        return best[self._past_at], best[2]

    def next(self) -> PlannedDemand | None:
        """Return the claim that is next; None if none is left. Trees come one after the other, since they share nothing."""
        while self._roots:
            node = self._roots[-1]
            while heap := self._heaps.get(node):
                if self._entries.get(heap[0][3]) is heap[0]:
                    node = heap[0][3]
                else:
                    heapq.heappop(heap)
            if self._claims.get(node):
                return self._claims[node][0]
            self._roots.pop()
        return None

    def settle(self, claim: PlannedDemand, *, is_over: bool) -> None:
        """Rank the claim that was next again after its grant; with `is_over` the claim takes part no longer."""
        claims = self._claims[claim.node]
        if is_over:
            claims.popleft()
        standing = (self._past.of(claim.node), claims[0].demand.since_ms) if claims else None
        for below, node in pairwise(self._planning_state.forest.paths[claim.node]):
            heap = self._heaps[node]
            if standing is not None:
                heapq.heapreplace(heap, self._enter(below, *standing))
            else:
                del self._entries[below]
                heapq.heappop(heap)
            while heap and self._entries.get(heap[0][3]) is not heap[0]:
                heapq.heappop(heap)
            standing = self._standing(heap[0]) if heap else None


def _age(claim: PlannedDemand) -> tuple[int, str, str, str]:
    return claim.demand.since_ms, claim.demand.mesh, claim.demand.tenant, claim.demand.flavor
