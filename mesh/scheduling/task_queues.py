"""One queue per task state, and the one way from a state to the next.

A queue is a linked list and a hash: add, remove and find cost the same however many wait, the walk is in order of arrival, and
the sum of what its tasks want runs along. Ray keeps its tasks so (`scheduling_queue.h`); two things are done otherwise. A
blocked task has a queue as well, since what is blocked is not running here. And a move that the table has no row for is an
error that tells the task's story, while there it was left to the caller.

Source:
    Seed 002; seed rows S29, S30.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from mesh.counting import counted
from mesh.errors import IllegalTransition, LedgerError
from mesh.ids import AgentId, JobId, TaskId
from mesh.resources import AMOUNT_MAX, NOTHING, ResourceSet
from mesh.scheduling.tasks import TRANSITIONS, TaskState

Of = TypeVar("Of", JobId, AgentId)

#: How many states of a task's past are kept for its story; a task that is retried for ever must not grow for ever.
STORY_LENGTH_MAX = 8


class TaskQueue:
    """Tasks in the order in which they came, each with what it wants."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[TaskId, ResourceSet] = OrderedDict()
        self._wanted: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._tasks)

    def add(self, task: TaskId, resources: ResourceSet) -> None:
        """To the end. Raises `LedgerError` when it is there already."""
        if task in self._tasks:
            raise LedgerError(f"{task} is in this queue already")
        self._tasks[task] = resources
        wanted = self._wanted
        for name, amount in resources.items():
            wanted[name] = wanted.get(name, 0) + amount

    def remove(self, task: TaskId) -> bool:
        """False when it is not there."""
        resources = self._tasks.pop(task, None)
        if resources is None:
            return False
        for name, amount in resources.items():
            left = self._wanted[name] - amount
            if left:
                self._wanted[name] = left
            else:
                del self._wanted[name]
        return True

    def resources_of(self, task: TaskId) -> ResourceSet:
        """What it wants. Raises `LedgerError` when it is not there."""
        found = self._tasks.get(task)
        if found is None:
            raise LedgerError(f"{task} is not in this queue")
        return found

    def first(self) -> TaskId | None:
        """The one that came first; None when the queue is empty."""
        return next(iter(self._tasks), None)

    @property
    def wanted(self) -> ResourceSet:
        """What all its tasks want together. Costs as much as there are names of resources.

        A sum beyond what a ledger can count reads as the largest amount: this much is nowhere to be had either way.
        """
        return ResourceSet({name: min(amount, AMOUNT_MAX) for name, amount in self._wanted.items()})


class ReadyQueue(TaskQueue):
    """A task queue that also knows its tasks by what they want: where one of a shape does not fit, all of them do not."""

    def __init__(self) -> None:
        super().__init__()
        self._shapes: dict[ResourceSet, OrderedDict[TaskId, None]] = {}

    def add(self, task: TaskId, resources: ResourceSet) -> None:
        """To the end. Raises `LedgerError` when it is there already."""
        super().add(task, resources)
        self._shapes.setdefault(resources, OrderedDict())[task] = None

    def remove(self, task: TaskId) -> bool:
        """False when it is not there."""
        resources = self._tasks.get(task)
        if resources is not None:
            alike = self._shapes[resources]
            del alike[task]
            if not alike:
                del self._shapes[resources]
        return super().remove(task)

    def shapes(self) -> tuple[ResourceSet, ...]:
        """The different wants, by the first task that brought each."""
        return tuple(self._shapes)

    def of_shape(self, resources: ResourceSet) -> tuple[TaskId, ...]:
        """The tasks that want exactly this, in order."""
        return tuple(self._shapes.get(resources, ()))


@dataclass(slots=True, eq=False)
class _Kept:
    """What is known of a task besides its place."""

    state: TaskState
    resources: ResourceSet
    job: JobId | None
    agent: AgentId | None
    story: tuple[TaskState, ...]  #: Its latest states, the present one last.


#: One story for each first state, shared by all tasks that have no past.
_BEGINNINGS: Mapping[TaskState, tuple[TaskState, ...]] = {state: (state,) for state in TaskState}


