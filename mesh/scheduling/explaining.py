"""Why a task waits, at which place, and for how long about. Reads the state; changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.errors import LedgerError
from mesh.ids import NodeName, TaskId
from mesh.reasons import Reason
from mesh.scheduling.state import MeshState
from mesh.scheduling.tasks import AT_WORK, TaskState

_BEFORE = {
    TaskState.WAITING: Reason.WAITING_FOR_INPUTS,
    TaskState.WAITING_FOR_ACTOR_CREATION: Reason.WAITING_FOR_AGENT,
    TaskState.READY: Reason.WAITING_FOR_GROUP,
    TaskState.SWAP: Reason.STARTING,
}
#: Of waits that end when somebody else does something, not when it is the task's turn.
_NO_PACE = frozenset({Reason.WAITING_FOR_GANG, Reason.WAITING_FOR_INPUTS, Reason.POOL_TOO_SMALL, Reason.NO_NODE_FITS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a user is told of a task that is not over."""

    task: TaskId
    state: TaskState
    reason: Reason | None  #: None: it runs.
    detail: str
    node: NodeName | None = None
    position: int | None = None  #: Among everything queued, from 1; None when it is not queued.
    priority: float | None = None  #: Its workload priority now, in points; None when it is not queued.
    estimate_ms: int | None = None  #: Until it starts, by the pace of its pool's last starts; None when nothing is known.


def explain_task(state: MeshState, task: TaskId, now_ms: int) -> Explanation:
    """Everything that is known about the task's waiting.

    The estimate takes the mean interval of the last starts in the task's pool times the task's place. It knows nothing of how
    long tasks run, and is as wrong as the past differs from the future. There is none for a task that waits for something else than
    its turn, and none once nothing has started for longer than it: whoever runs now is not of that pace.

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
        return Explanation(task=task, state=where, reason=reason, detail=detail, node=record.node)
    position = state.queues.position(task, now_ms)
    return Explanation(
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
        return _BEFORE[where], state.told.get(task, (None, ""))[1]
    if where in AT_WORK:
        return record.stopping, "it keeps its state and stops" if record.stopping is not None else ""
    if where is TaskState.PLACEABLE and record.bucket is not None and record.bucket.refused is not None:
        return record.bucket.refused
    return state.told.get(task, (Reason.WAITING_IN_QUEUE, "it has not been looked at yet"))


def _estimate_ms(state: MeshState, task: TaskId, position: int, now_ms: int) -> int | None:
    starts = state.starts.get(state.records[task].request.pool)
    if starts is None or len(starts) < 2:  # noqa: PLR2004  an interval has two ends
        return None
    estimate_ms = position * (starts[-1] - starts[0]) // (len(starts) - 1)
    return estimate_ms if now_ms - starts[-1] <= estimate_ms else None
