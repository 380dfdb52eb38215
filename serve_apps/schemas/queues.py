"""Waiting work, and what would have to change for it to start."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class ChangeView(View):
    """One quota change that the start needs, and its amount."""

    lever: str = Field(description="`free`, `borrowed`, `borrowing_limit` or `nominal`.")
    tenant: str
    flavor: str
    resource: str
    amount: Quantity
    words: str = Field(description="The change in words, as the end of the sentence `it would start if …`.")


class VictimView(View):
    """A lease that would be shrunk, and the stages that would be preempted."""

    mesh: str
    tenant: str | None = Field(description="Tenant of the lease; null: the key does not cover it.")
    flavor: str
    amounts: dict[str, Quantity] = Field(description="Amounts that the lease would lose.")
    reason: str
    stages: list[str] = Field(default=[], description="Stages of the tenant on the mesh that would be preempted.")
    shrinking: list[str] = Field(default=[], description="Stages of the tenant on the mesh that would give slots back and go on.")


class WaitingView(View):
    """A stage in the queue of a mesh."""

    stage: str
    run: str
    tenant: str
    mesh: str
    position: int = Field(description="Position in the mesh's queue among stages that compete for the same flavors, 1 is next.")
    tenant_position: int | None = Field(
        default=None,
        description="Position among the tenant's stages on all meshes that compete for the same flavors, 1 is next; null: not computed.",
    )
    priority: int
    reason: str
    changes: list[ChangeView] = Field(default=[], description="Quota changes that together would let the stage start.")
    start_ms: Moment | None = Field(
        default=None, description="Estimated start; null: no estimate, for example because no stage has ended yet."
    )
    overdue_ms: int = Field(
        default=0, description="How long the work that must end first has overrun its estimate; `start_at` is then null."
    )
    slot: dict[str, Quantity] = Field(description="Resources that the stage needs to start.")
    width: int


class KeptBackView(View):
    """A run with nodes that were not sent to any mesh."""

    run: str
    tenant: str
    user: str
    position: int = Field(description="Position among runs that wait for the same reason, 1 is the oldest.")
    reason: str
    detail: str
    created_ms: Moment


class UnmetView(View):
    """Quota that a mesh requested for a tenant and that the planner does not grant now."""

    mesh: str
    tenant: str
    flavor: str
    slots: int = Field(description="Missing slots, up to what the mesh could hold at once.")
    beyond: int = Field(default=0, description="Further slots that its work waits for, as the mesh last reported.")
    slot: dict[str, Quantity]
    reason: str
    detail: str
    waiting_ms: int


class QueueView(View):
    """Waiting work of a tenant and the tenants below it: in the queues of meshes, and not sent to any mesh."""

    tenant: str = Field(description="Path of the tenant; `*`: all that the key covers.")
    at_ms: Moment = 0
    waiting: list[WaitingView]
    cut_short: dict[str, int] = Field(
        default={}, description="By mesh: number of stages, of all tenants, behind the first 1 000 of its queue. These are not listed."
    )
    kept_back: list[KeptBackView] = Field(default=[])
    unmet: list[UnmetView] = Field(default=[])
