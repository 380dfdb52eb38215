"""Due firings of a schedule, their outcome, and their runs. Pure: time and the state of the federation are arguments.

A decision is a new record of the schedule. A run to start stands in it as `start`, under an id that follows from schedule and time alone.
The decision is stored first, then the run is created, then the firing is recorded; so a crash between two of these steps repeats a step
that has no second effect. Times are decided once, because `cursor_ms` only grows.

Source: Kubernetes' CronJob (`concurrencyPolicy`, `startingDeadlineSeconds`) and Temporal's schedules (overlap policies). ADR 0066.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord
from dag.schedules.cron import last_time_ms, next_time_ms
from dag.schedules.schedule import Firing, Outcome, Overlap, Schedule, Start, Template
from dag.spec.spec import DagSpec, digest, kept_form, load
from mesh.core.clock import rfc3339
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.core.reasons import Reason

#: Firings that a schedule remembers.
FIRINGS_KEPT = 20
#: Runs whose end a schedule watches; of more, which only `allow` makes, the oldest are left alone.
ACTIVE_MAX = 100
#: Label of each run, and the parameter with the time of its firing.
LABEL, SCHEDULED_AT = "schedule", "SCHEDULED_AT"
#: How long a start is tried while the tenant's backlog is full, if the schedule has no limit of its own.
TRIED_MS_MAX = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the federation accepts no run of the tenant."""

    reason: Reason
    detail: str


def decide(schedule: Schedule, now_ms: int, active: Sequence[RunId], refusal: Refusal | None) -> Schedule:
    """Return the schedule after the decision about what is due; the same one if nothing is.

    Args:
        now_ms: Milliseconds since the epoch; it may be less than at an earlier call.
        active: The runs of `schedule.active` that have not ended.
        refusal: Why nothing of the tenant may start.
    """
    if schedule.is_paused or schedule.start is not None:
        return schedule
    if schedule.queued_ms is not None:
        decided = _decide_queued(schedule, schedule.queued_ms, now_ms, active, refusal)
        if decided is not schedule:
            return decided
    rules = schedule.rules
    due_ms = last_time_ms(rules.cron, rules.timezone, schedule.cursor_ms, now_ms)
    if due_ms is None:
        return schedule
    passed = _moved(replace(schedule, active=tuple(active)), due_ms)
    against = _objection(schedule, due_ms, now_ms, refusal)
    if against is not None:
        return recorded(passed, against)
    if active and rules.overlap is Overlap.QUEUE and schedule.queued_ms is None:
        return replace(passed, queued_ms=due_ms)
    if active and rules.overlap in (Overlap.SKIP, Overlap.QUEUE):
        words = f"run {active[-1]} goes on" if rules.overlap is Overlap.SKIP else "an earlier firing waits already"
        return recorded(passed, _not_started(due_ms, now_ms, Outcome.SKIPPED, Reason.PREVIOUS_RUN_ACTIVE, words))
    return replace(passed, start=_start(schedule, due_ms, now_ms, active if rules.overlap is Overlap.REPLACE else ()))


def _decide_queued(schedule: Schedule, due_ms: int, now_ms: int, active: Sequence[RunId], refusal: Refusal | None) -> Schedule:
    against = _objection(schedule, due_ms, now_ms, refusal)
    if against is not None:
        return recorded(replace(schedule, queued_ms=None, active=tuple(active)), against)
    if active and schedule.rules.overlap is not Overlap.ALLOW:
        return schedule
    return replace(schedule, queued_ms=None, active=tuple(active), start=_start(schedule, due_ms, now_ms, ()))


def _objection(schedule: Schedule, due_ms: int, now_ms: int, refusal: Refusal | None) -> Firing | None:
    """Return the end of a firing that may not start."""
    if refusal is not None:
        return _not_started(due_ms, now_ms, Outcome.REFUSED, refusal.reason, refusal.detail)
    within_ms = schedule.rules.starts_within_ms
    if within_ms is not None and now_ms - due_ms > within_ms:
        words = f"it would have started {(now_ms - due_ms) / 1000:.0f} s late; the schedule allows {within_ms / 1000:.0f} s"
        return _not_started(due_ms, now_ms, Outcome.MISSED, Reason.START_OVERDUE, words)
    return None


def _not_started(due_ms: int, now_ms: int, outcome: Outcome, reason: Reason, detail: str) -> Firing:
    return Firing(due_ms=due_ms, at_ms=now_ms, outcome=outcome, reason=reason, detail=detail)


