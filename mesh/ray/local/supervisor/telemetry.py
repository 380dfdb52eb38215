"""Telemetry of one mesh: metrics for Prometheus, a trace per task, and a log line per alarm.

Metrics are gauges, read at the scrape from the last values of the supervisor; nothing is counted along the way. A task's trace
is sent when it is over: a span from submission to end, and in it per attempt `placing`, `starting` and `running`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue
from prometheus_client import CollectorRegistry, generate_latest

from mesh.core.ids import MeshId
from mesh.core.reasons import Reason
from mesh.observability.anomalies import Anomaly
from mesh.observability.metric_targets import MetricsSnapshot, TargetCheck, TargetStatus
from mesh.observability.task_history import AttemptHistory, TaskHistory
from mesh.ray.tracing import NS_PER_MS, IdsOfName, end_ns, tracer_provider

log = structlog.get_logger(__name__)

#: Reasons of a normal end; other ends mark the span as an error.
_WELL = frozenset({Reason.FINISHED, Reason.CANCELLED_BY_USER})


class MeshTelemetry:
    """The telemetry of one mesh, in a registry of its own.

    Args:
        epoch_ms: Offset from the mesh's milliseconds to those since 1970.
        otlp_endpoint: For example `http://collector:4318`; None: no traces are sent.
        traces_file: File for JSON lines, one span each, appended; None: not written.
    """

    def __init__(self, mesh: MeshId, *, epoch_ms: int = 0, otlp_endpoint: str | None = None, traces_file: str | None = None) -> None:
        self._mesh = mesh
        self._epoch_ms = epoch_ms
        self._metrics: MetricsSnapshot | None = None
        self._checks: tuple[TargetCheck, ...] = ()
        self._alarmed: frozenset[tuple[str, str]] = frozenset()
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=self._registry)
        self._meters = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
        meter = self._meters.get_meter("schedulemesh")
        for name, unit, description, observe in _GAUGES:
            meter.create_observable_gauge(name, callbacks=[self._observer(observe)], unit=unit, description=description)
        meter.create_observable_gauge(
            "schedulemesh_target_missed", callbacks=[self._targets], description="1 while the metric misses its target."
        )
        self.traces = otlp_endpoint is not None or traces_file is not None  #: Whether traces are recorded.
        self._ids = IdsOfName()
        self._spans = tracer_provider(self._ids, otlp_endpoint=otlp_endpoint, traces_file=traces_file)
        self._tracer = self._spans.get_tracer("schedulemesh")

    def show(self, metrics: MetricsSnapshot, checks: Sequence[TargetCheck] = (), anomalies: Iterable[Anomaly] = ()) -> None:
        """Set the values of the next scrapes; log alarms once when they begin, and once when they are over."""
        self._metrics, self._checks = metrics, tuple(checks)
        alarms = {(one.name, one.tag): one for one in anomalies if one.is_alarm}
        for key, one in alarms.items():
            if key not in self._alarmed:
                log.warning("alarm", metric=one.name, mesh=self._mesh, of=one.tag, value=one.value, bound=one.bound, detail=one.words)
        for name, tag in sorted(self._alarmed - alarms.keys()):
            log.info("alarm_over", metric=name, mesh=self._mesh, of=tag)
        self._alarmed = frozenset(alarms)

    def scrape(self) -> bytes:
        """Return the metrics in Prometheus' format; none before `show` was called."""
        return generate_latest(self._registry)

    def trace_task(self, task_history: TaskHistory) -> None:
        """Send the trace of an ended task, in the background."""
        if not self.traces:
            return
        request = task_history.request
        self._ids.begin(f"{self._mesh}:{request.task}:{task_history.submitted_ms}")
        attributes: dict[str, AttributeValue] = {
            "schedulemesh.mesh": self._mesh,
            "schedulemesh.task": request.task,
            "schedulemesh.pool": request.pool,
            "schedulemesh.label": request.label,
            "schedulemesh.tenant": request.tenant,
            "schedulemesh.priority": request.priority,
            "schedulemesh.attempts": len(task_history.attempts),
            "schedulemesh.reason": task_history.reason.value if task_history.reason is not None else "",
        }
        task = self._tracer.start_span("task", Context(), attributes=attributes, start_time=self._ns(task_history.submitted_ms))
        for at_ms, reason in task_history.waits:
            task.add_event("waits", {"schedulemesh.reason": reason.value}, timestamp=self._ns(at_ms))
        if task_history.reason not in _WELL:
            task.set_status(Status(StatusCode.ERROR, task_history.detail))
        above, placeable_ms = trace.set_span_in_context(task), task_history.submitted_ms
        for attempt in task_history.attempts:
            self._trace_attempt(attempt, above, placeable_ms, task_history.ended_ms)
            placeable_ms = attempt.ended_ms or task_history.ended_ms
        task.end(end_ns(self._epoch_ms + task_history.submitted_ms, self._epoch_ms + task_history.ended_ms))

    def close(self) -> None:
        """Send pending data, and stop."""
        self._meters.shutdown()
        self._spans.shutdown()

    def _trace_attempt(self, attempt: AttemptHistory, above: Context, placeable_ms: int, over_ms: int) -> None:
        ended_ms = over_ms if attempt.ended_ms is None else attempt.ended_ms
        self._step("placing", attempt, above, placeable_ms, attempt.placed_ms)
        started_ms = attempt.started_ms
        starting = self._step("starting", attempt, above, attempt.placed_ms, ended_ms if started_ms is None else started_ms)
        if started_ms is None:
            starting.set_status(Status(StatusCode.ERROR, attempt.how))
        else:
            self._step("running", attempt, above, started_ms, ended_ms)

    def _step(self, name: str, attempt: AttemptHistory, above: Context, begin_ms: int, finish_ms: int) -> Span:
        attributes: dict[str, AttributeValue] = {
            "schedulemesh.attempt": attempt.attempt,
            "schedulemesh.agent": attempt.agent,
            "schedulemesh.node": attempt.node,
            "schedulemesh.why_here": attempt.why_here.value,
        }
        span = self._tracer.start_span(name, above, attributes=attributes, start_time=self._ns(begin_ms))
        if name == "running" and attempt.stop_asked_ms is not None and attempt.stop_reason is not None:
            asked = {"schedulemesh.reason": attempt.stop_reason.value, "schedulemesh.by": attempt.stopped_for or ""}
            span.add_event("asked to stop", asked, timestamp=self._ns(attempt.stop_asked_ms))
        if name == "running" and attempt.how:
            span.set_attribute("schedulemesh.how", attempt.how)
        span.end(end_ns(self._epoch_ms + begin_ms, self._epoch_ms + finish_ms))
        return span

    def _ns(self, at_ms: int) -> int:
        return (self._epoch_ms + at_ms) * NS_PER_MS

    def _observer(self, observe: Observe) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: self._observed(observe)

    def _observed(self, observe: Observe) -> Iterator[Observation]:
        for labels, value in observe(self._metrics) if self._metrics is not None else ():
            if value is not None:
                yield Observation(value, {"mesh": self._mesh, **labels})

    def _targets(self, _: CallbackOptions) -> Iterator[Observation]:
        for one in self._checks:
            if one.status is not TargetStatus.NO_TARGET:
                labels = {"mesh": self._mesh, "metric": one.name, "of": one.tag}
                yield Observation(int(one.status is TargetStatus.MISSED), labels)


