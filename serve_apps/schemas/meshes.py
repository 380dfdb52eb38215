"""Meshes, with their pools and how much waits for them; and the order to drain one."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mesh.printable import check_printable
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class DrainRequest(BaseModel):
    """Take a mesh out of use."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, AfterValidator(check_printable)] = Field(
        default="", max_length=1_000, description="Shown wherever the mesh is shown, and to whoever waits for it."
    )


class PoolView(View):
    """A pool of a mesh."""

    pool: str
    flavor: str
    capacity: dict[str, Quantity]
    used: dict[str, Quantity]


class MeshEntry(View):
    """A mesh."""

    mesh: str
    alive: bool
    cluster_answers: bool = Field(default=True, description="False: the mesh does not reach its Ray cluster, and gets nothing new.")
    draining: bool = Field(description="It finishes what it has and gets nothing new.")
    drain_reason: str = Field(default="", description="In the words of whoever drained it.")
    drained_ms: int = Field(default=0, description="Since when it is drained.")
    steady: bool = Field(default=True, description="False: it was lost, came back, and gets nothing new yet.")
    steady_in_ms: int = Field(default=0, description="How much longer it is on probation.")
    losses: int = Field(default=0, description="How often it was lost lately, as far as that is remembered.")
    run_ms: int | None = Field(default=None, description="How long a stage ran there lately, a smoothed mean; null: none has ended yet.")
    heartbeat_age_ms: int
    last_heard_ms: int = Field(default=0, description="When its last heartbeat came, about; 0: the root is older than this key.")
    pid: int | None = Field(
        default=None, description="Its process, where a stack on this machine started it; only the terminal fills it in. Null: not known."
    )
    labels: dict[str, str]
    cluster: str
    tenants: list[str] = Field(description="Who may use it; `*`: everybody.")
    warnings: list[str] = Field(
        default=[],
        description="Where it differs from the root's file; and that it takes nothing, as its cluster is not `shared`.",
    )
    pools: list[PoolView]
    waiting: int = Field(description="Stages in its queue.")
    running: int = Field(description="Stages it runs.")
    waiting_for_ray: int = Field(
        default=0, description="Of these, stages that it admitted and for which Ray has no room; `explain` says what holds it."
    )
    oldest_waiting_ms: int = Field(default=0, description="For how long the oldest stage has been in its queue.")
    oldest_running_ms: int = Field(default=0, description="For how long it has had the stage that it has had longest.")


class AbsentEntry(View):
    """A mesh that the root's file names, or that somebody has drained, and that is not there."""

    mesh: str
    state: str = Field(description="`not_joined`: it never came. `left`: in good order. `lost`: long ago; it is forgotten but for this.")
    draining: bool = Field(default=False, description="It gets nothing when it comes.")
    drain_reason: str = Field(default="", description="In the words of whoever drained it.")
    labels: dict[str, str] = Field(default={}, description="As the root's file has them.")


class MeshesView(View):
    """The meshes that the key's tenant may use, or some tenant below it."""

    at_ms: int
    meshes: list[MeshEntry]
    absent: list[AbsentEntry] = Field(default=[], description="Those that are known and not there.")
