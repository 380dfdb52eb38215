"""The six metrics of a mesh's scheduling, with their targets.

schedule_latency_p95        ms   submitted to bound, less the time spent waiting for capacity or inputs   at most 200
queue_wait_time_p99{tier}   ms   placeable to bound, by tier: high (priority 8.0 and more), standard     at most 1 000, 10 000
placement_success_rate           successful starts of all attempted in the last minute                  at least 0.99
preemption_count{label}          tasks of the label preempted in the last minute                        at most the configured limit
resource_fragmentation           index of `mesh.policies.fragmentation`, 0 to 1                         25 % below the baseline
agent_heartbeat_gap         ms   the longest silence of an agent                                        at most 15 000
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesh.core.ids import AgentId, LabelName, PoolName

HIGH, STANDARD = "high", "standard"
TIERS = (HIGH, STANDARD)
HIGH_PRIORITY = 8.0  #: Base priority from which a task is in tier `high`.
#: Default period of agents' reports.
METRICS_PERIOD_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """Metrics of an agent, pushed once per metrics period. Counters only grow while its process lives."""

    agent: AgentId
    at_ms: int  #: On the receiver's clock, since clocks of machines differ.
    cpu: float = 0.0  #: Cores in use, averaged since the last report.
    rss_bytes: int = 0
    queue_length: int = 0  #: Calls that wait or run.
    calls: int = 0
    failures: int = 0
    retries: int = 0
    queue_ms_max: float = 0.0  #: Longest wait of a call since the last report.


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """Scheduling metrics of a mesh at one moment. None: nothing was observed yet."""

    at_ms: int
    schedule_latency_p95_ms: float | None = None
    queue_wait_time_p99_ms: Mapping[str, float | None] = field(default_factory=dict)  #: By tier.
    placement_success_rate: float | None = None
    preemption_count: Mapping[LabelName, int] = field(default_factory=dict)
    resource_fragmentation: float | None = None
    agent_heartbeat_gap_ms: int | None = None
    gaps_ms: Mapping[AgentId, int] = field(default_factory=dict)  #: Time since each agent's last report.
    waiting: Mapping[str, int] = field(default_factory=dict)  #: Tasks that wait for capacity, by tier.
    waiting_longest_ms: Mapping[str, int] = field(default_factory=dict)  #: Longest wait so far, by tier.
    running: int = 0
    submitted_per_min: int = 0
    use: Mapping[PoolName, float] = field(default_factory=dict)  #: Share of each pool's quota that is held, 0 to 1.
    agents: int = 0  #: Number of agents that have reported.
    cpu: float = 0.0  #: Cores in use by all agents.
    rss_bytes: int = 0
    queue_length: int = 0  #: Calls that wait at all agents.
    queue_ms_max: float = 0.0
    failures_per_min: int = 0  #: Failed calls on all agents.
    retries_per_min: int = 0

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        """Yield the known ones of the six metrics as `(name, tag, value)`."""
        for name, value in (
            ("schedule_latency_p95", self.schedule_latency_p95_ms),
            ("placement_success_rate", self.placement_success_rate),
            ("resource_fragmentation", self.resource_fragmentation),
            ("agent_heartbeat_gap", self.agent_heartbeat_gap_ms),
        ):
            if value is not None:
                yield name, "", float(value)
        for tier, wait in self.queue_wait_time_p99_ms.items():
            if wait is not None:
                yield "queue_wait_time_p99", tier, wait
        for label, count in self.preemption_count.items():
            yield "preemption_count", label, float(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Targets of the six metrics."""

    schedule_latency_p95_ms: float = 200.0
    queue_wait_time_p99_ms: Mapping[str, float] = field(default_factory=lambda: {HIGH: 1_000.0, STANDARD: 10_000.0})
    placement_success_rate: float = 0.99
    preemptions_per_min: int | None = None  #: Limit per label; None: no limit.
    fragmentation_baseline: float | None = None  #: None: no target for fragmentation.
    fragmentation_reduction: float = 0.25
    agent_heartbeat_gap_ms: int = 3 * METRICS_PERIOD_MS

    def of(self, name: str, tag: str) -> float | None:
        """Return the bound of one metric, or None if it has none."""
        if name == "queue_wait_time_p99":
            return self.queue_wait_time_p99_ms.get(tag)
        if name == "resource_fragmentation":
            baseline = self.fragmentation_baseline
            return None if baseline is None else baseline * (1.0 - self.fragmentation_reduction)
        bounds: dict[str, float | None] = {
            "schedule_latency_p95": self.schedule_latency_p95_ms,
            "placement_success_rate": self.placement_success_rate,
            "preemption_count": self.preemptions_per_min,
            "agent_heartbeat_gap": self.agent_heartbeat_gap_ms,
        }
        return bounds[name]


class TargetStatus(str, Enum):
    MET = "met"
    MISSED = "missed"
    NO_TARGET = "no target"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCheck:
    """Metric beside its target."""

    name: str  #: Metric name, as in `queue_wait_time_p99`.
    tag: str  #: Tier or label; empty where the metric has none.
    value: float
    target: float | None
    status: TargetStatus


def check_targets(metrics: MetricsSnapshot, targets: Targets) -> tuple[TargetCheck, ...]:
    """Return each known metric with its target and whether the target is met."""
    return tuple(_check(name, tag, value, targets.of(name, tag)) for name, tag, value in metrics.numbers())


def _check(name: str, tag: str, value: float, target: float | None) -> TargetCheck:
    if target is None:
        status = TargetStatus.NO_TARGET
    else:
        is_met = value >= target if name == "placement_success_rate" else value <= target
        status = TargetStatus.MET if is_met else TargetStatus.MISSED
    return TargetCheck(name=name, tag=tag, value=value, target=target, status=status)
