"""Graphs and timelines of runs as columns: one list per fact, with an entry per node or bar. For pages that draw thousands of them."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.runs import ArrayView
from serve_apps.schemas.view import View


class GraphView(View):
    """The whole graph of a run with the state of each node; an array is one node. A number in a column is a place in a list of names."""

    id: str
    tenant: str
    state: str
    seq: int = Field(description="Number of the last event that these states include: follow the events after it.")
    nodes: list[str] = Field(description="Ids of the nodes, in the order of the graph.")
    edges_from: list[int] = Field(description="For each edge, the place of the node that is waited for.")
    edges_to: list[int] = Field(description="For each edge, the place of the node that waits.")
    states: list[str]
    stages: list[str]
    meshes: list[str]
    node_state: list[int] = Field(description="Place in `states`.")
    node_stage: list[int] = Field(description="Place in `stages`; -1: in none yet.")
    node_mesh: list[int] = Field(description="Place in `meshes`; -1: on none yet.")
    attempt: list[int]
    arrays: list[ArrayView] = Field(description="All arrays, with their elements by state.")


class TimelineView(View):
    """Timeline of a run: a bar for each attempt of a node or of an array's part, by its start."""

    id: str
    state: str
    created_ms: Moment = Field(description="When the run was submitted; all times of the columns count from there.")
    now_ms: int = Field(description="Time since then, on the root's clock: the end of bars of what still runs.")
    end_ms: int = Field(description="Time from then to the end of the run; -1: it has not ended.")
    nodes: list[str]
    meshes: list[str]
    stages: list[str]
    states: list[str]
    reasons: list[str]
    node: list[int] = Field(description="Place in `nodes`.")
    attempt: list[int]
    mesh: list[int] = Field(description="Place in `meshes`; -1: unknown.")
    stage: list[int] = Field(description="Place in `stages`; -1: of an earlier attempt, whose stage is not kept.")
    bar_state: list[int] = Field(description="Place in `states`; of an attempt that another one followed: FAILED.")
    reason: list[int] = Field(description="Place in `reasons`: why the attempt ended before its success; -1: it did not.")
    from_ms: list[int]
    to_ms: list[int] = Field(description="-1: it still runs.")
