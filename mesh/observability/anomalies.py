"""Anomaly detection: metrics that leave their usual band, and agents that stop reporting.

The band is the median of the last values plus or minus five times their median absolute deviation (MAD). The MAD is scaled by 1.4826 to
be comparable with a standard deviation. Each metric has a minimum width, since a constant metric has no deviation. Medians are used
because outliers must not widen the band that detects them. Only the bad side counts. A level that lasts longer than half the window
becomes usual; the metric's target still says whether it is good.

An anomaly seen twice in a row is an alarm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from mesh.observability.metric_targets import MetricsSnapshot, Targets

LOOKED_BACK = 60  #: Values per series: five minutes at one value per five seconds.
LOOKED_BACK_MIN = 12
BAND_WIDTH = 5.0
ALARM_AFTER = 2  #: Consecutive observations.
_TO_STANDARD_DEVIATION = 1.4826

#: Smallest half-width of each metric's band, in the metric's unit.
FLOORS = {
    "schedule_latency_p95": 20.0,
    "queue_wait_time_p99": 500.0,
    "placement_success_rate": 0.01,
    "preemption_count": 3.0,
    "resource_fragmentation": 0.05,
    "failures_per_min": 5.0,
    "retries_per_min": 5.0,
    "agent_queue_ms_max": 500.0,
}
_BETTER_HIGH = frozenset({"placement_success_rate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """Metric that is outside its usual band now."""

    name: str
    tag: str  #: Tier, label or agent.
    value: float
    bound: float  #: Edge of the band that `value` crossed.
    times: int  #: Consecutive observations.
    words: str

    @property
    def is_alarm(self) -> bool:
        """Whether the anomaly was seen at least `ALARM_AFTER` times in a row."""
        return self.times >= ALARM_AFTER


class AnomalyWatch:
    """Detector that keeps the last `LOOKED_BACK` values of each series. Feed it each set of metrics once, in order."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._series: dict[tuple[str, str], deque[float]] = {}
        self._streaks: dict[tuple[str, str], int] = {}

    def look(self, metrics: MetricsSnapshot) -> tuple[Anomaly, ...]:
        """Return the anomalies in these metrics; silent agents come first."""
        found = {(name, tag): (value, bound, words) for name, tag, value, bound, words in self._unusual(metrics)}
        self._streaks = {key: self._streaks.get(key, 0) + 1 for key in found}
        return tuple(
            Anomaly(name=name, tag=tag, value=value, bound=bound, times=self._streaks[name, tag], words=words)
            for (name, tag), (value, bound, words) in found.items()
        )

    def _unusual(self, metrics: MetricsSnapshot) -> Iterator[tuple[str, str, float, float, str]]:
        gap_max_ms = self._targets.agent_heartbeat_gap_ms
        for agent, gap_ms in metrics.gaps_ms.items():
            if gap_ms > gap_max_ms:
                yield "agent_heartbeat_gap", agent, gap_ms, gap_max_ms, f"agent {agent} has not reported for {gap_ms} ms"
        for name, tag, value in _watched(metrics):
            kept = self._series.setdefault((name, tag), deque(maxlen=LOOKED_BACK))
            bound = _bound(name, kept)
            kept.append(value)
            if bound is not None and (value < bound if name in _BETTER_HIGH else value > bound):
                shown, side = f"{name}{{{tag}}}" if tag else name, "down" if name in _BETTER_HIGH else "up"
                yield name, tag, value, bound, f"{shown} is {value:g}; its recent values say {side} to {bound:g}"


def _watched(metrics: MetricsSnapshot) -> Iterator[tuple[str, str, float]]:
    for name, tag, value in metrics.numbers():
        if name in FLOORS:
            yield name, tag, value
    if metrics.agents:
        yield "failures_per_min", "", metrics.failures_per_min
        yield "retries_per_min", "", metrics.retries_per_min
        yield "agent_queue_ms_max", "", metrics.queue_ms_max


def _bound(name: str, kept: Sequence[float]) -> float | None:
    if len(kept) < LOOKED_BACK_MIN:
        return None
    middle = median(kept)
    deviation = median(abs(value - middle) for value in kept) * _TO_STANDARD_DEVIATION
    width = max(BAND_WIDTH * deviation, FLOORS[name])
    return middle - width if name in _BETTER_HIGH else middle + width
