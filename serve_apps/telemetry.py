"""Traces of runs that ended: run, stage and node as spans with the times at which things happened.

Spans are made from the record, after the fact: nothing is traced along the hot path, and a coordinator that died half way
through a run costs no span. Ids follow from the run, so a run that is told twice (two coordinators saw its end) is one
trace, not two.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from dag.runs import NodeRecord, RunRecord, StageRecord
from dag.states import NodeState, RunState, StageState

_NS_PER_MS = 1_000_000
#: Where an OTLP/HTTP collector takes traces, when the endpoint names no path of its own.
_TRACES_PATH = "/v1/traces"


class Telemetry:
    """Writes the traces of runs.

    Args:
        otlp_endpoint: `http://collector:4318`; None: traces are sent nowhere.
        traces_file: JSON lines, one span each, appended; None: not written.
    """

    def __init__(self, *, otlp_endpoint: str | None = None, traces_file: str | None = None) -> None:
        self._ids = _IdsOfRun()
        self._telling = threading.Lock()
        resource = Resource.create({SERVICE_NAME: "schedulemesh"})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._has_readers = otlp_endpoint is not None or traces_file is not None
        if otlp_endpoint is not None:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=_traces_address(otlp_endpoint))))
        if traces_file is not None:
            self._provider.add_span_processor(SimpleSpanProcessor(JsonLines(Path(traces_file))))
        self._tracer = self._provider.get_tracer("schedulemesh")

    def trace_run(self, record: RunRecord) -> None:
        """Tell the trace of a run that has ended; nobody waits for a collector."""
        if not self._has_readers:
            return
        with self._telling:
            self._ids.begin(f"{record.run}:{record.created_ms}")
            run = self._run_span(record)
            above = trace.set_span_in_context(run)
            within = {stage.stage: self._stage_span(record, stage, above) for stage in record.stages.values()}
            for node in record.nodes.values():
                self._tell_node(record, node, trace.set_span_in_context(within[node.stage]) if node.stage in within else above)
            for name, span in within.items():
                stage = record.stages[name]
                span.end(_end_ns(_begin_ms(record, stage), stage.ended_ms or record.ended_ms))
            run.end(_end_ns(record.created_ms, record.ended_ms))

    def close(self) -> None:
        """Send what is still to be sent, and stop."""
        self._provider.shutdown()

    def _run_span(self, record: RunRecord) -> Span:
        attributes = {
            "schedulemesh.run": record.run,
            "schedulemesh.tenant": record.tenant,
            "schedulemesh.state": record.state.value,
            "schedulemesh.reason": record.reason.value if record.reason is not None else "",
            "schedulemesh.nodes": len(record.nodes),
        }
        span = self._tracer.start_span("run", Context(), attributes=attributes, start_time=record.created_ms * _NS_PER_MS)
        if record.state is not RunState.SUCCEEDED:
            span.set_status(Status(StatusCode.ERROR, record.detail))
        return span

    def _stage_span(self, record: RunRecord, stage: StageRecord, above: Context) -> Span:
        attributes: dict[str, AttributeValue] = {
            "schedulemesh.stage": stage.stage,
            "schedulemesh.mesh": stage.mesh,
            "schedulemesh.cluster": stage.cluster,
            "schedulemesh.state": stage.state.value,
            "schedulemesh.slots": stage.slots,
            "schedulemesh.reason": stage.reason.value if stage.reason is not None else "",
            "schedulemesh.why_here": stage.why_here,
        }
        span = self._tracer.start_span("stage", above, attributes=attributes, start_time=_begin_ms(record, stage) * _NS_PER_MS)
        if stage.started_ms:
            span.add_event("started", timestamp=stage.started_ms * _NS_PER_MS)
        if stage.state is StageState.LOST:
            span.set_status(Status(StatusCode.ERROR, stage.detail))
        return span

    def _tell_node(self, record: RunRecord, node: NodeRecord, above: Context) -> None:
        """The span of a node that ran; what never started has no time of its own, its run's counts tell of it."""
        if not node.started_ms:
            return
        attributes: dict[str, AttributeValue] = {
            "schedulemesh.run": record.run,
            "schedulemesh.tenant": record.tenant,
            "schedulemesh.node": node.node,
            "schedulemesh.mesh": node.mesh or "",
            "schedulemesh.attempt": node.attempt,
            "schedulemesh.state": node.state.value,
            "schedulemesh.reason": node.reason.value if node.reason is not None else "",
        }
        if node.stage in record.stages:
            attributes["schedulemesh.cluster"] = record.stages[node.stage].cluster
        span = self._tracer.start_span(node.node, above, attributes=attributes, start_time=node.started_ms * _NS_PER_MS)
        if node.state is NodeState.FAILED:
            failure = node.failure
            span.set_status(Status(StatusCode.ERROR, f"{failure.type_name}: {failure.message}" if failure is not None else ""))
        span.end(_end_ns(node.started_ms, node.finished_ms or record.ended_ms))


class JsonLines(SpanExporter):
    """Appends each span to a file, as one line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter.export`. A full disk loses traces, never a run."""
        try:
            with self._writing, self._path.open("a", encoding="utf-8") as file:
                file.writelines(span.to_json(indent=None) + "\n" for span in spans)
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


class _IdsOfRun(IdGenerator):
    """Trace and span ids that follow from a name: the same run gives the same ids, in the order in which spans are begun."""

    def __init__(self) -> None:
        self.begin("")

    def begin(self, name: str) -> None:
        """Start the ids of another trace."""
        self._name = name
        self._spans = 0

    def generate_trace_id(self) -> int:
        return self._number("trace", 16)

    def generate_span_id(self) -> int:
        self._spans += 1
        return self._number(f"span {self._spans}", 8)

    def _number(self, part: str, size_bytes: int) -> int:
        digest = hashlib.sha256(f"{self._name}\0{part}".encode()).digest()
        return int.from_bytes(digest[:size_bytes], "big") or 1  # 0 is no id


def _begin_ms(record: RunRecord, stage: StageRecord) -> int:
    """When the stage was sent; one that never was began and ended with its run's end."""
    return stage.sent_ms or max(record.ended_ms, record.created_ms)


def _end_ns(begin_ms: int, end_ms: int) -> int:
    """Never before the beginning: the two may have been read off different machines' clocks."""
    return max(begin_ms, end_ms) * _NS_PER_MS


def _traces_address(endpoint: str) -> str:
    bare = endpoint.rstrip("/")
    return bare if bare.endswith(_TRACES_PATH) else bare + _TRACES_PATH
