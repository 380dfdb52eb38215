"""Joint placement: the places that must be found at once, for the bundles of a group or the members of a gang, and rows for them.

Placing demands of several resources optimally is hard in general. This greedy search takes the place with the fewest possible rows first,
among equals the largest, and puts each where it leaves the least. An arrangement that it misses is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mesh.ids import GroupId, PoolName, TaskId
from mesh.nodes import Units
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.feasibility import label_rows
from mesh.scheduling.groups import GroupRecord, Layer
from mesh.scheduling.placing import may_stand_on
from mesh.scheduling.records import BucketKey
from mesh.scheduling.state import MeshState
from mesh.scheduling.tasks import TaskRequest

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seat:
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
    seats: tuple[Seat, ...]  #: In search order.
    quota: ResourceSet  #: Sum over all.
    groups: int = 0  #: Number of placement groups to create.

    def by_task(self, rows: Sequence[int]) -> dict[TaskId, tuple[int, ...]]:
        """Return a row for each bundle of each task, from a row for each place."""
        places: dict[TaskId, tuple[int, ...]] = {}
        for seat, row in zip(self.seats, rows, strict=True):
            places[seat.task] = (*places.get(seat.task, ()), *[row] * seat.bundles)
        return places


def demands_of(state: MeshState, requests: Sequence[TaskRequest]) -> PlacementDemand | None:
    """Return the joint demand of tasks that start together; None for several pools. Tasks that existing groups can serve need no place."""
    pool = requests[0].pool
    if pool not in state.pools.pools or any(request.pool != pool for request in requests):
        return None
    has_groups = state.pools.pool(pool).spec.groups is not None
    found, quota, groups = list[list[Seat]](), NOTHING, 0
    standing, rows = set[GroupId](), dict[tuple[object, ...], Rows]()
    for request in requests:
        bucket = state.bucket_for(request)
        layer = _standing(state, request, bucket.key, standing) if has_groups else None
        quota += NOTHING if layer is Layer.RESERVED else bucket.amounts
        if layer is None:
            groups += has_groups
            found.append(_seats(state, request.task, bucket.key, rows))
    # Fewest rows first, then largest. Bundles of one task keep their order, which is the order of their rows.
    found.sort(key=lambda seats: (min(len(seat.rows) for seat in seats), -max(int(seat.vector.sum()) for seat in seats)))
    return PlacementDemand(pool=pool, seats=tuple(seat for seats in found for seat in seats), quota=quota, groups=groups)


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


def _seats(state: MeshState, task: TaskId, key: BucketKey, known: dict[tuple[object, ...], Rows]) -> list[Seat]:
    shape, several = key.shape, len(key.shape.bundles)
    is_whole = several > 1 and shape.strategy == "STRICT_PACK"
    seats = []
    for wanted in (shape.amounts,) if is_whole else shape.bundles:
        like = (wanted, key.selector, key.node, key.soft)
        if like not in known:
            known[like] = rows_for_ever(state, key, wanted)
        seats.append(
            Seat(
                task=task,
                vector=state.table.vector(wanted),
                rows=known[like],
                strategy="" if is_whole or several == 1 else shape.strategy,
                bundles=several if is_whole else 1,
            )
        )
    return seats


def rows_for_ever(state: MeshState, key: BucketKey, wanted: ResourceSet) -> Rows:
    """Return the rows with matching labels that could hold `wanted` when empty, without scores."""
    table, vector = state.table, state.table.vector(wanted)  # First: the call may add a column.
    if key.node is not None and not key.soft:
        named = np.array([table.row(key.node)] if key.node in table else [], dtype=np.intp)
        return named[(table.total[named] >= vector).all(axis=1)]
    labelled = label_rows(table, dict(key.selector))
    return np.flatnonzero(labelled & (table.total[: len(labelled)] >= vector).all(axis=1))


def arrange(seats: Sequence[Seat], free: Units) -> list[int] | None:
    """Return a row for each place, all at once; None when this search finds none.

    Args:
        seats: In search order.
        free: [n, r], free amounts per row; not changed.
    """
    left, rows = free.copy(), list[int]()
    for place, seat in enumerate(seats):
        row = best_fit(seat, left, rows_of_same(seats[:place], rows, seat))
        if row is None:
            return None
        left[row] -= seat.vector
        rows.append(row)
    return rows


def rows_of_same(seats: Iterable[Seat], rows: Iterable[int], seat: Seat) -> list[int]:
    """Return the rows of the other places of its task."""
    return [row for other, row in zip(seats, rows, strict=False) if other.task == seat.task] if seat.strategy else []


def open_rows(seat: Seat, same: Sequence[int]) -> Rows:
    """Return the rows where it may go, given those of its task's other places."""
    return seat.rows[~np.isin(seat.rows, same)] if seat.strategy == "STRICT_SPREAD" and same else seat.rows


def best_fit(seat: Seat, left: Units, same: Sequence[int]) -> int | None:
    """Return the row that fits the place and has the least left afterwards; None when none fits."""
    rows, columns = open_rows(seat, same), np.flatnonzero(seat.vector)
    wanted = seat.vector[columns]
    over = left[np.ix_(rows, columns)] - wanted
    fits = (over >= 0).all(axis=1)
    if not fits.any():
        return None
    rows, over = rows[fits], over[fits]
    if same and seat.strategy in ("PACK", "SPREAD"):
        liked = np.isin(rows, same) if seat.strategy == "PACK" else ~np.isin(rows, same)
        if liked.any():
            rows, over = rows[liked], over[liked]
    return int(rows[int((over / wanted).sum(axis=1).argmin())])


def has_seats(seats: Sequence[Seat], rows: Sequence[int], free: Units) -> bool:
    """Return whether these rows have enough free for these places, one row for each."""
    left = free.copy()
    for seat, row in zip(seats, rows, strict=True):
        left[row] -= seat.vector
    return all((left[row][seat.vector > 0] >= 0).all() for seat, row in zip(seats, rows, strict=True))


def nearest(seats: Sequence[Seat], free: Units, total: Units) -> list[int] | None:
    """Return a row for each place where the least is missing now. None: even empty nodes could not hold them."""
    if arrange(seats, total) is None:
        return None
    left, room, rows = free.copy(), total.copy(), list[int]()
    for place, seat in enumerate(seats):
        columns = np.flatnonzero(seat.vector)
        wanted, where = seat.vector[columns], open_rows(seat, rows_of_same(seats[:place], rows, seat))
        where = where[(room[np.ix_(where, columns)] >= wanted).all(axis=1)]
        if not len(where):
            return arrange(seats, total)
        short = np.maximum(wanted - left[np.ix_(where, columns)], 0)
        row = int(where[int((short / wanted).sum(axis=1).argmin())])
        left[row] -= seat.vector
        room[row] -= seat.vector
        rows.append(row)
    return rows
