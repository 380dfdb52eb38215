"""Runs with their stages."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, computed_field

from dag.run.states import NodeState
from mesh.core.printable import check_printable
from serve_apps.schemas.moments import LaterMoment, Moment
from serve_apps.schemas.view import View


class SubmittedView(View):
    """A run that was accepted, by this request or an earlier one."""

    id: str
    tenant: str
    state: str
    created: bool = Field(description="False: an earlier request submitted the same graph under this id.")
    durability: str = Field(default="D0", description="Durability level that the store has confirmed.")


class CancelRequest(BaseModel):
    """Request to cancel a run."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, AfterValidator(check_printable)] = Field(default="", max_length=1_000, description="Shown beside the run.")
    cleanup: bool = Field(default=True, description="Whether the run's cleanup goes on.")


class ResumeRequest(BaseModel):
    """Request to resume a run."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, AfterValidator(check_printable)] = Field(default="", max_length=1_000, description="Shown in its events.")


class SignalView(View):
    """A signal that was sent to a run."""

    id: str = Field(description="The run.")
    signal: str
    nodes: list[str] = Field(description="The nodes that get its value.")
    repeated: bool = Field(description="Whether the run had this signal already.")


class RunLine(View):
    """Summary of a run."""

    id: str
    tenant: str
    state: str
    created_ms: Moment
    ended_ms: LaterMoment = Field(default=0, description="Null: it has not ended.")
    reason: str | None = None
    detail: str = ""
    counts: dict[str, int] = Field(default={}, description="Number of nodes by state.")
    labels: dict[str, str] = Field(default={}, description="Labels of the run.")
    mesh_names: list[str] = Field(default=[], description="Meshes that have had a stage of the run.")
    user: str = Field(default="", description="User of the run: the key's user, else the user in the graph, else `key` and the key's id.")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_total(self) -> int:
        """Number of nodes."""
        return sum(self.counts.values())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_succeeded(self) -> int:
        """Number of nodes that succeeded."""
        return self.counts.get(NodeState.SUCCEEDED.value, 0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_failed(self) -> int:
        """Number of nodes that failed for good."""
        return self.counts.get(NodeState.FAILED.value, 0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_skipped(self) -> int:
        """Number of nodes not run, or stopped, because another node failed."""
        return self.counts.get(NodeState.SKIPPED.value, 0)


class RunsView(View):
    """Runs, newest first."""

    runs: list[RunLine]
    next: str | None = Field(default=None, description="Pass this as `cursor` to get the next page; null: this is the last page.")


class StageView(View):
    """A stage of a run: the nodes that one mesh runs together."""

    id: str
    mesh: str
    cluster: str = Field(description="Ray's id of the cluster; empty until the stage has started.")
    level: int
    state: str
    reason: str | None = Field(description="While it waits: why. Once it was stopped or lost: why that.")
    detail: str
    why_here: str = Field(description="The routing decision in words.")
    slots: int
    width: int = Field(description="How many of its nodes could run at once.")
    sent_ms: LaterMoment
    started_ms: LaterMoment
    ended_ms: LaterMoment
    counts: dict[str, int] = Field(description="Number of nodes by state; a node that moved to another stage counts there.")


class BlockedView(View):
    """Nodes that fit no mesh at present, all for the same reason."""

    reason: str
    detail: str
    count: int
    nodes: list[str] = Field(description="The first of these nodes.")


class MeshShare(View):
    """Part of a run on one mesh."""

    mesh: str
    stages: int
    slots: int = Field(description="Slots held now.")
    counts: dict[str, int] = Field(description="Number of nodes by state.")


class FailureView(View):
    """A node that failed for good."""

    node: str
    attempt: int
    mesh: str | None
    reason: str
    type: str
    message: str
    traceback: str = ""
    pickled: str | None = Field(default=None, description="The pickled exception in base64; only in the response of `result`.")
    pickled_sha256: str | None = None


class SkippedView(View):
    """A node that did not run, and the failed nodes that caused it."""

    node: str
    roots: list[str]


class CheckpointView(View):
    """The newest checkpoint of a node."""

    attempt: int
    number: int = Field(description="Counts up from 1 within the attempt that saved it.")
    saved_ms: Moment
    size_bytes: int


class ProgressView(View):
    """A running node whose code reports progress or saves checkpoints."""

    node: str
    progress: float | None = Field(description="From 0 to 1, as the code reported it last; null: it reported none.")
    checkpoint: CheckpointView | None


class GroupView(View):
    """Nodes of a run that are named alike, or one array."""

    name: str = Field(description="Their common name, without numbers at the end; of a single node its id.")
    is_array: bool
    total: int | None = Field(description="Number of nodes, or of elements of the array; null: its length is not known yet.")
    counts: dict[str, int] = Field(description="Number of nodes or elements by state.")
    part: float = Field(description="Part that its running nodes have done by their own report, as a number of nodes.")


class ArrayView(View):
    """Elements of an array by state."""

    node: str
    state: str
    elements: int | None = Field(description="Number of elements; null: not known yet, since a node returns the list.")
    parts: int = Field(description="Number of parts in which it runs.")
    counts: dict[str, int] = Field(description="Number of elements by state; empty until their number is known.")
    failed: str = Field(description="Indices of failed elements, like `3, 7-9`; cut where they are many.")


class RunView(RunLine):
    """A run with its stages."""

    estimated_end_ms: LaterMoment = Field(
        default=0, description="When it ends, if it keeps its slots and its nodes run as long as they usually do; null: unknown."
    )
    outputs: list[str]
    stages: list[StageView]
    blocked: list[BlockedView]
    waiting: list[BlockedView] = Field(default=[], description="Nodes that wait for a time or for a signal, without a worker.")
    meshes: list[MeshShare]
    arrays: list[ArrayView] = Field(default=[], description="The first 50 arrays, with their elements by state.")
    groups: list[GroupView] = Field(
        default=[], description="Nodes that are named alike, and arrays, by state: those with failures first, then in order; at most 50."
    )
    progress: list[ProgressView] = Field(description="Running nodes with progress or a checkpoint; at most 20.")
    failures: list[FailureView]
    skipped: list[SkippedView] = Field(description="At most 1 000 of the skipped nodes; `counts` has their number.")
    trace_id: str = Field(default="", description="Id of its trace, in hexadecimal digits: that of the client if it sent a `traceparent`.")
