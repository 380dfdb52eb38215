"""Reservations for tasks that have waited too long; without them a stream of small tasks would starve large ones.

Each pool reserves for one head: the first in queue order that has waited for `reserve_after_ms` and has no victims. All reservations are
opened before each pass over the queue, and each is taken again when the pass reaches its head. Tasks before a head in the order therefore
take what they need first. Reservations never wait for each other: the first in order finds everything open that the later ones held.

Smaller tasks may use reserved capacity if they are known to end before it is needed (EASY backfilling, Lifka 1995). Users' estimates of
run times may be wrong, so backfilling stops once the head has waited for the same period again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mesh.core.counting import counted
from mesh.core.ids import NodeName, TaskId
from mesh.core.nodes import Units
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import AT_WORK
from mesh.tasks.gang_placement import PlacementDemand, demands_of, has_units, nearest
from mesh.tasks.placing import Refusal, place
from mesh.tasks.records import Bucket, NodeReservation, TaskRecord
from mesh.tasks.state import MeshState

#: Refusals that reserved capacity can help against.
HELPED_BY_ROOM = frozenset({Reason.POOL_BUSY, Reason.NODES_BUSY, Reason.INSTANCES_FRAGMENTED, Reason.CAPACITY_RESERVED})
#: Number of tasks per bucket checked for one that ends soon enough.
_LOOKED_AT_MAX = 16
_PASSED_OVER = frozenset({Reason.POOL_BUSY, Reason.NODES_BUSY, Reason.INSTANCES_FRAGMENTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Result of a head's request for a reservation."""

    refusal: Refusal
    places: dict[
        TaskId, tuple[int, ...]
    ]  #: Rows with all the capacity now, which the policy did not find; empty: capacity is still missing.


def open_reservations(state: MeshState) -> None:
    """Release all reservations; `set_aside` takes them again for heads that still do not fit."""
    for reservation in state.reservations.open():
        head = state.records.get(reservation.task)
        if head is None or head.bucket is None or reservation.task not in state.queues:
            state.room_came()
        else:
            state.shapes.retry(head.bucket)


def close_reservations(state: MeshState) -> bool:
    """End the pass. Return True when a reservation was not taken again, so that other tasks may fit."""
    has_lapsed = state.reservations.close()
    if has_lapsed:
        state.room_came()
    return has_lapsed


def had_room(state: MeshState, record: TaskRecord) -> bool:
    """Return whether the task, or one like it, had the reservation before this pass."""
    before = state.reservations.opened.get(record.request.pool)
    if before is None:
        return False
    head = state.records.get(before.task)
    if head is None:
        return False
    gang = record.request.gang
    return head.bucket is record.bucket or (bool(gang) and not record.in_admitted_gang and head.request.gang == gang)


def set_aside(state: MeshState, record: TaskRecord, together: Sequence[TaskRecord]) -> SetAside | None:
    """Reserve what is free of the places that need the least more. Return None when the head may not have a reservation."""
    pool, after_ms = record.request.pool, state.settings.reserve_after_ms
    if after_ms is None or pool in state.reservations:
        return None
    is_same = had_room(state, record)
    if not is_same and state.now_ms - record.since_ms < after_ms:
        return None
    demand = demands_of(state, [member.request for member in together or (record,)])
    if demand is None or not demand.placement_units or not demand.quota <= state.pools.pool(pool).capacity:
        return None
    count = len(state.table.names)
    left = state.table.left_for(unit.vector for unit in demand.placement_units)
    rows = nearest(demand.placement_units, left, state.table.total[:count])
    if rows is None:
        return None
    if state.pools.pool(pool).fits(demand.quota) and has_units(demand.placement_units, rows, left):
        return SetAside(refusal=_words(demand, 0), places=demand.by_task(rows))
    since_ms = state.reservations.opened[pool].since_ms if is_same else state.now_ms
    places = [(row, unit.vector) for unit, row in zip(demand.placement_units, rows, strict=True)]
    lacking = state.reservations.reserve(record.request.task, pool, since_ms, places, demand.quota)
    return SetAside(refusal=_words(demand, lacking), places={})


