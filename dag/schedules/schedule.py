"""The record of a schedule, and the port of the store that keeps it.

Gateways and the coordinator change schedules. Each change compares the version that it started from, so of two writers one succeeds and
the other reads the schedule again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from dag.run.runs import ScheduleFence
from mesh.core.counting import counted
from mesh.core.ids import RunId, TenantPath
from mesh.core.reasons import Reason

#: Names of schedules: a part of ids of runs, and the value of a label.
NAME_CHARS_MAX = 63
NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{NAME_CHARS_MAX - 1}}}")
NAME_RULE = f"1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -, the first a letter, digit or _"


class Overlap(str, Enum):
    """Rule for a firing while an earlier run of the schedule goes on."""

    SKIP = "skip"  #: Starts nothing.
    QUEUE = "queue"  #: Waits for the end of all earlier runs; one firing waits at most.
    REPLACE = "replace"  #: Cancels the earlier runs and starts.
    ALLOW = "allow"  #: Starts beside them.


class Outcome(str, Enum):
    """Outcome of a firing."""

    STARTED = "STARTED"
    SKIPPED = "SKIPPED"  #: By the overlap rule.
    MISSED = "MISSED"  #: It could not start within the time that the schedule gives.
    REFUSED = "REFUSED"  #: The federation accepts no run of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a schedule starts what; a user sets all of it."""

    cron: str
    timezone: str = "UTC"
    overlap: Overlap = Overlap.SKIP
    starts_within_ms: int | None = None  #: Longest delay of a firing; None: no limit.
    user: str = ""  #: User of the runs.
    digest: str  #: SHA-256 of the template.


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A decision to start a run, written before anything is done."""

    due_ms: int
    decided_ms: int
    run: RunId
    replaces: tuple[RunId, ...] = ()  #: Earlier runs to cancel.


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A firing that was decided."""

    due_ms: int
    at_ms: int
    outcome: Outcome
    run: RunId | None = None
    is_triggered: bool = False  #: By a user, not by the cron expression.
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule and its state."""

    tenant: TenantPath
    name: str
    uid: str  #: Differs from that of a deleted schedule with the same name, so that ids of runs differ too.
    rules: Rules
    created_ms: int
    version: int = 0  #: Number of changes that are stored.
    is_paused: bool = False
    cursor_ms: int  #: Times until and with this one are decided; never moves back.
    next_ms: int | None = None  #: First time after the cursor.
    queued_ms: int | None = None  #: Time of the firing that waits for the end of earlier runs.
    start: Start | None = None  #: The decision that is being carried out.
    active: tuple[RunId, ...] = ()  #: Runs that had not ended at the last decision, oldest first.
    firings: tuple[Firing, ...] = ()  #: The last ones, newest first.

    @property
    def wake_ms(self) -> int | None:
        """When the schedule needs a look, milliseconds since the epoch; None: never, as it is."""
        if self.start is not None:
            return 0  # Also when the clock leaps back to a time before the decision.
        if self.is_paused:
            return None
        return self.next_ms if self.queued_ms is None else self.queued_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """Graph and code of each run of a schedule."""

    spec: bytes  #: The graph as `dag.spec.spec.kept_form` returns it.
    blobs: Mapping[str, bytes]  #: Bytes by their SHA-256.

    @property
    def size_bytes(self) -> int:
        """Bytes that count against the tenant's limit."""
        return len(self.spec) + sum(map(len, self.blobs.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLimits:
    """Limits of each tenant, without the tenants below it."""

    schedules_max: int = 100
    bytes_max: int = 64 * 2**20  #: Bytes of all templates.


SCHEDULE_LIMITS = ScheduleLimits()


class ScheduleStore(Protocol):
    """Port of the store for schedules. All methods raise StoreUnavailable."""

    def put(self, schedule: Schedule, template: Template | None = None) -> Schedule | None:
        """Write the schedule if the stored version is still its own (0: none is stored), and return it with the next version.

        Return None, and write nothing, if another writer came first.

        Args:
            template: None: the stored template stays.

        Raises:
            TooManySchedules: A new schedule, or the template, exceeds a limit of the tenant.
        """

    def load(self, tenant: TenantPath, name: str) -> Schedule | None:
        """Return the schedule."""

    def template(self, tenant: TenantPath, name: str) -> Template | None:
        """Return the template of the schedule."""

    def list(self, within: TenantPath | None, after: str = "", limit: int = 100) -> tuple[Schedule, ...]:
        """Return schedules in the order of their places, `tenant|name`. Fewer than `limit` are the end of the list.

        Args:
            within: Only of this tenant and the tenants below it; None: of all.
            after: Only those after this place.
        """

    def due(self, now_ms: int, limit: int, *, skip: int = 0) -> tuple[tuple[TenantPath, str], ...]:
        """Return tenant and name of schedules that need a look, the longest overdue first.

        Args:
            skip: Leaves out the first ones, to read long lists page by page.
        """

    def drop(self, tenant: TenantPath, name: str) -> bool:
        """Remove the schedule with its template; False if there is none. Its runs stay."""


def fence_of(schedule: Schedule) -> ScheduleFence:
    """Return the fence of a run that is created only while this version of the schedule is stored."""
    return ScheduleFence(place_of(schedule.tenant, schedule.name), schedule.version)


def place_of(tenant: TenantPath, name: str) -> str:
    """Return the place of a schedule in lists. Neither part has a `|`."""
    return f"{tenant}|{name}"


def parted(place: str) -> tuple[TenantPath, str]:
    """Return tenant and name of a place."""
    tenant, _, name = place.rpartition("|")
    return TenantPath(tenant), name


def words_when_full(limits: ScheduleLimits, tenant: str, *, schedules: int, size_bytes: int) -> str | None:
    """Return a message about the limit that these numbers exceed, with its configuration key; None if none."""
    if schedules > limits.schedules_max:
        return f"{tenant} has as many schedules as it may have (dispatch.schedules_max: {limits.schedules_max}); delete one first"
    if size_bytes > limits.bytes_max:
        words = f"the templates of {tenant} would have {counted(size_bytes, 'byte')} together"
        return f"{words}, above the limit (dispatch.schedule_bytes_max: {limits.bytes_max}); send less, or delete a schedule"
    return None