Samples = Iterable[tuple[dict[str, str], float | None]]
Observe = Callable[[MetricsSnapshot], Samples]


def _one(value: float | None, scale: float = 1.0) -> Samples:
    return [({}, None if value is None else value * scale)]


#: Name, unit, description, and reading of each gauge. The first six have targets (`mesh.observability.metric_targets`).
_GAUGES: tuple[tuple[str, str, str, Observe], ...] = (
    (
        "schedulemesh_schedule_latency_p95",
        "s",
        "Time from submitted to bound, without waiting for room.",
        lambda m: _one(m.schedule_latency_p95_ms, 1e-3),
    ),
    (
        "schedulemesh_queue_wait_time_p99",
        "s",
        "Time from placeable to bound, by tier.",
        lambda m: [({"tier": tier}, None if wait is None else wait / 1000) for tier, wait in m.queue_wait_time_p99_ms.items()],
    ),
    (
        "schedulemesh_placement_success_rate",
        "",
        "Share of successful starts, of those tried in the last minute.",
        lambda m: _one(m.placement_success_rate),
    ),
    (
        "schedulemesh_preemption_count",
        "",
        "Preempted tasks of the label in the last minute.",
        lambda m: [({"label": label}, count) for label, count in m.preemption_count.items()],
    ),
    (
        "schedulemesh_resource_fragmentation",
        "",
        "Share of the free room that fits no usual shape, 0 to 1.",
        lambda m: _one(m.resource_fragmentation),
    ),
    ("schedulemesh_agent_heartbeat_gap", "s", "The longest silence of an agent.", lambda m: _one(m.agent_heartbeat_gap_ms, 1e-3)),
    (
        "schedulemesh_tasks_waiting",
        "",
        "Tasks that wait for room, by tier.",
        lambda m: [({"tier": tier}, count) for tier, count in m.waiting.items()],
    ),
    (
        "schedulemesh_tasks_waiting_longest",
        "s",
        "Longest wait of a waiting task, by tier.",
        lambda m: [({"tier": tier}, wait_ms / 1000) for tier, wait_ms in m.waiting_longest_ms.items()],
    ),
    ("schedulemesh_tasks_running", "", "Tasks that have a place.", lambda m: _one(m.running)),
    ("schedulemesh_tasks_submitted_per_minute", "", "Tasks submitted in the last minute.", lambda m: _one(m.submitted_per_min)),
    (
        "schedulemesh_pool_quota_share",
        "",
        "Share of the pool's quota in use.",
        lambda m: [({"pool": pool}, share) for pool, share in m.use.items()],
    ),
    ("schedulemesh_agents", "", "Agents that report.", lambda m: _one(m.agents)),
    ("schedulemesh_agents_cpu", "", "Cores that agents use.", lambda m: _one(m.cpu)),
    ("schedulemesh_agents_memory", "By", "Resident memory of agents.", lambda m: _one(m.rss_bytes)),
    ("schedulemesh_agents_queue_length", "", "Calls that wait or run at agents.", lambda m: _one(m.queue_length)),
    ("schedulemesh_agents_queue_time_longest", "s", "Longest wait of a call at an agent.", lambda m: _one(m.queue_ms_max, 1e-3)),
    ("schedulemesh_agents_failures_per_minute", "", "Calls that failed at agents in the last minute.", lambda m: _one(m.failures_per_min)),
    (
        "schedulemesh_agents_retries_per_minute",
        "",
        "Calls that were retried at agents in the last minute.",
        lambda m: _one(m.retries_per_min),
    ),
)
