"""Gangs: tasks admitted all together or not at all, so that two gangs cannot each hold half of what both need."""

from __future__ import annotations

from collections.abc import Mapping

from mesh.core.counting import counted
from mesh.core.ids import TaskId
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskState
from mesh.placement.groups import GroupState
from mesh.tasks.decisions import RemoveGroup
from mesh.tasks.placing import Refusal, place
from mesh.tasks.records import TaskRecord
from mesh.tasks.state import MeshState

NO_PLACES: Mapping[TaskId, tuple[int, ...]] = {}


def starts_together(state: MeshState, record: TaskRecord) -> list[TaskRecord]:
    """Return the queued gang members that must start together with the task; empty when some are unknown or it starts alone."""
    request = record.request
    if not request.gang or record.in_admitted_gang:
        return []
    known = state.relations.members(request.gang)
    return [state.records[task] for task in known if task in state.queues] if len(known) >= request.gang_size else []


def admit_gang(state: MeshState, record: TaskRecord, places: Mapping[TaskId, tuple[int, ...]] = NO_PLACES) -> Refusal | None:
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
            for other in reversed(placed):
                _take_back(state, other)
            state.orders[before:] = [order for order in state.orders[before:] if isinstance(order, RemoveGroup)]
            _give_up(state, queued)
            return refusal[0], f"gang {record.request.gang}: {len(placed)} of {counted(len(queued), 'member')} fit now; {refusal[1]}"
        placed.append(member)
    for member in placed:
        member.in_admitted_gang = True
    return None


def _take_back(state: MeshState, record: TaskRecord) -> None:
    group = state.groups.records.get(record.group) if record.group is not None else None
    state.unbind(record)
    if group is not None and group.state is GroupState.CREATING:
        state.lose_group(group)
    state.tasks.move(record.request.task, TaskState.PLACEABLE)
    record.attempt -= 1
    record.agent = None
    state.enqueue(record)


def _give_up(state: MeshState, members: list[TaskRecord]) -> None:
    """Mark all members as tried: one member's refusal holds for the whole gang in this round."""
    for member in members:
        if member.bucket is not None:
            member.bucket.tried_at = state.room_epoch
