"""Scheduling metrics of stages, by tenant and tier: those of a local mesh (`mesh.observability.metric_targets`) for a federation.

schedule_latency_p95      ms   sent to started, or to the first reason why it waits
queue_wait_time_p99       ms   sent to started
stage_run_time_p95        ms   started to ended, of stages that were not stopped
placement_success_rate         starts of all that were tried; a stage that is lost before its start is one that failed
preemption_count               stages that were preempted

All are of the last minute. The tenant stands for the label of a task. A stage has the tier of its most urgent node.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mesh.core.ids import TenantPath
from mesh.observability.metric_targets import HIGH, HIGH_PRIORITY, STANDARD
from mesh.observability.metrics import WINDOW_MS, MinuteCounter, Window

#: Pairs of tenant and tier that are reported: those with the most stages.
GROUPS_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantMetrics:
    """Metrics of a tenant's stages of one tier. None: nothing was observed in the last minute."""

    tenant: TenantPath
    tier: str
    schedule_latency_p95_ms: float | None = None
    queue_wait_time_p99_ms: float | None = None
    stage_run_time_p95_ms: float | None = None
    started: int = 0
    failed_starts: int = 0
    preempted: int = 0

    @property
    def placement_success_rate(self) -> float | None:
        """Share of successful starts; None: none was tried."""
        tried = self.started + self.failed_starts
        return self.started / tried if tried else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMetrics:
    """Metrics of all stages at one moment."""

    at_ms: int = 0
    tenants: tuple[TenantMetrics, ...] = ()

    def is_recent(self, now_ms: int) -> bool:
        """Return whether the metrics still describe the last minute; else nobody has observed for longer."""
        return now_ms - self.at_ms < WINDOW_MS


def tier_of(priority: int) -> str:
    """Return the tier of a priority."""
    return HIGH if priority >= HIGH_PRIORITY else STANDARD


@dataclass(slots=True)
class _Group:
    latency: Window = field(default_factory=Window)
    wait: Window = field(default_factory=Window)
    run: Window = field(default_factory=Window)
    started: MinuteCounter = field(default_factory=MinuteCounter)
    failed_starts: MinuteCounter = field(default_factory=MinuteCounter)
    preempted: MinuteCounter = field(default_factory=MinuteCounter)

    def metrics(self, tenant: TenantPath, tier: str, now_ms: int) -> TenantMetrics:
        return TenantMetrics(
            tenant=tenant,
            tier=tier,
            schedule_latency_p95_ms=self.latency.percentile(now_ms, 95),
            queue_wait_time_p99_ms=self.wait.percentile(now_ms, 99),
            stage_run_time_p95_ms=self.run.percentile(now_ms, 95),
            started=self.started.total(now_ms),
            failed_starts=self.failed_starts.total(now_ms),
            preempted=self.preempted.total(now_ms),
        )


class StageObservations:
    """Observations of the last minute. Times are milliseconds since the epoch, and may not decrease."""

    def __init__(self) -> None:
        self._groups: dict[tuple[TenantPath, str], _Group] = {}

    def answer(self, tenant: TenantPath, tier: str, at_ms: int, latency_ms: int) -> None:
        """Count the first answer about a stage: it has started, or waits for a reason."""
        self._of(tenant, tier).latency.add(at_ms, max(0, latency_ms))

    def start(self, tenant: TenantPath, tier: str, at_ms: int, wait_ms: int) -> None:
        """Count a stage that has started."""
        group = self._of(tenant, tier)
        group.wait.add(at_ms, max(0, wait_ms))
        group.started.add(at_ms)

    def fail_start(self, tenant: TenantPath, tier: str, at_ms: int) -> None:
        """Count a stage that was lost before it had started."""
        self._of(tenant, tier).failed_starts.add(at_ms)

    def preempt(self, tenant: TenantPath, tier: str, at_ms: int) -> None:
        """Count a stage that was preempted."""
        self._of(tenant, tier).preempted.add(at_ms)

    def end(self, tenant: TenantPath, tier: str, at_ms: int, run_ms: int) -> None:
        """Count a stage that has ended in good order."""
        self._of(tenant, tier).run.add(at_ms, max(0, run_ms))

    def metrics(self, now_ms: int, at_ms: int) -> StageMetrics:
        """Return the metrics of the last minute, and forget tenants without any.

        Args:
            now_ms: On the clock of the observations.
            at_ms: The same moment on the clock of the readers.
        """
        every = {key: group.metrics(*key, now_ms) for key, group in self._groups.items()}
        kept = {key: one for key, one in every.items() if one != TenantMetrics(tenant=key[0], tier=key[1])}
        self._groups = {key: self._groups[key] for key in kept}
        busiest = sorted(kept.values(), key=lambda one: (-one.started, one.tenant, one.tier))[:GROUPS_MAX]
        return StageMetrics(at_ms=at_ms, tenants=tuple(sorted(busiest, key=lambda one: (one.tenant, one.tier))))

    def _of(self, tenant: TenantPath, tier: str) -> _Group:
        return self._groups.setdefault((tenant, tier), _Group())
