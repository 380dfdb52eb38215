"""State of a stage on its runner until it ends: its slots, its submitted tasks, and the code and arguments that came with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import ray

from mesh.core.ids import GroupId, NodeId, NodeName
from mesh.core.reasons import Reason
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.load_failures import LoadFailures
from mesh.ray.stage_runner.outcomes import OwnFailure
from mesh.ray.stage_runner.worker_pool import has_devices
from mesh.stages.arrays import Span, spans_in
from mesh.stages.call_shapes import blobs_of
from mesh.stages.chunks import ChunkScheduler, Habits
from mesh.stages.slot_window import SlotWindow, share_of
from mesh.stages.spec import ArgumentForm, StageSpec, StageTasks, TaskSpec
from mesh.stages.stage_machine import OPEN, StageMachine, StageTaskState

#: Pickled arguments up to this size travel with each call; larger ones are put into the object store once per stage.
BLOB_INLINE_BYTES_MAX = 64 * 1024

#: Blocks that were handed out and that no task reads yet, for each slot: so many keep a slot busy, and hold little memory.
UNREAD_PER_SLOT = 4

#: Options of Ray with which a task runs as it does in a worker.
_USUAL = {"max_retries": 0}

SubmittedTask = tuple[Any, Any]  #: References to the value and to the report.


class Block(NamedTuple):
    """Elements of a list that grows, handed out to a part that reads them."""

    source: NodeId  #: The task that makes the list.
    span: Span
    value: Any  #: As values are held: bytes when they are small, else a reference.
    digest: bytes | None  #: See `mesh.ray.worker.streaming.digest_of`.


@dataclass(slots=True)
class OpenStage:
    """A stage that has not ended."""

    spec: StageSpec
    machine: StageMachine
    blobs: dict[str, bytes]
    habits: Habits = field(default_factory=Habits)  #: Run times of the tenant's functions, shared by all stages.
    chunks: ChunkScheduler = field(init=False)
    columns: StageTasks = field(init=False)  #: The tasks of the spec.
    groups: dict[str, SlotGroup] = field(default_factory=dict)  #: Groups of its slots, by Ray's ids.
    window: SlotWindow[str] = field(default_factory=SlotWindow)
    growing: set[str] = field(default_factory=set)  #: Groups of a growth that are not placed yet.
    tasks: dict[NodeId, SubmittedTask] = field(default_factory=dict)  #: Submitted tasks that have not succeeded.
    put_blobs: dict[str, Any] = field(default_factory=dict)  #: References to large pickled arguments.
    started_ms: dict[NodeId, int] = field(default_factory=dict)  #: Running tasks whose start was announced.
    retired: int = 0  #: Slots that were given back.
    gone: list[NodeName] = field(default_factory=list)  #: Nodes of those that no message has named.
    reserved_gone: list[GroupId] = field(default_factory=list)  #: Reserved groups among those.
    reclaimed: set[NodeId] = field(default_factory=set)  #: Submitted tasks that were interrupted, since their slots go back.
    taken_back: set[NodeId] = field(default_factory=set)  #: Submitted tasks that were cancelled, to be submitted to another slot.
    evicted: dict[NodeId, OwnFailure] = field(default_factory=dict)  #: Submitted tasks that are killed alone, and how they fail.
    loads: LoadFailures = field(default_factory=LoadFailures)  #: Functions that workers could not load.
    listening: set[NodeId] = field(default_factory=set)  #: Running tasks whose code hears a request to stop.
    streams: dict[NodeId, tuple[Span, ...]] = field(init=False)  #: Elements that parts may read early, by the task that makes their list.
    blocks: dict[NodeId, Block] = field(default_factory=dict)  #: Elements that were handed out to tasks which have not ended.
    cancelled: bool = False
    is_group_lost: bool = False  #: Ray has removed the placement group: a task submitted there would wait for ever.
    has_workers: bool = True  #: Workers run its tasks; False: they do not start, and each task is a Ray task.

    def __post_init__(self) -> None:
        tasks = self.spec.tasks
        self.columns = tasks if isinstance(tasks, StageTasks) else StageTasks.of(tasks)
        self.chunks = ChunkScheduler(self.machine, self.habits)
        self.streams = spans_in(self.columns.calls)

    @property
    def is_stopped(self) -> bool:
        """Whether no task of the stage may begin any more."""
        return self.cancelled or self.is_group_lost

    def shares_worker(self, task: TaskSpec) -> bool:
        """Return whether a worker that runs other tasks too may run this one.

        Ray's own options, devices and gangs are for a Ray task: Ray gives a process what a call of an actor cannot have. A task that
        hands out elements while it runs would keep those behind it waiting.
        """
        needs_own = task.is_isolated or task.gang is not None or has_devices(task.resources) or task.node in self.streams
        return self.has_workers and not needs_own and task.ray_options.items() <= _USUAL.items()

    def place_of(self, group: str) -> str:
        """Return the node that runs the workers of a group; the group itself, if its node is not known."""
        return (self.groups[group].node if group in self.groups else "") or group

    def unloadable_by(self, function: str) -> NodeId | None:
        """Return the task that has shown that no worker of the stage can load the function; None: one may."""
        if not self.loads.avoided(function):
            return None
        return self.loads.shown_by(function, {self.place_of(group) for group in self.window.open_groups})

    @property
    def slots(self) -> int:
        """Slots that the stage has: those of a growth once they are placed, retired ones until they are free."""
        return self.window.slots - sum(self.groups[group].slots for group in self.growing)

    def add_groups(self, groups: Iterable[SlotGroup]) -> None:
        """Add groups of slots. The first of all may be fed at once, the others when they are placed."""
        for group in groups:
            self.window.add(group.hex_id, group.slots, is_open=group.is_placed or not self.groups)
            self.groups[group.hex_id] = group

    def take_free(self) -> tuple[str, ...]:
        """Remove and return the groups of retired slots that have no task, by Ray's ids."""
        free = self.window.take_free()
        for name in free:
            group = self.groups.pop(name)
            self.growing.discard(name)
            self.retired += group.slots
            if group.reserved:
                self.reserved_gone.append(group.reserved)
            else:
                self.gone += group.nodes
        return free

    def place(self, task: TaskSpec, expected_ms: float | None) -> SlotGroup | None:
        """Give the task a place in a slot; return the group. None: all slots are full.

        The last ready tasks wait for a free slot here and not in Ray: there they could wait behind a long task while a slot is idle.

        Args:
            expected_ms: See `RunTimes`.
        """
        # A gang has its group to itself: its task takes nothing in Ray, so another would not wait behind it there.
        may_wait = task.gang is None and self.machine.ready > self.window.slots
        group = self.window.place(task.node, share_of(task.resources, self.spec.slot), expected_ms, may_wait=may_wait)
        return None if group is None else self.groups[group]

    def stuck(self) -> list[NodeId]:
        """Return the submitted tasks that another slot should run: they wait in retired slots, or behind long tasks while a slot is idle.

        A task is known to wait only behind tasks that are known to run: an interrupt must not meet one that has just begun.
        """
        if not self.started_ms:
            return []
        stuck = [node for node in self.window.waiting(self.started_ms, retired=True) if node not in self.taken_back]
        idle = 0 if self.machine.ready else self.window.idle - len(self.taken_back)
        if idle > 0:
            stuck += [node for node in self.window.waiting(self.started_ms, retired=False) if node not in self.taken_back][:idle]
        return stuck

    def spans_of(self, task: TaskSpec) -> tuple[Span, ...]:
        """Return the elements that the task may hand out while it runs. Ray's own retries would make them anew, unseen."""
        if task.node not in self.streams or task.ray_options.get("max_retries"):
            return ()
        return tuple(span for span in self.streams[task.node] if self.machine.state(span.part) is StageTaskState.WAITING)

    def hand_out(self, source: NodeId, attempt: int, part: NodeId, digest: bytes | None, elements: Any) -> bool:
        """Take elements for a part; return whether it is ready now. Those of another attempt, or for a part that has them, are dropped."""
        span = next((span for span in self.streams.get(source, ()) if span.part == part), None)
        if self.is_stopped or span is None or self.machine.attempt(source) != attempt or not self.machine.hand_out(part, source):
            return False
        self.blocks[part] = Block(source, span, elements, digest)
        return self.machine.state(part) is StageTaskState.READY

    def has_enough(self) -> bool:
        """Return whether so many parts with elements wait that no more need be handed out now; any thread may ask."""
        waiting = (StageTaskState.WAITING, StageTaskState.READY)
        unread = sum(self.machine.state(part) in waiting for part in tuple(self.blocks))
        return unread >= max(1, self.window.open_slots) * UNREAD_PER_SLOT

    def block_of(self, reader: NodeId, node: NodeId) -> Any:
        """Return the elements of the node that the reader was handed out; None: it reads the whole list."""
        block = self.blocks.get(reader) if self.blocks else None
        return block.value if block is not None and block.source == node else None

    def lose_block(self, reader: NodeId, lost_id: str) -> bool:
        """Note that Ray has lost what the reader was handed out; False if it has lost something else."""
        block = self.blocks.get(reader)
        if block is None or not isinstance(block.value, ray.ObjectRef) or block.value.hex() != lost_id:
            return False
        del self.blocks[reader]
        return True

    def drop_read(self, failed: NodeId | None = None) -> Iterator[tuple[NodeId, Span, bytes]]:
        """Drop the elements of tasks that have ended. Yield what the next attempt of the task that made it has to make again.

        Args:
            failed: A task that has failed; tasks that run with its elements go on.
        """
        for part, block in tuple(self.blocks.items()):
            state = self.machine.state(part)
            if state not in OPEN:
                del self.blocks[part]
            is_kept = state is StageTaskState.SUCCEEDED or (block.source == failed and state is StageTaskState.SUBMITTED)
            if is_kept and block.digest is not None:
                yield block.source, block.span, block.digest

    def lost_input(self, reader: NodeId, node: NodeId) -> Missing:
        """Return the refusal of a task of which Ray has lost an input; the loss was reported before."""
        return Missing(Reason.VALUE_LOST, f"the value of {node}, which {reader} reads, is lost")

    def code_of(self, node: NodeId, function: str) -> bytes:
        """Return the pickled function of a task. Raises Missing."""
        code = self.blobs.get(function.removeprefix("blob:"))
        if code is None:
            raise Missing(Reason.CODE_UNAVAILABLE, f"the code of {node} did not come with the stage")
        return code

    def arguments_of(self, node: NodeId, forms: Iterable[ArgumentForm]) -> tuple[dict[str, bytes], list[str], list[Any]]:
        """Return the pickled arguments that a task names: small ones by value, large ones by name and reference. Raises Missing."""
        inline: dict[str, bytes] = {}
        large: dict[str, Any] = {}
        for form in forms:
            if type(form) is dict and len(form) == 1 and "$ref" in form:
                continue  # As most are: this is called for each task.
            for sha256 in blobs_of(form):
                data = self.blobs.get(sha256)
                if data is None:
                    raise Missing(Reason.VALUE_LOST, f"a pickled argument of {node} did not come with the stage")
                if len(data) <= BLOB_INLINE_BYTES_MAX:
                    inline[sha256] = data
                elif sha256 not in large:
                    if sha256 not in self.put_blobs:
                        self.put_blobs[sha256] = ray.put(data)
                    large[sha256] = self.put_blobs[sha256]
        return inline, list(large), list(large.values())


class Missing(Exception):
    """Code or an argument that the stage names did not come with it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
