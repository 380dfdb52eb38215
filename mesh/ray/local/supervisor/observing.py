"""Observability of a mesh: metrics and their history, mesh events, alarms, traces; and the tuner, which acts on metrics.

Once per metrics period the metrics go to the history (for charts), to Prometheus, to anomaly detection, and to the tuner; the
results become mesh events. The state is not journaled: a recovered supervisor starts without it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog

from mesh.core.ids import AgentId, MeshId
from mesh.errors import RuntimeAdapterError
from mesh.observability.anomalies import Anomaly, AnomalyWatch
from mesh.observability.metric_targets import METRICS_PERIOD_MS, MetricsSnapshot, Targets, check_targets
from mesh.observability.task_history import TaskHistories
from mesh.observability.tuning import settings_of
from mesh.ray.local.status_values import MeshEvent, MeshEventKind
from mesh.ray.local.supervisor.feedback import Feedback
from mesh.ray.local.supervisor.telemetry import MeshTelemetry
from mesh.tasks.decisions import Decision
from mesh.tasks.events import Event, SettingsChanged
from mesh.tasks.state import MeshState

log = structlog.get_logger(__name__)

EVENTS_MAX = 1_000
#: Entries of the metrics history: two hours at one per five seconds.
HISTORY_MAX = 1_440


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverSettings:
    """Settings of metrics, traces and tuner."""

    targets: Targets = Targets()  # noqa: RUF009  a frozen value; nothing is shared that could change
    tune: bool = True  #: True: metrics that miss their targets change settings.
    period_ms: int = METRICS_PERIOD_MS
    metrics_port: int | None = None  #: Port on the supervisor's machine, for Prometheus; 0: any free one; None: not served.
    metrics_host: str = "127.0.0.1"
    otlp_endpoint: str | None = None  #: For example `http://collector:4318`; None: no traces are sent.
    traces_file: str | None = None  #: JSON lines, one span each, appended.


class Observer:
    """Metrics, events, alarms, traces and tuner of one mesh.

    Args:
        send: Passes the tuner's changes to the scheduler.
        agents: Returns the agents that have a task now.
    Raises:
        RuntimeAdapterError: The port is in use.
    """

    def __init__(
        self, mesh: str, settings: ObserverSettings, send: Callable[[SettingsChanged], object], agents: Callable[[], Collection[AgentId]]
    ) -> None:
        self._agents = agents
        self._settings = settings
        self._send = send
        self._feedback = Feedback(settings.targets)
        self._histories = TaskHistories()
        self._anomalies = AnomalyWatch(settings.targets)
        self._alarmed: dict[tuple[str, str], Anomaly] = {}
        self._history: deque[MetricsSnapshot] = deque(maxlen=HISTORY_MAX)
        self._recent_events: deque[MeshEvent] = deque(maxlen=EVENTS_MAX)
        self._at_ms = 0
        self.telemetry = MeshTelemetry(MeshId(mesh), otlp_endpoint=settings.otlp_endpoint, traces_file=settings.traces_file)
        self._server = None if settings.metrics_port is None else _serve(settings, self.telemetry)

    @property
    def feedback(self) -> Feedback:
        """Metrics and tuner, which receive the agents' reports."""
        return self._feedback

    @property
    def metrics_port(self) -> int | None:
        """Port of the Prometheus endpoint; None: there is none."""
        return None if self._server is None else int(self._server.server_address[1])

    def fold(self, events: Sequence[Event], decisions: Sequence[Decision], took_ms: float) -> None:
        """Record the events and decisions of one call of the scheduler."""
        self._at_ms = events[-1].at_ms
        self._feedback.fold(events, decisions, took_ms)
        if self.telemetry.traces:
            for task_history in self._histories.fold(events, decisions):
                self.telemetry.trace_task(task_history)

    def note(self, at_ms: int, kind: MeshEventKind, about: str, words: str) -> None:
        """Add a mesh event."""
        self._recent_events.append(MeshEvent(at_ms=at_ms, kind=kind, about=about, words=words))

    def recent_events(self) -> list[MeshEvent]:
        """Return the last mesh events, oldest first."""
        return list(self._recent_events)

    def history(self) -> list[MetricsSnapshot]:
        """Return the metrics of the last two hours, oldest first."""
        return list(self._history)

    def metrics(self, state: MeshState, now_ms: int) -> MetricsSnapshot:
        metrics = self._feedback.metrics(state, now_ms)
        # The metrics miss the end of a task that began before this supervisor; its agent's silence is no heartbeat gap.
        strangers = metrics.gaps_ms.keys() - set(self._agents()) if metrics.gaps_ms else set()
        for agent in strangers:
            self._feedback.forget(agent)
        return self._feedback.metrics(state, now_ms) if strangers else metrics

    def look(self, state: MeshState, now_ms: int) -> None:
        """Record the metrics, alarms and tuning of one period."""
        metrics = self.metrics(state, now_ms)
        # The map of gaps has an entry per agent; keep only the newest.
        if self._history:
            self._history[-1] = replace(self._history[-1], gaps_ms={})
        self._history.append(metrics)
        anomalies = self._anomalies.look(metrics)
        self.telemetry.show(metrics, check_targets(metrics, self._settings.targets), anomalies)
        self._note_alarms(anomalies, now_ms)
        self._tune(metrics, state, now_ms)

    def close(self) -> None:
        """Send pending traces and stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        self.telemetry.close()

    def _note_alarms(self, anomalies: Sequence[Anomaly], now_ms: int) -> None:
        alarms = {(one.name, one.tag): one for one in anomalies if one.is_alarm}
        for key, alarm in alarms.items():
            if key not in self._alarmed:
                self.note(now_ms, MeshEventKind.ALARM, alarm.name, alarm.words)
        for key in self._alarmed.keys() - alarms.keys():
            self.note(now_ms, MeshEventKind.ALARM_OVER, key[0], f"{self._alarmed[key].words}; the alarm is over")
        self._alarmed = alarms

    def _tune(self, metrics: MetricsSnapshot, state: MeshState, now_ms: int) -> None:
        changes = self._feedback.propose(metrics, state, now_ms) if self._settings.tune else ()
        if changes:
            self._send(SettingsChanged(at_ms=now_ms, settings=settings_of(changes)))
        for change in changes:
            log.info("a setting was tuned", name=change.name, old=change.old, new=change.new, reason=change.reason)
            self.note(now_ms, MeshEventKind.SETTING_TUNED, change.name, f"from {change.old:g} to {change.new:g}: {change.reason}")


def _serve(settings: ObserverSettings, telemetry: MeshTelemetry) -> ThreadingHTTPServer:
    class Answers(BaseHTTPRequestHandler):
        """`GET /metrics`."""

        def do_GET(self) -> None:
            """Answer any path with the metrics, as Prometheus' own exporters do."""
            content = telemetry.scrape()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name of the overridden method's parameter
            """Do not log scrapes."""

    try:
        server = ThreadingHTTPServer((settings.metrics_host, settings.metrics_port or 0), Answers)
    except OSError as error:
        where = f"{settings.metrics_host}:{settings.metrics_port}"
        raise RuntimeAdapterError(f"metrics cannot be served at {where}: {error}; choose another metrics_port, or 0 for any") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
