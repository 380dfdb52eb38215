"""Children of the nodes of a forest, ordered by share.

A search for victims starts at the child with the highest share, again after each victim. Sorting or scanning all siblings each time would
cost more than the rest of the search. So the children of a node that borrow and have running work stand in a row, and a query moves only
those whose use has changed since the last one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from federation.quota.ledger import QuotaLedger
from federation.quota.share_ranks import ShareRanks
from mesh.core.ids import FlavorName

#: Share with the sign turned, place (`QuotaForest.places`), and the child: the largest share first, of equals cohorts by name, then queues.
ShareRow = list[tuple[int, int, int]]


@dataclass(slots=True)
class _Row:
    shares: dict[int, int] = field(default_factory=dict)  #: Share of each child in `order`.
    order: ShareRow = field(default_factory=list)
    moved: set[int] = field(default_factory=set)  #: Children whose use may have changed since the last query.


class ShareRows:
    """Rows over one ledger. Made on first use; work that is added later enters them."""

    def __init__(self, ledger: QuotaLedger, shares: ShareRanks) -> None:
        self._ledger, self._shares = ledger, shares
        forest = ledger.forest
        self._paths, self._below, self._places, self._parents = forest.paths, forest.children, forest.places, forest.parents
        self._children: defaultdict[int, set[int]] = defaultdict(set)  #: Those with running work, now or before.
        self._users: defaultdict[tuple[int, FlavorName], set[int]] = defaultdict(set)  #: Those of them with work of the flavor.
        self._rows: dict[int, _Row] = {}
        self._noted: set[int] = set()  #: Queues whose use has changed since rows were last told.

    def enter(self, queue: int, flavor: FlavorName) -> None:
        """Record that the queue has running work of the flavor."""
        for below, above in pairwise(self._paths[queue]):
            users = self._users[above, flavor]
            if below in users:
                return  # So are all nodes above.
            users.add(below)
            self._children[above].add(below)
            if above in self._rows:
                self._rows[above].moved.add(below)

    def note(self, queue: int) -> None:
        """Record that the use of the queue and of its ancestors has changed."""
        self._noted.add(queue)

    def row(self, node: int) -> ShareRow:
        """Return the children of the node that borrow, and have or had running work, the largest share first.

        The row is the one kept here: callers read it, and only until they ask for the row of this node again.
        """
        if self._noted:
            self._spread()
        row = self._rows.get(node)
        if row is None:
            row = self._rows[node] = _Row(moved=set(self._children[node]))
        if row.moved:
            self._update(row, row.moved & self._children[node])
            row.moved.clear()
        return row.order

    def row_of(self, node: int, children: Collection[int]) -> ShareRow:
        """Return `row`, or only those of it that are among these few children; read it as long as a row."""
        order = self.row(node)
        if 4 * len(children) > len(order):
            return order
        shares, places = self._rows[node].shares, self._places
        return sorted([(-shares[child], places[child], child) for child in children if child in shares])

    def is_listed(self, node: int, child: int) -> bool:
        """Return whether the child was in the row of the node when that was last asked for."""
        return child in self._rows[node].shares

    def users(self, node: int, flavors: Collection[FlavorName]) -> Collection[int]:
        """Return the children of the node that have or had running work of one of the flavors."""
        sets = [self._users[node, flavor] for flavor in flavors]
        return sets[0] if len(sets) == 1 else set().union(*sets)

    def entry(self, child: int) -> tuple[int, int, int]:
        """Return the child's entry in the row of its parent."""
        return -self._shares.rank(child), self._places[child], child

    def could_give(self, child: int, flavor: FlavorName) -> bool:
        """Return whether a queue at or below the child has, or had, running work of the flavor, and uses more than its own of it."""
        if not self._below[child]:
            parent = self._parents[child]
            return (parent < 0 or child in self._users[parent, flavor]) and self._ledger.is_over_in(child, flavor)
        for below in self._users[child, flavor]:
            if self._ledger.is_over_in(below, flavor) if not self._below[below] else self.could_give(below, flavor):
                return True
        return False

    def could_give_any(self, child: int, flavors: Iterable[FlavorName]) -> bool:
        """Return `could_give` for any of the flavors."""
        for flavor in flavors:  # noqa: SIM110  a generator under `any` takes twice as long
            if self.could_give(child, flavor):
                return True
        return False

    def _spread(self) -> None:
        """Pass what was noted on to the rows above."""
        rows = self._rows
        for queue in self._noted:
            for below, above in pairwise(self._paths[queue]):
                row = rows.get(above)
                if row is not None:
                    row.moved.add(below)
        self._noted.clear()

    def _update(self, row: _Row, moved: set[int]) -> None:
        shares, order, places = row.shares, row.order, self._places
        for child in moved:
            before, share = shares.get(child), self._shares.rank(child) or (0 if self._shares.is_borrowing(child) else None)
            if before == share:
                continue
            if before is not None:
                del order[bisect_left(order, (-before, places[child], child))]
            if share is None:
                del shares[child]
            else:
                insort(order, (-share, places[child], child))
                shares[child] = share
