"""Reports of a mesh about the stages it runs: frozen values, JSON on the wire, each tied to one attempt of one stage.

Times are milliseconds since the epoch, on the clock of the process that acted. They are for people and traces; no decision
reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field

from mesh.core.counting import counted
from mesh.core.ids import GroupId, MeshId, NodeId, NodeName, StageId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted:
    """The mesh admitted the stage, with this many slots, under this lease."""

    stage: StageId
    mesh: MeshId
    incarnation: int  #: Holder of the values: a token of the runner. Values of another holder are gone with it.
    cluster: str  #: Ray's own id of the cluster that runs the stage.
    slots: int
    token: int  #: Fencing token of the lease that pays.
    kind: Literal["stage_started"] = "stage_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted:
    """A worker started the task."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    kind: Literal["node_started"] = "node_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSucceeded:
    """The task returned. The stage's runner holds its value; an exported value is stored as well."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    finished_ms: int
    worker: str  #: `host:pid` of the worker process.
    stored: StoredValue | None = None
    elements: int | None = None  #: Number of elements of the array that the task is the first part of; None: it is no such part.
    kind: Literal["node_succeeded"] = "node_succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSucceeded:
    """Tasks of the stage that returned, as columns: the entries at one index of all columns describe one task.

    No `NodeStarted` needs to precede it. Columns of different lengths are refused with a ValueError.
    """

    stage: StageId
    tasks: tuple[int, ...]  #: Positions in `StageSpec.tasks`.
    attempts: tuple[int, ...] = ()  #: Their attempts; empty: 1 each.
    since_ms: int  #: Milliseconds since the epoch; `started` counts from it.
    started: tuple[int, ...]  #: Milliseconds after `since_ms`.
    took: tuple[int, ...]  #: Milliseconds each ran.
    workers: tuple[str, ...]  #: `host:pid`, each once.
    worker: tuple[int, ...] = ()  #: Index into `workers`; empty: the first.
    stored: dict[int, StoredValue] = field(default_factory=dict)  #: Exported values, by index of the entry.
    elements: dict[int, int] = field(default_factory=dict)  #: Number of elements of arrays, at the entries of their first parts.
    kind: Literal["nodes_succeeded"] = "nodes_succeeded"

    def __post_init__(self) -> None:
        count = len(self.tasks)
        if len(self.started) != count or len(self.took) != count or not self.workers:
            raise ValueError(f"nodes_succeeded: {counted(count, 'task')} with other counts of starts or durations, or without a worker")
        if len(self.attempts) not in (0, count) or len(self.worker) not in (0, count):
            raise ValueError(f"nodes_succeeded: {counted(count, 'task')} with other counts of attempts or workers")
        if count and min(self.tasks) < 0:
            raise ValueError("nodes_succeeded: a position is below 0")
        if self.worker and not 0 <= min(self.worker) <= max(self.worker) < len(self.workers):
            raise ValueError(f"nodes_succeeded: a worker is not among the {len(self.workers)}")

    def parts(self, entries_max: int) -> Iterator[NodesSucceeded]:
        """Yield messages of at most so many entries that say the same together."""
        if len(self.tasks) <= entries_max:
            yield self
            return
        for first in range(0, len(self.tasks), entries_max):
            last = first + entries_max
            yield replace(
                self,
                tasks=self.tasks[first:last],
                attempts=self.attempts[first:last],
                started=self.started[first:last],
                took=self.took[first:last],
                worker=self.worker[first:last],
                stored={entry - first: value for entry, value in self.stored.items() if first <= entry < last},
                elements={entry - first: count for entry, count in self.elements.items() if first <= entry < last},
            )

    def single(self, nodes: Sequence[NodeId]) -> Iterator[NodeSucceeded]:
        """Yield one message for each task that the stage has.

        Args:
            nodes: The node of each task of the stage.
        """
        for entry, task in enumerate(self.tasks):
            if task < len(nodes):
                started_ms = self.since_ms + self.started[entry]
                yield NodeSucceeded(
                    stage=self.stage,
                    node=nodes[task],
                    attempt=self.attempts[entry] if self.attempts else 1,
                    started_ms=started_ms,
                    finished_ms=started_ms + self.took[entry],
                    worker=self.workers[self.worker[entry] if self.worker else 0],
                    stored=self.stored.get(entry),
                    elements=self.elements.get(entry),
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedElement:
    """Element of an array that failed."""

    index: int
    attempt: int
    type_name: str = ""  #: Class of the error; empty, as the message, for all but the first of a part.
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Error in a form that may leave the mesh: text for everybody, and the pickled exception for the tenant's own client."""

    reason: Reason
    type_name: str  #: Such as `builtins.ValueError`.
    message: str
    traceback: str = ""
    pickled: StoredValue | None = None  #: The exception in the control store, if it can be pickled.
    bases: tuple[str, ...] = ()  #: Its base exception classes, nearest first: `builtins.OSError` of a `builtins.TimeoutError`.
    elements: tuple[FailedElement, ...] = ()  #: Elements of a part of an array that failed; the error is that of the first.
    of: int | None = None  #: Number of elements of that array.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed:
    """The task raised, or its worker died. This stage will not run its tasks that depend on it."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    finished_ms: int
    failure: Failure
    kind: Literal["node_failed"] = "node_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGrew:
    """The task returned nodes in place of a value. This stage will not run its tasks that depend on it, as after a failure."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    finished_ms: int
    graph: StoredValue  #: The nodes, as `dag.spec.growth` describes them.
    kind: Literal["node_grew"] = "node_grew"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheckpoint:
    """The running task saved a checkpoint, from which a later attempt continues. It replaces the one before."""

    stage: StageId
    node: NodeId
    attempt: int
    number: int  #: Counts up from 1 within the attempt.
    stored: StoredValue
    kind: Literal["node_checkpoint"] = "node_checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgress:
    """The running task reported its progress."""

    stage: StageId
    node: NodeId
    attempt: int
    progress: int  #: Of `PROGRESS_WHOLE`; the link between meshes carries integers only.
    kind: Literal["node_progress"] = "node_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRefused:
    """A checkpoint of the running task was not kept; or that of an earlier attempt cannot be read, and the task starts anew."""

    stage: StageId
    node: NodeId
    attempt: int
    reason: Reason
    detail: str
    kind: Literal["checkpoint_refused"] = "checkpoint_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLost:
    """The runner lacks the value of `node`, which the stage reads; the value must be computed or delivered again."""

    stage: StageId
    node: NodeId
    kind: Literal["input_lost"] = "input_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnded:
    """Nothing of the stage runs any more; tasks without a report were not run. Its lease is released."""

    stage: StageId
    kind: Literal["stage_ended"] = "stage_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLost:
    """The mesh lost the stage: its session ended or its runner died. Values that were neither stored nor kept are gone."""

    stage: StageId
    mesh: MeshId
    incarnation: int
    reason: Reason
    keeps_values: bool = False  #: The mesh has kept the small values of finished nodes, under the same holder.
    kind: Literal["stage_lost"] = "stage_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResized:
    """The stage has grown or shrunk while it runs: it has this many slots from now on."""

    stage: StageId
    slots: int
    retired: int = 0  #: Slots that it has given back since its start.
    gone: tuple[NodeName, ...] = ()  #: Nodes of the slots that it has given back since the message before; empty: unknown.
    groups: tuple[GroupId, ...] = ()  #: Reserved groups that it has given back since then; `gone` leaves their nodes out.
    kind: Literal["stage_resized"] = "stage_resized"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWaiting:
    """The mesh has considered the stage and cannot start it yet."""

    stage: StageId
    reason: Reason
    detail: str = ""  #: Text: what is short, and by how much.
    kind: Literal["stage_waiting"] = "stage_waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutput:
    """Lines that a task has printed. No state depends on it: it goes to the run's log, and not to the run's state.

    A number that does not follow the one before shows that lines between were left out.
    """

    stage: StageId
    node: NodeId
    attempt: int
    number: int  #: Number of the first line: of both streams together, from 1 in each attempt.
    at_ms: int  #: When the worker read the lines from the stream.
    stream: Literal["stdout", "stderr"]
    lines: tuple[str, ...]
    kind: Literal["node_output"] = "node_output"


#: Most lines of one `NodeOutput`, and most characters of one line; longer lines are cut.
OUTPUT_LINES_MAX, OUTPUT_CHARS_MAX = 500, 4_096
#: Progress of a task that is done.
PROGRESS_WHOLE = 10_000
#: Reports on a running task, which change nothing in its course.
TaskNote = NodeCheckpoint | NodeProgress | CheckpointRefused
StageMessage = (
    StageStarted
    | NodeStarted
    | TaskNote
    | NodeSucceeded
    | NodesSucceeded
    | NodeFailed
    | NodeGrew
    | InputLost
    | StageResized
    | StageEnded
    | StageLost
    | StageWaiting
)

#: Wire form of a message, told apart by `kind`.
STAGE_MESSAGE = Annotated[StageMessage, Field(discriminator="kind")]

#: Wire form of what a runner hands to its mesh.
RUNNER_MESSAGE = Annotated[StageMessage | NodeOutput, Field(discriminator="kind")]
