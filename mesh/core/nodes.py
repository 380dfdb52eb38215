"""Nodes of a cluster as arrays: total, used and promised resources of each.

A row per node, a column per resource name. `available = total - used`. `load` is the part of it that is promised to tasks
that have not started, so a new task may count on `free = available - load` (Ray's two-pass rule). Each change appends its
row to `touched`, so readers that cache scores recompute those rows only.

Unit-instance resources, such as GPUs, are also kept by instance (`mesh.core.node_instances`), for nodes that have some. Their amounts
in `left` are sums; what one run can use of a sum is in `whole_free` and `largest_free`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mesh.core.ids import NodeName
from mesh.core.node_instances import UNIT_INSTANCE_RESOURCES, InstanceHolding, NodeInstances, is_possible
from mesh.core.resources import UNITS_PER_WHOLE, ResourceSet
from mesh.errors import LedgerError

Units: TypeAlias = NDArray[np.int64]

_ROWS_AT_FIRST = 16
_VECTORS_MAX = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResources:
    """Total, available and promised resources of one node."""

    total: ResourceSet
    available: ResourceSet  #: Not in use.
    load: ResourceSet  #: Promised to tasks that have not started; exceeds `available` where tasks queue for the node.


class NodeTable:
    """Invariants: 0 ≤ used, 0 ≤ load; left = total - used - load; a dead row is all zeros.

    Besides, used + load ≤ total, unless a total was lowered while in use or tasks queue for the node (`queue_for`).
    """

    def __init__(self) -> None:
        self.resources: tuple[str, ...] = ()  #: Names of the columns.
        self.names: list[NodeName | None] = []  #: None: the row is free for another node.
        self.labels: list[Mapping[str, str]] = []
        self.touched: list[int] = []  #: Rows in the order of their changes; only grows, so readers keep an index into it.
        self.shape_version = 0  #: Grows when rows are added or removed, labels change or columns are added.
        self.totals_version = 0  #: Grows when a node's total changes.
        self._rows: dict[NodeName, int] = {}
        self._holes: list[int] = []  #: Heap of the rows that are free for another node.
        self._columns: dict[str, int] = {}
        self._vectors: dict[ResourceSet, Units] = {}  #: Cache of recent vectors: the same few shapes come again and again.
        self.foreign: dict[NodeName, Units] = {}  #: Use by work outside this mesh; a part of `used`.
        self.total: Units = np.zeros((0, 0), dtype=np.int64)
        self.used: Units = np.zeros((0, 0), dtype=np.int64)
        self.load: Units = np.zeros((0, 0), dtype=np.int64)
        #: total - used - load, kept up to date with each change: every task reads it, and reading three tables costs three times as much.
        self.left: Units = np.zeros((0, 0), dtype=np.int64)
        self._instances: dict[int, NodeInstances] = {}  #: By row; rows without unit-instance resources have none, and pay nothing.
        self._unit_columns: dict[int, str] = {}  #: Columns of unit-instance resources.
        #: Cache of `_needs_of` by the bytes of the demand.
        self._unit_needs: dict[bytes, tuple[tuple[tuple[int, int], ...], ResourceSet, bool]] = {}
        self.whole_free: Units = np.zeros((0, 0), dtype=np.int64)  #: Units on entirely free instances; zero in other columns.
        self.largest_free: Units = np.zeros((0, 0), dtype=np.int64)  #: Largest free part of one instance; zero in other columns.
        self.busy: Units = np.zeros(0, dtype=np.int64)  #: Number of tasks that run on the node or are promised to it.

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, node: object) -> bool:
        return node in self._rows

    def row(self, node: NodeName) -> int:
        """Return the row of the node. Raises `LedgerError` when the node is unknown."""
        found = self._rows.get(node)
        if found is None:
            raise LedgerError(f"node {node} is not in the table")
        return found

    def name(self, row: int) -> NodeName:
        """Return the node of the row. Raises `LedgerError` for an empty row."""
        name = self.names[row]
        if name is None:
            raise LedgerError(f"row {row} has no node")
        return name

    def vector(self, amounts: ResourceSet) -> Units:
        """Return the amounts in the table's columns [r]; a new resource gets a column. Shared: callers must not write into it."""
        vector = self._vectors.get(amounts)
        if vector is not None:
            return vector
        for name in amounts:
            if name not in self._columns:
                self._add_column(name)
        vector = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in amounts.items():
            vector[self._columns[name]] = amount
        vector.flags.writeable = False
        if len(self._vectors) >= _VECTORS_MAX:
            self._vectors.clear()
        self._vectors[amounts] = vector
        return vector

    def amounts(self, vector: Units) -> ResourceSet:
        """Return the resources of a vector: the inverse of `vector`."""
        return ResourceSet({name: int(vector[column]) for name, column in self._columns.items() if vector[column]})

    def widened(self, vector: Units) -> Units:
        """Return a vector from before columns were added, in the present columns [r]."""
        lacking = len(self.resources) - len(vector)
        return np.pad(vector, (0, lacking)) if lacking else vector

    def join(self, node: NodeName, total: ResourceSet, labels: Mapping[str, str]) -> None:
        """Add a node, or set totals and labels of a known one; its use stays, over-committed if need be."""
        vector = self.vector(total)
        row = self._rows.get(node)
        if row is None:
            row = self._free_row()
            self._rows[node], self.names[row] = row, node
            self.shape_version += 1
        elif self.labels[row] != labels:
            self.shape_version += 1
        self.labels[row] = dict(labels)
        self._set_total(row, vector)
        self.touched.append(row)

    def update_resource(self, node: NodeName, name: str, units: int) -> None:
        """Set the node's total of a resource; the available amount follows, and is never below zero.

        Raises:
            LedgerError: The node is unknown.
            AmountError: `units` is less than zero or more than a ledger holds.
        """
        row = self.row(node)
        vector = self.vector(ResourceSet({name: units}))
        if name in self._columns:
            total, column = self.total[row].copy(), self._columns[name]
            total[column] = vector[column]
            self._set_total(row, total)
        self.touched.append(row)

    def delete_resource(self, node: NodeName, name: str) -> None:
        """Set the node's total of a resource to zero. Raises `LedgerError` when the node is unknown."""
        self.update_resource(node, name, 0)

    def resources_of(self, node: NodeName) -> NodeResources:
        """Return the node's resources for people to read. Raises `LedgerError` when the node is unknown."""
        row = self.row(node)
        available: Units = np.maximum(self.total[row] - self.used[row], 0)
        return NodeResources(total=self.amounts(self.total[row]), available=self.amounts(available), load=self.amounts(self.load[row]))

    def leave(self, node: NodeName) -> None:
        """Remove the node, with all that was used or promised there."""
        row = self.row(node)
        del self._rows[node]
        self.foreign.pop(node, None)
        heappush(self._holes, row)
        self.names[row], self.labels[row] = None, {}
        self._instances.pop(row, None)
        for table in (self.total, self.used, self.load, self.left, self.whole_free, self.largest_free):
            table[row] = 0
        self.busy[row] = 0
        self.shape_version += 1
        self.touched.append(row)

    def promise(self, row: int, wanted: Units, holder: str = "", *, in_parts: bool = False) -> None:
        """Charge the load at once, so the next decision sees it.

        Args:
            holder: Holder of the instances; `withdraw` and `finish` name the same one.
            in_parts: As for `NodeInstances.hold`.

        Raises:
            LedgerError: More than what is free, or a run would get one instance in two parts.
        """
        left = self.left[row] - wanted
        if _has_negative(left) and (left[wanted > 0] < 0).any():
            raise LedgerError(f"node {self.names[row]} does not have {self.amounts(wanted)} free")
        if self._unit_columns:
            needs, part, may_ask = self._unit_needs.get(wanted.tobytes()) or self._needs_of(wanted)
            if needs:
                if not in_parts and not self.has_instances(row, needs if may_ask else [need for need in needs if is_possible(need[1])]):
                    raise LedgerError(f"node {self.names[row]} has {self.amounts(wanted)} free in sum only, in parts of several instances")
                self._hold(row, part, holder, in_parts=in_parts)
        load = self.load[row]  # A view: `self.load[row] += wanted` would write the row twice.
        load += wanted
        self.left[row] = left
        self.busy[row] += 1
        self.touched.append(row)

    def promise_each(self, rows: Sequence[int], wanted: Units, holder: str = "") -> None:
        """Charge the load once for each of the rows, which may repeat.

        Args:
            holder: As for `promise`.

        Raises:
            LedgerError: As by `promise`. Demands of unit-instance resources are charged one by one, those before the wrong one too.
        """
        if self.instance_needs(wanted):
            for row in rows:
                self.promise(row, wanted, holder)
            return
        distinct, counts = np.unique(np.asarray(rows, dtype=np.intp), return_counts=True)
        amounts = counts[:, np.newaxis] * wanted
        left = self.left[distinct] - amounts
        if ((left < 0) & (wanted > 0)).any():
            raise LedgerError(f"the nodes do not have {self.amounts(wanted)} free for each of {len(rows)} promises")
        self._charge(distinct, counts, amounts)

    def withdraw_each(self, rows: Sequence[int], wanted: Units, holder: str = "") -> None:
        """Release a promise of the holder for each of the rows, which may repeat. Raises `LedgerError` beyond what is promised."""
        if self.instance_needs(wanted):
            for row in rows:
                self.withdraw(row, wanted, holder)
            return
        distinct, counts = np.unique(np.asarray(rows, dtype=np.intp), return_counts=True)
        amounts = counts[:, np.newaxis] * wanted
        if (self.load[distinct] < amounts).any():
            raise LedgerError(f"the nodes cannot release {self.amounts(wanted)} for each of {len(rows)} promises, which they do not hold")
        self._charge(distinct, -counts, -amounts)

    def _charge(self, rows: NDArray[np.intp], counts: Units, amounts: Units) -> None:
        """Add to the load of distinct rows."""
        self.load[rows] += amounts
        self.left[rows] -= amounts
        self.busy[rows] += counts
        self.touched.extend(rows.tolist())

    def queue_for(self, row: int, wanted: Units, holder: str = "", *, in_parts: bool = False) -> None:
        """Charge the load of a task that waits for the node, beyond what is free: the second of Ray's two passes."""
        if self._unit_columns:
            needs, part, _ = self._unit_needs.get(wanted.tobytes()) or self._needs_of(wanted)
            if needs:
                self._hold(row, part, holder, in_parts=in_parts)
        load, left = self.load[row], self.left[row]  # Views: `self.load[row] += wanted` would write each row twice.
        load += wanted
        left -= wanted
        self.busy[row] += 1
        self.touched.append(row)

    def start(self, row: int, wanted: Units) -> None:
        """Turn a promise into use."""
        self._take(self.load, row, wanted)
        self.used[row] += wanted
        self.touched.append(row)

    def withdraw(self, row: int, wanted: Units, holder: str = "") -> None:
        """Release a promise of the holder."""
        self._take(self.load, row, wanted)
        if self._unit_columns:
            self._release(row, wanted, holder)
        self.left[row] += wanted
        self.busy[row] -= 1
        self.touched.append(row)

    def finish(self, row: int, wanted: Units, holder: str = "") -> None:
        """Release what the holder used."""
        self._take(self.used, row, wanted)
        if self._unit_columns:
            self._release(row, wanted, holder)
        self.left[row] += wanted
        self.busy[row] -= 1
        self.touched.append(row)

    def see_foreign(self, node: NodeName, wanted: Units) -> None:
        """Set how much work outside this mesh uses of the node; replaces the earlier amount."""
        row = self.row(node)
        before = self.foreign.get(node)
        more = wanted if before is None else wanted - before
        self.used[row] += more
        self.left[row] -= more
        self.foreign[node] = wanted
        part = self._unit_part(wanted)
        if part or row in self._instances:
            self._instances.setdefault(row, NodeInstances()).set_foreign(part)
            self._look_at_instances(row)
        self.touched.append(row)

    def free(self, rows: NDArray[np.intp] | slice) -> Units:
        """Return what a new task may count on [k, r]; never below zero."""
        left = self.left[rows] if isinstance(rows, slice) else self.left.take(rows, 0)  # Seven times as fast as `[rows]`.
        free: Units = np.maximum(left, 0)
        return free

    # -- unit-instance resources ---------------------------------------------------------------------------------------

    def instance_needs(self, wanted: Units) -> tuple[tuple[int, int], ...]:
        """Return column and amount of each unit-instance resource in the demand of one run."""
        return self._needs_of(wanted)[0] if self._unit_columns else ()

    def instances_fit(self, needs: Sequence[tuple[int, int]], rows: NDArray[np.intp] | slice) -> NDArray[np.bool_]:
        """Return a mask of the rows where one run finds its instances: whole free ones, or its part on a single one [k].

        Args:
            needs: From `instance_needs`.
        """
        parts = [self._free_for_run(column, units)[rows] >= units for column, units in needs]
        fits: NDArray[np.bool_] = np.logical_and.reduce(parts)
        return fits

    def has_instances(self, row: int, needs: Iterable[tuple[int, int]]) -> bool:
        """Return whether one run finds its instances on the row; `instances_fit` for a single row."""
        for column, units in needs:
            if units < UNITS_PER_WHOLE:
                if self.largest_free[row, column] < units:
                    return False
            elif self.whole_free[row, column] < units or units % UNITS_PER_WHOLE:
                return False
        return True

    def fits(self, row: int, wanted: Units) -> bool:
        """Return whether a run of this demand fits on the row now."""
        return not (self.left[row] < wanted)[wanted > 0].any() and self.has_instances(row, self.instance_needs(wanted))

    def fits_without(self, row: int, wanted: Units, holders: Iterable[str]) -> bool:
        """Return whether a run would find its instances on the row if these holders released theirs; sums are not looked at."""
        node = self._instances.get(row)
        return node is None or node.fits_without(self._unit_part(wanted), [*holders])

    def left_for(self, demands: Iterable[Units]) -> Units:
        """Return what is left of each row that runs of these sizes can use [n, r]: GPUs in parts are no use to a run of a whole one.

        For parts of several sizes it is what runs of the largest size can use.
        """
        left = self.left[: len(self.names)]
        if not self._instances:
            return left
        needs: dict[int, int] = {}
        for wanted in demands:
            for column, units in self.instance_needs(wanted):
                needs[column] = max(needs.get(column, 0), units)
        if needs:
            left = left.copy()
            for row, node in self._instances.items():
                for column, units in needs.items():
                    left[row, column] = min(left[row, column], node.usable(self._unit_columns[column], units))
        return left

    def partly_free(self, rows: Iterable[int], column: int) -> int:
        """Return how many instances of the column's resource are free in part on these rows."""
        return sum(self._instances[row].partly_free(self._unit_columns[column]) for row in rows if row in self._instances)

    def holdings(self, row: int) -> tuple[InstanceHolding, ...]:
        """Return who holds which instances of the row."""
        return self._instances[row].holdings() if row in self._instances else ()

    def move_instances(self, row: int, holder: str, to: str) -> None:
        """Give another holder the instances of this one."""
        if row in self._instances:
            self._instances[row].move(holder, to)

    def remember(self, node: NodeName, holdings: Sequence[InstanceHolding]) -> None:
        """Let the holders of a snapshot get the same instances again, until `forget_remembered`."""
        if holdings:
            self._instances.setdefault(self.row(node), NodeInstances()).remember(holdings)

    def forget_remembered(self) -> None:
        """End the restoration of a snapshot."""
        for node in self._instances.values():
            node.forget_remembered()

    def check_instances(self) -> Iterator[str]:
        """Yield a message per broken invariant between sums and instances."""
        for row, node in self._instances.items():
            yield from (f"node {self.names[row]}: {wrong}" for wrong in node.check())
            held = sum((each.wanted for each in node.holdings()), start=ResourceSet())
            charged = self._unit_part(self.used[row] + self.load[row])
            if held != charged:
                yield f"node {self.names[row]}: {held} is held by instance, {charged} in sum"

    def _free_for_run(self, column: int, units: int) -> Units:
        """Return the free amounts that count for a run's demand: of whole instances, or of the one with the largest free part."""
        if units < UNITS_PER_WHOLE:
            return self.largest_free[:, column]
        return self.whole_free[:, column] if is_possible(units) else np.zeros(len(self.whole_free), dtype=np.int64)

    def _hold(self, row: int, part: ResourceSet, holder: str, *, in_parts: bool) -> None:
        node = self._instances.get(row)
        if node is None:
            node = self._instances[row] = NodeInstances()
        node.hold(holder, part, in_parts=in_parts)
        self._look_at_instances(row)

    def _release(self, row: int, wanted: Units, holder: str) -> None:
        part = self._unit_part(wanted)
        if part:
            self._instances[row].release(holder, part)
            self._look_at_instances(row)

    def _needs_of(self, wanted: Units) -> tuple[tuple[tuple[int, int], ...], ResourceSet, bool]:
        """Return column and amount of each unit-instance resource of a demand, these as a set, and whether one run may ask for so much."""
        key = wanted.tobytes()
        found = self._unit_needs.get(key)
        if found is None:
            if len(self._unit_needs) >= _VECTORS_MAX:
                self._unit_needs.clear()
            needs = tuple([(column, int(wanted[column])) for column in self._unit_columns if column < len(wanted) and wanted[column]])
            part = ResourceSet({self._unit_columns[column]: units for column, units in needs})
            found = self._unit_needs[key] = needs, part, all(is_possible(units) for _, units in needs)
        return found

    def _unit_part(self, wanted: Units) -> ResourceSet:
        return self._needs_of(wanted)[1]

    def _look_at_instances(self, row: int) -> None:
        node = self._instances[row]
        for column, name in self._unit_columns.items():
            self.whole_free[row, column], self.largest_free[row, column] = node.whole_and_largest(name)

    def _set_instances(self, row: int, total: Units) -> None:
        """Number the row's instances, if it has any."""
        if row not in self._instances and not any(total[column] for column in self._unit_columns):
            return
        node = self._instances.setdefault(row, NodeInstances())
        for column, name in self._unit_columns.items():
            node.set_total(name, int(total[column]))
        self._look_at_instances(row)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _set_total(self, row: int, total: Units) -> None:
        self.left[row] += total - self.total[row]
        self.total[row] = total
        self.totals_version += 1
        if self._unit_columns:
            self._set_instances(row, total)

    def _take(self, table: Units, row: int, wanted: Units) -> None:
        left = table[row] - wanted
        if _has_negative(left):
            raise LedgerError(f"node {self.names[row]}: cannot release {self.amounts(wanted)}, which is not held there")
        table[row] = left

    def _free_row(self) -> int:
        if self._holes:
            return heappop(self._holes)
        row, size = len(self.names), len(self.total)
        if row == size:
            grown = max(_ROWS_AT_FIRST, 2 * size) - size
            self._pad(((0, grown), (0, 0)))
            self.busy = np.pad(self.busy, (0, grown))
        self.names.append(None)
        self.labels.append({})
        return row

    def _add_column(self, name: str) -> None:
        self._vectors.clear()
        self._unit_needs.clear()  # The bytes of a demand mean other columns from now on.
        self._columns[name] = len(self.resources)
        if name in UNIT_INSTANCE_RESOURCES:
            self._unit_columns[len(self.resources)] = name
        self.resources = (*self.resources, name)
        self._pad(((0, 0), (0, 1)))
        self.foreign = {node: np.pad(seen, (0, 1)) for node, seen in self.foreign.items()}
        self.shape_version += 1

    def _pad(self, by: tuple[tuple[int, int], tuple[int, int]]) -> None:
        """Append rows and columns of zeros to all tables."""
        self.total, self.used, self.load, self.left = (np.pad(table, by) for table in (self.total, self.used, self.load, self.left))
        self.whole_free, self.largest_free = (np.pad(table, by) for table in (self.whole_free, self.largest_free))


def _has_negative(row: Units) -> bool:
    """Return whether any amount is negative. A list is checked: for a handful of columns a reduction of NumPy costs eight times as much."""
    return min(row.tolist(), default=0) < 0
