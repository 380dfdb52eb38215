"""Slow clients on a real server with the gateway; its limits are short here."""

from http import HTTPStatus

import httpx
import pytest
import uvicorn
import uvicorn.config
from slow_requests import CLIENTS, closed_in_the_end, head, slow

from serve_apps.gateway_fixtures import EAST, NOW_MS, RESEARCH, GatewayWorld, spec_of
from serve_apps.link_fixtures import serving
from serve_apps.requests import request_timeouts
from serve_apps.requests.auth import issue, issue_for_mesh
from serve_apps.requests.errors import OF_ROUTING
from serve_apps.requests.request_timeouts import BodyTimeout, HeaderTimeout
from serve_apps.schemas.errors import ProblemDetails


@pytest.fixture
def served(monkeypatch):
    """A world, and the address of a server that enforces the limits."""
    monkeypatch.setitem(uvicorn.config.HTTP_PROTOCOLS, "auto", uvicorn.config.HTTP_PROTOCOLS["auto"])
    monkeypatch.setattr(HeaderTimeout, "headers_s", 1.0)
    request_timeouts.install()
    world = GatewayWorld()
    with serving(BodyTimeout(world.app, body_s=1.0)) as address:
        yield world, address


def is_served(address):
    """Return whether other clients are answered meanwhile, however busy the machine is."""
    return httpx.get(f"{address}/healthz", timeout=60).status_code == 200


@pytest.mark.parametrize(
    "beginning",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: a", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTT"],
    ids=["nothing is sent", "the headers never end", "a second request never ends"],
)
def test_connections_with_slow_headers_are_closed(served, beginning):
    _, address = served
    with slow(address, beginning) as clients:
        assert is_served(address)
        closed_in_the_end(clients)
    assert is_served(address)


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/tenants/acme/research/suspend", "/v1/link/queued"])
def test_connections_with_slow_bodies_are_refused_and_closed(served, path):
    world, address = served
    key = issue_for_mesh(world.keys, EAST, NOW_MS) if "link" in path else issue(world.keys, RESEARCH, NOW_MS)
    with slow(address, head(path, key)) as clients:
        assert is_served(address)
        assert [answer.split(b" ", 2)[1] for answer in closed_in_the_end(clients)] == [b"408"] * CLIENTS
    assert is_served(address)


def test_connections_without_a_key_are_closed(served):
    _, address = served
    with slow(address, head("/v1/runs", "smk_no")) as clients:
        assert {answer.split(b" ", 2)[1] for answer in closed_in_the_end(clients)} <= {b"401", b"429"}


def test_the_refusal_has_the_code_of_the_table():
    assert OF_ROUTING[HTTPStatus.REQUEST_TIMEOUT] == request_timeouts.CODE
    assert ProblemDetails.model_validate_json(request_timeouts.BODY).code == request_timeouts.CODE


def test_a_stream_of_events_outlives_the_limits(served):
    world, address = served
    world.client().submit_spec(spec_of("a", id="night"))
    world.start("night", "a")
    headers = {"Authorization": f"Bearer {issue(world.keys, RESEARCH, NOW_MS)}"}
    with httpx.Client(timeout=60) as http, http.stream("GET", f"{address}/v1/runs/night/events", headers=headers) as stream:
        lines = stream.iter_lines()
        assert any(line.startswith("event") for line in lines)
        with slow(address, b"GET / HTTP") as clients:
            closed_in_the_end(clients)  # So the limits have passed.
        world.succeed("night", {"a": 1})
        assert any("SUCCEEDED" in line for line in lines)
