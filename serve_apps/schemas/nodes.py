"""Nodes of a run, in pages."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import LaterMoment
from serve_apps.schemas.runs import ArrayView, CheckpointView, FailureView
from serve_apps.schemas.view import View


class AttemptView(View):
    """An attempt of a node that another one followed."""

    attempt: int
    mesh: str | None
    started_ms: LaterMoment = Field(description="Null: it had not begun.")
    ended_ms: LaterMoment
    reason: str
    type: str = Field(description="Class of the error, if the attempt failed by one.")
    detail: str


class NodeView(View):
    """A node of a run, in its current attempt."""

    node: str
    control: str | None = Field(
        default=None, description="`cond`, `sleep` or `wait_signal`, done by the root itself; `grown`: it returned nodes."
    )
    needs: list[str] = Field(description="Nodes whose values it reads, then those that it only waits for.")
    state: str
    attempt: int
    retries_used: int
    losses: int
    attempts: list[AttemptView] = Field(description="The last ten attempts before the present one, oldest first.")
    not_before_ms: LaterMoment = Field(description="Earliest time of the next attempt after a failure; null: none is waited for.")
    stage: str | None
    mesh: str | None
    reason: str | None
    detail: str
    started_ms: LaterMoment
    finished_ms: LaterMoment
    progress: float | None = Field(description="As the node's code reported it last, from 0 to 1; null: it reported none.")
    checkpoint: CheckpointView | None = Field(description="The checkpoint from which its next attempt continues.")
    failure: FailureView | None
    roots: list[str]
    cache: str | None = Field(
        default=None,
        description="`HIT`: the value is of the cache; `CLAIMED`: the node computes it for the cache; `IN_FLIGHT`: it waits for a node "
        "that does; `KEPT`: the cache has its value; `OFF`: it runs without the cache; null: it is not cached.",
    )
    value_bytes: int | None = Field(default=None, description="Size of its value where that is stored; null: it is not, or not yet.")
    array: ArrayView | None = Field(default=None, description="The elements of an array by state; null: the node is none.")


class NodesView(View):
    """One page of nodes, ordered by id."""

    nodes: list[NodeView]
    next: str | None = Field(description="Pass this as `after` to get the next page; null: this is the last page.")


class ElementView(View):
    """An element of an array."""

    index: int
    state: str
    attempt: int
    type: str = Field(description="Class of its error; empty: it has none, or it is not among the first of its part.")
    message: str


class ElementsView(View):
    """One page of the elements of an array, by index."""

    array: ArrayView
    elements: list[ElementView]
    next: int | None = Field(description="Pass this as `after` to get the next page; null: this is the last page.")
