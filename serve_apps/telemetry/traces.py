"""Traces of ended runs: run, stage and node as spans with their actual times.

Spans are built from the record after the run: nothing is traced on the hot path, and a coordinator that dies in the middle of
a run loses no span. Span ids follow from the run's id, so a run that two coordinators export is one trace, not two.
"""

from __future__ import annotations

import threading

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from dag.run.node_table import NodeRecord
from dag.run.runs import RunRecord, StageRecord
from dag.run.states import NodeState, RunState, StageState
from mesh.ray.tracing import NS_PER_MS, IdsOfName, end_ns, tracer_provider


class Telemetry:
    """Exporter of traces of runs.

    Args:
        otlp_endpoint: `http://collector:4318`; None: no collector.
        traces_file: JSON lines, one per span, appended; None: no file.
    """

    def __init__(self, *, otlp_endpoint: str | None = None, traces_file: str | None = None) -> None:
        self._ids = IdsOfName()
        self._telling = threading.Lock()
        self._has_readers = otlp_endpoint is not None or traces_file is not None
        self._provider = tracer_provider(self._ids, otlp_endpoint=otlp_endpoint, traces_file=traces_file)
        self._tracer = self._provider.get_tracer("schedulemesh")

    def trace_run(self, record: RunRecord) -> None:
        """Export the trace of an ended run, without waiting for a collector."""
        if not self._has_readers:
            return
        with self._telling:
            self._ids.begin(f"{record.run}:{record.created_ms}")
            run = self._run_span(record)
            above = trace.set_span_in_context(run)
            within = {stage.stage: self._stage_span(record, stage, above) for stage in record.stages.values()}
            for node in record.nodes.values():
                self._trace_node(record, node, trace.set_span_in_context(within[node.stage]) if node.stage in within else above)
            for name, span in within.items():
                stage = record.stages[name]
                span.end(end_ns(_begin_ms(record, stage), stage.ended_ms or record.ended_ms))
            run.end(end_ns(record.created_ms, record.ended_ms))

    def close(self) -> None:
        """Flush the remaining spans and stop."""
        self._provider.shutdown()

    def _run_span(self, record: RunRecord) -> Span:
        attributes = {
            "schedulemesh.run": record.run,
            "schedulemesh.tenant": record.tenant,
            "schedulemesh.state": record.state.value,
            "schedulemesh.reason": record.reason.value if record.reason is not None else "",
            "schedulemesh.nodes": len(record.nodes),
        }
        span = self._tracer.start_span("run", Context(), attributes=attributes, start_time=record.created_ms * NS_PER_MS)
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
        span = self._tracer.start_span("stage", above, attributes=attributes, start_time=_begin_ms(record, stage) * NS_PER_MS)
        if stage.started_ms:
            span.add_event("started", timestamp=stage.started_ms * NS_PER_MS)
        if stage.state is StageState.LOST:
            span.set_status(Status(StatusCode.ERROR, stage.detail))
        return span

    def _trace_node(self, record: RunRecord, node: NodeRecord, above: Context) -> None:
        """Export the span of a node that ran. A node that never started has no times; the run's counts include it."""
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
        span = self._tracer.start_span(node.node, above, attributes=attributes, start_time=node.started_ms * NS_PER_MS)
        if node.state is NodeState.FAILED:
            failure = node.failure
            span.set_status(Status(StatusCode.ERROR, f"{failure.type_name}: {failure.message}" if failure is not None else ""))
        span.end(end_ns(node.started_ms, node.finished_ms or record.ended_ms))


def _begin_ms(record: RunRecord, stage: StageRecord) -> int:
    """Return when the stage was sent; for a stage that never was, the run's end."""
    return stage.sent_ms or max(record.ended_ms, record.created_ms)
