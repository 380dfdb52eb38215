"""Events of a run, and changes of all runs."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.moments import Moment
from serve_apps.schemas.runs import RunLine
from serve_apps.schemas.view import View


class EventView(View):
    """One event of a run."""

    seq: int = Field(description="Number of the event: per run, from 1, without gaps.")
    at_ms: Moment
    run: str
    kind: str = Field(description="`run`, `stage` or `node`.")
    node: str | None = None
    attempt: int = 0
    stage: str | None = None
    mesh: str | None = None
    cluster: str = ""
    before: str = ""
    after: str = ""
    reason: str | None = None
    detail: str = ""


class EventsView(View):
    """Events, oldest first."""

    events: list[EventView]
    next: int = Field(description="Pass this as `after` to continue.")


class RemovedRun(View):
    """A run that is no longer kept."""

    id: str
    tenant: str


class RunChangesView(View):
    """Runs that were submitted, changed or removed."""

    runs: list[RunLine] = Field(description="The runs as they are now.")
    removed: list[RemovedRun]
    next: str = Field(description="Pass this as `after` to continue.")
    gap: bool = Field(description="Changes after `after` are no longer kept: list the runs again.")
