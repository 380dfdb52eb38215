"""One queue per task state, and one transition function between them.

A queue is a linked list with a hash: add, remove and find take constant time, and iteration is in order of arrival. The sum of the
demands is counted when asked for, which is seldom, while every task changes queues several times. This follows Ray's
`scheduling_queue.h` with two differences. Blocked tasks have a queue too, since they do not
run. And a transition that the table does not allow is an error with the task's history, whereas Ray leaves the check to the caller.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mesh.core.counting import counted
from mesh.core.ids import AgentId, JobId, TaskId
from mesh.core.resources import AMOUNT_MAX, NOTHING, ResourceSet
from mesh.core.task_spec import TRANSITIONS, TaskState
from mesh.errors import IllegalTransition, LedgerError

Of = TypeVar("Of", JobId, AgentId)

#: Number of past states kept per task; a task that is retried for ever must not grow.
HISTORY_LENGTH_MAX = 8


class TaskQueue:
    """Tasks in order of arrival, each with its demand."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskId, ResourceSet] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._tasks)

    def add(self, task: TaskId, resources: ResourceSet) -> None:
        """Append the task.

        Raises:
            LedgerError: It is in the queue already.
        """
        if task in self._tasks:
            raise LedgerError(f"{task} is already in this queue")
        self._tasks[task] = resources

    def remove(self, task: TaskId) -> bool:
        """Remove the task; return False when it is not in the queue."""
        return self._tasks.pop(task, None) is not None

    def resources_of(self, task: TaskId) -> ResourceSet:
        """Return the task's demand.

        Raises:
            LedgerError: It is not in the queue.
        """
        found = self._tasks.get(task)
        if found is None:
            raise LedgerError(f"{task} is not in this queue")
        return found

    @property
    def wanted(self) -> ResourceSet:
        """Return the sum of all demands, in time linear in the number of tasks.

        Sums above the ledger's maximum are capped at it: such an amount is unavailable either way.
        """
        total: dict[str, int] = {}
        for resources, count in Counter(self._tasks.values()).items():
            for name, amount in resources.items():
                total[name] = total.get(name, 0) + count * amount
        return ResourceSet({name: min(amount, AMOUNT_MAX) for name, amount in total.items()})


class ReadyQueue(TaskQueue):
    """Task queue with an index by demand: if one task of a demand does not fit, none does."""

    def __init__(self) -> None:
        super().__init__()
        self._shapes: dict[ResourceSet, OrderedDict[TaskId, None]] = {}

    def add(self, task: TaskId, resources: ResourceSet) -> None:
        """Append the task.

        Raises:
            LedgerError: It is in the queue already.
        """
        super().add(task, resources)
        self._shapes.setdefault(resources, OrderedDict())[task] = None

    def remove(self, task: TaskId) -> bool:
        """Remove the task; return False when it is not in the queue."""
        resources = self._tasks.get(task)
        if resources is not None:
            alike = self._shapes[resources]
            del alike[task]
            if not alike:
                del self._shapes[resources]
        return super().remove(task)

    def shapes(self) -> tuple[ResourceSet, ...]:
        """Return the distinct demands, in order of their first task."""
        return tuple(self._shapes)

    def of_shape(self, resources: ResourceSet) -> tuple[TaskId, ...]:
        """Return the tasks with exactly this demand, in order."""
        return tuple(self._shapes.get(resources, ()))


@dataclass(slots=True, eq=False)
class _Kept:
    """A task's state, demand and owners."""

    state: TaskState
    resources: ResourceSet
    job: JobId | None
    agent: AgentId | None
    past: tuple[TaskState, ...]  #: Latest states, the current one last.


#: One history per first state, shared by all tasks without a past.
_BEGINNINGS: Mapping[TaskState, tuple[TaskState, ...]] = {state: (state,) for state in TaskState}