class SchedulingQueues:
    """All tasks of a mesh by their state. Each is in exactly one queue."""

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
        """The queue of READY; to be read only."""
        return self._ready

    def queue(self, state: TaskState) -> TaskQueue:
        """The queue of a state; to be read only."""
        return self._queues[state]

    def add(
        self,
        task: TaskId,
        state: TaskState,
        resources: ResourceSet = NOTHING,
        job: JobId | None = None,
        agent: AgentId | None = None,
    ) -> None:
        """A new task, at the end of its queue. Raises `LedgerError` when it is known already."""
        if task in self._tasks:
            raise LedgerError(f"{task} is known already, {self._told(task)}")
        self._tasks[task] = _Kept(state, resources, job, agent, _BEGINNINGS[state])
        self._queues[state].add(task, resources)
        if job is not None:
            self._of_job.setdefault(job, {})[task] = None
        if agent is not None:
            self._of_agent.setdefault(agent, {})[task] = None

    def move(self, task: TaskId, to: TaskState) -> None:
        """To the end of another queue.

        Raises:
            IllegalTransition: `TRANSITIONS` has no row for it; nothing has changed, and the message tells the task's story.
            LedgerError: The task is unknown.
        """
        kept = self._kept(task)
        if to not in TRANSITIONS[kept.state]:
            raise IllegalTransition(f"{task} cannot become {to.value}: {self._told(task)}")
        self._queues[kept.state].remove(task)
        kept.state = to
        kept.story = (*kept.story[1 - STORY_LENGTH_MAX :], to)
        self._queues[to].add(task, kept.resources)

    def remove(self, task: TaskId) -> TaskState | None:
        """Forget the task; the state that it was in, None when it is unknown."""
        kept = self._tasks.pop(task, None)
        if kept is None:
            return None
        self._queues[kept.state].remove(task)
        _take_out(self._of_job, kept.job, task)
        _take_out(self._of_agent, kept.agent, task)
        return kept.state

    def state_of(self, task: TaskId) -> TaskState:
        """Raises `LedgerError` when the task is unknown."""
        return self._kept(task).state

    def in_state(self, state: TaskState) -> tuple[TaskId, ...]:
        """All tasks of a state, in the order in which they came to it."""
        return tuple(self._queues[state])

    def only(self, tasks: Iterable[TaskId], state: TaskState) -> tuple[TaskId, ...]:
        """Those of `tasks` that are in this state; the unknown are in none."""
        queue = self._queues[state]
        return tuple(task for task in tasks if task in queue)

    def of_job(self, job: JobId) -> tuple[TaskId, ...]:
        """The job's tasks, in the order in which they were added."""
        return tuple(self._of_job.get(job, ()))

    def of_agent(self, agent: AgentId) -> tuple[TaskId, ...]:
        """The tasks that run on the agent or wait for it, in the order in which they became its."""
        return tuple(self._of_agent.get(agent, ()))

    def wanted(self, *states: TaskState) -> ResourceSet:
        """What all tasks of these states want together. Costs as much as there are names of resources."""
        total = NOTHING
        for state in states:
            total = _capped_sum(total, self._queues[state].wanted)
        return total

    def counts(self) -> dict[TaskState, int]:
        """How many tasks are in each state."""
        return {state: len(queue) for state, queue in self._queues.items()}

    def check(self) -> list[str]:
        """Every broken invariant, in words; empty when all hold. Costs as much as there are tasks."""
        found = [
            f"{task} says {kept.state.value}, its queue does not"
            for task, kept in self._tasks.items()
            if task not in self._queues[kept.state]
        ]
        if sum(self.counts().values()) != len(self._tasks):
            found.append(f"{counted(len(self._tasks), 'task is', 'tasks are')} known, {sum(self.counts().values())} are queued")
        for state, queue in self._queues.items():
            summed: dict[str, int] = {}
            for task in queue:
                for name, amount in queue.resources_of(task).items():
                    summed[name] = min(summed.get(name, 0) + amount, AMOUNT_MAX)
            if summed != dict(queue.wanted.items()):
                found.append(f"{state.value} says that it wants {queue.wanted}, its tasks want {ResourceSet(summed)}")
        shapes = {task: shape for shape in self._ready.shapes() for task in self._ready.of_shape(shape)}
        if shapes != {task: self._ready.resources_of(task) for task in self._ready}:
            found.append("the ready tasks by shape are not the ready tasks")
        return found

    def _kept(self, task: TaskId) -> _Kept:
        found = self._tasks.get(task)
        if found is None:
            raise LedgerError(f"there is no task {task}")
        return found

    def _told(self, task: TaskId) -> str:
        return f"it went {' > '.join(state.value for state in self._tasks[task].story)}"


def _capped_sum(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    return ResourceSet({name: min(one[name] + other[name], AMOUNT_MAX) for name in {*one, *other}})


def _take_out(index: dict[Of, dict[TaskId, None]], of: Of | None, task: TaskId) -> None:
    if of is not None:
        alike = index[of]
        del alike[task]
        if not alike:
            del index[of]
