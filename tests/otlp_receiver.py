"""A collector of traces by OTLP/HTTP: a real HTTP server that decodes what exporters send."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpan:
    """A span as it was sent; ids in hexadecimal digits, times in nanoseconds since the epoch."""

    name: str
    trace: str
    span: str
    parent: str  #: Empty: none.
    start_ns: int
    end_ns: int
    has_failed: bool
    service: str
    attributes: dict[str, Any]


@dataclass(slots=True)
class Receiver:
    """Received spans, and the number of requests."""

    address: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    requests: int = 0

    def of_trace(self, trace: str) -> dict[str, ReceivedSpan]:
        """Return the spans of a trace by id."""
        return {span.span: span for span in tuple(self.spans) if span.trace == trace}


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a collector on a free port of this machine."""
    receiver = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            is_traces = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            if is_traces:
                receiver.requests += 1
                receiver.spans += _spans_in(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if is_traces else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, name="collector")
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _spans_in(request: ExportTraceServiceRequest) -> list[ReceivedSpan]:
    return [
        ReceivedSpan(
            name=span.name,
            trace=span.trace_id.hex(),
            span=span.span_id.hex(),
            parent=span.parent_span_id.hex(),
            start_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            has_failed=span.status.code == span.status.STATUS_CODE_ERROR,
            service=_values(of_resource.resource.attributes).get("service.name", ""),
            attributes=_values(span.attributes),
        )
        for of_resource in request.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value") or "string_value") for each in attributes}
