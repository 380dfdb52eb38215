"""Answers 503 `root_away` at the root's port while no gateway listens there: they start, or Serve replaces the only one.

The process of the root runs it beside Serve. It looks whether anything listens, and if not, it listens itself for a second at a time. So
a gateway that comes shares the port with it for at most that long, and clients repeat what it has answered. Each connection has a thread
and a deadline, so that a slow client delays neither the end of the turn nor the answer to others.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from serve_apps.requests.problem_json import MEDIA_TYPE
from serve_apps.root.http_server import listening_socket
from serve_apps.root.proxy_responses import BODY, RETRY_AFTER_S

#: Interval between two looks whether a gateway listens; seconds.
LOOK_S = 0.5
#: How long it listens before it looks again; seconds.
TURN_S = 1.0
#: Limits on one connection as a whole, and on a look; seconds.
REQUEST_S_MAX, CONNECT_S_MAX = 2.0, 1.0
#: Connections at once; others are closed without an answer.
CONNECTIONS_MAX = 64
#: Bytes of a request's body that are read before the answer, so that the client can read that.
BODY_BYTES_MAX = 1 << 20


class Standby:
    """Stand-in for absent gateways, from construction to `close`."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._is_closed.set()
        self._thread.join(timeout=REQUEST_S_MAX + TURN_S + CONNECT_S_MAX)

    def _run(self) -> None:
        while True:
            if not self._is_served():
                with contextlib.suppress(Exception):  # The port is taken by another program: the gateways' own error says so.
                    self._stand_in()
                if self._is_closed.is_set():
                    return
            elif self._is_closed.wait(LOOK_S):
                return

    def _is_served(self) -> bool:
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104  not listened on here
        try:
            socket.create_connection((here, self._port), timeout=CONNECT_S_MAX).close()
        except OSError:
            return False
        return True

    def _stand_in(self) -> None:
        server = _Server((self._host, self._port), _Away, bind_and_activate=False)
        server.socket.close()
        server.socket = listening_socket(self._host, self._port)
        with contextlib.closing(server.socket):
            server.server_activate()
            until_s = time.monotonic() + TURN_S
            while time.monotonic() < until_s and not self._is_closed.is_set():
                server.handle_request()


class _Server(ThreadingHTTPServer):
    daemon_threads, timeout = True, 0.1

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        late = threading.Timer(REQUEST_S_MAX, partial(_cut, request))
        late.daemon = True
        late.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Log nothing: a client that has gone, or was too slow, is none of the root's errors."""


def _cut(connection: socket.socket) -> None:
    """End a connection, whoever reads from it: a timeout of a socket begins anew with each byte."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Away(BaseHTTPRequestHandler):
    timeout = REQUEST_S_MAX

    def _answer(self) -> None:
        size = self.headers.get("Content-Length", "0")
        if size.isdecimal():
            self.rfile.read(min(int(size), BODY_BYTES_MAX))
        self.send_response(503)
        self.send_header("Content-Type", MEDIA_TYPE)
        self.send_header("Content-Length", str(len(BODY)))
        self.send_header("Retry-After", str(RETRY_AFTER_S))
        self.end_headers()
        self.wfile.write(BODY)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _answer  # noqa: N815  as `http.server` looks for them

    def log_message(self, *_: object) -> None:
        """Log nothing: clients that wait for the root call often."""
