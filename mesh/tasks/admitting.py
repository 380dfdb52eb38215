"""Admission pass over the queue: place each task, reserve or preempt for it, or park it; then explain what still waits.

The members of a gang are admitted all together or not at all, so that two gangs cannot each hold half of what both need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mesh.core.counting import counted
from mesh.core.ids import TaskId
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskState
from mesh.placement.two_pass import is_feasible
from mesh.tasks.decisions import EndTask
from mesh.tasks.evicting import evict_for
from mesh.tasks.placing import Refusal, place
from mesh.tasks.records import TaskRecord
from mesh.tasks.reserving import HELPED_BY_ROOM, close_reservations, lend_behind, open_reservations, set_aside, use_or_name
from mesh.tasks.state import MeshState

_NEVER = frozenset({Reason.POOL_TOO_SMALL, Reason.NO_NODE_FITS})
#: Terminal refusals: the user's explicit wish cannot be met, so the task fails, as in Ray.
_FATAL = frozenset({Reason.NAMED_NODE_GONE, Reason.NAMED_NODE_TOO_SMALL, Reason.REQUEST_INVALID})
_NO_PLACES: Mapping[TaskId, tuple[int, ...]] = {}
_CAN_PREEMPT = frozenset(
    {Reason.POOL_BUSY, Reason.NODES_BUSY, Reason.INSTANCES_FRAGMENTED, Reason.GROUPS_AT_LIMIT, Reason.CAPACITY_RESERVED}
)


def admit(state: MeshState) -> None:
    """Run one pass over the queue, best first, and a second one if the first released reservations."""
    if not _pass(state):
        _pass(state)


def _pass(state: MeshState) -> bool:
    """Return False if the pass released reservations, so that another pass is worth while."""
    state.evictions.begin_pass()
    waiting: Any = state.queues.buckets()
    if state.reservations and _has_change(state, waiting):
        open_reservations(state)
    heads = state.queues.round(state.now_ms, [bucket for bucket in waiting if bucket.tried_at != state.room_epoch])
    while (head := heads.next()) is not None:
        bucket: Any = head[0]
        if bucket.tried_at != state.room_epoch and try_now(state, state.records[head[1]]):
            heads.again(bucket)
    return not (state.reservations.opened and close_reservations(state))


def _has_change(state: MeshState, waiting: Iterable[Any]) -> bool:
    """Return whether a bucket must be tried, or a task with a reservation has left the queue."""
    if any(bucket.tried_at != state.room_epoch for bucket in waiting):
        return True
    return any(reservation.task not in state.queues for reservation in state.reservations.values())


def try_now(state: MeshState, record: TaskRecord, places: Mapping[TaskId, tuple[int, ...]] = _NO_PLACES) -> bool:
    """Place the task, or order victims to stop for it. Return False when its bucket has to wait.

    Args:
        places: Rows found earlier for the task, or for each member of its gang; used if they still have the capacity.
    """
    bucket = record.bucket
    assert bucket is not None  # noqa: S101  it is queued
    refusal = _attempt(state, record, places)
    if state.shapes.note_attempt(bucket, refusal, state.room_epoch):
        state.task_ledger.count_change()
    if refusal is None:
        return True
    if refusal[0] in _FATAL:
        state.task_ledger.give_up(record, refusal)
        return True
    if refusal[0] in _NEVER:
        state.task_ledger.park(record)  # `try_infeasible` tries it again when a node or pool joins or grows.
        state.explain(record, *refusal)
        return True
    return _wait(state, record, refusal, is_last=bool(places))


def _attempt(state: MeshState, record: TaskRecord, places: Mapping[TaskId, tuple[int, ...]]) -> Refusal | None:
    """Place the task, or its whole gang, using reserved capacity if the task ends before that capacity is needed."""
    gang = record.request.gang
    refusal = admit_gang(state, record, places) if gang else place(state, record, places.get(record.request.task, ()))
    if refusal is not None and state.reservations and (not gang or record.in_admitted_gang):
        return use_or_name(state, record, refusal)
    if refusal is None and gang and (eviction := state.evictions.of_gang(gang)) is not None:
        state.end_eviction(eviction.preemptor)  # Capacity came free elsewhere.
    return refusal


def _wait(state: MeshState, record: TaskRecord, refusal: Refusal, *, is_last: bool) -> bool:
    """Preempt or reserve for the task, and explain why it waits.

    Returns:
        True when a closer search found places and the task started.
    """
    together = _starts_together(state, record)
    if refusal[0] is Reason.CAPACITY_RESERVED and record.bucket is not None:
        lend_behind(state, record.bucket)
    refusal = _make_room(state, record, refusal, together)
    if refusal[0] is not Reason.WAITING_FOR_VICTIMS and (together or refusal[0] in HELPED_BY_ROOM):
        kept = set_aside(state, record, together)
        if kept is not None and kept.places and not is_last:
            return try_now(state, record, kept.places)
        refusal = kept.refusal if kept is not None and not kept.places else refusal
    for waiting in together or (record,):
        if waiting.bucket is not None:
            state.shapes.note_refusal(waiting.bucket, refusal)
        state.explain(waiting, *refusal)
    return False


def _make_room(state: MeshState, record: TaskRecord, refusal: Refusal, together: list[TaskRecord]) -> Refusal:
    """Order victims to stop for the task or its gang, and return the reason it waits now."""
    if refusal[0] not in _CAN_PREEMPT and not together:
        return refusal
    asked = evict_for(state, record, refusal[0], together)
    if asked is Reason.WAITING_FOR_VICTIMS:
        return Reason.WAITING_FOR_VICTIMS, "victims save their state and stop"
    return refusal if asked is None else (refusal[0], f"{refusal[1]}; {asked.value}")


def _starts_together(state: MeshState, record: TaskRecord) -> list[TaskRecord]:
    """Return the queued gang members that must start together with the task; empty when some are unknown or it starts alone."""
    request = record.request
    if not request.gang or record.in_admitted_gang:
        return []
    known = state.relations.members(request.gang)
    return [state.records[task] for task in known if task in state.queues] if len(known) >= request.gang_size else []


def admit_gang(state: MeshState, record: TaskRecord, places: Mapping[TaskId, tuple[int, ...]]) -> Refusal | None:
    """Place every queued member of the task's gang, or none of them and return why.

    Args:
        places: Rows for the bundles of each member, used if they have the capacity.
    """
    if record.in_admitted_gang:
        return place(state, record, places.get(record.request.task, ()))
    known = state.relations.members(record.request.gang)
    if len(known) < record.request.gang_size:
        known_of = f"{len(known)} of {counted(record.request.gang_size, 'member')} of gang {record.request.gang}"
        return Reason.WAITING_FOR_GANG, f"{known_of} are known"
    before, placed = len(state.orders), list[TaskRecord]()
    queued = [state.records[task] for task in known if task in state.queues]
    for member in queued:
        refusal = place(state, member, places.get(member.request.task, ()))
        if refusal is not None:
            state.take_back(reversed(placed), before)
            _note_tried(state, queued)
            return refusal[0], f"gang {record.request.gang}: {len(placed)} of {counted(len(queued), 'member')} fit now; {refusal[1]}"
        placed.append(member)
    state.task_ledger.admit_gang(placed)
    return None


def _note_tried(state: MeshState, members: list[TaskRecord]) -> None:
    """Mark all members as tried: one member's refusal holds for the whole gang in this round."""
    for member in members:
        if member.bucket is not None:
            state.shapes.note_tried(member.bucket, state.room_epoch)


