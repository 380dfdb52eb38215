"""Tasks that are not over: their records, states and positions in the queue."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mesh.core.counting import counted
from mesh.core.ids import AgentId, LabelName, NodeName, PoolName, TaskId
from mesh.core.reasons import Reason
from mesh.core.task_spec import AT_WORK, TaskRequest, TaskState
from mesh.tasks.queued_shapes import QueuedShapes
from mesh.tasks.queues import LabelQueues
from mesh.tasks.records import Bucket, TaskRecord
from mesh.tasks.relations import TaskRelations
from mesh.tasks.task_queues import SchedulingQueues

#: Number of starts used to estimate a wait.
_STARTS_KEPT = 32
#: Number of ended tasks remembered by id, so that a repeated submission is recognised.
_ENDED_KEPT = 10_000
_BOUND = frozenset({TaskState.READY, TaskState.SWAP, TaskState.RUNNING, TaskState.BLOCKED})

#: A task that ended, its last state, and its preemptor if it was a victim.
PendingEnd = tuple[TaskRecord, TaskState, TaskId | None]


class TaskLedger:
    """Owner of the task records, but for a record's node and group, and of each task's state and position in the queue.

    Args:
        shapes: Assigns queued tasks to buckets.
        tasks: State of each task.
    """

    def __init__(self, shapes: QueuedShapes, tasks: SchedulingQueues) -> None:
        self._shapes = shapes
        self.tasks = tasks
        self.queues = LabelQueues(shapes.label_settings_of_others())
        self.relations = TaskRelations()
        self.arrivals = 0
        self.changes = 0  #: Grows when the set of unplaced tasks changes.
        self._records: dict[TaskId, TaskRecord] = {}
        self._ended: dict[TaskId, TaskState] = {}
        self._running: dict[float, int] = {}
        self._starts: dict[PoolName, deque[int]] = {}
        self._unschedulable: deque[tuple[TaskId, tuple[Reason, str]]] = deque()
        self._pending_ends: deque[PendingEnd] = deque()

    @property
    def records(self) -> Mapping[TaskId, TaskRecord]:
        """Records of the tasks that are not over."""
        return self._records

    @property
    def ended(self) -> Mapping[TaskId, TaskState]:
        """Last ended tasks, oldest first."""
        return self._ended

    @property
    def running(self) -> Mapping[float, int]:
        """Number of running preemptible tasks by priority."""
        return self._running

    @property
    def starts(self) -> Mapping[PoolName, Sequence[int]]:
        """Times of the last starts in each pool."""
        return self._starts

    @property
    def unschedulable(self) -> Sequence[tuple[TaskId, tuple[Reason, str]]]:
        """Tasks that this pass found can never be placed."""
        return self._unschedulable

    @property
    def pending_ends(self) -> Sequence[PendingEnd]:
        """Ends whose effects on others are pending."""
        return self._pending_ends

    # -- arrival -------------------------------------------------------------------------------------------------------

    def submit(self, request: TaskRequest, since_ms: int, *, resume: bool, first_attempt: int) -> TaskRecord:
        """Add the record of a new task. The caller gives the task its first state."""
        self.arrivals += 1
        self._shapes.count_demand(request, self.arrivals)
        record = TaskRecord(request=request, since_ms=since_ms, arrival=self.arrivals, resume=resume, attempt=first_attempt)
        self._records[request.task] = record
        return record

    def enter(self, record: TaskRecord, where: TaskState) -> None:
        """Give a new task its first state."""
        request = record.request
        self.tasks.add(request.task, where, request.resources, request.job, request.agent)

    def open_needs(self, record: TaskRecord) -> bool:
        """Record the task's dependencies. Return True when one of them has not succeeded yet."""
        if not record.request.after:
            return False
        record.needs = {need for need in record.request.after if self._ended.get(need) is not TaskState.SUCCEEDED}
        self.relations.depend(record.request.task, record.needs)
        return bool(record.needs)

    def meet_need(self, record: TaskRecord, need: TaskId) -> None:
        """Record that a dependency of the task is over."""
        record.needs.discard(need)

    def inputs_came(self, record: TaskRecord) -> None:
        """Let a task go on whose dependencies have all succeeded."""
        self.tasks.move(record.request.task, TaskState.PLACEABLE if record.request.agent is None else TaskState.WAITING_FOR_ACTOR_CREATION)

    def drop_node(self, record: TaskRecord) -> None:
        """Drop the requested node, which was chosen on an outdated state: any node will do."""
        request = record.request
        record.request = replace(request, node=None, policy="" if request.policy == "node_affinity" else request.policy)

    # -- queue ---------------------------------------------------------------------------------------------------------

    def enqueue(self, record: TaskRecord) -> None:
        """Queue the task; one that was queued before gets its old position."""
        request, bucket = record.request, record.bucket or self.bucket_of(record)
        self.queues.add(
            request.task,
            bucket=bucket,
            label=request.label,
            priority=request.priority,
            since_ms=record.since_ms,
            arrival=record.arrival,
        )
        bucket.tried_at = -1

    def dequeue(self, task: TaskId) -> None:
        """Remove the task from the queue, if it is there."""
        self.queues.remove(task)

    def bucket_of(self, record: TaskRecord) -> Bucket:
        """Return the task's bucket, after assigning it to one if it has none."""
        bucket = record.bucket
        if bucket is None:
            bucket = record.bucket = self._shapes.bucket_for(record.request)
        return bucket

    def configure_label(self, label: LabelName) -> None:
        """Order the label's tasks by its present rules."""
        self.queues.configure(label, self._shapes.label_settings(label))

    def configure_labels(self) -> None:
        """Order all tasks by the present settings and rules."""
        self.queues.configure(None, self._shapes.label_settings_of_others())
        for label in self._shapes.labels:
            self.configure_label(label)

    def assign_again(self) -> None:
        """Assign every queued task to its new bucket after a change of settings."""
        self._shapes.drop_buckets()
        self._running.clear()
        for task in (*self.tasks.in_state(TaskState.RUNNING), *self.tasks.in_state(TaskState.BLOCKED)):
            self.count_running(self._records[task], 1)
        for record in self._records.values():
            record.bucket = None
            if self.queues.remove(record.request.task):
                self.enqueue(record)

    def count_change(self) -> None:
        """Record that the set of unplaced tasks has changed."""
        self.changes += 1

    def park(self, record: TaskRecord) -> None:
        """Take a task off the queue that no node or pool can ever hold: INFEASIBLE."""
        self.changes += 1
        self.queues.remove(record.request.task)
        self.tasks.move(record.request.task, TaskState.INFEASIBLE)

    def unpark(self, record: TaskRecord) -> None:
        """Queue an infeasible task again."""
        self.tasks.move(record.request.task, TaskState.PLACEABLE)
        self.enqueue(record)
        self.changes += 1

    def give_up(self, record: TaskRecord, refusal: tuple[Reason, str]) -> None:
        """Take a task off the queue whose request can never be met, so that it fails at the end of the pass."""
        self._unschedulable.append((record.request.task, refusal))
        self.queues.remove(record.request.task)

    def take_unschedulable(self) -> tuple[TaskRecord, tuple[Reason, str]]:
        """Remove and return the first task that was given up, and why."""
        task, refusal = self._unschedulable.popleft()
        return self._records[task], refusal

    # -- starts and stops ----------------------------------------------------------------------------------------------

    def begin(self, record: TaskRecord, to: TaskState) -> None:
        """Begin an attempt of a bound task: READY while its group is created, SWAP when its agent may start."""
        task = record.request.task
        self.queues.remove(task)
        self.tasks.move(task, to)
        record.attempt += 1
        record.agent = AgentId(f"{task}.{record.attempt}")

    def begin_call(self, record: TaskRecord, agent: AgentId, node: NodeName | None) -> None:
        """Begin a call on a running agent."""
        record.attempt += 1
        record.agent, record.node = agent, node
        self.tasks.move(record.request.task, TaskState.SWAP)

    def end_call(self, record: TaskRecord) -> None:
        """Record that a call is on no node any more."""
        record.node = None

    def take_back(self, record: TaskRecord) -> None:
        """Queue a task again whose attempt was not ordered."""
        self.tasks.move(record.request.task, TaskState.PLACEABLE)
        record.attempt -= 1
        record.agent = None
        self.enqueue(record)

    def admit_gang(self, members: Iterable[TaskRecord]) -> None:
        """Record that the gang was admitted; from now on each member restarts alone."""
        for member in members:
            member.in_admitted_gang = True

    def swap(self, task: TaskId) -> None:
        """Let the agent start in the group that was created for the task."""
        self.tasks.move(task, TaskState.SWAP)

    def run(self, record: TaskRecord) -> None:
        """Record that the task runs."""
        self.count_running(record, 1)
        self.tasks.move(record.request.task, TaskState.RUNNING)

    def note_started(self, record: TaskRecord, agent: AgentId, now_ms: int) -> None:
        """Record when the task's agent was up."""
        record.started_ms = record.kept_ms = now_ms
        record.refusals = 0
        self._starts.setdefault(record.request.pool, deque(maxlen=_STARTS_KEPT)).append(now_ms)
        if record.request.agent is None:
            self.relations.add_agent(agent, record.request.task)

    def set_blocked(self, task: TaskId, *, is_blocked: bool) -> None:
        """Record whether a running task waits for the output of another. Idempotent."""
        to = TaskState.BLOCKED if is_blocked else TaskState.RUNNING
        if self.tasks.state_of(task) is not to:
            self.tasks.move(task, to)

    def note_checkpoint(self, record: TaskRecord, now_ms: int) -> None:
        """Record that the task saved its state."""
        record.kept_ms, record.resume = now_ms, True

    def count_refusal(self, record: TaskRecord) -> int:
        """Count a failed start. Return the number of consecutive ones."""
        record.refusals += 1
        return record.refusals

    def count_restart(self, record: TaskRecord) -> None:
        """Count a restart after a loss."""
        record.restarts += 1

    def begin_stop(self, record: TaskRecord, reason: Reason, *, requeue: bool) -> bool:
        """Record that the task is being stopped. Return False when it was before."""
        if record.stopping is not None:
            record.requeue = record.requeue and requeue  # A preempted task that is then cancelled is not queued again.
            return False
        record.stopping, record.requeue = reason, requeue
        return True

    def note_cancelled(self, record: TaskRecord, *, destroy_group: bool) -> None:
        """Record whether the cancelled task's group is removed after it."""
        record.destroy_group = destroy_group

    def drop_agent(self, record: TaskRecord) -> AgentId | None:
        """Record that the task has no agent any more. Return the one that it had."""
        agent, record.agent = record.agent, None
        if agent is not None:
            self.relations.remove_agent(agent, record.request.task)
        return agent

    def requeue_stopped(self, record: TaskRecord) -> None:
        """Queue a stopped task at its old position; it resumes from its saved state."""
        task = record.request.task
        if self.tasks.state_of(task) in AT_WORK:
            self.tasks.move(task, TaskState.PREEMPTED)
        self.tasks.move(task, TaskState.PLACEABLE)
        record.resume, record.stopping, record.requeue = True, None, False
        self.enqueue(record)

    def requeue(self, record: TaskRecord) -> None:
        """Queue the task at its old position; a call waits for its agent again."""
        task, agent = record.request.task, record.request.agent
        record.stopping = None
        if agent is not None:
            self.tasks.move(task, TaskState.WAITING_FOR_ACTOR_CREATION)
            self.relations.await_agent(agent, task)
        else:
            self.tasks.move(task, TaskState.PLACEABLE)
            self.enqueue(record)

    def count_running(self, record: TaskRecord, change: int) -> None:
        """Count a task that runs, or does not any more. A call is not counted, since it cannot be a victim."""
        if not record.request.preemptible or record.request.agent is not None:
            return
        priority = self._shapes.base_priority(record.request)
        self._running[priority] = self._running.get(priority, 0) + change
        if not self._running[priority]:
            del self._running[priority]

    # -- ends ----------------------------------------------------------------------------------------------------------

    def forget(self, record: TaskRecord, to: TaskState) -> None:
        """Drop the record of a task that is over, and remember how it ended."""
        task = record.request.task
        self.tasks.move(task, to)
        self.tasks.remove(task)
        del self._records[task]
        self.changes += 1
        self.remember_end(task, to)

    def remember_end(self, task: TaskId, to: TaskState) -> None:
        """Remember the last ended tasks by id, so that a repeated submission is recognised."""
        ended = self._ended
        ended[task] = to
        while len(ended) > _ENDED_KEPT:
            del ended[next(iter(ended))]

    def forget_end(self, task: TaskId) -> bool:
        """Forget that a task of this id ended. Return False when none did."""
        return self._ended.pop(task, None) is not None

    def add_pending_end(self, end: PendingEnd) -> None:
        """Add an end whose effects on others are pending."""
        self._pending_ends.append(end)

    def finish_end(self) -> None:
        """Remove the first pending end, whose effects have been applied."""
        self._pending_ends.popleft()

    # -- a snapshot ----------------------------------------------------------------------------------------------------

    def restore(self, record: TaskRecord, where: TaskState, *, has_pool: bool) -> None:
        """Add the record of a snapshot's task, in its state.

        Args:
            has_pool: Its pool exists.
        """
        request, task = record.request, record.request.task
        self._records[task] = record
        self.tasks.add(task, where, request.resources, request.job, request.agent)
        if request.gang and where is not TaskState.WAITING:
            self.relations.join_gang(request.gang, task)
        if request.agent is None and has_pool:
            self.bucket_of(record)
        if where is TaskState.PLACEABLE:
            self.enqueue(record)
        elif where is TaskState.WAITING:
            self.relations.depend(task, record.needs)
        elif where is TaskState.WAITING_FOR_ACTOR_CREATION and request.agent is not None:
            self.relations.await_agent(request.agent, task)
        elif where in AT_WORK and request.agent is None and record.node is not None:
            self.count_running(record, 1)
            if record.agent is not None:
                self.relations.add_agent(record.agent, task)

    def restore_past(self, arrivals: int, ended: Mapping[TaskId, TaskState], starts: Mapping[PoolName, Sequence[int]]) -> None:
        """Set the counters and past tasks of a snapshot."""
        self.arrivals = arrivals
        self._ended.update(ended)
        self._starts.update({pool: deque(times, maxlen=_STARTS_KEPT) for pool, times in starts.items()})

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self) -> Iterator[str]:
        """Yield a message per broken invariant."""
        yield from self.queues.check()
        yield from self.tasks.check()
        yield from self.relations.check(self._records)
        for task, record in self._records.items():
            where = self.tasks.state_of(task)
            if (where is TaskState.PLACEABLE) is not (task in self.queues):
                yield f"{task} is {where.value}, and {'is' if task in self.queues else 'is not'} queued"
            if (where in _BOUND) is (record.node is None):
                yield f"{task} is {where.value}, with node {record.node}"
        if len(self._records) != len(self.tasks):
            yield f"{counted(len(self._records), 'task has', 'tasks have')} a record, {len(self.tasks)} have a state"
        runs = (record.request for task, record in self._records.items() if self.tasks.state_of(task) in AT_WORK)
        found = Counter(self._shapes.base_priority(request) for request in runs if request.agent is None and request.preemptible)
        if found != Counter(self._running):
            yield f"running by priority: {dict(found)}, counted: {self._running}"
