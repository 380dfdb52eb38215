"""What happened in a run, oldest first."""

from __future__ import annotations

from pydantic import Field

from serve_apps.schemas.view import View


class EventView(View):
    """One change of a run."""

    seq: int = Field(description="Numbered per run from 1 without gaps.")
    at_ms: int
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
    next: int = Field(description="Give it as `after` to go on.")
