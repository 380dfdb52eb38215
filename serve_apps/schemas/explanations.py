"""Explanations of why a run, or one of its stages, waits."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.events import EventView
from serve_apps.schemas.moments import Moment
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.queues import ChangeView, VictimView
from serve_apps.schemas.runs import BlockedView
from serve_apps.schemas.view import View


class StageExplanation(View):
    """Why a stage is in its present state."""

    stage: str
    run: str
    tenant: str
    user: str
    mesh: str
    state: str
    reason: str | None = Field(description="Why the stage waits; null: nothing blocks it.")
    detail: str
    why_here: str
    nodes: int
    slot: dict[str, Quantity]
    slots: int = Field(default=0, description="Slots held since the stage started; their number does not change until it ends.")
    width: int = Field(default=1, description="How many of its nodes could run at once.")
    position: int | None = Field(
        default=None,
        description="Position in the mesh's queue among stages that compete for the same flavors, 1 is next; null: not queued.",
    )
    tenant_position: int | None = Field(
        default=None, description="Position among the tenant's stages on all meshes that compete for the same flavors, 1 is next."
    )
    changes: list[ChangeView] = Field(default=[])
    start_ms: Moment | None = Field(
        default=None, description="Estimated start; null: no estimate (no stage has ended yet), or the stage has started."
    )
    overdue_ms: int = Field(
        default=0, description="How long the work that must end first has overrun its estimate; `start_at` is then null."
    )
    victims: list[VictimView] = Field(default=[], description="Preemptions that its mesh or the planner would choose for the stage.")
    history: list[EventView] = Field(default=[], description="History of the stage; only if one stage is requested.")


class RunExplanation(View):
    """Why a run has not ended."""

    id: str
    tenant: str
    user: str
    state: str
    reason: str | None
    detail: str
    at_ms: Moment
    stages: list[StageExplanation] = Field(description="Stages that have not ended.")
    blocked: list[BlockedView]
    waiting: list[BlockedView] = Field(default=[], description="Nodes that wait for a time or for a signal, without a worker.")
