"""The stand-in for absent gateways: real sockets and requests."""

from __future__ import annotations

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


def test_a_stand_in_that_has_ended_listens_no_more():
    (port,) = promise_ports(1)
    standby = Standby(HERE, port)
    eventually(lambda: status(port) == 503)
    standby.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{HERE}:{port}/", timeout=ANSWER_S)
