"""Meshes with their pools and queue lengths, and the request to drain a mesh."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mesh.core.printable import check_printable
from serve_apps.schemas.moments import LaterMoment, Moment
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class DrainRequest(BaseModel):
    """Request to drain a mesh."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, AfterValidator(check_printable)] = Field(
        default="", max_length=1_000, description="Shown beside the mesh and to users whose work waits for the mesh."
    )


class ReservedGroupsView(View):
    """Reserved placement groups of a pool. Those neither in use nor idle wait for room."""

    reserved: int
    in_use: int
    idle: int
    reuse_count: int


class PoolView(View):
    """A pool of a mesh."""

    pool: str
    flavor: str
    capacity: dict[str, Quantity]
    used: dict[str, Quantity]
    groups: ReservedGroupsView | None = None  #: None: the pool has no reserved groups.


class NodeSizeView(View):
    """Nodes of a mesh that are alike."""

    nodes: int = Field(description="Number of these nodes.")
    total: dict[str, Quantity]


class PluginView(View):
    """A plugin that the mesh's process has loaded."""

    plugin: str
    hooks: list[str] = Field(description="Hooks that the mesh calls: `score`, `preemption_policy`.")
    fenced: dict[str, str] = Field(default={}, description="Hooks that are fenced off, each with its cause; the default replaces them.")


class MeshEntry(View):
    """A mesh."""

    mesh: str
    alive: bool
    cluster_answers: bool = Field(default=True, description="False: the mesh cannot reach its Ray cluster, and gets no new work.")
    draining: bool = Field(description="The mesh gets no new work and finishes the work it has.")
    drain_reason: str = Field(default="", description="Reason given with the drain.")
    drained_ms: LaterMoment = Field(default=0, description="Time of the drain; null: it is not drained.")
    stable: bool = Field(default=True, description="False: the mesh was lost, has returned, and is on probation: it gets no new work yet.")
    stable_in_ms: int = Field(default=0, description="Time left on probation.")
    losses: int = Field(default=0, description="Number of recent losses that the root remembers.")
    run_ms: int | None = Field(default=None, description="Smoothed mean run time of recent stages; null: no stage has ended yet.")
    heartbeat_age_ms: int
    last_heard_ms: LaterMoment = Field(default=0, description="Approximate time of the last heartbeat.")
    pid: int | None = Field(
        default=None, description="Process of the mesh, if a stack on this machine started it; only the terminal sets it. Null: unknown."
    )
    labels: dict[str, str]
    cluster: str
    tenants: list[str] = Field(description="Tenants that may use the mesh; `*`: every tenant.")
    warnings: list[str] = Field(
        default=[],
        description="Differences from the root's file, and whether the mesh gets no work because its cluster is not `shared`.",
    )
    pools: list[PoolView]
    nodes: list[NodeSizeView] = Field(
        default=[], description="Sizes of its Ray nodes, in the resources of its pools: no task may be larger. Empty: not known yet."
    )
    plugins: list[PluginView] = Field(default=[], description="Policies of the operator's own.")
    waiting: int = Field(description="Stages in the mesh's queue.")
    running: int = Field(description="Stages that the mesh runs.")
    waiting_for_ray: int = Field(
        default=0, description="Running stages for which Ray has no room yet; `explain` shows what holds the room."
    )
    outside_group: int = Field(
        default=0, description="Nodes that failed since its process began because they held resources outside their placement groups."
    )
    oldest_waiting_ms: int = Field(default=0, description="Time in the queue of the oldest queued stage.")
    oldest_running_ms: int = Field(default=0, description="Run time of the oldest running stage.")


class AbsentEntry(View):
    """A mesh that is absent, and that the root's file names or an operator has drained."""

    mesh: str
    state: str = Field(description="`not_joined`: it never joined. `left`: it left in good order. `lost`: it was lost long ago.")
    draining: bool = Field(default=False, description="The mesh gets no work after it joins.")
    drain_reason: str = Field(default="", description="Reason given with the drain.")
    labels: dict[str, str] = Field(default={}, description="Labels in the root's file.")


class MeshesView(View):
    """Meshes that the key's tenant, or a tenant below it, may use."""

    at_ms: Moment
    meshes: list[MeshEntry]
    absent: list[AbsentEntry] = Field(default=[], description="Known meshes that are absent.")