def _start(schedule: Schedule, due_ms: int, now_ms: int, replaces: Iterable[RunId]) -> Start:
    when = datetime.fromtimestamp(due_ms // 1000, tz=timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return Start(due_ms=due_ms, decided_ms=now_ms, run=RunId(f"{schedule.name}-{when}-{schedule.uid}"), replaces=tuple(replaces))


def _moved(schedule: Schedule, cursor_ms: int) -> Schedule:
    rules = schedule.rules
    return replace(schedule, cursor_ms=cursor_ms, next_ms=next_time_ms(rules.cron, rules.timezone, cursor_ms))


def restarted(schedule: Schedule, now_ms: int) -> Schedule:
    """Return a schedule that is new, resumed or changed: times before now are not made up for."""
    return _moved(replace(schedule, queued_ms=None), max(schedule.cursor_ms, now_ms))


def recorded(schedule: Schedule, firing: Firing) -> Schedule:
    """Return the schedule with a further firing; a run that was started is active."""
    active = schedule.active
    if firing.run is not None and firing.outcome is Outcome.STARTED and firing.run not in active:
        active = (*active, firing.run)[-ACTIVE_MAX:]
    return replace(schedule, active=active, firings=(firing, *schedule.firings)[:FIRINGS_KEPT])


def carried_out(schedule: Schedule, start: Start, now_ms: int, refusal: Refusal | None = None) -> Schedule:
    """Return the schedule after its start was carried out, or refused for good."""
    outcome, replaced = (Outcome.STARTED, start.replaces) if refusal is None else (Outcome.REFUSED, ())
    reason, detail = (refusal.reason, refusal.detail) if refusal is not None else (None, "")
    run = start.run if refusal is None else None
    firing = Firing(due_ms=start.due_ms, at_ms=now_ms, outcome=outcome, run=run, reason=reason, detail=detail)
    return recorded(replace(schedule, start=None, active=tuple(run for run in schedule.active if run not in replaced)), firing)


def dropped(schedule: Schedule, start: Start, now_ms: int) -> Schedule:
    """Return the schedule without a start that it was paused before."""
    words = "the schedule was paused before the run could start"
    firing = _not_started(start.due_ms, now_ms, Outcome.SKIPPED, Reason.SCHEDULE_PAUSED, words)
    return recorded(replace(schedule, start=None), firing)


def paused(schedule: Schedule) -> Schedule:
    """Return the schedule paused; a firing that waits is dropped."""
    return replace(schedule, is_paused=True, queued_ms=None)


def is_worth_a_try(schedule: Schedule, start: Start, now_ms: int) -> bool:
    """Return whether a start that found the tenant's backlog full is tried again."""
    limit_ms = schedule.rules.starts_within_ms
    return now_ms <= (start.decided_ms + TRIED_MS_MAX if limit_ms is None else start.due_ms + limit_ms)


def run_of(schedule: Schedule, template: Template, run: RunId, *, due_ms: int, now_ms: int) -> RunRecord:
    """Return the run of a firing, with the label of its schedule, and with the time of the firing as a parameter if the graph takes it.

    Raises:
        SpecError: The stored template is damaged.
    """
    spec = at_time(load(template.spec), due_ms)
    return RunRecord(
        run=run,
        tenant=schedule.tenant,
        user=schedule.rules.user,
        labels={**spec.labels, LABEL: schedule.name},
        digest=digest(spec),
        spec=kept_form(spec),
        created_ms=now_ms,
        nodes=NodeTable(map(NodeId, spec.nodes)),
    )


def at_time(spec: DagSpec, due_ms: int) -> DagSpec:
    """Return the graph with the time of its firing, if it takes it."""
    if SCHEDULED_AT not in spec.params:
        return spec
    params = {**spec.params, SCHEDULED_AT: rfc3339(due_ms)}
    columns = replace(spec.columns, head={**spec.columns.head, "params": params})
    return replace(spec, head=spec.head.model_copy(update={"params": params}), columns=columns)


def in_turns(
    due: Iterable[tuple[TenantPath, str]], last: TenantPath | None, looked_at: Mapping[TenantPath, str] | None = None
) -> list[tuple[TenantPath, str]]:
    """Return the schedules one of each tenant after the other, from the tenant after `last` on.

    Args:
        looked_at: The schedule of each tenant that came last; the one after it in the tenant's list comes first.
    """
    by_tenant: dict[TenantPath, list[str]] = {}
    for tenant, name in due:
        by_tenant.setdefault(tenant, []).append(name)
    for tenant, name in (looked_at or {}).items():
        names = by_tenant.get(tenant, [])
        if name in names:
            first = names.index(name) + 1
            by_tenant[tenant] = names[first:] + names[:first]
    tenants = sorted(by_tenant, key=lambda tenant: (last is not None and tenant <= last, tenant))
    rounds = max(map(len, by_tenant.values()), default=0)
    return [(tenant, by_tenant[tenant][number]) for number in range(rounds) for tenant in tenants if number < len(by_tenant[tenant])]
