"""What waits, and what would have to change for it to start."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.view import View


class ChangeView(View):
    """One thing that stands in the way, and by how much."""

    lever: str = Field(description="`free`, `borrowed`, `borrowing_limit` or `nominal`.")
    tenant: str
    flavor: str
    resource: str
    amount: Quantity
    words: str = Field(description="The same in words that go on where `it would start if` ends.")


class GivesWayView(View):
    """A lease that would be asked for a part of what it holds, or pays for stages that would stop."""

    mesh: str
    tenant: str | None = Field(description="Null: a tenant that the key does not reach.")
    flavor: str
    amounts: dict[str, Quantity] = Field(description="The part.")
    reason: str
    stages: list[str] = Field(default=[], description="Which would stop, of the same tenant on the same mesh.")


class WaitingView(View):
    """A stage in the queue of a mesh."""

    stage: str
    run: str
    tenant: str
    mesh: str
    position: int = Field(description="1 is the next one at that mesh, of those that could take a flavor that it could take.")
    tenant_position: int | None = Field(
        default=None, description="1 is the next one of its tenant, on any mesh, of those that may be in its way; null: not worked out."
    )
    priority: int
    reason: str
    changes: list[ChangeView] = Field(default=[], description="What would have to change in the quotas; all of it together would do.")
    start_ms: int | None = Field(default=None, description="When it starts, about; null: nobody can say, as when no stage has ended yet.")
    overdue_ms: int = Field(
        default=0, description="By how much that overruns which has to end first; then `start_ms` is null, as nobody can say any more."
    )
    slot: dict[str, Quantity] = Field(description="What it needs to start.")
    width: int


class KeptBackView(View):
    """A run of which something was not sent to any mesh."""

    run: str
    tenant: str
    user: str
    position: int = Field(description="1 is the oldest of those that wait for the same reason.")
    reason: str
    detail: str
    created_ms: int


class UnmetView(View):
    """What a mesh could use for a tenant, and the planner would not give it now."""

    mesh: str
    tenant: str
    flavor: str
    slots: int = Field(description="How many are missing, of those that the mesh could hold at once.")
    beyond: int = Field(default=0, description="How many more its work waits for, when the mesh told it last.")
    slot: dict[str, Quantity]
    reason: str
    detail: str
    waiting_ms: int


class QueueView(View):
    """What waits, of a tenant and of all below it: in the queues of meshes, and before them."""

    tenant: str = Field(description="`*`: all that the key reaches.")
    at_ms: int = 0
    waiting: list[WaitingView]
    cut_short: dict[str, int] = Field(
        default={}, description="By mesh: stages of anybody behind the first 1 000 of its queue, which are not looked at."
    )
    kept_back: list[KeptBackView] = Field(default=[])
    unmet: list[UnmetView] = Field(default=[])
