"""Starts what is due of all schedules. Only the elected coordinator calls it; two at once cost work, not safety, as for runs.

A controller carries out a start that another call has decided only after a write of its own, and creates the run only while this write is
the last one. So of two controllers that disagree, as after a pause, one alone carries out the start or drops it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import structlog

from dag.errors import BacklogFull, RunConflict, SpecError, UnknownRun
from dag.run.runs import RunStore, StaleSchedule
from dag.run.states import RUN_ENDS
from dag.schedules.firing import Refusal, carried_out, decide, dropped, in_turns, is_worth_a_try, paused, run_of
from dag.schedules.schedule import Schedule, ScheduleStore, Start, fence_of
from federation.errors import StoreUnavailable
from federation.quota.starts import Starts
from federation.quota.tenant_policies import PoliciesInForce
from federation.tenants import TenantTree
from mesh.core.clock import Clock
from mesh.core.ids import RunId, TenantPath
from mesh.core.reasons import Reason
from mesh.errors import MeshError

log = structlog.get_logger(__name__)

#: Schedules that one call reads as due; a tick reads all pages.
PAGE = 10_000
#: Time of one tick for schedules, so that runs advance too; the next tick goes on with the next tenant.
FIRING_MS_MAX = 500
#: Stops that refuse a firing. A tenant outside its windows is not stopped: its runs are accepted, and wait.
_STOPS = (Reason.TENANT_SUSPENDED, Reason.TENANT_DRAINED)


class ScheduleController:
    """Looks at schedules that are due. It keeps nothing but the tenant, and of each tenant the schedule, that came last."""

    def __init__(self, *, schedules: ScheduleStore, runs: RunStore, clock: Clock) -> None:
        self._schedules = schedules
        self._runs = runs
        self._clock = clock
        self._last: TenantPath | None = None
        self._looked_at: dict[TenantPath, str] = {}

    def tick(self, tree: TenantTree, tenant_policies: Callable[[], PoliciesInForce]) -> int:
        """Decide and start what is due; return the number of schedules that were looked at.

        Args:
            tenant_policies: Reads the policies in force; called only if a schedule is due.

        Raises:
            StoreUnavailable: Nothing is lost; call again.
        """
        due = self._due()
        if not due:
            return 0
        starts, until_ms = Starts(tree, tenant_policies()), self._clock.monotonic_ms() + FIRING_MS_MAX
        turns = in_turns(due, self._last, self._looked_at)
        tenants = {tenant for tenant, _ in due}
        self._looked_at = {tenant: name for tenant, name in self._looked_at.items() if tenant in tenants}
        for number, (tenant, name) in enumerate(turns, start=1):
            self._last, self._looked_at[tenant] = tenant, name
            try:
                self._look_at(tenant, name, starts)
            except StoreUnavailable:
                raise
            except MeshError as broken:  # One damaged record must not keep all other schedules from starting.
                log.error("a schedule cannot be read", tenant=tenant, schedule=name, error=str(broken))  # noqa: TRY400  no defect of this code
            if self._clock.monotonic_ms() >= until_ms:
                return number
        return len(due)

    def _due(self) -> list[tuple[TenantPath, str]]:
        now_ms, due = self._clock.wall_ms(), list[tuple[TenantPath, str]]()
        while page := self._schedules.due(now_ms, PAGE, skip=len(due)):
            due += page
            if len(page) < PAGE:
                break
        return due

    def _look_at(self, tenant: TenantPath, name: str, starts: Starts) -> None:
        schedule = self._schedules.load(tenant, name)
        if schedule is None:
            return
        if schedule.start is None:
            decided = decide(schedule, self._clock.wall_ms(), self._active(schedule), refusal_of(starts, tenant, self._clock.wall_ms()))
            if decided is schedule:
                return
            if not starts.tree.is_configured(tenant):  # A later tenant of this path may be another one.
                decided = paused(decided)
        else:
            decided = schedule  # A write without a change: no other controller creates this run any more under an earlier version.
        schedule = self._schedules.put(decided)
        if schedule is not None and schedule.start is not None:
            self._carry_out(schedule, schedule.start, refusal_of(starts, tenant, self._clock.wall_ms()))

    def _active(self, schedule: Schedule) -> tuple[RunId, ...]:
        summaries = self._runs.summaries(schedule.active)
        return tuple(known.run for known in summaries if known is not None and known.state not in RUN_ENDS)

    def _carry_out(self, schedule: Schedule, start: Start, stop: Refusal | None) -> None:
        """Create the run, cancel what it replaces, record the firing. Each step may be repeated.

        Args:
            stop: Why the tenant may start nothing now: a start may have waited for room since it was decided.
        """
        now_ms = self._clock.wall_ms()
        if schedule.is_paused and not self._is_created(schedule, start):
            self._schedules.put(dropped(schedule, start, now_ms))
            return
        try:
            refusal = self._create(schedule, start, now_ms, stop)
        except StaleSchedule:  # Another writer came first: the next tick sees what it wrote.
            return
        except BacklogFull as full:
            if is_worth_a_try(schedule, start, now_ms):
                self._cancel(schedule, start)  # The run waits for the room of what it replaces.
                return
            refusal = Refusal(reason=Reason.BACKLOG_FULL, detail=str(full))
        if refusal is None:
            self._cancel(schedule, start)
        else:
            log.warning("a schedule could not start", tenant=schedule.tenant, schedule=schedule.name, reason=refusal.reason.value)
        self._schedules.put(carried_out(schedule, start, now_ms, refusal))  # After another writer's change, the next tick repeats this.

    def _cancel(self, schedule: Schedule, start: Start) -> None:
        for run in start.replaces:
            with contextlib.suppress(UnknownRun):
                self._runs.request_cancel(run, f"schedule {schedule.name} starts {start.run} in its place")

    def _is_created(self, schedule: Schedule, start: Start) -> bool:
        known = self._runs.summary(start.run)
        return known is not None and known.tenant == schedule.tenant

    def _create(self, schedule: Schedule, start: Start, now_ms: int, stop: Refusal | None) -> Refusal | None:
        """Create the run, or find it; return why there can be none. Raises BacklogFull, StaleSchedule."""
        if self._is_created(schedule, start):
            return None  # Before a crash, perhaps from an earlier template.
        if stop is not None:
            return stop
        template = self._schedules.template(schedule.tenant, schedule.name)
        if template is None:
            return Refusal(reason=Reason.REQUEST_INVALID, detail="the schedule has no template; create it again")
        try:
            record = run_of(schedule, template, start.run, due_ms=start.due_ms, now_ms=now_ms)
            self._runs.create(record, dict(template.blobs), fence_of(schedule))
        except (RunConflict, SpecError) as refused:
            return Refusal(reason=Reason.REQUEST_INVALID, detail=str(refused))
        return None


def refusal_of(starts: Starts, tenant: TenantPath, now_ms: int) -> Refusal | None:
    """Return why the tenant may start nothing: it is removed, suspended or drained."""
    if not starts.tree.is_configured(tenant):
        words = f"there is no tenant {tenant}; add it to the federation file, or delete the schedule"
        return Refusal(reason=Reason.TENANT_UNKNOWN, detail=words)
    allowed = starts.allowed(tenant, "", now_ms)
    if allowed.gate is None or allowed.gate.reason not in _STOPS:
        return None
    return Refusal(reason=allowed.gate.reason, detail=allowed.detail)
