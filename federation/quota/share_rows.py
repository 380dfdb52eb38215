"""Children of the nodes of a forest, ordered by share.

A search for victims starts at the child with the highest share, again after each victim. Sorting or scanning all siblings each time would
cost more than the rest of the search. So the children of a node that have running work of a flavor stand in a row, and a query moves only
those whose use has changed since the last one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from federation.quota.ledger import QuotaLedger
from federation.quota.share_ranks import ShareRanks
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName

ShareRow = list[tuple[int, int]]  #: Share with the sign turned, and the child: the largest share first.


@dataclass(slots=True)
class _Row:
    shares: dict[int, int]  #: Share of each child in `order`.
    order: ShareRow
    read: int  #: Length of the node's log at the last update.


class ShareRows:
    """Rows over one ledger. Made on first use; work that is added later enters them."""

    def __init__(self, ledger: QuotaLedger, shares: ShareRanks) -> None:
        self._paths, self._shares = ledger.forest.paths, shares
        self._children: defaultdict[tuple[int, FlavorName], set[int]] = defaultdict(set)
        self._entered: set[tuple[int, FlavorName]] = set()
        self._rows: dict[tuple[int, FlavorName], _Row] = {}
        self._moved: dict[int, list[int]] = {}  #: Log of a node with rows: its children whose use may have changed.

    def enter(self, queue: int, keys: Iterable[FlavorResource]) -> None:
        """Record that the queue has running work with these keys."""
        for flavor, _ in keys:
            if (queue, flavor) in self._entered:
                continue
            self._entered.add((queue, flavor))
            for below, above in pairwise(self._paths[queue]):
                self._children[above, flavor].add(below)
                if above in self._moved:
                    self._moved[above].append(below)

    def note(self, queue: int) -> None:
        """Record that the use of the queue and of its ancestors has changed."""
        if self._moved:
            for below, above in pairwise(self._paths[queue]):
                moved = self._moved.get(above)
                if moved is not None and (not moved or moved[-1] != below):
                    moved.append(below)

    def by_share(self, node: int, flavor: FlavorName) -> ShareRow:
        """Return the children of the node that have, or had, running work of the flavor, the largest share first."""
        row = self._rows.get((node, flavor))
        if row is None:
            rank = self._shares.rank
            shares = {child: rank(child) for child in self._children[node, flavor]}
            order = sorted((-share, child) for child, share in shares.items())
            row = self._rows[node, flavor] = _Row(shares, order, len(self._moved.setdefault(node, [])))
        else:
            self._update(row, self._children[node, flavor], self._moved[node])
        return row.order

    def _update(self, row: _Row, children: set[int], moved: list[int]) -> None:
        shares, order = row.shares, row.order
        changed, row.read = moved[row.read - 1 if row.read else 0 :], len(moved)
        for child in children.intersection(changed):
            before, share = shares.get(child), self._shares.rank(child)
            if before == share:
                continue
            if before is not None:
                del order[bisect_left(order, (-before, child))]
            insort(order, (-share, child))
            shares[child] = share
