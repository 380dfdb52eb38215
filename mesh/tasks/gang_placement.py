"""Joint placement: the places that must be found at once, for the bundles of a group or the members of a gang, and rows for them.

Placing demands of several resources optimally is hard in general. This greedy search takes the place with the fewest possible rows first,
among equals the largest, and puts each where it leaves the least. An arrangement that it misses is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mesh.core.ids import GroupId, PoolName, TaskId
from mesh.core.nodes import Units
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.placement.feasibility import label_rows
from mesh.placement.groups import GroupRecord, Layer
from mesh.tasks.placing import may_stand_on
from mesh.tasks.records import BucketKey
from mesh.tasks.state import MeshState

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacementUnit:
    """One place to be found."""

    task: TaskId
    vector: Units  #: Amounts it takes of its node, in the node table's columns.
    rows: Rows  #: Rows that could hold it when empty.
    strategy: str = ""  #: Relation to the other places of its task; empty: none.
    bundles: int = 1  #: Number of bundles in this place: all of them in a STRICT_PACK group.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDemand:
    """Joint demand of some tasks in one pool."""

    pool: PoolName
    placement_units: tuple[PlacementUnit, ...]  #: In search order.
    quota: ResourceSet  #: Sum over all.
    groups: int = 0  #: Number of placement groups to create.

    def by_task(self, rows: Sequence[int]) -> dict[TaskId, tuple[int, ...]]:
        """Return a row for each bundle of each task, from a row for each place."""
        places: dict[TaskId, tuple[int, ...]] = {}
        for unit, row in zip(self.placement_units, rows, strict=True):
            places[unit.task] = (*places.get(unit.task, ()), *[row] * unit.bundles)
        return places


def demands_of(state: MeshState, requests: Sequence[TaskRequest]) -> PlacementDemand | None:
    """Return the joint demand of tasks that start together; None for several pools. Tasks that existing groups can serve need no place."""
    pool = requests[0].pool
    if pool not in state.pools.pools or any(request.pool != pool for request in requests):
        return None
    has_groups = state.pools.pool(pool).spec.groups is not None
    found, quota, groups = list[list[PlacementUnit]](), NOTHING, 0
    standing, rows = set[GroupId](), dict[tuple[object, ...], Rows]()
    for request in requests:
        bucket = state.shapes.bucket_for(request)
        layer = _standing(state, request, bucket.key, standing) if has_groups else None
        quota += NOTHING if layer is Layer.RESERVED else bucket.amounts
        if layer is None:
            groups += has_groups
            found.append(_units_of(state, request.task, bucket.key, rows))
    # Fewest rows first, then largest. Bundles of one task keep their order, which is the order of their rows.
    found.sort(key=lambda units: (min(len(unit.rows) for unit in units), -max(int(unit.vector.sum()) for unit in units)))
    return PlacementDemand(pool=pool, placement_units=tuple(unit for units in found for unit in units), quota=quota, groups=groups)


def _standing(state: MeshState, request: TaskRequest, key: BucketKey, taken: set[GroupId]) -> Layer | None:
    """Return the layer of an existing group that the task could use; each group is used once."""
    selector = dict(key.selector)

    def accepts(group: GroupRecord) -> bool:
        return group.group not in taken and may_stand_on(state, key, selector, group)

    for layer in (Layer.RESERVED, Layer.DYNAMIC) if key.is_urgent else (Layer.DYNAMIC,):
        found = state.groups.match(key.pool, key.shape, layer=layer, task=request.task, accepts=accepts)
        if found is not None:
            taken.add(found.group)
            return layer
    return None


def _units_of(state: MeshState, task: TaskId, key: BucketKey, known: dict[tuple[object, ...], Rows]) -> list[PlacementUnit]:
    shape, several = key.shape, len(key.shape.bundles)
    is_whole = several > 1 and shape.strategy == "STRICT_PACK"
    units = []
    for wanted in (shape.amounts,) if is_whole else shape.bundles:
        like = (wanted, key.selector, key.node, key.soft)
        if like not in known:
            known[like] = rows_when_empty(state, key, wanted)
        units.append(
            PlacementUnit(
                task=task,
                vector=state.table.vector(wanted),
                rows=known[like],
                strategy="" if is_whole or several == 1 else shape.strategy,
                bundles=several if is_whole else 1,
            )
        )
    return units


def rows_when_empty(state: MeshState, key: BucketKey, wanted: ResourceSet) -> Rows:
    """Return the rows with matching labels that could hold `wanted` when empty, without scores."""
    table, vector = state.table, state.table.vector(wanted)  # First: the call may add a column.
    if key.node is not None and not key.soft:
        named = np.array([table.row(key.node)] if key.node in table else [], dtype=np.intp)
        return named[(table.total[named] >= vector).all(axis=1)]
    labelled = label_rows(table, dict(key.selector))
    return np.flatnonzero(labelled & (table.total[: len(labelled)] >= vector).all(axis=1))


def arrange(placement_units: Sequence[PlacementUnit], free: Units) -> list[int] | None:
    """Return a row for each place, all at once; None when this search finds none.

    Args:
        placement_units: In search order.
        free: [n, r], free amounts per row; not changed.
    """
    left, rows = free.copy(), list[int]()
    for place, unit in enumerate(placement_units):
        row = best_fit(unit, left, rows_of_same(placement_units[:place], rows, unit))
        if row is None:
            return None
        left[row] -= unit.vector
        rows.append(row)
    return rows


def rows_of_same(placement_units: Iterable[PlacementUnit], rows: Iterable[int], unit: PlacementUnit) -> list[int]:
    """Return the rows of the other places of its task."""
    return [row for other, row in zip(placement_units, rows, strict=False) if other.task == unit.task] if unit.strategy else []


def open_rows(unit: PlacementUnit, same: Sequence[int]) -> Rows:
    """Return the rows where it may go, given those of its task's other places."""
    return unit.rows[~np.isin(unit.rows, same)] if unit.strategy == "STRICT_SPREAD" and same else unit.rows


