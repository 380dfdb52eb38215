"""Explanations of why a task waits, at which position, and for how long. Read-only."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.ids import NodeName, TaskId
from mesh.core.reasons import Reason
from mesh.core.task_spec import AT_WORK, TaskState
from mesh.errors import LedgerError
from mesh.tasks.state import MeshState

_BEFORE = {
    TaskState.WAITING: Reason.WAITING_FOR_INPUTS,
    TaskState.WAITING_FOR_ACTOR_CREATION: Reason.WAITING_FOR_AGENT,
    TaskState.READY: Reason.WAITING_FOR_GROUP,
    TaskState.SWAP: Reason.STARTING,
}
#: Waits that end with an external change and not with the task's position in the queue.
_NO_PACE = frozenset({Reason.WAITING_FOR_GANG, Reason.WAITING_FOR_INPUTS, Reason.POOL_TOO_SMALL, Reason.NO_NODE_FITS})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskExplanation:
    """State of a task that is not over, as shown to users."""

    task: TaskId
    state: TaskState
    reason: Reason | None  #: None: it runs.
    detail: str
    node: NodeName | None = None
    position: int | None = None  #: Position among all queued tasks, from 1; None when it is not queued.
    priority: float | None = None  #: Its current workload priority, in points; None when it is not queued.
    estimate_ms: int | None = None  #: Estimated time until it starts, from recent starts in its pool; None when unknown.


def explain_task(state: MeshState, task: TaskId, now_ms: int) -> TaskExplanation:
    """Return what is known about the task's wait.

    The estimate is the mean interval between the last starts in the task's pool times the task's position. It ignores run times, so it is
    wrong where the future differs from the past. There is no estimate for a task whose wait does not depend on its position. There is
    none either once nothing has started for longer than the estimate.

    Raises:
        LedgerError: The task is unknown, or over.
    """
    record = state.records.get(task)
    if record is None:
        over = state.ended.get(task)
        raise LedgerError(f"{task} is {over.value}" if over is not None else f"there is no task {task}")
    where = state.tasks.state_of(task)
    reason, detail = _why(state, task, where)
    if task not in state.queues:
        return TaskExplanation(task=task, state=where, reason=reason, detail=detail, node=record.node)
    position = state.queues.position(task, now_ms)
    return TaskExplanation(
        task=task,
        state=where,
        reason=reason,
        detail=detail,
        position=position,
        priority=state.queues.workload_priority(task, now_ms),
        estimate_ms=None if reason in _NO_PACE else _estimate_ms(state, task, position, now_ms),
    )


def _why(state: MeshState, task: TaskId, where: TaskState) -> tuple[Reason | None, str]:
    record = state.records[task]
    if where in _BEFORE:
        return _BEFORE[where], state.reported.get(task, (None, ""))[1]
    if where in AT_WORK:
        return record.stopping, "it saves its state and stops" if record.stopping is not None else ""
    if where is TaskState.PLACEABLE and record.bucket is not None and record.bucket.refused is not None:
        return record.bucket.refused
    return state.reported.get(task, (Reason.WAITING_IN_QUEUE, "it has not been tried yet"))


def _estimate_ms(state: MeshState, task: TaskId, position: int, now_ms: int) -> int | None:
    starts = state.task_ledger.starts.get(state.records[task].request.pool)
    if starts is None or len(starts) < 2:  # noqa: PLR2004  an interval has two ends
        return None
    estimate_ms = position * (starts[-1] - starts[0]) // (len(starts) - 1)
    return estimate_ms if now_ms - starts[-1] <= estimate_ms else None
