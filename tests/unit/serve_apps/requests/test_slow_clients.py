"""Clients that drip their requests, on a real server with the gateway; its limits are short here, so that nobody waits."""

import contextlib
import socket
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
import uvicorn.config
from patience import eventually

from serve_apps.link_testing import serving
from serve_apps.requests import slow_clients
from serve_apps.requests.auth import issue, issue_for_mesh
from serve_apps.requests.errors import OF_ROUTING
from serve_apps.requests.slow_clients import TimelyBody, TimelyHeaders
from serve_apps.schemas.errors import ErrorBody
from serve_apps.testing import EAST, NOW_MS, RESEARCH, World, spec_of

CLIENTS = 40


@pytest.fixture
def served(monkeypatch):
    """A world, and the address of a server with its gateway that keeps the limits."""
    monkeypatch.setitem(uvicorn.config.HTTP_PROTOCOLS, "auto", uvicorn.config.HTTP_PROTOCOLS["auto"])
    monkeypatch.setattr(TimelyHeaders, "headers_s", 1.0)
    slow_clients.install()
    world = World()
    with serving(TimelyBody(world.app, body_s=1.0)) as address:
        yield world, address


def slow(address: str, beginning: bytes) -> list[socket.socket]:
    """Connections that have sent this much."""
    where = urlsplit(address)
    opened = [socket.create_connection((where.hostname, where.port)) for _ in range(CLIENTS)]
    for each in opened:
        each.settimeout(0.01)
        each.sendall(beginning)
    return opened


def is_closed(client: socket.socket, heard: bytearray) -> bool:
    """Whether the server has closed the connection; else one more byte is dripped."""
    try:
        while part := client.recv(65_536):
            heard += part
    except TimeoutError:
        with contextlib.suppress(OSError):
            client.sendall(b"a")
        return False
    except OSError:
        pass
    return True


def closed_in_the_end(clients: list[socket.socket]) -> list[bytes]:
    """What each was answered before its connection was closed."""
    heard = [bytearray() for _ in clients]
    left = dict(enumerate(clients))

    def look() -> bool:
        for place in [place for place, client in left.items() if is_closed(client, heard[place])]:
            left.pop(place).close()
        return not left

    eventually(look)
    return [bytes(each) for each in heard]


@pytest.mark.parametrize(
    "beginning",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: a", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTT"],
    ids=["nothing is sent", "the headers never end", "a second request never ends"],
)
def test_connections_with_slow_headers_are_closed(served, beginning):
    _, address = served
    clients = slow(address, beginning)
    assert httpx.get(f"{address}/healthz").status_code == 200
    closed_in_the_end(clients)
    assert httpx.get(f"{address}/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/tenants/acme/research/hold", "/v1/link/queued"])
def test_connections_with_slow_bodies_are_refused_and_closed(served, path):
    world, address = served
    key = issue_for_mesh(world.keys, EAST, NOW_MS) if "link" in path else issue(world.keys, RESEARCH, NOW_MS)
    clients = slow(address, head(path, key))
    assert httpx.get(f"{address}/healthz").status_code == 200
    assert [answer.split(b" ", 2)[1] for answer in closed_in_the_end(clients)] == [b"408"] * CLIENTS
    assert httpx.get(f"{address}/healthz").status_code == 200


def test_connections_without_a_key_are_closed(served):
    _, address = served
    assert {answer.split(b" ", 2)[1] for answer in closed_in_the_end(slow(address, head("/v1/runs", "smk_no")))} <= {b"401", b"429"}


def head(path: str, key: str) -> bytes:
    """A request that promises a body, and its first byte."""
    lines = (f"POST {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {key}", "Content-Type: application/json", "Content-Length: 99999")
    return ("\r\n".join(lines) + "\r\n\r\n{").encode()


def test_the_refusal_has_the_code_of_the_table():
    assert OF_ROUTING[HTTPStatus.REQUEST_TIMEOUT] == slow_clients.CODE
    assert ErrorBody.model_validate_json(slow_clients.BODY).error.code == slow_clients.CODE


def test_a_stream_of_events_outlives_the_limits(served):
    world, address = served
    world.client().submit_spec(spec_of("a", id="night"))
    world.start("night", "a")
    headers = {"Authorization": f"Bearer {issue(world.keys, RESEARCH, NOW_MS)}"}
    with httpx.Client(timeout=60) as http, http.stream("GET", f"{address}/v1/runs/night/events", headers=headers) as stream:
        lines = stream.iter_lines()
        assert any(line.startswith("event") for line in lines)
        closed_in_the_end(slow(address, b"GET / HTTP"))  # So the limits have passed.
        world.succeed("night", {"a": 1})
        assert any("SUCCEEDED" in line for line in lines)
