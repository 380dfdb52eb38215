"""Scheduling metrics, computed from the scheduler's events and decisions and from agents' reports. Time comes from the events.

Percentiles are exact (nearest rank) over the window. Each series keeps the newest `SAMPLES_MAX` samples. Memory is these samples, one
entry per live task and one per agent; it does not grow with the number of past tasks.

A task's *wait* runs from placeable to bound. Its *latency* excludes time for which it knowingly waited: it is the time to the first
answer (bound, or the reason it waits) plus the time to decide. Otherwise a full mesh would look like a slow scheduler, and the tuner
would change the wrong setting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.core.ids import AgentId, LabelName, PoolName, TaskId
from mesh.core.reasons import Reason
from mesh.observability.metric_targets import HIGH, HIGH_PRIORITY, STANDARD, TIERS, AgentReport, MetricsSnapshot
from mesh.tasks.decisions import Decision, EndTask, ExplainWaiting, StartTask, StopTask
from mesh.tasks.events import AgentLost, Event, GroupFailed, TaskEnded, TaskRefused, TaskStarted, TaskStopped, TaskSubmitted

WINDOW_MS = 60_000
#: Per series; beyond it the oldest samples are dropped, and a percentile covers less than the window.
SAMPLES_MAX = 4_096
#: Ended agents are remembered, so that a late report does not register one again as silent.
GONE_MAX = 4_096
#: Above this many labels, those without a preemption in the last minute are dropped.
LABELS_MAX = 256
_NO_USE: Mapping[PoolName, float] = {}


class Window:
    """Samples of the last `width_ms`, at most `samples_max`."""

    def __init__(self, width_ms: int = WINDOW_MS, samples_max: int = SAMPLES_MAX) -> None:
        self._width_ms = width_ms
        self._samples: deque[tuple[int, float]] = deque(maxlen=samples_max)

    def add(self, at_ms: int, value: float = 1.0) -> None:
        """Add a sample; `at_ms` must not decrease."""
        self._samples.append((at_ms, value))

    def values(self, now_ms: int) -> list[float]:
        """Return the samples in the window, oldest first."""
        samples, since = self._samples, now_ms - self._width_ms
        while samples and samples[0][0] <= since:
            samples.popleft()
        return [value for _, value in samples]

    def percentile(self, now_ms: int, percent: float) -> float | None:
        """Return the percentile by nearest rank; None for an empty window."""
        return percentile(self.values(now_ms), percent)


class MinuteCounter:
    """Count of occurrences in the last minute: one number per second, whatever the rate."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()

    def add(self, at_ms: int, count: int = 1) -> None:
        """Add occurrences; `at_ms` must not decrease."""
        second = at_ms // 1000
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += count
        else:
            self._seconds.append([second, count])

    def total(self, now_ms: int) -> int:
        """Return the count of the last sixty seconds, including the current one."""
        while self._seconds and self._seconds[0][0] <= now_ms // 1000 - WINDOW_MS // 1000:
            self._seconds.popleft()
        return sum(count for _, count in self._seconds)


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Return the percentile by nearest rank; None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = -(-percent * len(ordered) // 100)
    return ordered[max(0, int(rank) - 1)]


@dataclass(slots=True)
class _Live:
    """A task that is not over."""

    label: LabelName
    tier: str
    submitted_ms: int
    placeable_ms: int
    answered_ms: int | None = None  #: When the first answer about the task was given.
    is_bound: bool = False
    agent: AgentId | None = None
    after: set[TaskId] = field(default_factory=set)  #: Open dependencies.


class MeshMetrics:
    """Metrics of one mesh. Replicas that fold the same batches report the same metrics."""

    def __init__(self) -> None:
        self._live: dict[TaskId, _Live] = {}
        self._waiting: dict[str, dict[TaskId, int]] = {tier: {} for tier in TIERS}
        self._readers: dict[TaskId, list[TaskId]] = {}
        self._latency = Window()
        self._waits = {tier: Window() for tier in TIERS}
        self._submitted, self._started, self._refused = MinuteCounter(), MinuteCounter(), MinuteCounter()
        self._failures, self._retries = MinuteCounter(), MinuteCounter()
        self._preempted: dict[LabelName, MinuteCounter] = {}
        self._reports: dict[AgentId, AgentReport] = {}
        self._heard_ms: dict[AgentId, int] = {}
        self._gone: dict[AgentId, None] = {}  #: Last ended agents, oldest first.
        self._hears: dict[type[Event], Callable[[Any], None]] = {
            TaskSubmitted: self._submit,
            TaskStarted: self._start,
            TaskRefused: self._refuse,
            GroupFailed: self._fail_group,
            TaskEnded: self._end,
            TaskStopped: self._stop,
            AgentLost: self._stop,
        }

    def fold(self, events: Iterable[Event], decisions: Iterable[Decision], *, took_ms: float = 0.0) -> None:
        """Process the events and decisions of one call of the scheduler.

        Args:
            took_ms: Time to decide and write the journal, measured by the caller.
        """
        at_ms = 0
        for event in events:
            at_ms = max(at_ms, event.at_ms)
            hear = self._hears.get(type(event))
            if hear is not None:
                hear(event)
        for decision in decisions:
            kind = type(decision)
            if kind is StartTask:
                self._bind(decision, at_ms, took_ms)  # type: ignore[arg-type]  # its type was just looked at
            elif kind is ExplainWaiting:
                self._explain(decision, at_ms)  # type: ignore[arg-type]  # the same
            elif kind is StopTask:
                self._order_stop(decision, at_ms)  # type: ignore[arg-type]  # the same
            elif kind is EndTask:
                self._forget_task(decision.task)  # type: ignore[attr-defined]  # the same

    def hear(self, report: AgentReport) -> None:
        """Process an agent's report. Its counters are added as differences from its last report."""
        if report.agent in self._gone:
            return
        before = self._reports.get(report.agent)
        self._reports[report.agent] = report
        self._heard_ms[report.agent] = max(report.at_ms, self._heard_ms.get(report.agent, 0))
        failures, retries = (before.failures, before.retries) if before is not None else (0, 0)
        # A restarted process counts from zero.
        self._failures.add(report.at_ms, report.failures - failures if report.failures >= failures else report.failures)
        self._retries.add(report.at_ms, report.retries - retries if report.retries >= retries else report.retries)

    def forget(self, agent: AgentId) -> None:
        """Drop an ended agent; its silence is no gap."""
        self._reports.pop(agent, None)
        self._heard_ms.pop(agent, None)
        self._gone[agent] = None
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]

    def snapshot(self, now_ms: int, *, fragmentation: float | None = None, use: Mapping[PoolName, float] = _NO_USE) -> MetricsSnapshot:
        """Return the current metrics.

        Args:
            fragmentation: Index of `mesh.policies.fragmentation` over the nodes' free resources.
            use: Share of each pool's quota that is held, 0 to 1.
        """
        started, refused = self._started.total(now_ms), self._refused.total(now_ms)
        gaps = {agent: max(0, now_ms - heard) for agent, heard in self._heard_ms.items()}
        reports = self._reports.values()
        return MetricsSnapshot(
            at_ms=now_ms,
            schedule_latency_p95_ms=self._latency.percentile(now_ms, 95),
            queue_wait_time_p99_ms={tier: window.percentile(now_ms, 99) for tier, window in self._waits.items()},
            placement_success_rate=started / (started + refused) if started + refused else None,
            preemption_count=self._count_preemptions(now_ms),
            resource_fragmentation=fragmentation,
            agent_heartbeat_gap_ms=max(gaps.values(), default=None),
            gaps_ms=gaps,
            waiting={tier: len(tasks) for tier, tasks in self._waiting.items()},
            waiting_longest_ms={tier: max(0, now_ms - min(tasks.values(), default=now_ms)) for tier, tasks in self._waiting.items()},
            running=sum(1 for live in self._live.values() if live.is_bound),
            submitted_per_min=self._submitted.total(now_ms),
            use=dict(use),
            agents=len(self._reports),
            cpu=sum(report.cpu for report in reports),
            rss_bytes=sum(report.rss_bytes for report in reports),
            queue_length=sum(report.queue_length for report in reports),
            queue_ms_max=max((report.queue_ms_max for report in reports), default=0.0),
            failures_per_min=self._failures.total(now_ms),
            retries_per_min=self._retries.total(now_ms),
        )

    def _count_preemptions(self, now_ms: int) -> dict[LabelName, int]:
        counts = {label: counter.total(now_ms) for label, counter in self._preempted.items()}
        if len(counts) > LABELS_MAX:
            self._preempted = {label: counter for label, counter in self._preempted.items() if counts[label]}
        return counts

    # -- events --------------------------------------------------------------------------------------------------------

    def _submit(self, event: TaskSubmitted) -> None:
        request = event.request
        if request.task in self._live:
            return
        tier = HIGH if request.priority >= HIGH_PRIORITY else STANDARD
        after = {task for task in request.after if task in self._live}
        self._live[request.task] = _Live(request.label, tier, event.at_ms, event.at_ms, after=after)
        for task in after:
            self._readers.setdefault(task, []).append(request.task)
        if not after:
            self._waiting[tier][request.task] = event.at_ms
        self._submitted.add(event.at_ms)

    def _start(self, event: TaskStarted) -> None:
        self._started.add(event.at_ms)
        self._gone.pop(event.agent, None)
        self._heard_ms.setdefault(event.agent, event.at_ms)

    def _refuse(self, event: TaskRefused) -> None:
        self._refused.add(event.at_ms)
        self._wait_again(event.task, event.at_ms)

    def _fail_group(self, event: GroupFailed) -> None:
        self._refused.add(event.at_ms)

    def _end(self, event: TaskEnded) -> None:
        live = self._live.get(event.task)
        if live is not None and live.agent is not None and not event.keep_agent:
            self.forget(live.agent)
        for reader in self._readers.pop(event.task, ()) if not event.error else ():
            self._let_go(reader, event.task, event.at_ms)

    def _stop(self, event: TaskStopped | AgentLost) -> None:
        live = self._live.get(event.task)
        if live is not None and live.agent is not None:
            self.forget(live.agent)
        self._wait_again(event.task, event.at_ms)

    def _let_go(self, reader: TaskId, ended: TaskId, at_ms: int) -> None:
        live = self._live.get(reader)
        if live is None:
            return
        live.after.discard(ended)
        if not live.after:
            live.placeable_ms = at_ms
            if live.answered_ms is None:
                live.submitted_ms = at_ms
            self._waiting[live.tier][reader] = at_ms

    def _wait_again(self, task: TaskId, at_ms: int) -> None:
        """Start a new wait for a task that is queued again; its latency was measured at its first answer."""
        live = self._live.get(task)
        if live is not None and live.is_bound:
            live.is_bound, live.agent, live.placeable_ms = False, None, at_ms
            self._waiting[live.tier][task] = at_ms

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _bind(self, decision: StartTask, at_ms: int, took_ms: float) -> None:
        live = self._live.get(decision.task)
        if live is None or live.is_bound:
            return
        answered_ms = at_ms if live.answered_ms is None else live.answered_ms
        self._latency.add(at_ms, answered_ms - live.submitted_ms + took_ms)
        self._waits[live.tier].add(at_ms, at_ms - live.placeable_ms + took_ms)
        live.is_bound, live.agent, live.answered_ms, live.submitted_ms = True, decision.agent, at_ms, at_ms
        self._waiting[live.tier].pop(decision.task, None)

    def _explain(self, decision: ExplainWaiting, at_ms: int) -> None:
        live = self._live.get(decision.task)
        if live is not None and live.answered_ms is None:
            live.answered_ms = at_ms

    def _order_stop(self, decision: StopTask, at_ms: int) -> None:
        live = self._live.get(decision.task)
        if live is not None and decision.reason is Reason.PREEMPTED:
            self._preempted.setdefault(live.label, MinuteCounter()).add(at_ms)

    def _forget_task(self, task: TaskId) -> None:
        live = self._live.pop(task, None)
        if live is not None:
            self._waiting[live.tier].pop(task, None)
        self._readers.pop(task, None)
