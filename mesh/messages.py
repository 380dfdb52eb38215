"""What a mesh tells about the stages it runs: frozen values, JSON on the wire, each tied to one attempt of one stage.

Times are milliseconds since the epoch on the clock of the process that did the thing; they are for people and traces,
no decision reads them.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from mesh.ids import MeshId, NodeId, StageId
from mesh.reasons import Reason
from mesh.values import StoredValue


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStarted:
    """The mesh admitted the stage, with this many slots, under this lease."""

    stage: StageId
    mesh: MeshId
    incarnation: int  #: The holder: a token of the runner that keeps the values. What another holder had is gone with it.
    cluster: str  #: Ray's own id of the cluster that runs the stage.
    slots: int
    token: int  #: Fencing token of the lease that pays.
    kind: Literal["stage_started"] = "stage_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted:
    """A worker took the task up."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    kind: Literal["node_started"] = "node_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSucceeded:
    """The task returned; its value is held by the stage's runner, and stored as well when it was to be exported."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    finished_ms: int
    worker: str  #: `host:pid` of the worker process.
    stored: StoredValue | None = None
    kind: Literal["node_succeeded"] = "node_succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error as far as it may travel: words for everybody, and the pickled exception for the tenant's own client."""

    reason: Reason
    type_name: str  #: `builtins.ValueError`.
    message: str
    traceback: str = ""
    pickled: StoredValue | None = None  #: The exception itself, when it can be pickled; in the control store.
    bases: tuple[str, ...] = ()  #: The exception classes above its own, nearest first: `builtins.OSError` of a `builtins.TimeoutError`.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailed:
    """The task raised, or its worker died. Tasks of the stage that depend on it will not be run by this stage."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    finished_ms: int
    failure: Failure
    kind: Literal["node_failed"] = "node_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLost:
    """The runner does not hold the value of `node`, which the stage reads; it has to be computed or delivered again."""

    stage: StageId
    node: NodeId
    kind: Literal["input_lost"] = "input_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnded:
    """Nothing of the stage runs any more; tasks that were not reported were not run. Its lease is given back."""

    stage: StageId
    kind: Literal["stage_ended"] = "stage_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLost:
    """The mesh lost the stage: its session ended or its runner died. What it had not stored is gone."""

    stage: StageId
    mesh: MeshId
    incarnation: int
    reason: Reason
    kind: Literal["stage_lost"] = "stage_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWaiting:
    """The mesh has looked at the stage and cannot start it yet."""

    stage: StageId
    reason: Reason
    detail: str = ""  #: In words: what is short, and by how much.
    kind: Literal["stage_waiting"] = "stage_waiting"


StageMessage = StageStarted | NodeStarted | NodeSucceeded | NodeFailed | InputLost | StageEnded | StageLost | StageWaiting

#: As the wire reads one: the `kind` tells which.
STAGE_MESSAGE = Annotated[StageMessage, Field(discriminator="kind")]
