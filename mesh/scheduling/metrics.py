"""The figures, folded from what the scheduler hears and decides and from what agents report. Time is the events' own.

Percentiles are exact (nearest rank) over the window, of which at most `SAMPLES_MAX` samples per series are kept, the newest.
That, one entry per task that is not over and one per agent is all the memory there is: it does not grow with the number of
tasks that have passed.

A task's *wait* runs from when it could be placed to when it was bound. Its *latency* leaves out what it knowingly waited
for: it is the time to the first answer (bound, or told why it waits) and the time that deciding took. Else a full mesh would
look like a slow scheduler, and the tuner would turn the wrong screw.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.ids import AgentId, LabelName, PoolName, TaskId
from mesh.reasons import Reason
from mesh.scheduling.decisions import Decision, EndTask, ExplainWaiting, StartTask, StopTask
from mesh.scheduling.events import AgentLost, Event, GroupFailed, TaskEnded, TaskRefused, TaskStarted, TaskStopped, TaskSubmitted
from mesh.scheduling.figures import HIGH, HIGH_PRIORITY, STANDARD, TIERS, AgentReport, Figures

WINDOW_MS = 60_000
#: Of each series; beyond it the oldest goes, so a percentile then covers less than the window.
SAMPLES_MAX = 4_096
#: Agents that have ended are remembered, so that a report which comes late does not bring one back as a silent one.
GONE_MAX = 4_096
#: Beyond so many labels, those without a preemption in the last minute are forgotten.
LABELS_MAX = 256
_NO_USE: Mapping[PoolName, float] = {}


class Window:
    """Numbers of the last `width_ms`, at most `samples_max` of them."""

    def __init__(self, width_ms: int = WINDOW_MS, samples_max: int = SAMPLES_MAX) -> None:
        self._width_ms = width_ms
        self._samples: deque[tuple[int, float]] = deque(maxlen=samples_max)

    def add(self, at_ms: int, value: float = 1.0) -> None:
        """One more; times never go back."""
        self._samples.append((at_ms, value))

    def values(self, now_ms: int) -> list[float]:
        """What the window holds now, oldest first."""
        samples, since = self._samples, now_ms - self._width_ms
        while samples and samples[0][0] <= since:
            samples.popleft()
        return [value for _, value in samples]

    def percentile(self, now_ms: int, percent: float) -> float | None:
        """By nearest rank: a number that was seen; None of an empty window."""
        return percentile(self.values(now_ms), percent)


class MinuteCounter:
    """How often something has happened in the last minute: one number per second, whatever the rate."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()

    def add(self, at_ms: int, count: int = 1) -> None:
        """That often more; times never go back."""
        second = at_ms // 1000
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += count
        else:
            self._seconds.append([second, count])

    def total(self, now_ms: int) -> int:
        """Of the last sixty seconds, the one that runs among them."""
        while self._seconds and self._seconds[0][0] <= now_ms // 1000 - WINDOW_MS // 1000:
            self._seconds.popleft()
        return sum(count for _, count in self._seconds)


def percentile(values: Iterable[float], percent: float) -> float | None:
    """By nearest rank; None of nothing."""
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
    answered_ms: int | None = None  #: When somebody first heard of it what becomes of it.
    is_bound: bool = False
    agent: AgentId | None = None
    after: set[TaskId] = field(default_factory=set)  #: What it still comes after.


class MeshMetrics:
    """Writes nothing but itself; any replica that folds the same batches shows the same figures."""

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
        self._gone: dict[AgentId, None] = {}  #: The last of them, oldest first.
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
        """Take in what one call of the scheduler heard and decided.

        Args:
            took_ms: How long deciding and writing it down took; the caller has a clock, this has none.
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
        """An agent has told of itself. Calls, failures and retries are counted from where its last report left them."""
        if report.agent in self._gone:
            return
        before = self._reports.get(report.agent)
        self._reports[report.agent] = report
        self._heard_ms[report.agent] = max(report.at_ms, self._heard_ms.get(report.agent, 0))
        failures, retries = (before.failures, before.retries) if before is not None else (0, 0)
        # A process that was started again counts from zero.
        self._failures.add(report.at_ms, report.failures - failures if report.failures >= failures else report.failures)
        self._retries.add(report.at_ms, report.retries - retries if report.retries >= retries else report.retries)

    def forget(self, agent: AgentId) -> None:
        """The agent has ended; its silence is no gap."""
        self._reports.pop(agent, None)
        self._heard_ms.pop(agent, None)
        self._gone[agent] = None
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]

    def figures(self, now_ms: int, *, fragmentation: float | None = None, use: Mapping[PoolName, float] = _NO_USE) -> Figures:
        """The figures now.

        Args:
            fragmentation: The index of `mesh.policies.fragmentation` over the nodes' free room.
            use: Share of each pool's quota that is held, 0 to 1.
        """
        started, refused = self._started.total(now_ms), self._refused.total(now_ms)
        gaps = {agent: max(0, now_ms - heard) for agent, heard in self._heard_ms.items()}
        reports = self._reports.values()
        return Figures(
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
        """It goes back to the queue; a wait begins anew, the latency of its first answer was told."""
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
