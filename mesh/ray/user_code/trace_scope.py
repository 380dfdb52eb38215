"""Trace context of the running task, for spans that its own code makes: `TRACEPARENT`, and OpenTelemetry's current span."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mesh.core.ids import NodeId
from mesh.observability.trace_context import TraceContext, context_of_task, parse_traceparent

#: Variable by which programs get a trace context; child processes inherit it.
TRACEPARENT = "TRACEPARENT"


@contextmanager
def trace_scope(traceparent: str, node: NodeId, attempt: int) -> Iterator[None]:
    """Make the span of the task the parent of all spans that the body begins; without an effect if the run is not traced.

    Args:
        traceparent: Context of the run.
    """
    run = parse_traceparent(traceparent)
    if run is None:
        yield
        return
    task = context_of_task(run, node, attempt)
    before = os.environ.get(TRACEPARENT)
    os.environ[TRACEPARENT] = task.header
    try:
        with _current_span(task):
            yield
    finally:
        if before is None:
            os.environ.pop(TRACEPARENT, None)
        else:
            os.environ[TRACEPARENT] = before


def inherited_trace() -> dict[str, str]:
    """Return the variable with the present trace context, for a process that inherits no environment; nothing if there is none."""
    return {TRACEPARENT: os.environ[TRACEPARENT]} if TRACEPARENT in os.environ else {}


@contextmanager
def _current_span(task: TraceContext) -> Iterator[None]:
    from opentelemetry import trace  # noqa: PLC0415  only tasks of traced runs need it

    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if task.is_sampled else trace.TraceFlags.DEFAULT)
    context = trace.SpanContext(int(task.trace_id, 16), int(task.span_id, 16), is_remote=True, trace_flags=flags)
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield
