"""Schedules: run templates that start by cron."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dag.schedules.schedule import Outcome, Overlap
from serve_apps.schemas.moments import LaterMoment, Moment
from serve_apps.schemas.runs import RunLine
from serve_apps.schemas.view import View


class ScheduleRequest(BaseModel):
    """A schedule as a user writes it."""

    model_config = ConfigDict(extra="forbid")

    cron: str = Field(max_length=100, description="Minute, hour, day of month, month and day of week: `0 3 * * 1-5`.")
    timezone: str = Field(default="UTC", max_length=100, description="Time zone of the IANA database, like `Europe/Berlin`.")
    overlap: Overlap = Field(
        default=Overlap.SKIP,
        description="While an earlier run goes on: `skip` the firing, `queue` one, `replace` the run, or `allow` both.",
    )
    starts_within_ms: int | None = Field(
        default=None, ge=1_000, le=366 * 86_400_000, description="Longest delay of a firing, after which it is missed; null: no limit."
    )
    graph: dict[str, Any] = Field(description="The template: a graph as `POST /v1/runs` takes it, without an id.")


class FiringView(View):
    """A firing that was decided."""

    due_ms: Moment = Field(description="The time that the cron expression names, or of the trigger.")
    at_ms: Moment = Field(description="When it was decided.")
    outcome: Outcome = Field(description="`STARTED`, `SKIPPED` (by `overlap`), `MISSED` (by `starts_within_ms`) or `REFUSED`.")
    run: str | None = Field(default=None, description="Id of the run that was started.")
    triggered: bool = Field(default=False, description="Triggered by a user, and not by the cron expression.")
    reason: str | None = Field(default=None, description="Why nothing was started.")
    detail: str = ""


class ScheduleView(View):
    """A schedule."""

    name: str
    tenant: str
    cron: str
    timezone: str
    overlap: Overlap
    starts_within_ms: int | None = None
    user: str = Field(description="User of the runs.")
    paused: bool
    created_ms: Moment
    next_ms: LaterMoment = Field(
        default=0, description="Next firing; null: none, since the schedule is paused or its cron never comes again."
    )
    queued_ms: LaterMoment = Field(default=0, description="Firing that waits for the end of earlier runs.")
    starting: str | None = Field(default=None, description="Id of the run that is being started.")
    active: list[str] = Field(default=[], description="Runs that had not ended at the last firing.")
    firings: list[FiringView] = Field(default=[], description="The last 20 firings, newest first.")


class ScheduleDetailView(ScheduleView):
    """A schedule with its last runs."""

    runs: list[RunLine] = Field(default=[], description="The last 20 runs that are kept, newest first.")


class SchedulesView(View):
    """Schedules by tenant and name."""

    schedules: list[ScheduleView]
    next: str | None = Field(default=None, description="`cursor` of the next page; null: this is the last one.")


class ScheduleDeletedView(View):
    """Response after a schedule was deleted."""

    name: str
    tenant: str