def use_or_name(state: MeshState, record: TaskRecord, refusal: Refusal) -> Refusal | None:
    """Place a task that would fit without reservations if it ends soon enough (None), else return whose reservation it waits for."""
    bucket = record.bucket
    if bucket is None or refusal[0] not in _PASSED_OVER or len(bucket.key.shape.bundles) > 1:
        return refusal
    for reservation in state.reservations.values():
        row = _row_kept(state, bucket, reservation)
        if row is None:
            continue
        if _ends_before(state, record, reservation):
            state.reservations.lend(reservation.pool, row, bucket.amounts)
            return place(state, record, (row,))
        return Reason.CAPACITY_RESERVED, f"room is reserved for {reservation.task}, which has waited too long"
    return refusal


def lend_behind(state: MeshState, bucket: Bucket) -> None:
    """Try other tasks of the bucket behind its head: their resources are equal, but their run times may be shorter."""
    for task in state.queues.tasks(bucket, _LOOKED_AT_MAX)[1:]:
        record = state.records[task]
        if record.request.estimated_ms is not None:
            use_or_name(state, record, (Reason.NODES_BUSY, ""))


def _words(demand: PlacementDemand, lacking: int) -> Refusal:
    to_come = f"{lacking} of {counted(len(demand.placement_units), 'place')} still incomplete"
    return Reason.ACCUMULATING_RESERVATION, f"capacity is being reserved for it as it becomes free; {to_come}"


def _row_kept(state: MeshState, bucket: Bucket, reservation: NodeReservation) -> int | None:
    """Return the row where the task would fit without this reservation; None: nowhere."""
    pool = state.pools.pools.get(bucket.key.pool)
    if pool is None or pool.is_closing:
        return None
    short = pool.short_of(bucket.amounts)
    if short and (bucket.key.pool != reservation.pool or not short <= reservation.quota):
        return None
    table, vector = state.table, state.table.vector(bucket.amounts)
    feasible = set(bucket.candidates.feasible_rows().tolist())
    for row in dict.fromkeys(table.row(node) for node, _ in reservation.rows if node in table):
        if row in feasible and (_open_room(state, reservation, row) >= vector)[vector > 0].all():
            return row
    return bucket.candidates.pick(state.random_stream.draw) if short else None


def _ends_before(state: MeshState, record: TaskRecord, reservation: NodeReservation) -> bool:
    """Return whether the task is expected to end before the reserved capacity is needed."""
    estimated_ms, after_ms = record.request.estimated_ms, state.settings.reserve_after_ms
    if estimated_ms is None or after_ms is None or state.now_ms >= reservation.since_ms + after_ms:
        return False
    ready_ms = _ready_ms(state, reservation)
    return ready_ms is not None and state.now_ms + estimated_ms <= ready_ms


def _ready_ms(state: MeshState, reservation: NodeReservation) -> int | None:
    """Return when its places are free if all estimates hold. None if any blocker's run time is unknown."""
    ends: dict[NodeName, list[tuple[int, ResourceSet]]] = {}
    for record in state.records.values():
        node, estimated_ms = record.node, record.request.estimated_ms
        if node is not None and node in reservation.needs and estimated_ms is not None and record.request.agent is None:
            runs = state.tasks.state_of(record.request.task) in AT_WORK
            ends.setdefault(node, []).append(((record.started_ms if runs else state.now_ms) + estimated_ms, record.request.resources))
    ready_ms = state.now_ms
    for node, needed in reservation.needs.items():
        if node not in state.table:
            return None
        row, wanted = state.table.row(node), state.table.vector(needed)
        free = _open_room(state, reservation, row)
        for end_ms, amounts in sorted(ends.get(node, ()), key=lambda end: end[0]):
            if (free >= wanted)[wanted > 0].all():
                break
            free = free + state.table.vector(amounts)
            ready_ms = max(ready_ms, end_ms)
        if not (free >= wanted)[wanted > 0].all():
            return None
    return ready_ms


def _open_room(state: MeshState, reservation: NodeReservation, row: int) -> Units:
    """Return what would be free on the row [r] without this reservation."""
    free: Units = state.table.left[row].copy()
    for node, held in reservation.rows:
        if node == state.table.names[row]:
            free += state.table.widened(held)
    return free
