"""State machine of a stage's tasks: which may go to Ray now, which never will, and which are left. Pure: the runner passes events in.

A task is *ready* when each task that it needs has succeeded, and each value that it needs from outside has arrived. The runner
submits ready tasks, in the order of the spec, as the slots of the stage have places: see `mesh.stages.slot_window`.
A failure drops the tasks behind it, none of which is ready.

A part of an array may get its elements while the task that makes their list goes on: they are *handed out* to it. Such a part is ready
before that task has succeeded. When that task fails, the parts that were submitted go on, since they have what they read.

A worker that runs several tasks one after the other may also get a task whose needs the same worker runs before it: see
`mesh.stages.chunks`.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from mesh.core.ids import NodeId
from mesh.stages.spec import StageSpec, TaskSpec


class StageTaskState(str, Enum):
    """State of a stage's task, as its runner sees it."""

    WAITING = "WAITING"
    """Needs a value from outside that has not arrived, or a task that has not succeeded."""
    READY = "READY"
    """Its inputs are there; no slot has had a place for it yet."""
    SUBMITTED = "SUBMITTED"
    """Submitted to Ray."""
    SUCCEEDED = "SUCCEEDED"
    """Ray has its value."""
    FAILED = "FAILED"
    """It failed by itself."""
    DROPPED = "DROPPED"
    """This stage will not run it: an input failed or will not arrive, or the stage was stopped."""


#: States of tasks that have not ended.
OPEN = frozenset({StageTaskState.WAITING, StageTaskState.READY, StageTaskState.SUBMITTED})


