"""The tournament: of all who want what may be borrowed, who is next.

At each node of the tree the child with the least dominant share wins; between equal ones the one whose oldest want has waited
longest. The winner of the winner's children, and so on, down to a leaf, is next. What it gets changes the shares on its own way
to the root only, which are the tops of the heaps on that way: so a turn costs a few heap steps, however many compete.

Source: Kueue's fair sharing, where the tournament is rerun after each pick.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable
from itertools import pairwise

from federation.planning.board import Board, Claim

#: Share, how long the oldest want has waited, and the node: orders the children of a node.
_Entry = tuple[int, int, int]


class Tournament:
    """Among claims of one priority. The shares of those who are not next must not change between two turns, or `restart` it."""

    def __init__(self, board: Board, claims: Iterable[Claim]) -> None:
        self._board = board
        self._claims: defaultdict[int, deque[Claim]] = defaultdict(deque)
        for claim in sorted(claims, key=_age):
            self._claims[claim.node].append(claim)
        self._heaps: dict[int, list[_Entry]] = {}
        self._roots: list[int] = []
        self.restart()

    def restart(self) -> None:
        """Rank everybody anew."""
        forest = self._board.forest
        self._heaps = {}
        roots: dict[int, None] = {}
        for leaf, claims in self._claims.items():
            path = forest.paths[leaf] if claims else ()
            for below, node in pairwise(path):
                heap = self._heaps.get(node)
                first = heap is None
                self._heaps.setdefault(node, []).append((self._board.share(below), claims[0].want.since_ms, below))
                if not first:
                    break  # The rest of the way is there already.
            if path:
                roots[path[-1]] = None
        for heap in self._heaps.values():
            heapq.heapify(heap)
        self._roots = list(roots)

    def next(self) -> Claim | None:
        """Whose turn it is; None when nobody is left. Trees come one after the other: they share nothing."""
        while self._roots:
            node = self._roots[-1]
            while heap := self._heaps.get(node):
                node = heap[0][2]
            if self._claims.get(node):
                return self._claims[node][0]
            self._roots.pop()
        return None

    def settle(self, claim: Claim, *, is_over: bool) -> None:
        """The claim whose turn it was has got what it gets now; `is_over`: it takes part no longer."""
        claims = self._claims[claim.node]
        if is_over:
            claims.popleft()
        left = bool(claims)
        path = self._board.forest.paths[claim.node]
        for below, node in pairwise(path):
            heap = self._heaps[node]
            if left:
                heapq.heapreplace(heap, (self._board.share(below), self._since(below), below))
            else:
                heapq.heappop(heap)
            left = bool(heap)

    def _since(self, node: int) -> int:
        claims = self._claims.get(node)
        return claims[0].want.since_ms if claims else self._heaps[node][0][1]


def _age(claim: Claim) -> tuple[int, str, str, str]:
    return claim.want.since_ms, claim.want.mesh, claim.want.tenant, claim.want.flavor
