"""Views of schedules. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dag.run.runs import RunSummary
from dag.schedules.schedule import Firing, Schedule
from serve_apps.schemas.schedules import FiringView, ScheduleDetailView, ScheduleView
from serve_apps.views.runs import run_line


def schedule_view(schedule: Schedule) -> ScheduleView:
    return ScheduleView(**_fields_of(schedule))


def detail_view(schedule: Schedule, runs: Iterable[RunSummary]) -> ScheduleDetailView:
    return ScheduleDetailView(**_fields_of(schedule), runs=[run_line(run) for run in runs])


def _fields_of(schedule: Schedule) -> dict[str, Any]:
    rules = schedule.rules
    return {
        "name": schedule.name,
        "tenant": schedule.tenant,
        "cron": rules.cron,
        "timezone": rules.timezone,
        "overlap": rules.overlap,
        "starts_within_ms": rules.starts_within_ms,
        "user": rules.user,
        "paused": schedule.is_paused,
        "created_ms": schedule.created_ms,
        "next_ms": 0 if schedule.is_paused else schedule.next_ms or 0,
        "queued_ms": schedule.queued_ms or 0,
        "starting": schedule.start.run if schedule.start is not None else None,
        "active": list(schedule.active),
        "firings": [_firing_view(firing) for firing in schedule.firings],
    }


def _firing_view(firing: Firing) -> FiringView:
    return FiringView(
        due_ms=firing.due_ms,
        at_ms=firing.at_ms,
        outcome=firing.outcome,
        run=firing.run,
        triggered=firing.is_triggered,
        reason=firing.reason.value if firing.reason is not None else None,
        detail=firing.detail,
    )