def try_infeasible(state: MeshState) -> None:
    """Queue infeasible tasks again if they fit now that a node or pool joined or grew (Ray's spill-over)."""
    fits: dict[int, bool] = {}
    for task in state.tasks.in_state(TaskState.INFEASIBLE):
        record = state.records[task]
        bucket = state.task_ledger.bucket_of(record)
        if id(bucket) not in fits:
            pool = state.pools.pools.get(bucket.key.pool)
            holds = pool is not None and bucket.amounts <= pool.capacity
            fits[id(bucket)] = holds and (len(bucket.key.shape.bundles) > 1 or is_feasible(bucket.candidates))
        if fits[id(bucket)]:
            state.task_ledger.unpark(record)
    state.room_came()


def continue_eviction(state: MeshState, preemptor: TaskId | None) -> None:
    """Place the preemptor before any other task once all its victims are gone."""
    if preemptor is None or not state.evictions.is_complete(preemptor):
        return
    eviction, record = state.end_eviction(preemptor), state.records.get(preemptor)
    if eviction is not None and record is not None and preemptor in state.queues:
        state.evictions.forget_candidates()
        there = {task: nodes for task, nodes in eviction.places.items() if all(node in state.table for node in nodes)}
        try_now(state, record, {task: tuple(map(state.table.row, nodes)) for task, nodes in there.items()})


def order_end(state: MeshState, task: TaskId, reason: Reason, detail: str) -> None:
    state.order(EndTask(version=state.version, task=task, reason=reason, detail=detail))
