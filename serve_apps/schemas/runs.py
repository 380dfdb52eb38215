"""Runs, with their stages and all that is told of them in one answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, computed_field

from dag.states import NodeState
from mesh.printable import check_printable
from serve_apps.schemas.view import View


class SubmittedView(View):
    """A run that was accepted, now or before."""

    id: str
    tenant: str
    state: str
    created: bool = Field(description="False: the same graph was submitted under this id before, and this is that run.")
    durability: str = Field(default="D0", description="The level at which it is kept; never a better one than was reached.")


class CancelRequest(BaseModel):
    """Stop a run."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, AfterValidator(check_printable)] = Field(
        default="", max_length=1_000, description="Shown wherever the run is shown."
    )


class RunLine(View):
    """A run in one line."""

    id: str
    tenant: str
    state: str
    created_ms: int
    ended_ms: int = 0
    reason: str | None = None
    detail: str = ""
    counts: dict[str, int] = Field(default={}, description="Nodes per state.")
    user: str = Field(default="", description="Who submitted it: the key's user, else whom the graph names, else `key` and the key's id.")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_total(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_succeeded(self) -> int:
        """Those that returned."""
        return self.counts.get(NodeState.SUCCEEDED.value, 0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_failed(self) -> int:
        """Those that failed for good."""
        return self.counts.get(NodeState.FAILED.value, 0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def nodes_skipped(self) -> int:
        """Those that were not run, or not to their end, because of a failure elsewhere."""
        return self.counts.get(NodeState.SKIPPED.value, 0)


class RunsView(View):
    """Runs, newest first."""

    runs: list[RunLine]


class StageView(View):
    """A stage of a run: what one mesh got as one."""

    id: str
    mesh: str
    cluster: str = Field(description="Ray's own id of the cluster; empty until the stage has started.")
    level: int
    state: str
    reason: str | None = Field(description="While it waits: why. Once it was stopped or lost: why that.")
    detail: str
    why_here: str = Field(description="The routing decision in words.")
    slots: int
    width: int = Field(description="How many of its nodes could run at once.")
    sent_ms: int
    started_ms: int
    ended_ms: int
    counts: dict[str, int] = Field(description="Its nodes per state; nodes that went on to another stage are counted there.")


class BlockedView(View):
    """Nodes that no mesh takes at present, all for the same reason."""

    reason: str
    detail: str
    count: int
    nodes: list[str] = Field(description="The first of them.")


class MeshShare(View):
    """What one mesh has of a run."""

    mesh: str
    stages: int
    slots: int = Field(description="Held at this moment.")
    counts: dict[str, int] = Field(description="Nodes per state.")


class FailureView(View):
    """A node that failed for good."""

    node: str
    attempt: int
    mesh: str | None
    reason: str
    type: str
    message: str
    traceback: str = ""
    pickled: str | None = Field(default=None, description="The exception, pickled, in base64; only in the answer to `result`.")
    pickled_sha256: str | None = None


class SkippedView(View):
    """A node that did not run, and the failures that it goes back to."""

    node: str
    roots: list[str]


class RunView(RunLine):
    """A run with its stages."""

    outputs: list[str]
    stages: list[StageView]
    blocked: list[BlockedView]
    meshes: list[MeshShare]
    failures: list[FailureView]
    skipped: list[SkippedView] = Field(description="At most 1 000 of them; `counts` tells how many there are.")
