"""Which tasks of a stage go to Ray now, which never will, and what is left. Pure: the runner tells it what happened.

A task is *submitted* as soon as every node that it needs is submitted too, or its value has arrived from outside: Ray
takes promises as arguments, so a whole stage goes out in one sweep and Ray itself starts each task when its inputs are
there. What waits is only what needs a value from outside that has not come.

A failure drops the tasks behind it. Those that were submitted already come back from Ray with the same error; the machine
has left them by then, and ignores it.
"""

import heapq
from collections.abc import Iterable
from enum import Enum

from mesh.ids import NodeId
from mesh.stages import StageSpec, TaskSpec


class StageTaskState(str, Enum):
    """Where a task of a stage stands, as its runner sees it."""

    WAITING = "WAITING"
    """Needs a value from outside that has not come, or a task that waits for one."""
    SUBMITTED = "SUBMITTED"
    """Handed to Ray, which runs it when its inputs are there."""
    SUCCEEDED = "SUCCEEDED"
    """Ray has its value."""
    FAILED = "FAILED"
    """It failed by itself."""
    DROPPED = "DROPPED"
    """It will not be run by this stage: something it needs failed or will not come, or the stage was stopped."""


_OPEN = frozenset({StageTaskState.WAITING, StageTaskState.SUBMITTED})


class StageMachine:
    """One stage on its runner.

    Invariants: a submitted task's needs are submitted, succeeded or arrived; `is_ended` holds exactly when no task is
    waiting or submitted; a state never goes back.
    """

    def __init__(self, spec: StageSpec) -> None:
        self.spec = spec
        self.externals = spec.external_inputs()
        self._tasks = {task.node: task for task in spec.tasks}
        self._index = {task.node: index for index, task in enumerate(spec.tasks)}
        self._needs = {task.node: tuple(dict.fromkeys((*task.inputs, *task.after))) for task in spec.tasks}
        self._missing = {node: len(needs) for node, needs in self._needs.items()}
        self._readers: dict[NodeId, list[NodeId]] = {}
        for node, needs in self._needs.items():
            for need in needs:
                self._readers.setdefault(need, []).append(node)
        self._states = dict.fromkeys(self._tasks, StageTaskState.WAITING)
        self._open = len(self._states)
        self._arrived: set[NodeId] = set()

    @property
    def is_ended(self) -> bool:
        """True when nothing of the stage runs or could still run."""
        return self._open == 0

    def state(self, node: NodeId) -> StageTaskState:
        """Where the task of this stage stands."""
        return self._states[node]

    def task(self, node: NodeId) -> TaskSpec:
        """The spec of a task of this stage."""
        return self._tasks[node]

    def running(self) -> tuple[NodeId, ...]:
        """What was handed to Ray and has not come back."""
        return tuple(node for node, state in self._states.items() if state is StageTaskState.SUBMITTED)

    def awaits(self, node: NodeId) -> bool:
        """Is this a node outside the stage whose value has not arrived and is still of use?"""
        return node in self.externals and node not in self._arrived and self._has_open_reader(node)

    def is_read(self, node: NodeId) -> bool:
        """Does a task of this stage read the node's value, or does it merely come after it?"""
        return any(node in self._tasks[reader].inputs for reader in self._readers.get(node, ()))

    def readers(self, node: NodeId) -> tuple[NodeId, ...]:
        """The tasks of this stage that read the node's value and are not over."""
        return tuple(
            reader for reader in self._readers.get(node, ()) if self._states[reader] in _OPEN and node in self._tasks[reader].inputs
        )

    def has_open_need(self, node: NodeId) -> bool:
        """Is a task of this stage, which this one needs, still out?"""
        return any(self._states.get(need) is StageTaskState.SUBMITTED for need in self._needs[node])

    def begin(self, arrived: Iterable[NodeId]) -> tuple[TaskSpec, ...]:
        """What can be submitted when the values of `arrived` are there, in an order that Ray can take."""
        ready = [node for node, missing in self._missing.items() if missing == 0]
        for node in arrived:
            ready.extend(self._count_down(node))
        return self._submit(ready)

    def arrive(self, node: NodeId) -> tuple[TaskSpec, ...]:
        """A value from outside has come; what can be submitted because of it."""
        return self._submit(self._count_down(node))

    def miss(self, node: NodeId) -> tuple[NodeId, ...]:
        """A value from outside will not come; what is dropped. Nothing, when it has arrived before."""
        return () if node in self._arrived else self._drop_behind(node)

    def succeed(self, node: NodeId) -> bool:
        """The task returned; False when the machine has left it before."""
        return self._close(node, StageTaskState.SUCCEEDED)

    def fail(self, node: NodeId) -> tuple[NodeId, ...] | None:
        """The task failed by itself; what is dropped because of it. None when the machine has left it before."""
        return self._drop_behind(node) if self._close(node, StageTaskState.FAILED) else None

    def leave(self, node: NodeId) -> tuple[NodeId, ...]:
        """The task came back without having run: it was stopped. Drops it and what is behind it."""
        return (node, *self._drop_behind(node)) if self._close(node, StageTaskState.DROPPED) else ()

    def stop(self) -> tuple[NodeId, ...]:
        """Drop what was not submitted; return what is out and has to be stopped."""
        for node, state in tuple(self._states.items()):
            if state is StageTaskState.WAITING:
                self._close(node, StageTaskState.DROPPED)
        return self.running()

    def _has_open_reader(self, node: NodeId) -> bool:
        return any(self._states[reader] in _OPEN for reader in self._readers.get(node, ()))

    def _close(self, node: NodeId, state: StageTaskState) -> bool:
        if self._states[node] not in _OPEN:
            return False
        self._states[node] = state
        self._open -= 1
        return True

    def _count_down(self, node: NodeId) -> list[NodeId]:
        """An external value is there: its readers that miss nothing more. Each external counts once."""
        if node not in self.externals or node in self._arrived:
            return []
        self._arrived.add(node)
        return self._readers_released_by(node)

    def _readers_released_by(self, node: NodeId) -> list[NodeId]:
        released = []
        for reader in self._readers.get(node, ()):
            self._missing[reader] -= 1
            if self._missing[reader] == 0:
                released.append(reader)
        return released

    def _submit(self, ready: Iterable[NodeId]) -> tuple[TaskSpec, ...]:
        # The spec's own order is topological, and its author's wish: the heap keeps to it.
        heap = [self._index[node] for node in ready if self._states[node] is StageTaskState.WAITING]
        heapq.heapify(heap)
        submitted = []
        while heap:
            task = self.spec.tasks[heapq.heappop(heap)]
            self._states[task.node] = StageTaskState.SUBMITTED
            submitted.append(task)
            for reader in self._readers_released_by(task.node):
                if self._states[reader] is StageTaskState.WAITING:
                    heapq.heappush(heap, self._index[reader])
        return tuple(submitted)

    def _drop_behind(self, node: NodeId) -> tuple[NodeId, ...]:
        dropped = []
        pending = [node]
        while pending:
            for reader in self._readers.get(pending.pop(), ()):
                if self._close(reader, StageTaskState.DROPPED):
                    dropped.append(reader)
                    pending.append(reader)
        return tuple(dropped)
