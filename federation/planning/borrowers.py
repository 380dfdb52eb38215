"""Leases that live on what others lend, in the order in which they are asked to give it back.

Of those below one node of the tree: the lowest priority, the largest dominant share right under that node, what loses least work,
the newest grant. Shares fall as leases give way, so a lease is ranked again when its turn comes; the order is kept from claim to
claim of a round, since to sort all borrowers for each would cost more than all the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

from federation.planning.board import Board, Lease
from federation.quota.policies import Rules
from federation.tenants import FlavorResource
from mesh.ids import FlavorName

#: Priority, share, lost work, token, name: the least is asked first.
Rank = tuple[int, int, int, int, tuple[str, ...]]


@dataclass(slots=True)
class Borrowers:
    """Over one board, for one round. What the round itself has given is not asked for, nor what is too young, nor what cannot be had."""

    board: Board
    rules: Rules
    now_ms: int
    _heaps: dict[tuple[int, FlavorName], list[tuple[Rank, Lease]]] = field(default_factory=dict)

    def rank(self, lease: Lease, ancestor: int) -> Rank:
        """Where the lease stands among all below the ancestor."""
        holding, path = lease.holding, self.board.forest.paths[lease.node]
        share = self.board.share(path[max(0, len(path) - len(self.board.forest.paths[ancestor]) - 1)])
        lost_ms = self.now_ms - max(holding.since_ms, holding.saved_ms or 0) if self.rules.weighs_lost_work else 0
        return holding.priority, -share, lost_ms, -holding.token, lease.key

    def may_be_asked(self, lease: Lease) -> bool:
        """Old enough, within reach, and not just given."""
        holding = lease.holding
        if holding.is_fixed or holding.since_ms > self.now_ms - self.rules.min_run_ms:
            return False
        return any(lease.target.values()) and not lease.has_grown

    def below(self, ancestor: int, flavor: FlavorName, keys: tuple[FlavorResource, ...], *, but: int) -> Generator[Lease, None, None]:
        """Those that borrow one of the keys, in order; without what lies below the node `but`.

        Where a node on the way is within its own, what is below it is its own affair, and is left alone for the rest of the round.
        """
        heap = self._heaps.get((ancestor, flavor))
        if heap is None:
            heap = self._heaps[ancestor, flavor] = [(self.rank(lease, ancestor), lease) for lease in self._all_below(ancestor, flavor)]
            heapq.heapify(heap)
        aside: list[Lease] = []
        try:
            while heap:
                rank, lease = heap[0]
                fresh = self.rank(lease, ancestor)
                if fresh > rank:
                    heapq.heapreplace(heap, (fresh, lease))
                    continue
                heapq.heappop(heap)
                if not self.may_be_asked(lease) or not self.borrows(lease.node, ancestor, keys):
                    continue
                aside.append(lease)
                if but not in self.board.forest.paths[lease.node]:
                    yield lease
        finally:
            for lease in aside:
                heapq.heappush(heap, (self.rank(lease, ancestor), lease))

    def borrows(self, leaf: int, ancestor: int, keys: tuple[FlavorResource, ...]) -> bool:
        """Does the leaf use more than its own, and so does every node between it and the ancestor?"""
        for node in self.board.forest.paths[leaf]:
            if node == ancestor:
                break
            if not self.board.ledger.is_over(node, keys):
                return False
        return True

    def _all_below(self, ancestor: int, flavor: FlavorName) -> Iterator[Lease]:
        pending = [ancestor]
        while pending:
            node = pending.pop()
            pending.extend(self.board.forest.children[node])
            yield from (lease for lease in self.board.leases_of.get((node, flavor), ()) if self.may_be_asked(lease))
