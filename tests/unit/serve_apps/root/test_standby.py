"""The stand-in for absent gateways: real sockets and requests."""

from __future__ import annotations

import contextlib
import socket
import threading

import httpx
import pytest
from patience import eventually
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from mesh.ray.cluster.ports import promise_ports
from serve_apps.root.http_server import HttpServer
from serve_apps.root.standby import Standby

HERE = "127.0.0.1"
ANSWER_S = 60.0


@pytest.fixture
def port():
    (found,) = promise_ports(1)
    standby = Standby(HERE, found)
    yield found
    standby.close()


def status(port):
    """Return the status of an answer; None: nobody listened at that moment."""
    try:
        answer = httpx.post(f"http://{HERE}:{port}/v1/runs", content=b"{}", timeout=ANSWER_S)
    except httpx.TransportError:
        return None
    if answer.status_code == 503:
        assert (answer.headers["Retry-After"], answer.json()["code"]) == ("1", "root_away")
    return answer.status_code


def test_the_root_is_away_until_a_gateway_listens(port):
    eventually(lambda: status(port) == 503)
    app = Starlette(routes=[Route("/v1/runs", lambda _request: PlainTextResponse("there"), methods=["POST"])])
    server = HttpServer(app, host=HERE, port=port, drain_s=1.0)
    eventually(lambda: [status(port) for _ in range(5)] == [200] * 5)
    server.close()
    eventually(lambda: status(port) == 503)


def test_a_slow_client_holds_neither_the_port_nor_others(port):
    eventually(lambda: status(port) == 503)
    slow = socket.create_connection((HERE, port), timeout=ANSWER_S)
    is_over = threading.Event()

    def drip():
        """Send a header that never ends, far more often than a timeout of the socket."""
        with contextlib.suppress(OSError):
            slow.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
            while not is_over.wait(0.1):
                slow.sendall(b"a")

    dripping = threading.Thread(target=drip, daemon=True)
    dripping.start()
    eventually(lambda: status(port) == 503)
    server = HttpServer(Starlette(), host=HERE, port=port, drain_s=1.0)
    eventually(lambda: [status(port) for _ in range(5)] == [404] * 5)
    dripping.join()  # It was cut off.
    server.close()
    is_over.set()
    slow.close()


def test_a_stand_in_that_has_ended_listens_no_more():
    (port,) = promise_ports(1)
    standby = Standby(HERE, port)
    eventually(lambda: status(port) == 503)
    standby.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{HERE}:{port}/", timeout=ANSWER_S)
