"""Dry runs of graphs."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.queues import ChangeView, VictimView
from serve_apps.schemas.runs import BlockedView
from serve_apps.schemas.view import View


class PlannedStageView(View):
    """A stage that the run would have."""

    stage: str
    mesh: str
    level: int
    nodes: list[str] = Field(description="The first nodes of the stage.")
    count: int = Field(description="Number of nodes.")
    width: int
    slot: dict[str, Quantity]
    why_here: str
    goes_first: bool = Field(description="The stage would be sent at once; other stages wait for the stages before them.")
    reason: str | None = Field(description="Why the stage would wait; null: it would start at once.")
    detail: str = ""
    position: int = Field(description="Position in the mesh's queue among stages that compete for the same flavors, 1 is next.")
    tenant_position: int
    changes: list[ChangeView] = Field(default=[])
    start_ms: Moment | None = None
    overdue_ms: int = Field(
        default=0, description="How long the work that must end first has overrun its estimate; `start_at` is then null."
    )
    victims: list[VictimView] = Field(default=[])


class PlanView(View):
    """Stages that a graph submitted now would have. Nothing is stored or sent."""

    tenant: str
    user: str
    at_ms: Moment
    reason: str | None = Field(description="Why the whole run would wait: a hold, a window or a limit; null: it would not.")
    detail: str = ""
    stages: list[PlannedStageView]
    blocked: list[BlockedView]