class StageMachine:
    """One stage on its runner.

    Invariants: the needs of a ready task have succeeded, arrived or handed out; those of a submitted one have, or were submitted before it;
    `is_ended` holds exactly when no task is waiting, ready or submitted; a state never goes back, except by `take_back`.
    """

    def __init__(self, spec: StageSpec) -> None:
        self.spec = spec
        self.externals = spec.external_inputs()
        self._nodes = spec.nodes
        self._index = {node: index for index, node in enumerate(self._nodes)}
        self._functions = dict(zip(self._index, spec.functions(), strict=True))
        self.functions = Counter(self._functions.values())  #: Number of tasks of each function.
        self._attempts = spec.later_attempts()
        self._needs = dict(zip(self._index, spec.needs(), strict=True))
        self._missing = {node: len(needs) for node, needs in self._needs.items()}
        self._readers: dict[NodeId, list[NodeId]] = {}
        for node, needs in self._needs.items():
            for need in needs:
                self._readers.setdefault(need, []).append(node)
        self._states = dict.fromkeys(self._index, StageTaskState.WAITING)
        self._open = len(self._states)
        self._ready: list[int] = []  #: Heap of the places of ready tasks in the spec; tasks that left the state are dropped on the way.
        self.ready = 0  #: Number of ready tasks.
        self._arrived: set[NodeId] = set()
        self._handed_out: dict[NodeId, NodeId] = {}  #: Tasks with elements of a list that grows, and the task that makes it.

    @property
    def is_ended(self) -> bool:
        """Whether no task of the stage runs or could still run."""
        return self._open == 0

    def has(self, node: NodeId) -> bool:
        """Return whether the node is a task of this stage."""
        return node in self._states

    def state(self, node: NodeId) -> StageTaskState:
        """Return the state of a task of this stage."""
        return self._states[node]

    def task(self, node: NodeId) -> TaskSpec:
        """Return the spec of a task of this stage."""
        return self.spec.tasks[self._index[node]]

    def function(self, node: NodeId) -> str:
        """Return the function of a task of this stage."""
        return self._functions[node]

    def attempt(self, node: NodeId) -> int:
        """Return the attempt of a task of this stage."""
        return self._attempts.get(node, 1)

    def left(self) -> tuple[NodeId, ...]:
        """Return the tasks that have not ended; other threads may call it."""
        return tuple(node for node, state in self._states.items() if state in OPEN)

    def running(self) -> tuple[NodeId, ...]:
        """Return the tasks that were submitted to Ray and have not come back."""
        return tuple(node for node, state in self._states.items() if state is StageTaskState.SUBMITTED)

    def awaits(self, node: NodeId) -> bool:
        """Return whether the node is outside the stage, its value has not arrived, and a task still needs it."""
        return node in self.externals and node not in self._arrived and self._has_open_reader(node)

    def is_read(self, node: NodeId) -> bool:
        """Return whether a task of this stage reads the node's value, and does not merely come after the node."""
        return any(node in self.task(reader).inputs for reader in self._readers.get(node, ()))

    def readers(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the tasks of this stage that read the node's value and are not over."""
        return tuple(reader for reader in self._readers.get(node, ()) if self._states[reader] in OPEN and node in self.task(reader).inputs)

    def begin(self, arrived: Iterable[NodeId]) -> None:
        """Note the start of the stage. `arrived`: values from outside that are there."""
        for node, missing in self._missing.items():
            if missing == 0:
                self._make_ready(node)
        for node in arrived:
            self.arrive(node)

    def arrive(self, node: NodeId) -> None:
        """Note that a value from outside has arrived. Each value counts once."""
        if node in self.externals and node not in self._arrived:
            self._arrived.add(node)
            self._count_down(node)

    def next_ready(self) -> TaskSpec | None:
        """Return the first ready task in the order of the spec; it stays ready."""
        node = self.next_ready_node()
        return None if node is None else self.task(node)

    def next_ready_node(self) -> NodeId | None:
        """Return the node of the first ready task; it stays ready."""
        while self._ready:
            node = self._nodes[self._ready[0]]
            if self._states[node] is StageTaskState.READY:
                return node
            heapq.heappop(self._ready)
        return None

    def submit(self, node: NodeId) -> None:
        """Note that a ready task goes to Ray, or a waiting one behind the tasks that it needs."""
        self.ready -= self._states[node] is StageTaskState.READY
        self._states[node] = StageTaskState.SUBMITTED

    def take_back(self, node: NodeId) -> None:
        """Note that a submitted task came back without having run: it is ready again, or waits for what it needs."""
        if self._missing[node]:
            self._states[node] = StageTaskState.WAITING
        else:
            self._make_ready(node)

    def missing(self, node: NodeId) -> int:
        """Return how many needs of the task have neither succeeded nor arrived."""
        return self._missing[node]

    def followers(self, node: NodeId) -> Sequence[NodeId]:
        """Return the tasks of this stage that need the node."""
        return self._readers.get(node, ())

    def needs(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the nodes that the task needs, each once."""
        return self._needs[node]

    def position(self, node: NodeId) -> int:
        """Return the position of the task in the spec."""
        return self._index[node]

    def hand_out(self, reader: NodeId, node: NodeId) -> bool:
        """Note that a submitted task has handed out what the reader needs of its value; False when the reader has it, or is over."""
        is_wanted = self._states[node] is StageTaskState.SUBMITTED and self._states[reader] is StageTaskState.WAITING
        if not is_wanted or reader in self._handed_out:
            return False
        self._handed_out[reader] = node
        self._count_down_one(reader)
        return True

    def miss(self, node: NodeId) -> tuple[NodeId, ...]:
        """Note that a value from outside will not arrive; return the dropped tasks. None are dropped if it arrived before."""
        return () if node in self._arrived else self._drop_behind(node)

    def succeed(self, node: NodeId) -> bool:
        """Note that the task returned, which makes tasks ready; False when the machine has dropped it before."""
        if not self._close(node, StageTaskState.SUCCEEDED):
            return False
        self._count_down(node)
        return True

    def fail(self, node: NodeId) -> tuple[NodeId, ...] | None:
        """Note that the task failed by itself; return the tasks dropped because of it. None when the machine has dropped it before."""
        return self._drop_behind(node) if self._close(node, StageTaskState.FAILED) else None

    def leave(self, node: NodeId) -> tuple[NodeId, ...]:
        """Drop a task that was stopped and came back without having run, and all tasks behind it."""
        return (node, *self._drop_behind(node)) if self._close(node, StageTaskState.DROPPED) else ()

    def stop(self) -> tuple[NodeId, ...]:
        """Drop the tasks that were not submitted; return the submitted ones, which must be stopped."""
        for node, state in tuple(self._states.items()):
            if state in (StageTaskState.WAITING, StageTaskState.READY):
                self._close(node, StageTaskState.DROPPED)
        return self.running()

    def _has_open_reader(self, node: NodeId) -> bool:
        return any(self._states[reader] in OPEN for reader in self._readers.get(node, ()))

    def _close(self, node: NodeId, state: StageTaskState) -> bool:
        if self._states[node] not in OPEN:
            return False
        self.ready -= self._states[node] is StageTaskState.READY
        self._states[node] = state
        self._open -= 1
        return True

    def _count_down(self, node: NodeId) -> None:
        """Make those readers of the node ready that miss nothing more."""
        for reader in self._readers.get(node, ()):
            if not self._handed_out or self._handed_out.get(reader) != node:
                self._count_down_one(reader)

    def _count_down_one(self, reader: NodeId) -> None:
        self._missing[reader] -= 1
        if self._missing[reader] == 0 and self._states[reader] is StageTaskState.WAITING:
            self._make_ready(reader)

    def _make_ready(self, node: NodeId) -> None:
        # The spec's order is topological, and its author's wish: the heap keeps to it.
        self._states[node] = StageTaskState.READY
        self.ready += 1
        heapq.heappush(self._ready, self._index[node])

    def _drop_behind(self, node: NodeId) -> tuple[NodeId, ...]:
        dropped = []
        pending = [node]
        while pending:
            source = pending.pop()
            for reader in self._readers.get(source, ()):
                if self._handed_out.get(reader) == source and self._states[reader] is StageTaskState.SUBMITTED:
                    continue
                if self._close(reader, StageTaskState.DROPPED):
                    dropped.append(reader)
                    pending.append(reader)
        return tuple(dropped)
