"""Why a run, or a stage of it, is not further."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.events import EventView
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.queues import ChangeView, GivesWayView
from serve_apps.schemas.runs import BlockedView
from serve_apps.schemas.view import View


class StageExplanation(View):
    """Why a stage is where it is."""

    stage: str
    run: str
    tenant: str
    user: str
    mesh: str
    state: str
    reason: str | None = Field(description="Null: nothing stands in its way.")
    detail: str
    why_here: str
    nodes: int
    slot: dict[str, Quantity]
    slots: int = Field(default=0, description="Held since it began; it keeps them to its end.")
    width: int = Field(default=1, description="How many of its nodes could run at once.")
    position: int | None = Field(
        default=None, description="1 is the next one at its mesh, of those that could take a flavor that it could take; null: in no queue."
    )
    tenant_position: int | None = Field(
        default=None, description="1 is the next one of its tenant, on any mesh, of those that may be in its way."
    )
    changes: list[ChangeView] = Field(default=[])
    start_ms: int | None = Field(
        default=None, description="When it starts, about; null: nobody can say (no stage has ended yet), or it has started."
    )
    overdue_ms: int = Field(
        default=0, description="By how much that overruns which has to end first; then `start_ms` is null, as nobody can say any more."
    )
    gives_way: list[GivesWayView] = Field(default=[], description="Whom its mesh or the planner would ask for it.")
    story: list[EventView] = Field(default=[], description="What happened to it; only where one stage is asked about.")


class RunExplanation(View):
    """Why a run is not further."""

    id: str
    tenant: str
    user: str
    state: str
    reason: str | None
    detail: str
    at_ms: int
    stages: list[StageExplanation] = Field(description="Those that have not ended.")
    blocked: list[BlockedView]
