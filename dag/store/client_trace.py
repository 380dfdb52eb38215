"""Trace context of the program that submits a run."""

from __future__ import annotations

import os
import sys

from mesh.observability.trace_context import TraceContext, parse_traceparent


def client_traceparent() -> str | None:
    """Return the caller's span as `traceparent`: OpenTelemetry's current one, else that of the variable `TRACEPARENT`; None: none."""
    trace = sys.modules.get("opentelemetry.trace")  # A program without OpenTelemetry has no current span, and loads nothing for this.
    if trace is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            return TraceContext(f"{span.trace_id:032x}", f"{span.span_id:016x}", span.trace_flags.sampled).header
    context = parse_traceparent(os.environ.get("TRACEPARENT"))
    return None if context is None else context.header
