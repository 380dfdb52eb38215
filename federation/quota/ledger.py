"""Use of every node of a forest, and the rest that is available. `federation.quota.forest` defines own, lent and kept.

    use(leaf)       = amounts of the work that it holds
    use(node)       = sum over children of max(0, use(c) - kept(c))
    available(root) = own - use                                              # negative after a quota reduction
    available(n)    = max(0, kept - use) + min(available(parent), cap)
      cap           = lent - max(0, use - kept) + borrowing limit            # no cap without a limit

The inverse of a charge is the charge with the sign turned; a charge touches one path only. With `keeps_local` the second term of
`available` is never below 0: a deficit above, left by a quota reduction, does not use up what a node keeps. Each value for one node costs
one walk to its root.
Source: Kueue `resource_node.go`; the clamp is ADR 0018's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from federation.quota.forest import UNLIMITED, QuotaForest, Rows
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName
from mesh.errors import LedgerError

Amounts = Mapping[FlavorResource, int]  #: (flavor, resource) to units.


@dataclass(slots=True)
class _Column:
    """One (flavor, resource) at all nodes, by index."""

    rows: Rows
    excess: list[int]  #: Use less own; most callers need this value.
    borrowed: list[int]  #: Use of declaring nodes beyond their own; one list for all flavors of a resource, which counts them together.


#: Column of a pair as `SlotQuota` uses it: use beyond own by node; what is borrowed by node (None: `QuotaLedger.charge` is needed); limits
#: of nodes on the leaf's path (None: `QuotaLedger.room` is needed); whether the root is endless.
_Parts = tuple[list[int], list[int] | None, tuple[tuple[int, int], ...] | None, bool]


#: Use beyond own by node, one node, and the most that it may use beyond its own.
Bound = tuple[list[int], int, int]


class _Columns(dict[FlavorResource, _Column]):
    """Columns, made on first use. A plain dict lookup finds an existing column."""

    def __init__(self, forest: QuotaForest, borrowed: dict[str, list[int]]) -> None:
        super().__init__()
        self._forest, self._borrowed = forest, borrowed
        self.of_flavor: defaultdict[FlavorName, list[list[int]]] = defaultdict(list)  #: `_Column.excess` of each resource of a flavor.

    def __missing__(self, key: FlavorResource) -> _Column:
        rows = self._forest.rows(key)
        borrowed = self._borrowed.setdefault(key[1], [0] * len(rows.idle))
        column = self[key] = _Column(rows, list(rows.idle), borrowed)
        self.of_flavor[key[0]].append(column.excess)
        return column


class SlotQuota:
    """Amounts of one slot at one leaf, prepared: a planner asks for the same ones again and again.

    Args:
        amounts: All above 0.
    """

    __slots__ = ("_ledger", "_node", "_parts", "_path", "amounts")

    def __init__(self, ledger: QuotaLedger, node: int, amounts: Amounts) -> None:
        self._ledger, self._node, self.amounts = ledger, node, amounts
        self._path = ledger.forest.paths[node]
        #: Pairs, units of one slot, and `_Parts`.
        self._parts = [(key, units, *ledger.parts_of(node, key)) for key, units in amounts.items()]

    def free(self, most: int) -> int:
        """Return how many slots could still be charged to the leaf, at most `most`."""
        root = self._path[-1]
        for key, units, excess, _, limits, is_endless in self._parts:
            if limits is None:
                room = self._ledger.room(self._node, key)
            else:
                room = UNLIMITED if is_endless else -excess[root]
                for step, limit in limits:
                    if (left := limit - excess[step]) < room:
                        room = left
            if room < most * units:
                most = room // units
                if most <= 0:
                    return 0
        return most

    def own(self, most: int) -> int:
        """Return how many slots the leaf's own quota covers, even where others have borrowed it, at most `most`."""
        node = self._node
        for _, units, excess, *_ in self._parts:
            own = -excess[node]
            if own < units:
                return 0
            if own < most * units:
                most = own // units
        return most

    def charge(self, times: int) -> None:
        """Charge the slot to the leaf, `times` times."""
        path = self._path
        for key, units, excess, borrowed, _, _ in self._parts:
            by = units * times
            if borrowed is None:
                self._ledger.charge(self._node, {key: by})
                continue
            for step in path:
                excess[step] = above = excess[step] + by
                if above > 0:
                    borrowed[step] += by if by < above else above  # noqa: FURB136  a call of `min` takes three times as long
                elif above > by:
                    borrowed[step] += by - above


