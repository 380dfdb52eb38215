"""Schedules in this process: for tests, simulation, and a federation of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dag.errors import TooManySchedules
from dag.run.runs import ScheduleFence
from dag.schedules.schedule import SCHEDULE_LIMITS, Schedule, ScheduleLimits, Template, parted, place_of, words_when_full
from dag.store.memory import MemoryRunStore
from dag.store.rows import reach_of
from mesh.core.ids import TenantPath


class MemoryScheduleStore:
    """`ScheduleStore` in this process; thread-safe.

    Args:
        limits: Limits of each tenant.
        runs: Store whose runs are fenced by versions of these schedules.
    """

    def __init__(self, limits: ScheduleLimits = SCHEDULE_LIMITS, runs: MemoryRunStore | None = None) -> None:
        self._limits = limits
        self._guard = threading.Lock()
        self._kept: dict[str, tuple[Schedule, Template]] = {}
        if runs is not None:
            runs.fence_by(self._held)

    @contextmanager
    def _held(self, fence: ScheduleFence) -> Iterator[bool]:
        """Return whether the schedule has this version, which it keeps until the end of the block."""
        with self._guard:
            known = self._kept.get(fence.place)
            yield known is not None and known[0].version == fence.version

    def put(self, schedule: Schedule, template: Template | None = None) -> Schedule | None:
        place = place_of(schedule.tenant, schedule.name)
        with self._guard:
            known = self._kept.get(place)
            if schedule.version != (known[0].version if known is not None else 0):
                return None
            if template is not None and (known is None or template.size_bytes > known[1].size_bytes):
                others = [kept for at, (of, kept) in self._kept.items() if of.tenant == schedule.tenant and at != place]
                size_bytes = sum(kept.size_bytes for kept in others) + template.size_bytes
                words = words_when_full(self._limits, schedule.tenant, schedules=len(others) + 1, size_bytes=size_bytes)
                if words is not None:
                    raise TooManySchedules(words)
            stored = replace(schedule, version=schedule.version + 1)
            kept = template if template is not None else known[1] if known is not None else Template(spec=b"", blobs={})
            self._kept[place] = (stored, kept)
            return stored

    def load(self, tenant: TenantPath, name: str) -> Schedule | None:
        with self._guard:
            known = self._kept.get(place_of(tenant, name))
        return known[0] if known is not None else None

    def template(self, tenant: TenantPath, name: str) -> Template | None:
        with self._guard:
            known = self._kept.get(place_of(tenant, name))
        return known[1] if known is not None else None

    def list(self, within: TenantPath | None, after: str = "", limit: int = 100) -> tuple[Schedule, ...]:
        with self._guard:
            places = sorted(place for place in self._kept if place > after)
            listed = [self._kept[place][0] for place in places]
        return tuple([schedule for schedule in listed if within is None or within in reach_of(schedule.tenant)][:limit])

    def due(self, now_ms: int, limit: int, *, skip: int = 0) -> tuple[tuple[TenantPath, str], ...]:
        with self._guard:
            waking = [(schedule.wake_ms, place) for place, (schedule, _) in self._kept.items()]
        due = sorted((wake_ms, place) for wake_ms, place in waking if wake_ms is not None and wake_ms <= now_ms)
        return tuple(parted(place) for _, place in due[skip : skip + limit])

    def drop(self, tenant: TenantPath, name: str) -> bool:
        with self._guard:
            return self._kept.pop(place_of(tenant, name), None) is not None
