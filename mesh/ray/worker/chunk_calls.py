"""Messages between runner and worker about a chunk of tasks. Named tuples of plain values: they are pickled for each chunk."""

from __future__ import annotations

from typing import Any, NamedTuple

from mesh.core.counting import counted
from mesh.core.ids import NodeId, RunId, StageId
from mesh.core.values import StoredValue
from mesh.ray.worker.execution import TaskFault
from mesh.stages.call_shapes import Shape

#: Longest name of a worker, `host:pid`.
WORKER_CHARS_MAX = 256
#: Large values that a call returns beside its report. A chunk ends with the last of them.
LARGE_VALUES = 1


class ChunkCall(NamedTuple):
    """Tasks for a worker, in the order in which it runs them, as columns: the entries at one place of all columns describe one task.

    An input is the place of a task of this chunk, or, for a node outside of the chunk, `~place` in `outside`.
    """

    number: int
    run: RunId
    stage: StageId
    storage_url: str
    inline_limit_bytes: int
    functions: list[tuple[str, bytes | None]]  #: Key and code; None: the worker has the code, or imports it.
    shapes: list[Shape]  #: Forms of arguments, with holes for inputs and plain values.
    nodes: list[NodeId]
    function: list[int]  #: Place in `functions` of each task.
    shape: list[int]  #: Place in `shapes` of each task.
    inputs: list[int]  #: Inputs of each task: as many as its shape has.
    plain: list[Any]  #: Plain values of each task: as many as its shape has.
    after: dict[int, tuple[int, ...]]  #: Tasks of this chunk that must succeed before a task which does not read them.
    attempts: dict[int, int]  #: Attempts other than the first.
    exported: frozenset[int]  #: Tasks whose values leave the mesh.
    num_returns: dict[int, int]  #: Numbers of outputs other than one.
    outside: list[NodeId]  #: Nodes outside of the chunk that its tasks read.
    blobs: dict[str, bytes]  #: Small pickled arguments, by SHA-256.
    values: dict[NodeId, tuple[bytes, str]]  #: Small values from outside the chunk: bytes and encoding.
    references: list[str]  #: Meaning of the references beside the call: first nodes, then pickled arguments by SHA-256.
    large_blobs: int  #: How many of them are pickled arguments.
    stall_ms: float  #: Run time of a task after which the worker gives back those behind it.
    late_ms: float  #: Run time of the chunk after which the worker does so too.
    traceparent: str = ""  #: Context of the span of the run; empty: nobody traces it.


class ChunkReport(NamedTuple):
    """Ends of tasks of a chunk, as columns: the entries at one place describe one task. Indices are those of `ChunkCall.nodes`."""

    number: int
    worker: str  #: `host:pid`.
    since_ms: int  #: Milliseconds since the epoch.
    tasks: list[int]  #: Those that succeeded.
    started_us: list[int]  #: Microseconds after `since_ms`.
    took_us: list[int]
    values: list[bytes | None]  #: Each value as a pickle, if it is small and not exported.
    stored: dict[int, tuple[StoredValue, bytes | None]]  #: Exported values, by task.
    large: list[int]  #: Tasks whose values the call returns, in their order.
    faults: dict[int, TaskFault]  #: Tasks that failed.
    lost: dict[int, tuple[str, str]]  #: Tasks that did not run, since Ray has lost an input: its id in Ray, and the message.
    creators: list[int]  #: Tasks whose code has created something in Ray.
    running: int = -1  #: The task that still runs, or was interrupted.
    running_since_ms: int = 0
    is_interrupted: bool = False
    elements: dict[int, int] = {}  # noqa: RUF012  a default of a named tuple; the number of elements of arrays, by their first parts

    def check(self, tasks: int, *, is_end: bool) -> None:
        """Check that a chunk of so many tasks can have this report. The tenant's code shares the process that writes it.

        Raises:
            ValueError: It cannot.
        """
        columns = {len(column) for column in (self.tasks, self.started_us, self.took_us, self.values)}
        named = (*self.tasks, *self.stored, *self.large, *self.faults, *self.lost, *self.creators, *self.elements)
        least = -1 if is_end else 0
        times = (self.since_ms, self.running_since_ms, *self.started_us, *self.took_us, *self.elements.values())
        if (
            columns != {len(self.tasks)}
            or len(set(self.tasks)) != len(self.tasks)
            or not all(type(task) is int and 0 <= task < tasks for task in named)
            or not all(type(number) is int and 0 <= number < 2**53 for number in times)
            or not least <= self.running < tasks
            or len(self.worker) > WORKER_CHARS_MAX
        ):
            raise ValueError(f"a worker reports what a chunk of {counted(tasks, 'task')} cannot do")


class WorkerSite(NamedTuple):
    """Place of a worker."""

    node: str  #: Ray's id of the node.
    pid: int
    page: str  #: Path of its page on that node: see `WorkerPage`.


#: Reference of Ray, or the value itself.
Reference = Any
