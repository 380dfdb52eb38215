"""State machine of a stage's tasks: which go to Ray now, which never will, and which are left. Pure: the runner passes events in.

A task is *submitted* as soon as each node that it needs is submitted too, or that node's value has arrived from outside. Ray
takes promises as arguments, so a whole stage is submitted in one sweep and Ray itself starts each task when its inputs are
ready. Only tasks that need a missing value from outside wait.

A failure drops the tasks behind it. Those that were submitted already come back from Ray with the same error; the machine
has dropped them by then, and ignores it.
"""

import heapq
from collections.abc import Iterable
from enum import Enum

from mesh.core.ids import NodeId
from mesh.stages.spec import StageSpec, TaskSpec


class StageTaskState(str, Enum):
    """State of a stage's task, as its runner sees it."""

    WAITING = "WAITING"
    """Needs a value from outside that has not arrived, or a task that waits for one."""
    SUBMITTED = "SUBMITTED"
    """Submitted to Ray, which runs it when its inputs are ready."""
    SUCCEEDED = "SUCCEEDED"
    """Ray has its value."""
    FAILED = "FAILED"
    """It failed by itself."""
    DROPPED = "DROPPED"
    """This stage will not run it: an input failed or will not arrive, or the stage was stopped."""


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
        """Whether no task of the stage runs or could still run."""
        return self._open == 0

    def state(self, node: NodeId) -> StageTaskState:
        """Return the state of a task of this stage."""
        return self._states[node]

    def task(self, node: NodeId) -> TaskSpec:
        """Return the spec of a task of this stage."""
        return self._tasks[node]

    def running(self) -> tuple[NodeId, ...]:
        """Return the tasks that were submitted to Ray and have not come back."""
        return tuple(node for node, state in self._states.items() if state is StageTaskState.SUBMITTED)

    def awaits(self, node: NodeId) -> bool:
        """Return whether the node is outside the stage, its value has not arrived, and a task still needs it."""
        return node in self.externals and node not in self._arrived and self._has_open_reader(node)

    def is_read(self, node: NodeId) -> bool:
        """Return whether a task of this stage reads the node's value, and does not merely come after the node."""
        return any(node in self._tasks[reader].inputs for reader in self._readers.get(node, ()))

    def readers(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the tasks of this stage that read the node's value and are not over."""
        return tuple(
            reader for reader in self._readers.get(node, ()) if self._states[reader] in _OPEN and node in self._tasks[reader].inputs
        )

    def has_open_need(self, node: NodeId) -> bool:
        """Return whether the task needs a task of this stage that is still submitted."""
        return any(self._states.get(need) is StageTaskState.SUBMITTED for need in self._needs[node])

    def begin(self, arrived: Iterable[NodeId]) -> tuple[TaskSpec, ...]:
        """Return the tasks that can be submitted once the values of `arrived` are there, in an order that Ray can take."""
        ready = [node for node, missing in self._missing.items() if missing == 0]
        for node in arrived:
            ready.extend(self._count_down(node))
        return self._submit(ready)

    def arrive(self, node: NodeId) -> tuple[TaskSpec, ...]:
        """Note that a value from outside has arrived; return the tasks that can be submitted because of it."""
        return self._submit(self._count_down(node))

    def miss(self, node: NodeId) -> tuple[NodeId, ...]:
        """Note that a value from outside will not arrive; return the dropped tasks. None are dropped if it arrived before."""
        return () if node in self._arrived else self._drop_behind(node)

    def succeed(self, node: NodeId) -> bool:
        """Note that the task returned; False when the machine has dropped it before."""
        return self._close(node, StageTaskState.SUCCEEDED)

    def fail(self, node: NodeId) -> tuple[NodeId, ...] | None:
        """Note that the task failed by itself; return the tasks dropped because of it. None when the machine has dropped it before."""
        return self._drop_behind(node) if self._close(node, StageTaskState.FAILED) else None

    def leave(self, node: NodeId) -> tuple[NodeId, ...]:
        """Drop a task that was stopped and came back without having run, and all tasks behind it."""
        return (node, *self._drop_behind(node)) if self._close(node, StageTaskState.DROPPED) else ()

    def stop(self) -> tuple[NodeId, ...]:
        """Drop the tasks that were not submitted; return the submitted ones, which must be stopped."""
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
        """Return the readers of an arrived external value that miss nothing more. Each external value counts once."""
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
        # The spec's order is topological, and its author's wish: the heap keeps to it.
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
