"""What would become of a graph if it were submitted now."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.queues import ChangeView, GivesWayView
from serve_apps.schemas.runs import BlockedView
from serve_apps.schemas.view import View


class PlannedStageView(View):
    """A stage that a run would have."""

    stage: str
    mesh: str
    level: int
    nodes: list[str] = Field(description="The first of them.")
    count: int = Field(description="How many nodes.")
    width: int
    slot: dict[str, Quantity]
    why_here: str
    goes_first: bool = Field(description="It would be sent at once; the others wait for what goes before them.")
    reason: str | None = Field(description="What it would wait for; null: it would start at once.")
    detail: str = ""
    position: int = Field(description="1 is the next one at its mesh, of those that could take a flavor that it could take.")
    tenant_position: int
    changes: list[ChangeView] = Field(default=[])
    start_ms: int | None = None
    overdue_ms: int = Field(
        default=0, description="By how much that overruns which has to end first; then `start_ms` is null, as nobody can say any more."
    )
    gives_way: list[GivesWayView] = Field(default=[])


class PlanView(View):
    """What would become of a graph if it were submitted now. Nothing is kept, nothing is sent."""

    tenant: str
    user: str
    at_ms: int
    reason: str | None = Field(description="What keeps the whole run back: a hold, a window, a limit; null: nothing does.")
    detail: str = ""
    stages: list[PlannedStageView]
    blocked: list[BlockedView]
