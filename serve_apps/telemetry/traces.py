"""Traces of ended runs: run, stage, node and Ray task as spans with their actual times.

Spans are made from the record after the run, and exported by a thread: nothing is traced on the hot path, and a coordinator that dies in
the middle of a run loses no span. The ids of spans follow from the run's id (`mesh.observability.trace_context`), so a run that two
coordinators export is one trace, not two, and workers know the span of their task before it is exported.

Source: ADR 0078.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from dag.run.node_facts import PastAttempt
from dag.run.node_table import NodeRecord
from dag.run.runs import RunRecord, StageRecord
from dag.run.states import NodeState, RunState, StageState
from mesh.core.ids import MeshId, StageId
from mesh.observability.trace_context import (
    TraceContext,
    context_of_node,
    context_of_stage,
    context_of_task,
    parse_traceparent,
)
from mesh.ray.tracing import NS_PER_MS, end_ns, exporters_to, resource_of_spans
from mesh.stages.arrays import array_of, is_part

log = structlog.get_logger(__name__)

#: Most nodes and stages of a run that have spans; the span of the run counts the others.
NODES_MAX, STAGES_MAX = 1_000, 500
#: A node that succeeded at once within this time is short, and at most this many of them have spans: two spans cost about 0.1 ms.
SHORT_MS, SHORT_NODES_MAX = 10, 100
#: Ended runs that wait for a collector. Beyond that the traces of further runs are lost, which the log counts.
WAITING_MAX = 1_000
#: Spans of a request to the collector.
BATCH_SPANS = 512
#: Longest wait for a collector at the end of the process; seconds.
CLOSE_S = 5.0
_SCOPE = InstrumentationScope("schedulemesh")


class Telemetry:
    """Exporter of traces of runs, on a thread of its own.

    Args:
        otlp_endpoint: `http://collector:4318`; None: no collector.
        traces_file: JSON lines, one per span, appended; None: no file.
    """

    def __init__(self, *, otlp_endpoint: str | None = None, traces_file: str | None = None) -> None:
        self._exporters = exporters_to(otlp_endpoint=otlp_endpoint, traces_file=traces_file)
        self._ended: queue.Queue[RunRecord | None] = queue.Queue(WAITING_MAX)
        self._lost = 0  #: Runs without a trace since the log said so last.
        self._thread = threading.Thread(target=self._export, name="traces", daemon=True)
        if self._exporters:
            self._thread.start()

    def trace_run(self, record: RunRecord) -> None:
        """Export the trace of an ended run, without waiting. The record must not change any more."""
        if not self._exporters or not record.trace.is_sampled:
            return
        try:
            self._ended.put_nowait(record)
        except queue.Full:
            self._lost += 1

    def close(self) -> None:
        """Export the remaining spans, as far as a collector takes them at once, and stop."""
        if not self._exporters:
            return
        with suppress(queue.Full):
            self._ended.put(None, timeout=CLOSE_S)
        self._thread.join(CLOSE_S)
        for exporter in self._exporters:
            exporter.shutdown()

    def _export(self) -> None:
        resource = resource_of_spans()
        while (record := self._ended.get()) is not None:
            spans = list(spans_of(record, resource))
            for exporter in self._exporters:
                for first in range(0, len(spans), BATCH_SPANS):
                    _export_to(exporter, spans[first : first + BATCH_SPANS])
            lost, self._lost = self._lost, 0
            if lost:
                log.warning("traces of runs are lost: the collector is too slow, or away", runs=lost)


def _export_to(exporter: SpanExporter, spans: list[ReadableSpan]) -> None:
    try:
        if exporter.export(spans) is SpanExportResult.SUCCESS:
            return
        why = "see above"
    except Exception as broken:  # noqa: BLE001  the thread must go on: exporters raise errors of any class
        why = repr(broken)
    log.warning("spans are lost", exporter=type(exporter).__name__, spans=len(spans), why=why)


def spans_of(record: RunRecord, resource: Resource) -> list[ReadableSpan]:
    """Return the spans of an ended run since it was submitted, or resumed last.

    A node that never started has no span; the counts of the run include it. Of many nodes those have spans that failed, then those that
    ran longest. Attributes of the run's span have the numbers of nodes, past attempts and stages without a span.
    """
    made = _Spans(record, record.trace, resource)
    stages = [stage for stage in record.stages.values() if stage.sent_ms >= record.resumed_ms]
    shown: dict[StageId | None, StageRecord] = {stage.stage: stage for stage in stages[:STAGES_MAX]}
    nodes, nodes_left_out = _nodes_with_spans(record, {stage.stage for stage in stages})
    past = [(node, attempt) for node in nodes for attempt in node.past if attempt.started_ms and attempt.ended_ms >= record.resumed_ms]
    left_out = {
        "schedulemesh.nodes_without_span": nodes_left_out,
        "schedulemesh.attempts_without_span": max(0, len(past) - NODES_MAX),
        "schedulemesh.stages_without_span": len(stages) - len(shown),
    }
    return [
        made.run(left_out),
        *map(made.stage, shown.values()),
        *(span for node, attempt in past[:NODES_MAX] for span in made.past(node, attempt, shown)),
        *(span for node in nodes if node.started_ms for span in made.node(node, shown)),
    ]


def _nodes_with_spans(record: RunRecord, stages: set[StageId]) -> tuple[list[NodeRecord], int]:
    """Return the nodes that have spans, in their order, and the number of nodes that ran and have none.

    Args:
        stages: Stages since the run was resumed last.
    """
    nodes = record.nodes
    has_run = nodes.columns.started_ms > 0
    has_run[[row for row, rare in nodes.rare.items() if rare.past]] = True
    rows = np.flatnonzero(has_run)
    if record.resumed_ms:
        rows = np.array([row for row in rows.tolist() if nodes.at(row).stage in stages], np.intp)
    took_ms = nodes.columns.finished_ms[rows] - nodes.columns.started_ms[rows]
    has_succeeded = nodes.are(nodes.columns.state[rows], (NodeState.SUCCEEDED,))
    is_short = has_succeeded & (took_ms < SHORT_MS) & ~np.isin(rows, [row for row, rare in nodes.rare.items() if rare.past])
    short = int(is_short.sum())
    most = min(NODES_MAX, len(rows) - short + min(short, SHORT_NODES_MAX))
    kept = np.sort(np.lexsort((took_ms, ~has_succeeded, ~is_short))[len(rows) - most :])
    return [nodes.at(row) for row in rows[kept].tolist()], len(rows) - most


@dataclass(frozen=True, slots=True)
class _Spans:
    """Makes the spans of a run."""

    record: RunRecord
    context: TraceContext  #: Context of the run's span.
    resource: Resource

    def run(self, left_out: dict[str, int]) -> ReadableSpan:
        record = self.record
        caller = parse_traceparent(record.traceparent)
        attributes: dict[str, AttributeValue] = {
            "schedulemesh.run": record.run,
            "schedulemesh.tenant": record.tenant,
            "schedulemesh.user": record.user,
            "schedulemesh.state": record.state.value,
            "schedulemesh.reason": record.reason.value if record.reason is not None else "",
            "schedulemesh.nodes": len(record.nodes),
            **left_out,
        }
        status = Status() if record.state is RunState.SUCCEEDED else Status(StatusCode.ERROR, record.detail)
        return self._span("run", self.context, caller, record.began_ms, record.ended_ms, attributes, status, kind=SpanKind.SERVER)

    def stage(self, stage: StageRecord) -> ReadableSpan:
        attributes: dict[str, AttributeValue] = {
            "schedulemesh.run": self.record.run,
            "schedulemesh.stage": stage.stage,
            "schedulemesh.mesh": stage.mesh,
            "schedulemesh.cluster": stage.cluster,
            "schedulemesh.state": stage.state.value,
            "schedulemesh.slots": stage.slots,
            "schedulemesh.nodes": len(stage.nodes),
            "schedulemesh.reason": stage.reason.value if stage.reason is not None else "",
            "schedulemesh.why_here": stage.why_here,
        }
        status = Status(StatusCode.ERROR, stage.detail) if stage.state is StageState.LOST else Status()
        started = (Event("started", timestamp=stage.started_ms * NS_PER_MS),) if stage.started_ms else ()
        context = context_of_stage(self.context, stage.stage)
        end_ms = stage.ended_ms or self.record.ended_ms
        return self._span("stage", context, self.context, self._sent_ms(stage), end_ms, attributes, status, events=started)

    def node(self, node: NodeRecord, shown: Mapping[StageId | None, StageRecord]) -> Iterator[ReadableSpan]:
        """Yield the spans of the present attempt of a node and of its Ray task."""
        failure = node.failure
        words = f"{failure.type_name}: {failure.message}" if failure is not None else ""
        status = Status(StatusCode.ERROR, words) if node.state is NodeState.FAILED else Status()
        end_ms = node.finished_ms or self.record.ended_ms
        attributes: dict[str, AttributeValue] = {
            "schedulemesh.state": node.state.value,
            "schedulemesh.reason": node.reason.value if node.reason is not None else "",
        }
        if node.elements is not None:
            attributes["schedulemesh.elements"] = node.elements
        yield from self._attempt(node, node.attempt, (node.started_ms, end_ms), shown.get(node.stage), node.mesh, attributes, status)

    def past(self, node: NodeRecord, past: PastAttempt, shown: Mapping[StageId | None, StageRecord]) -> Iterator[ReadableSpan]:
        """Yield the spans of an attempt that another one followed."""
        status = Status(StatusCode.ERROR, f"{past.type_name}: {past.detail}" if past.type_name else past.detail)
        attributes: dict[str, AttributeValue] = {"schedulemesh.reason": past.reason.value}
        yield from self._attempt(node, past.attempt, (past.started_ms, past.ended_ms), shown.get(past.stage), past.mesh, attributes, status)

    def _attempt(
        self,
        node: NodeRecord,
        attempt: int,
        times_ms: tuple[int, int],
        stage: StageRecord | None,
        mesh: MeshId | None,
        attributes: dict[str, AttributeValue],
        status: Status,
    ) -> Iterator[ReadableSpan]:
        """Yield the span of an attempt, from its assignment to a mesh to its end, and that of its Ray task."""
        started_ms, end_ms = times_ms
        attributes |= {
            "schedulemesh.run": self.record.run,
            "schedulemesh.tenant": self.record.tenant,
            "schedulemesh.node": node.node,
            "schedulemesh.mesh": mesh or "",
            "schedulemesh.attempt": attempt,
        }
        if stage is not None:
            attributes["schedulemesh.cluster"] = stage.cluster
        if is_part(node.node):
            attributes["schedulemesh.array"] = array_of(node.node)
        above = self.context if stage is None else context_of_stage(self.context, stage.stage)
        context = context_of_node(self.context, node.node, attempt)
        begin_ms = started_ms if stage is None else min(self._sent_ms(stage), started_ms)
        yield self._span(node.node, context, above, begin_ms, end_ms, attributes, status)
        task = context_of_task(self.context, node.node, attempt)
        yield self._span("ray task", task, context, started_ms, end_ms, attributes, status)

    def _sent_ms(self, stage: StageRecord) -> int:
        """Return when the stage was sent; for a stage that never was, the run's end."""
        return stage.sent_ms or max(self.record.ended_ms, self.record.began_ms)

    def _span(
        self,
        name: str,
        context: TraceContext,
        above: TraceContext | None,
        begin_ms: int,
        end_ms: int,
        attributes: dict[str, AttributeValue],
        status: Status,
        *,
        events: tuple[Event, ...] = (),
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context=_context(context),
            parent=None if above is None else _context(above),
            resource=self.resource,
            attributes=attributes,
            events=events,
            kind=kind,
            status=status,
            start_time=begin_ms * NS_PER_MS,
            end_time=end_ns(begin_ms, end_ms),
            instrumentation_scope=_SCOPE,
        )


def _context(context: TraceContext) -> SpanContext:
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
