"""Trace contexts of runs, as W3C Trace Context writes them; all ids below that of a trace follow from names.

So the root, a mesh and a worker know the id of a span without telling each other: a worker gives the span of its task to the code that it
runs, and the root exports that span after the run. Source: https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from mesh.core.ids import NodeId, RunId, StageId

#: Longest header that is read. Later versions of the format may add parts.
HEADER_CHARS_MAX = 256
_HEADER = re.compile(r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<rest>-.*)?")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_SAMPLED = 0x01
#: Runs whose trace ids a process knows for its log.
LOGGED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace, as others refer to it."""

    trace_id: str  #: 32 hexadecimal digits.
    span_id: str  #: 16 hexadecimal digits.
    is_sampled: bool = True  #: False: the caller records no spans, and wants none.

    @property
    def header(self) -> str:
        """The value of `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.is_sampled else 0:02x}"

    def below(self, *names: str | int) -> TraceContext:
        """Return the context of the span with these names below this one."""
        return TraceContext(self.trace_id, _digits(16, self.span_id, *names), self.is_sampled)


def parse_traceparent(text: str | None) -> TraceContext | None:
    """Return the context of a `traceparent`; None if there is none, or a wrong one: the standard has it ignored."""
    found = _HEADER.fullmatch((text or "").strip()[: HEADER_CHARS_MAX + 1])
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["rest"]):
        return None
    if len(found[0]) > HEADER_CHARS_MAX or found["trace"] == _NO_TRACE or found["span"] == _NO_SPAN:
        return None
    return TraceContext(found["trace"], found["span"], bool(int(found["flags"], 16) & _SAMPLED))


def context_of_run(run: RunId, *, created_ms: int, began_ms: int, traceparent: str = "") -> TraceContext:
    """Return the context of the span of a run.

    Args:
        created_ms: When it was submitted; with the run's id it gives the trace id, if the client sent none.
        began_ms: When it was submitted, or resumed last: then another span of the same trace begins.
        traceparent: Header that the client sent; empty: none.
    """
    caller = parse_traceparent(traceparent)
    trace_id = caller.trace_id if caller is not None else _digits(32, run, created_ms, "trace")
    return TraceContext(trace_id, _digits(16, run, began_ms, "run"), caller is None or caller.is_sampled)


def context_of_stage(run: TraceContext, stage: StageId) -> TraceContext:
    """Return the context of the span of a stage.

    Args:
        run: The context of its run.
    """
    return run.below("stage", stage)


def context_of_node(run: TraceContext, node: NodeId, attempt: int) -> TraceContext:
    """Return the context of the span of an attempt of a node."""
    return run.below("node", node, attempt)


def context_of_task(run: TraceContext, node: NodeId, attempt: int) -> TraceContext:
    """Return the context of the span of the Ray task that runs an attempt: the parent of the spans of its code."""
    return run.below("task", node, attempt)


class TracesOfRuns:
    """Trace ids of the runs that a process works on, for its log. The least recently noted are forgotten."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, str] = OrderedDict()

    def note(self, run: RunId, trace_id: str) -> None:
        """Remember the trace of a run."""
        self._traces[run] = trace_id
        self._traces.move_to_end(run)
        if len(self._traces) > LOGGED_MAX:
            self._traces.popitem(last=False)

    def note_header(self, run: RunId, traceparent: str) -> None:
        """Remember the trace of a run if it has one."""
        context = parse_traceparent(traceparent)
        if context is not None:
            self.note(run, context.trace_id)

    def add_trace_id(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG002  as structlog calls it
        """Add `trace_id` to an entry of the log that names a run, or a stage of one. A processor of structlog."""
        run = event.get("run") or str(event.get("stage", "")).rpartition(".")[0]
        trace_id = self._traces.get(run)
        if trace_id is not None:
            event["trace_id"] = trace_id
        return event


#: Those of this process.
TRACES = TracesOfRuns()


def _digits(count: int, *names: str | int) -> str:
    """Return this many hexadecimal digits that follow from the names, never all zeros."""
    digits = hashlib.sha256("\0".join(map(str, names)).encode()).hexdigest()[:count]
    return digits if digits.strip("0") else "1".rjust(count, "0")