class SchedulingQueues:
    """All tasks of a mesh by state. Each is in exactly one queue."""

    def __init__(self) -> None:
        self._ready = ReadyQueue()
        self._queues: dict[TaskState, TaskQueue] = {state: TaskQueue() for state in TaskState}
        self._queues[TaskState.READY] = self._ready
        self._tasks: dict[TaskId, _Kept] = {}
        self._of_job: dict[JobId, dict[TaskId, None]] = {}
        self._of_agent: dict[AgentId, dict[TaskId, None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    @property
    def ready(self) -> ReadyQueue:
        """Queue of READY tasks; read-only."""
        return self._ready

    def queue(self, state: TaskState) -> TaskQueue:
        """Return the queue of a state; read-only."""
        return self._queues[state]

    def add(
        self,
        task: TaskId,
        state: TaskState,
        resources: ResourceSet = NOTHING,
        job: JobId | None = None,
        agent: AgentId | None = None,
    ) -> None:
        """Add a new task at the end of its queue.

        Raises:
            LedgerError: The task is known already.
        """
        if task in self._tasks:
            raise LedgerError(f"{task} is already known, {self._described(task)}")
        self._tasks[task] = _Kept(state, resources, job, agent, _BEGINNINGS[state])
        self._queues[state].add(task, resources)
        if job is not None:
            self._of_job.setdefault(job, {})[task] = None
        if agent is not None:
            self._of_agent.setdefault(agent, {})[task] = None

    def move(self, task: TaskId, to: TaskState) -> None:
        """Move the task to the end of another queue.

        Raises:
            IllegalTransition: `TRANSITIONS` has no such row; nothing has changed, and the message contains the task's history.
            LedgerError: The task is unknown.
        """
        kept = self._kept(task)
        if to not in TRANSITIONS[kept.state]:
            raise IllegalTransition(f"{task} cannot become {to.value}: {self._described(task)}")
        self._queues[kept.state].remove(task)
        kept.state = to
        kept.past = (*kept.past[1 - HISTORY_LENGTH_MAX :], to)
        self._queues[to].add(task, kept.resources)

    def remove(self, task: TaskId) -> TaskState | None:
        """Remove the task. Return its last state, or None when it is unknown."""
        kept = self._tasks.pop(task, None)
        if kept is None:
            return None
        self._queues[kept.state].remove(task)
        _take_out(self._of_job, kept.job, task)
        _take_out(self._of_agent, kept.agent, task)
        return kept.state

    def state_of(self, task: TaskId) -> TaskState:
        """Return the task's state.

        Raises:
            LedgerError: The task is unknown.
        """
        return self._kept(task).state

    def in_state(self, state: TaskState) -> tuple[TaskId, ...]:
        """Return all tasks of a state, in order of entering it."""
        return tuple(self._queues[state])

    def only(self, tasks: Iterable[TaskId], state: TaskState) -> tuple[TaskId, ...]:
        """Return those of `tasks` that are in this state; unknown tasks are ignored."""
        queue = self._queues[state]
        return tuple(task for task in tasks if task in queue)

    def of_job(self, job: JobId) -> tuple[TaskId, ...]:
        """Return the job's tasks, in order of addition."""
        return tuple(self._of_job.get(job, ()))

    def of_agent(self, agent: AgentId) -> tuple[TaskId, ...]:
        """Return the tasks that run on the agent or wait for it, in order of addition."""
        return tuple(self._of_agent.get(agent, ()))

    def wanted(self, *states: TaskState) -> ResourceSet:
        """Return the sum of all demands in these states, in time linear in the number of tasks."""
        total = NOTHING
        for state in states:
            total = _capped_sum(total, self._queues[state].wanted)
        return total

    def counts(self) -> dict[TaskState, int]:
        """Return the number of tasks in each state."""
        return {state: len(queue) for state, queue in self._queues.items()}

    def check(self) -> list[str]:
        """Return a message per broken invariant; empty when all hold. Cost is linear in the number of tasks."""
        found = [
            f"{task} has state {kept.state.value}, but is not in that queue"
            for task, kept in self._tasks.items()
            if task not in self._queues[kept.state]
        ]
        if sum(self.counts().values()) != len(self._tasks):
            found.append(f"{counted(len(self._tasks), 'task is', 'tasks are')} known, {sum(self.counts().values())} are queued")
        shapes = {task: shape for shape in self._ready.shapes() for task in self._ready.of_shape(shape)}
        if shapes != {task: self._ready.resources_of(task) for task in self._ready}:
            found.append("the index of ready tasks by shape differs from the queue")
        return found

    def _kept(self, task: TaskId) -> _Kept:
        found = self._tasks.get(task)
        if found is None:
            raise LedgerError(f"there is no task {task}")
        return found

    def _described(self, task: TaskId) -> str:
        return f"states so far: {' > '.join(state.value for state in self._tasks[task].past)}"


def _capped_sum(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    return ResourceSet({name: min(one[name] + other[name], AMOUNT_MAX) for name in {*one, *other}})


def _take_out(index: dict[Of, dict[TaskId, None]], of: Of | None, task: TaskId) -> None:
    if of is not None:
        alike = index[of]
        del alike[task]
        if not alike:
            del index[of]
