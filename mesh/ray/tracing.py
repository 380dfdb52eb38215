"""Spans made after the fact: their export, and ids derived from a name.

Shared by the traces of runs (`serve_apps.telemetry.traces`) and of a mesh's tasks (`mesh.ray.local.supervisor.telemetry`). Nothing is
traced along a hot path: spans are made from a record of past events with their times. The ids derive from the record's name, so a
record that is exported twice gives one trace, not two.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator

NS_PER_MS = 1_000_000
#: Path of an OTLP/HTTP collector for traces, when the endpoint has no path of its own.
_TRACES_PATH = "/v1/traces"


class IdsOfName(IdGenerator):
    """Trace and span ids derived from a name: the same name gives the same ids, in the order in which spans begin."""

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
        return int.from_bytes(digest[:size_bytes], "big") or 1  # 0 is not a valid id


class JsonLines(SpanExporter):
    """Appends each span to a file, as one line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write the spans. A full disk loses traces, never work."""
        try:
            with self._writing, self._path.open("a", encoding="utf-8") as file:
                file.writelines(span.to_json(indent=None) + "\n" for span in spans)
        except OSError:
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


def tracer_provider(ids: IdGenerator, *, otlp_endpoint: str | None, traces_file: str | None) -> TracerProvider:
    """Return a provider that sends spans to a collector, a file, both or neither.

    Args:
        otlp_endpoint: `http://collector:4318`; None: to no collector.
        traces_file: JSON lines, one span each, appended; None: to no file.
    """
    provider = TracerProvider(resource=resource_of_spans(), id_generator=ids, shutdown_on_exit=False)
    for exporter in exporters_to(otlp_endpoint=otlp_endpoint, traces_file=traces_file):
        is_file = isinstance(exporter, JsonLines)
        provider.add_span_processor(SimpleSpanProcessor(exporter) if is_file else BatchSpanProcessor(exporter))
    return provider


def exporters_to(*, otlp_endpoint: str | None, traces_file: str | None) -> tuple[SpanExporter, ...]:
    """Return exporters to a collector, a file, both or neither; see `tracer_provider`."""
    exporters: list[SpanExporter] = []
    if otlp_endpoint is not None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  long, and most have no collector

        exporters.append(OTLPSpanExporter(endpoint=_traces_address(otlp_endpoint)))
    if traces_file is not None:
        exporters.append(JsonLines(Path(traces_file)))
    return tuple(exporters)


def resource_of_spans() -> Resource:
    """Return the resource that all spans name."""
    return Resource.create({SERVICE_NAME: "schedulemesh"})


def end_ns(begin_ms: int, end_ms: int) -> int:
    """Return the end in nanoseconds, never before the beginning: the times may come from clocks of different machines."""
    return max(begin_ms, end_ms) * NS_PER_MS


def _traces_address(endpoint: str) -> str:
    bare = endpoint.rstrip("/")
    return bare if bare.endswith(_TRACES_PATH) else bare + _TRACES_PATH
