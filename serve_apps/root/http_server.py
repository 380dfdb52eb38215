"""HTTP server of a gateway replica: uvicorn on a thread, at the root's own port.

Serve's proxy would pass each request on by calls between actors, which cost more than all the rest of a small request. Replicas share the
port (`SO_REUSEPORT`): the kernel spreads new connections over those that listen. Serve keeps their number, their health and their end.
A health check asks over a Unix socket of this process, since the shared port may lead to another replica.

Source: ADR 0057.
"""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from mesh.errors import RuntimeAdapterError
from serve_apps.requests.request_timeouts import install

#: Seconds that a connection may be idle between two requests; as Serve's proxy.
KEEP_ALIVE_S = 90
#: Limit on the time until the server listens, and until its thread ends.
START_S_MAX, THREAD_S_MAX = 30.0, 10.0
#: Longest wait for an answer of a health check. Serve replaces a replica after three checks without one.
HEALTH_S_MAX = 10.0
#: Connections that may wait to be accepted.
BACKLOG = 1_024
#: First bytes of the answer to a health check.
_ALIVE = b"HTTP/1.1 204"


class HttpServer:
    """Server of one application; it listens when the constructor returns.

    Args:
        drain_s: How long open requests may take after `close`.
        health_s_max: How long `check` waits for an answer.

    Raises:
        RuntimeAdapterError: The port cannot be listened on.
    """

    def __init__(self, app: ASGIApp, *, host: str, port: int, drain_s: float, health_s_max: float = HEALTH_S_MAX) -> None:
        self._health_s_max = health_s_max
        for layer in install():
            app = layer.cls(app, *layer.args, **layer.kwargs)
        self._socket = listening_socket(host, port)
        self._own_socket = socket.socket(socket.AF_UNIX)
        self._own_socket.bind("")  # The kernel finds a name, which is no file.
        self._own_name = self._own_socket.getsockname()
        config = uvicorn.Config(
            _answering_checks(app),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, int(drain_s)),
            backlog=BACKLOG,
            lifespan="on",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        self._await_start(host, port)

    def check(self) -> None:
        """Raise RuntimeAdapterError if the server has ended, or does not answer a request within `health_s_max`."""
        if not self._thread.is_alive():
            raise RuntimeAdapterError("the HTTP server of the gateway has ended; the log of its replica has the reason")
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.settimeout(self._health_s_max)
                asking.connect(self._own_name)
                asking.sendall(b"GET / HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
                answer = asking.recv(len(_ALIVE))
        except OSError as silent:
            raise RuntimeAdapterError(
                f"the HTTP server of the gateway does not answer: {silent or type(silent).__name__}; the log of its replica may say why"
            ) from None
        if answer != _ALIVE:
            raise RuntimeAdapterError(f"the HTTP server of the gateway answers a health check with {answer!r}")

    def close(self) -> None:
        """Listen no more, and end after the open requests. Safe to repeat."""
        self._server.should_exit = True
        self._thread.join(timeout=THREAD_S_MAX)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket, self._own_socket])
        finally:
            self._socket.close()
            self._own_socket.close()

    def _await_start(self, host: str, port: int) -> None:
        waited_s = 0.0
        while not self._server.started:
            self._thread.join(timeout=0.01)
            waited_s += 0.01
            if not self._thread.is_alive() or waited_s > START_S_MAX:
                self.close()
                raise RuntimeAdapterError(f"the gateway could not begin to listen on {host}:{port}; the log of its replica has the reason")


def _answering_checks(app: ASGIApp) -> ASGIApp:
    """Return the application with an answer to `check`, before any work of the application and without the store: an outage of Redis must
    not replace gateways.
    """

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["client"] is not None:
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": HTTPStatus.NO_CONTENT, "headers": []})  # A Unix socket has no address.
        await send({"type": "http.response.body"})

    return answering


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, which several sockets may share. Raises RuntimeAdapterError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except OSError as taken:
        bound.close()
        raise RuntimeAdapterError(f"the root cannot listen on {host}:{port}: {taken}; set another `root.port`") from None
    return bound
