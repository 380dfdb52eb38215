"""The index of tasks, groups and open orders, folded from events and decisions alone.

The scheduler forgets ended tasks and does not know which orders have been carried out. People ask for ended tasks, and a
recovered supervisor needs the open orders. The index is a fold of the journal, so a replay restores it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mesh.core.ids import AgentId, GroupId, NodeName, PoolName, TaskId
from mesh.core.reasons import Reason
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import AT_WORK, TERMINAL, TaskRequest, TaskState
from mesh.ray.local.supervision_errors import TaskUnknown
from mesh.tasks.decisions import (
    CreateGroup,
    Decision,
    EndTask,
    ExplainWaiting,
    GiveGroup,
    RemoveGroup,
    StartTask,
    StopTask,
)
from mesh.tasks.events import (
    AgentLost,
    Event,
    GroupFailed,
    GroupGone,
    GroupReady,
    TaskBlocked,
    TaskEnded,
    TaskRefused,
    TaskStarted,
    TaskStopped,
    TaskSubmitted,
)

#: Number of ended tasks that are remembered.
ENDED_MAX = 10_000
_NEVER = frozenset({Reason.NO_NODE_FITS, Reason.POOL_TOO_SMALL, Reason.LABEL_MISMATCH})
_ENDS = {
    Reason.FINISHED: TaskState.SUCCEEDED,
    Reason.CANCELLED_BY_USER: TaskState.CANCELLED,
    Reason.POOL_CLOSING: TaskState.CANCELLED,
    Reason.GANG_BROKEN: TaskState.CANCELLED,
}


@dataclass(slots=True, kw_only=True)
class TaskEntry:
    """A task as people see it."""

    request: TaskRequest
    submitted_ms: int
    state: TaskState = TaskState.PLACEABLE
    reason: Reason | None = Reason.WAITING_IN_QUEUE
    detail: str = ""
    attempt: int = 0
    agent: AgentId | None = None
    node: NodeName | None = None
    group: GroupId | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    preemptions: int = 0
    lost_ms: int = 0  #: Work that must be redone, because it was stopped after its last saved state.
    state_lost: str = ""  #: Error of the last save or restore of its state; the default was used.


@dataclass(slots=True, kw_only=True)
class GroupEntry:
    """A placement group as people see it."""

    pool: PoolName
    shape: GroupShape
    nodes: tuple[NodeName, ...]
    state: str = "CREATING"
    warm: bool = False
    holder: TaskId | None = None
    takes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIndexSnapshot:
    """An index as it is stored on disk; the mappings keep their order."""

    tasks: Mapping[TaskId, TaskEntry]
    groups: Mapping[GroupId, GroupEntry]
    starts: Mapping[TaskId, StartTask]
    stops: Mapping[TaskId, StopTask]
    creates: Mapping[GroupId, CreateGroup]
    removes: Mapping[GroupId, RemoveGroup]
    given: Mapping[TaskId, GiveGroup]
    ended: tuple[TaskId, ...]
    at_ms: int


@dataclass(slots=True)
class TaskIndex:
    """Index of tasks, groups and orders. Invariant: an order is open from its decision until an event answers it."""

    tasks: OrderedDict[TaskId, TaskEntry] = field(default_factory=OrderedDict)
    groups: dict[GroupId, GroupEntry] = field(default_factory=dict)
    starts: dict[TaskId, StartTask] = field(default_factory=dict)  #: Open orders.
    stops: dict[TaskId, StopTask] = field(default_factory=dict)  #: Open orders.
    creates: dict[GroupId, CreateGroup] = field(default_factory=dict)  #: Open orders.
    removes: dict[GroupId, RemoveGroup] = field(default_factory=dict)  #: Open orders.
    given: dict[TaskId, GiveGroup] = field(default_factory=dict)  #: Placement groups that are allocated to callers.
    ended: deque[TaskId] = field(default_factory=deque)
    forgotten: list[TaskId] = field(default_factory=list)  #: Tasks whose payloads have not been dropped yet.
    at_ms: int = 0  #: Time of the last event.

    def fold(self, events: Sequence[Event], decisions: Iterable[Decision]) -> set[TaskId]:
        """Record a handled batch; return the tasks that changed."""
        changed: set[TaskId] = set()
        self.at_ms = events[-1].at_ms
        for fact in (*events, *decisions):
            note = self.NOTES.get(type(fact))
            if note is not None:
                changed.add(note(self, fact))
        return changed

    def to_snapshot(self) -> TaskIndexSnapshot:
        """Return a view of the index for immediate writing: later folds change the rows."""
        return TaskIndexSnapshot(
            tasks=self.tasks,
            groups=self.groups,
            starts=self.starts,
            stops=self.stops,
            creates=self.creates,
            removes=self.removes,
            given=self.given,
            ended=tuple(self.ended),
            at_ms=self.at_ms,
        )

    @classmethod
    def from_snapshot(cls, kept: TaskIndexSnapshot) -> TaskIndex:
        """Restore an index from a snapshot."""
        return cls(
            tasks=OrderedDict(kept.tasks),
            groups=dict(kept.groups),
            starts=dict(kept.starts),
            stops=dict(kept.stops),
            creates=dict(kept.creates),
            removes=dict(kept.removes),
            given=dict(kept.given),
            ended=deque(kept.ended),
            at_ms=kept.at_ms,
        )

    def entry(self, task: TaskId) -> TaskEntry:
        """Return the task's entry. Raises `TaskUnknown`."""
        entry = self.tasks.get(task)
        if entry is None:
            raise TaskUnknown(task)
        return entry

    def is_over(self, task: TaskId) -> bool:
        """Return whether the task has ended, or is unknown."""
        entry = self.tasks.get(task)
        return entry is None or entry.state in TERMINAL

    def forget(self, task: TaskId) -> None:
        """Remove an ended task."""
        self.tasks.pop(task, None)
        self.given.pop(task, None)
        self.forgotten.append(task)

    def take_forgotten(self) -> list[TaskId]:
        """Return the tasks that were forgotten since the last call."""
        taken, self.forgotten = self.forgotten, []
        return taken

    # -- handlers, one per kind of event or decision; each returns its task (or an empty name) -------------------------

    def _submitted(self, event: TaskSubmitted) -> TaskId:
        task = event.request.task
        row = self.tasks.get(task)
        if row is None or (row.state in TERMINAL and event.resume):
            again = TaskEntry(request=event.request, submitted_ms=self.at_ms, attempt=event.first_attempt)
            if row is not None:
                again.preemptions, again.state_lost = row.preemptions, row.state_lost
            self.tasks[task] = again
        return task

    def _start(self, order: StartTask) -> TaskId:
        row = self.tasks.get(order.task)
        if row is None:
            return order.task  # Forgotten; the journal must load all the same.
        self.starts[order.task] = order
        row.state, row.reason, row.detail = TaskState.SWAP, Reason.STARTING, str(order.reason.value)
        row.attempt, row.agent, row.node, row.group = order.attempt, order.agent, order.node, order.group
        self._hold(order.group, order.task)
        return order.task

    def _started(self, event: TaskStarted) -> TaskId:
        row = self.tasks.get(event.task)
        if row is not None and row.attempt == event.attempt and row.state is TaskState.SWAP:
            self.starts.pop(event.task, None)
            row.state, row.reason, row.detail, row.started_ms = TaskState.RUNNING, None, "", self.at_ms
            row.state_lost = event.unrestored or row.state_lost
        return event.task

    def _blocked(self, event: TaskBlocked) -> TaskId:
        row = self.tasks.get(event.task)
        if row is not None and row.state in AT_WORK:
            row.state = TaskState.BLOCKED if event.blocked else TaskState.RUNNING
        return event.task

    def _stop(self, order: StopTask) -> TaskId:
        row = self.tasks.get(order.task)
        if row is None or order.attempt != row.attempt:
            return order.task  # Forgotten, or an attempt that was given up; nothing waits for its end.
        self.stops[order.task] = order
        row.reason, row.detail = order.reason, f"for {order.by}" if order.by else ""
        if order.reason is Reason.PREEMPTED:
            row.state, row.preemptions = TaskState.PREEMPTED, row.preemptions + 1
        return order.task

    def _left(self, event: TaskStopped | TaskRefused | AgentLost | TaskEnded) -> TaskId:
        """Record that an attempt has ended; the decisions that follow say whether the task is queued again or over."""
        row = self.tasks.get(event.task)
        stop = self.stops.get(event.task)
        if stop is not None and stop.attempt == event.attempt:
            del self.stops[event.task]  # The stop is answered, even when the next attempt is starting already.
        if row is None or row.attempt != event.attempt or row.state in TERMINAL:
            return event.task
        self.starts.pop(event.task, None)
        self.stops.pop(event.task, None)
        self._let_go(event.task)
        detail = getattr(event, "detail", "")
        if isinstance(event, TaskStopped):
            row.lost_ms += event.lost_ms
            row.state_lost = event.unkept
        row.state, row.agent, row.node, row.group = TaskState.PLACEABLE, None, None, None
        row.reason, row.detail = Reason.WAITING_IN_QUEUE, detail
        return event.task

    def _explained(self, order: ExplainWaiting) -> TaskId:
        row = self.tasks.get(order.task)
        if row is not None and row.state not in TERMINAL:
            row.reason, row.detail = order.reason, order.detail
            if row.state in (TaskState.PLACEABLE, TaskState.INFEASIBLE):
                row.state = TaskState.INFEASIBLE if order.reason in _NEVER else TaskState.PLACEABLE
        return order.task

    def _over(self, order: EndTask) -> TaskId:
        self.starts.pop(order.task, None)
        self.stops.pop(order.task, None)
        self.given.pop(order.task, None)
        self._let_go(order.task)
        row = self.tasks.get(order.task)
        if row is None:
            return order.task
        row.state, row.reason, row.detail, row.ended_ms = _ENDS.get(order.reason, TaskState.FAILED), order.reason, order.detail, self.at_ms
        self.ended.append(order.task)
        while len(self.ended) > ENDED_MAX:
            oldest = self.ended.popleft()
            if oldest in self.tasks and self.tasks[oldest].state in TERMINAL:
                self.forget(oldest)
        return order.task

    def _create(self, order: CreateGroup) -> TaskId:
        self.creates[order.group] = order
        self.groups[order.group] = GroupEntry(pool=order.pool, shape=order.shape, nodes=order.nodes, warm=order.warm)
        return TaskId("")

    def _ready(self, event: GroupReady) -> TaskId:
        self.creates.pop(event.group, None)
        row = self.groups.get(event.group)
        if row is not None and row.state == "CREATING":
            row.state, row.nodes = "READY", event.nodes
        return TaskId("")

    def _give(self, order: GiveGroup) -> TaskId:
        row = self.tasks.get(order.task)
        if row is None:
            return order.task
        self.given[order.task] = order
        row.state, row.reason, row.group, row.started_ms = TaskState.RUNNING, order.reason, order.group, self.at_ms
        self._hold(order.group, order.task)
        return order.task

    def _remove(self, order: RemoveGroup) -> TaskId:
        self.removes[order.group] = order
        self.creates.pop(order.group, None)
        if order.group in self.groups:
            self.groups[order.group].state = "REMOVING"
        return TaskId("")

    def _gone(self, event: GroupGone | GroupFailed) -> TaskId:
        for orders in (self.creates, self.removes, self.groups):
            orders.pop(event.group, None)
        return TaskId("")

    def _hold(self, group: GroupId | None, task: TaskId) -> None:
        row = self.groups.get(group) if group is not None else None
        if row is not None and row.holder != task:
            row.holder, row.takes = task, row.takes + 1

    def _let_go(self, task: TaskId) -> None:
        for row in self.groups.values():
            if row.holder == task:
                row.holder = None

    NOTES: ClassVar[dict[type, Callable[[TaskIndex, Any], TaskId]]] = {
        TaskSubmitted: _submitted,
        TaskStarted: _started,
        TaskBlocked: _blocked,
        TaskStopped: _left,
        TaskRefused: _left,
        AgentLost: _left,
        TaskEnded: _left,
        GroupReady: _ready,
        GroupFailed: _gone,
        GroupGone: _gone,
        StartTask: _start,
        StopTask: _stop,
        ExplainWaiting: _explained,
        EndTask: _over,
        CreateGroup: _create,
        RemoveGroup: _remove,
        GiveGroup: _give,
    }