class QuotaLedger:
    """Use of one forest; changes in place."""

    __slots__ = ("_borrowed", "_columns", "_keeping", "_paths", "forest", "keeps_local")

    def __init__(self, forest: QuotaForest, *, keeps_local: bool) -> None:
        self.forest = forest
        self.keeps_local = keeps_local
        self._borrowed: dict[str, list[int]] = {}  #: By resource; updated with each charge, since shares read it all the time.
        self._columns = _Columns(forest, self._borrowed)
        self._paths = forest.paths
        self._keeping = {key for key in forest.keys if forest.rows(key).keeps_any}
        for key in forest.keys:
            self._columns[key]

    def charge(self, node: int, amounts: Amounts, times: int = 1) -> None:
        """Add the amounts to the use of a leaf, `times` times, and to its ancestors the part beyond the kept amounts."""
        path, columns = self._paths[node], self._columns
        for key, units in amounts.items():
            by = units * times
            if not by:
                continue
            column = columns[key]
            rows, excess, borrowed = column.rows, column.excess, column.borrowed
            if rows.keeps_any or not rows.all_declare:
                self._charge_path(column, path, by)
                continue
            for step in path:
                excess[step] = above = excess[step] + by
                if above > 0:
                    borrowed[step] += by if by < above else above  # noqa: FURB136  a call of `min` takes three times as long
                elif above > by:
                    borrowed[step] += by - above

    def _charge_path(self, column: _Column, path: Iterable[int], by: int) -> None:
        """Charge one amount where a node keeps some, or some node does not declare it."""
        rows = column.rows
        for step in path:
            above = self._charge_node(column, step, by)
            if rows.kept[step]:
                by = _passed_on(rows, step, above, by)
                if by == 0:
                    return

    def parts_of(self, node: int, key: FlavorResource) -> _Parts:
        """Return what `SlotQuota` reads and writes of the pair."""
        column = self._columns[key]
        rows = column.rows
        if rows.keeps_any:
            return column.excess, None, None, False
        is_endless = rows.own[self._paths[node][-1]] == UNLIMITED
        return column.excess, column.borrowed if rows.all_declare else None, rows.limits[node], is_endless

    def charge_all(self, charges: Iterable[tuple[int, FlavorName, Mapping[str, int], int]]) -> None:
        """Charge many leaves at once, level by level, so that a common ancestor is charged once with the sum.

        Args:
            charges: A leaf, a flavor, units of its resources, and how often.
        """
        sums: defaultdict[FlavorName, defaultdict[str, defaultdict[int, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
        for node, flavor, units, times in charges:
            by_resource = sums[flavor]
            for name, amount in units.items():
                by_resource[name][node] += amount * times
        for flavor, by_resource in sums.items():
            for name, by_node in by_resource.items():
                self._charge_levels(self._columns[flavor, name], by_node)

    def discharge(self, node: int, amounts: Amounts) -> None:
        """Undo a charge.

        Raises:
            LedgerError: The leaf uses less than that; nothing is discharged.
        """
        for key, by in amounts.items():
            if self.use(node, key) < by:
                raise LedgerError(f"{self.forest.names[node]} uses {self.use(node, key)} of {key}, {by} cannot be returned")
        self.charge(node, amounts, -1)

    def _charge_levels(self, column: _Column, by_leaf: Mapping[int, int]) -> None:
        levels: defaultdict[int, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for node, by in by_leaf.items():
            levels[len(self._paths[node])][node] = by
        for depth in range(max(levels), 0, -1):
            self._charge_level(column, levels[depth], levels[depth - 1])

    def _charge_level(self, column: _Column, by_node: Mapping[int, int], by_parent: defaultdict[int, int]) -> None:
        """Charge many nodes of one depth; add what exceeds their kept amounts to their parents' charges."""
        rows, parents = column.rows, self.forest.parents
        if not rows.keeps_any and rows.all_declare:
            excess, borrowed = column.excess, column.borrowed
            for node, by in by_node.items():
                excess[node] = above = excess[node] + by
                if above > 0:
                    borrowed[node] += min(above, by)
                elif above > by:
                    borrowed[node] += by - above
                by_parent[parents[node]] += by
            return
        kepts = rows.kept
        for node, by in by_node.items():
            above = self._charge_node(column, node, by)
            by_parent[parents[node]] += _passed_on(rows, node, above, by) if kepts[node] else by

    def _charge_node(self, column: _Column, node: int, by: int) -> int:
        """Charge a single node; return its use beyond its own."""
        column.excess[node] = above = column.excess[node] + by
        if column.rows.is_declared[node]:
            column.borrowed[node] += max(0, above) - max(0, above - by)
        return above

    def use(self, node: int, key: FlavorResource) -> int:
        """Return the units in use at the node, charged directly or passed up by its children."""
        column = self._columns.get(key)
        return column.excess[node] + column.rows.own[node] if column else 0

    def own(self, node: int, key: FlavorResource) -> int:
        """Return the units that the node brings: its nominal quota and what its children lend."""
        return self.forest.rows(key).own[node]

    def excess(self, node: int, key: FlavorResource) -> int:
        """Return the units in use beyond the node's own; negative if there is room within it."""
        column = self._columns.get(key)
        return column.excess[node] if column else -self.own(node, key)

    def borrowed(self, node: int, extra: Amounts | None = None) -> dict[str, int]:
        """Return for each resource the use beyond the node's own, with `extra` at the node itself, flavors together.

        Only pairs (flavor, resource) that the node declares count.
        """
        found = {name: row[node] for name, row in self._borrowed.items()}
        for name, units in self.borrowed_more(node, extra or {}).items():
            found[name] = found.get(name, 0) + units
        return {name: units for name, units in found.items() if units}

    def borrowed_more(self, node: int, amounts: Amounts) -> dict[str, int]:
        """Return for each resource the change of what the node borrows with so much more (or less) in use at the node itself."""
        found: dict[str, int] = {}
        for key, units in amounts.items():
            column = self._columns[key]
            before = column.excess[node]
            if (before > 0 or before + units > 0) and column.rows.is_declared[node]:
                found[key[1]] = found.get(key[1], 0) + max(0, before + units) - max(0, before)
        return found

    def borrowed_by_node(self, resource: str) -> Sequence[int]:
        """Return what every node borrows of a resource, by index; a view that follows each charge."""
        if resource not in self._borrowed:
            self._borrowed[resource] = [0] * len(self.forest.names)
        return self._borrowed[resource]

    def excess_by_node(self, key: FlavorResource) -> Sequence[int]:
        """Return what every node uses beyond its own, by index, below 0 if there is room; a view that follows each charge."""
        return self._columns[key].excess

    def borrows(self, node: int) -> bool:
        """Return whether the node uses more than its own of anything."""
        return any(column.excess[node] > 0 for column in self._columns.values())

    def has_borrowed(self, node: int) -> bool:
        """Return whether the node uses more than its own of anything that it declares."""
        for row in self._borrowed.values():  # noqa: SIM110  a generator under `any` takes twice as long
            if row[node]:
                return True
        return False

    def is_over(self, node: int, keys: Iterable[FlavorResource]) -> bool:
        """Return whether the node uses more than its own of one of these keys."""
        for key in keys:
            column = self._columns.get(key)
            if column and column.excess[node] > 0:
                return True
        return False

    def is_over_in(self, node: int, flavor: FlavorName) -> bool:
        """Return whether the node uses more than its own of a resource of the flavor."""
        for excess in self._columns.of_flavor[flavor]:  # noqa: SIM110  as above
            if excess[node] > 0:
                return True
        return False

    def would_borrow(self, node: int, key: FlavorResource, units: int) -> bool:
        """Return whether the node would use more than its own with `units` more."""
        return self.excess(node, key) + units > 0

    def local_room(self, node: int, key: FlavorResource) -> int:
        """Return the units that the node can use from what it keeps."""
        return max(0, self.forest.rows(key).kept[node] - self.use(node, key))

    def room(self, node: int, key: FlavorResource, steps: int | None = None) -> int:
        """Return the units that could still be charged to the node; negative if a quota reduction left it above its limits.

        With `steps`, only the limits of the first so many nodes of its path count: no other tenant can free more than that.
        """
        column, root = self._columns[key], self._paths[node][-1]
        rows, room = column.rows, UNLIMITED
        narrow = rows.narrow[node]
        if steps is None:
            if rows.own[root] != UNLIMITED:
                room = -column.excess[root]
            if not narrow and room >= 0:
                return room
        elif not narrow:
            return UNLIMITED
        else:
            below = self._paths[node][:steps]
            narrow = tuple([step for step in narrow if step in below])
        for step in narrow[::-1]:
            kept, limit, use = rows.kept[step], rows.borrowing_limit[step], column.excess[step] + rows.own[step]
            if limit is not None and rows.lent[step] < UNLIMITED:
                room = min(room, rows.lent[step] - max(0, use - kept) + limit)
            if room < 0 and self.keeps_local:
                room = 0
            if kept > use:
                room = UNLIMITED if kept == UNLIMITED else min(UNLIMITED, room + kept - use)
        return 0 if room < 0 and self.keeps_local and node != root else room

    def available(self, node: int, key: FlavorResource) -> int:
        """Return `room`, at least 0."""
        return max(0, self.room(node, key))

    def deficit(self, node: int, key: FlavorResource) -> int:
        """Return the units beyond the limits of the node, or of a node above on which it draws; 0 if all is within limits.

        A node draws on its parent as soon as it uses more than it keeps.
        """
        column = self._columns.get(key)
        if column is None or column.excess[node] == column.rows.idle[node]:
            return 0
        rows, root, worst = column.rows, self._paths[node][-1], 0
        for step in rows.narrow[node]:
            limit, excess = rows.borrowing_limit[step], column.excess[step]
            if limit is not None and rows.own[step] < UNLIMITED:
                worst = max(worst, excess - limit)
            if excess + rows.own[step] <= rows.kept[step]:
                return worst
        return worst if rows.own[root] == UNLIMITED else max(worst, column.excess[root])

    def is_within_limits(self, node: int, keys: Iterable[FlavorResource]) -> bool:
        """Return whether what the node has been charged is within all limits on which it draws."""
        return all(self.deficit(node, key) == 0 and (self.keeps_local or self.room(node, key) >= 0) for key in keys)

    def bounds(self, node: int, amounts: Amounts) -> list[Bound] | None:
        """Return what `is_within_limits` compares for a node that uses some of all these pairs, the root's bounds first.

        None where a node keeps something of a pair, or where the node may use nothing of it: `is_within_limits` has to tell.
        """
        path, found = self._paths[node], list[tuple[int, Bound]]()
        for key, units in amounts.items():
            column = self._columns[key]
            rows = column.rows
            if rows.keeps_any or units <= 0:
                return None
            if rows.own[path[-1]] != UNLIMITED:
                found.append((len(path), (column.excess, path[-1], 0)))
            found += [(path.index(step), (column.excess, step, limit)) for step, limit in rows.limits[node]]
        found.sort(key=itemgetter(0), reverse=True)
        return [bound for _, bound in found]

    def fits(self, node: int, amounts: Amounts, steps: int | None = None) -> bool:
        """Return whether there is room for all amounts at once; `steps` as in `room`."""
        for key, units in amounts.items():
            room = self.room(node, key, steps)
            if units > room and units > 0:
                return False
        return True

    def arriving(self, leaf: int, node: int, amounts: Amounts) -> Amounts:
        """Return the change of the node's use if the amounts were charged to a leaf below it, or returned if they are negative."""
        if leaf == node or self._keeping.isdisjoint(amounts):
            return amounts
        arriving = dict(amounts)
        for key, units in amounts.items():
            rows = self._columns[key].rows
            for step in rows.narrow[leaf]:
                if step == node:
                    break
                if rows.kept[step] and len(self._paths[step]) > len(self._paths[node]):
                    beyond = self.use(step, key) - rows.kept[step]
                    units = max(0, beyond + units) - max(0, beyond)  # noqa: PLW2901  the part that passes each step
            arriving[key] = units
        return arriving

    def passes_on(self, keys: Iterable[FlavorResource]) -> bool:
        """Return whether all use of these pairs reaches every node above: nobody keeps anything of them."""
        return self._keeping.isdisjoint(keys)

    def height_that_holds(self, node: int, key: FlavorResource, units: int) -> tuple[int, bool]:
        """Return the height of the lowest subtree that holds `units` more within its own, and whether there is more of the tree above.

        0 is the node itself, or a node without a parent. If no subtree does, the height of the whole tree, and False.
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
        """Return (node, flavor, resource) to units in use, without zeros, as counted charge by charge."""
        names = self.forest.names
        rows = (
            (name, key, excess + own)
            for key, column in self._columns.items()
            for name, excess, own in zip(names, column.excess, column.rows.own, strict=True)
            if excess + own
        )
        return {(name, *key): units for name, key, units in sorted(rows, key=itemgetter(0, 1))}


def _passed_on(rows: Rows, node: int, excess: int, by: int) -> int:
    """Return the part of a change that reaches the parent of a node that keeps something; `excess` is the value after the change."""
    beyond = excess + rows.own[node] - rows.kept[node]
    return max(0, beyond) - max(0, beyond - by)


def recompute(forest: QuotaForest, charges: Iterable[tuple[int, Amounts]]) -> dict[tuple[str, str, str], int]:
    """Return the usage of these charges from its definition; `QuotaLedger.usage` must be equal."""
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
