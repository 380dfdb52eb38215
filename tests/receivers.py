"""Real receivers of webhooks: an HTTP server that notes its calls, and one that sends given bytes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: From the number of a call, which counts from 1, to the status and headers of its response.
Answer = Callable[[int], tuple[int, dict[str, str]]]


@dataclass
class Receiver:
    """Receiver that notes its calls: headers, with names in lower case, and bodies."""

    answer: Answer
    calls: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def bodies(self) -> list[dict[str, Any]]:
        """Return the bodies of all calls."""
        return [json.loads(body) for _, body in self.calls]

    def ids(self) -> list[str]:
        """Return the ids of the messages of all calls."""
        return [headers["webhook-id"] for headers, _ in self.calls]


@contextmanager
def receiving(answer: Answer = lambda _: (204, {})) -> Iterator[Receiver]:
    """Run a receiver during the block."""
    receiver = Receiver(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status, headers = receiver.answer(len(receiver.calls))
            self.send_response(status)
            for name, value in {"content-length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def sending_bytes(*parts: bytes, is_closed: bool = True) -> Iterator[str]:
    """Run a server that sends these bytes to each caller, whatever the caller asks, and yield its URL.

    Args:
        is_closed: The server ends the connection afterwards; else the caller waits for more.
    """
    server = socket.create_server(("127.0.0.1", 0))
    callers: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                caller, _ = server.accept()
            except OSError:
                return
            callers.append(caller)
            for part in parts:
                caller.sendall(part)
            if is_closed:
                caller.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for caller in callers:
            caller.close()
