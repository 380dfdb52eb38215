"""The server of a gateway replica: real sockets and requests."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn.config
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.ports import promise_ports
from serve_apps.gateway_fixtures import GatewayWorld
from serve_apps.root.gateway import create_app
from serve_apps.root.http_server import HttpServer

HERE = "127.0.0.1"
ANSWER_S = 60.0


@pytest.fixture(autouse=True)
def _protocols(monkeypatch):
    monkeypatch.setitem(uvicorn.config.HTTP_PROTOCOLS, "auto", uvicorn.config.HTTP_PROTOCOLS["auto"])


def greeting(words):
    return Starlette(routes=[Route("/", lambda _request: PlainTextResponse(words))])


def serve(app, port):
    return HttpServer(app, host=HERE, port=port, drain_s=1.0)


def answer(port, path="/", **headers):
    return httpx.get(f"http://{HERE}:{port}{path}", headers=headers, timeout=ANSWER_S)


def test_it_listens_when_it_is_made():
    (port,) = promise_ports(1)
    server = serve(greeting("good day"), port)
    server.check()
    assert answer(port).text == "good day"
    server.close()
    with pytest.raises(httpx.ConnectError):
        answer(port)
    with pytest.raises(RuntimeAdapterError, match="has ended"):
        server.check()


def test_a_server_that_answers_nobody_is_unhealthy():
    (port,) = promise_ports(1)
    entered, released = threading.Event(), threading.Event()

    async def stuck(_request):
        entered.set()
        released.wait(ANSWER_S)  # Holds the event loop, as code that never returns would.
        return PlainTextResponse("")

    server = HttpServer(Starlette(routes=[Route("/", stuck)]), host=HERE, port=port, drain_s=1.0, health_s_max=0.1)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(answer, port)
        assert entered.wait(ANSWER_S)
        with pytest.raises(RuntimeAdapterError, match=r"does not answer: timed out"):
            server.check()
        released.set()
        asked.result()
    server.close()


def test_a_health_check_asks_its_own_server():
    (port,) = promise_ports(1)
    ended, alive = serve(greeting("before"), port), serve(greeting("after"), port)
    ended.close()
    alive.check()
    with pytest.raises(RuntimeAdapterError, match="has ended"):
        ended.check()
    alive.close()


def test_a_second_server_takes_over_the_port():
    (port,) = promise_ports(1)
    before, after = serve(greeting("before"), port), serve(greeting("after"), port)
    before.close()
    assert answer(port).text == "after"
    after.close()


def test_a_port_of_another_program_is_refused_by_name():
    with socket.socket() as other:
        other.bind((HERE, 0))
        other.listen()
        with pytest.raises(RuntimeAdapterError, match=rf"cannot listen on {HERE}:{other.getsockname()[1]}.*root\.port"):
            serve(greeting(""), other.getsockname()[1])


def test_a_request_id_comes_back_whoever_made_it():
    (port,) = promise_ports(1)
    server = serve(create_app(GatewayWorld().dependencies(), is_proxied=False), port)
    offered, made = answer(port, "/healthz", **{"X-Request-Id": "mine"}), answer(port, "/healthz")
    server.close()
    assert (offered.headers["X-Request-Id"], len(made.headers["X-Request-Id"])) == ("mine", 32)