def best_fit(unit: PlacementUnit, left: Units, same: Sequence[int]) -> int | None:
    """Return the row that fits the place and has the least left afterwards; None when none fits."""
    rows, columns = open_rows(unit, same), np.flatnonzero(unit.vector)
    wanted = unit.vector[columns]
    over = left[np.ix_(rows, columns)] - wanted
    fits = (over >= 0).all(axis=1)
    if not fits.any():
        return None
    rows, over = rows[fits], over[fits]
    if same and unit.strategy in ("PACK", "SPREAD"):
        liked = np.isin(rows, same) if unit.strategy == "PACK" else ~np.isin(rows, same)
        if liked.any():
            rows, over = rows[liked], over[liked]
    return int(rows[int((over / wanted).sum(axis=1).argmin())])


def has_units(placement_units: Sequence[PlacementUnit], rows: Sequence[int], free: Units) -> bool:
    """Return whether these rows have enough free for these places, one row for each."""
    left = free.copy()
    for unit, row in zip(placement_units, rows, strict=True):
        left[row] -= unit.vector
    return all((left[row][unit.vector > 0] >= 0).all() for unit, row in zip(placement_units, rows, strict=True))


def nearest(placement_units: Sequence[PlacementUnit], free: Units, total: Units) -> list[int] | None:
    """Return a row for each place where the least is missing now. None: even empty nodes could not hold them."""
    if arrange(placement_units, total) is None:
        return None
    left, room, rows = free.copy(), total.copy(), list[int]()
    for place, unit in enumerate(placement_units):
        columns = np.flatnonzero(unit.vector)
        wanted, where = unit.vector[columns], open_rows(unit, rows_of_same(placement_units[:place], rows, unit))
        where = where[(room[np.ix_(where, columns)] >= wanted).all(axis=1)]
        if not len(where):
            return arrange(placement_units, total)
        short = np.maximum(wanted - left[np.ix_(where, columns)], 0)
        row = int(where[int((short / wanted).sum(axis=1).argmin())])
        left[row] -= unit.vector
        room[row] -= unit.vector
        rows.append(row)
    return rows
