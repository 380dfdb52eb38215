"""What is in use at every node of a forest, and what that leaves.

    use(leaf)       = amounts of the work that it holds
    use(node)       = sum over children of max(0, use(c) - kept(c))
    available(root) = own - use                                              # negative after a cut
    available(n)    = max(0, kept - use) + min(available(parent), cap)
      cap           = lent - max(0, use - kept) + borrowing limit            # no cap without a limit

A charge is its own inverse with the sign turned, and touches one path only. With `keeps_local` the second term of
`available` is never below 0: a deficit above, left by a cut, does not eat what a node keeps for itself. Each figure for one
node costs one walk to its root.
Source: Kueue `resource_node.go`; the clamp is ADR 0018's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter

from federation.quota.forest import UNLIMITED, QuotaForest, Rows
from federation.tenants import FlavorResource
from mesh.errors import LedgerError

Amounts = Mapping[FlavorResource, int]  #: (flavor, resource) to units.


class QuotaLedger:
    """The use of one forest; changes in place."""

    __slots__ = ("_over", "_rows", "_touched", "_use", "forest", "keeps_local")

    def __init__(self, forest: QuotaForest, *, keeps_local: bool) -> None:
        self.forest = forest
        self.keeps_local = keeps_local
        self._rows: dict[FlavorResource, Rows] = {}
        self._use: dict[FlavorResource, list[int]] = {}
        self._over: dict[FlavorResource, set[int]] = {}  #: Nodes that use more than their own.
        self._touched = [0] * len(forest.names)  #: How often the use of a node changed; shares are kept by it.
        for key in forest.keys:
            self._open(key)

    def _open(self, key: FlavorResource) -> None:
        self._rows[key] = self.forest.rows(key)
        self._use[key] = [0] * len(self.forest.names)
        self._over[key] = set()

    def charge(self, node: int, amounts: Amounts) -> None:
        """Add to the use of a leaf, and to its ancestors what exceeds the kept parts."""
        for key, by in amounts.items():
            if by:
                self._charge(node, key, by)

    def discharge(self, node: int, amounts: Amounts) -> None:
        """Take a charge back.

        Raises:
            LedgerError: The leaf does not use that much; what was taken back before stays taken back.
        """
        for key, by in amounts.items():
            if self.use(node, key) < by:
                raise LedgerError(f"{self.forest.names[node]} uses {self.use(node, key)} of {key}, {by} cannot be given back")
            if by:
                self._charge(node, key, -by)

    def _charge(self, node: int, key: FlavorResource, by: int) -> None:
        if key not in self._use:
            self._open(key)
        use, rows, over = self._use[key], self._rows[key], self._over[key]
        for step in self.forest.paths[node]:
            before = use[step]
            use[step] = after = before + by
            self._touched[step] += 1
            if after > rows.own[step]:
                over.add(step)
            else:
                over.discard(step)
            kept = rows.kept[step]
            if kept:
                by = max(0, after - kept) - max(0, before - kept)
                if by == 0:
                    return

    def version(self, node: int) -> int:
        """Changes whenever the use of the node does."""
        return self._touched[node]

    def use(self, node: int, key: FlavorResource) -> int:
        """Units in use at the node, of its own or bubbled up."""
        return self._use[key][node] if key in self._use else 0

    def own(self, node: int, key: FlavorResource) -> int:
        """Units that the node brings: its nominal quota and what its children lend."""
        return self.forest.rows(key).own[node]

    def excess(self, node: int, key: FlavorResource) -> int:
        """Units in use beyond the node's own; negative where there is room within it."""
        return self.use(node, key) - self.own(node, key)

    def borrowed(self, node: int, extra: Amounts | None = None) -> dict[str, int]:
        """Resource to what the node uses beyond its own, with so much more at the node itself, flavors together.

        Only a (flavor, resource) that the node declares counts.
        """
        found: dict[str, int] = {}
        for key, over in self._over.items():
            more = extra.get(key, 0) if extra else 0
            if more or node in over:
                rows = self._rows[key]
                above = self._use[key][node] + more - rows.own[node]
                if above > 0 and rows.is_declared[node]:
                    found[key[1]] = found.get(key[1], 0) + above
        return found

    def nodes_over(self, keys: Iterable[FlavorResource]) -> set[int]:
        """The nodes that use more than their own of one of these, at least."""
        return set().union(*(self._over.get(key, ()) for key in keys))

    def is_over(self, node: int, keys: Iterable[FlavorResource]) -> bool:
        """Does the node use more than its own of one of these?"""
        return any(node in self._over.get(key, ()) for key in keys)

    def would_borrow(self, node: int, key: FlavorResource, units: int) -> bool:
        """Would the node use more than its own with so much more?"""
        return self.use(node, key) + units > self.own(node, key)

    def local_room(self, node: int, key: FlavorResource) -> int:
        """Units that the node can use without asking its parent."""
        return max(0, self.forest.rows(key).kept[node] - self.use(node, key))

    def room(self, node: int, key: FlavorResource) -> int:
        """Units that could still be charged to the node; negative where a cut left it above its limits."""
        if key not in self._use:
            self._open(key)
        rows, use = self._rows[key], self._use[key]
        path = self.forest.paths[node]
        top = path[-1]
        room = UNLIMITED if rows.own[top] == UNLIMITED else rows.own[top] - use[top]
        for step in path[-2::-1]:
            used, kept, limit = use[step], rows.kept[step], rows.borrowing_limit[step]
            if limit is not None and rows.lent[step] < UNLIMITED:
                room = min(room, rows.lent[step] - max(0, used - kept) + limit)
            if self.keeps_local and room < 0:
                room = 0
            if kept > used:
                room = UNLIMITED if kept == UNLIMITED else min(UNLIMITED, room + kept - used)
        return room

    def available(self, node: int, key: FlavorResource) -> int:
        """As `room`, and never below 0."""
        return max(0, self.room(node, key))

    def deficit(self, node: int, key: FlavorResource) -> int:
        """Units that the node, or a node above it that it draws on, uses beyond its limits; 0 when all is within them.

        A node draws on its parent as soon as it uses more than it keeps.
        """
        if key not in self._use:
            return 0
        rows, use = self._rows[key], self._use[key]
        worst = 0
        for step in self.forest.paths[node]:
            used, limit = use[step], rows.borrowing_limit[step]
            if step == self.forest.root(node):
                return max(worst, 0 if rows.own[step] == UNLIMITED else used - rows.own[step])
            if limit is not None and rows.own[step] < UNLIMITED:
                worst = max(worst, used - rows.own[step] - limit)
            if used <= rows.kept[step]:
                return worst
        return worst

    def fits(self, node: int, amounts: Amounts) -> bool:
        """Is there room for all of it at once?"""
        return all(units <= self.available(node, key) for key, units in amounts.items())

    def height_that_holds(self, node: int, key: FlavorResource, units: int) -> tuple[int, bool]:
        """The height of the lowest subtree that holds so much more within its own, and is there more above it?

        0: the node itself, or a node that stands alone. When no subtree does, the height of the whole tree, and False.
        """
        path = self.forest.paths[node]
        if len(path) == 1 or not self.would_borrow(node, key, units):
            return 0, len(path) > 1
        rest = units - self.local_room(node, key)
        for step in path[1:]:
            if not self.would_borrow(step, key, rest):
                return self.forest.heights[step], step != path[-1]
            rest -= self.local_room(step, key)
        return self.forest.heights[path[-1]], False

    def usage(self) -> dict[tuple[str, str, str], int]:
        """(node, flavor, resource) to units in use; what is 0 is left out. Counted step by step."""
        names = self.forest.names
        rows = ((names[node], key, units) for key, use in self._use.items() for node, units in enumerate(use) if units)
        return {(name, *key): units for name, key, units in sorted(rows, key=itemgetter(0, 1))}


def recompute(forest: QuotaForest, charges: Iterable[tuple[int, Amounts]]) -> dict[tuple[str, str, str], int]:
    """The usage that these charges come to, from its definition; `QuotaLedger.usage` must be the same."""
    use: dict[FlavorResource, list[int]] = {}
    for node, amounts in charges:
        for key, units in amounts.items():
            use.setdefault(key, [0] * len(forest.names))[node] += units
    leaves_first = sorted(range(len(forest.names)), key=lambda node: -len(forest.paths[node]))
    for key, row in use.items():
        kept = forest.rows(key).kept
        for node in leaves_first:
            if forest.parents[node] >= 0:
                row[forest.parents[node]] += max(0, row[node] - kept[node])
    found = {(forest.names[node], *key): units for key, row in use.items() for node, units in enumerate(row) if units}
    return dict(sorted(found.items()))
