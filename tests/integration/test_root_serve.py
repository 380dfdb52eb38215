"""Serve on a cluster that outlives the roots that use it."""

from __future__ import annotations

import asyncio
import sys

import cloudpickle
import httpx
import pytest
import ray
from patience import eventually
from ray import serve
from slow_requests import CLIENTS, closed_in_the_end, head, slow
from starlette.responses import StreamingResponse

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.cluster_token import use_token
from mesh.ray.cluster.ports import promise_ports
from serve_apps.processes.ray_entry import enter
from serve_apps.root.deployments import root_applications
from serve_apps.root.proxy_responses import VARIABLES
from serve_apps.root.serve import end_serve, start_serve

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

HERE = "127.0.0.1"
OURS, THEIRS = root_applications("one"), root_applications("another")
ANSWER_S = 60.0


class Greeting:
    async def __call__(self, request) -> str:
        await request.body()
        return "good day"


class Ticking:
    async def __call__(self, _request) -> StreamingResponse:
        async def ticks():
            while True:
                yield "data: tick\n\n"
                await asyncio.sleep(0.1)

        return StreamingResponse(ticks(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def cluster(ray_cluster):
    if ray.is_initialized():
        ray.shutdown()
    use_token(ray_cluster.token_file)
    enter(ray_cluster.address, VARIABLES)
    yield
    ray.shutdown()


@pytest.fixture
def port(cluster):
    yield promise_ports(1)[0]
    serve.shutdown()


def deploy(name, kind=Greeting, prefix="/"):
    deployment = serve.deployment(ray_actor_options={"num_cpus": 0})(kind)
    serve.run(deployment.bind(), name=name, route_prefix=prefix)


def answer(port):
    return httpx.get(f"http://{HERE}:{port}/", timeout=ANSWER_S).text


def test_a_root_follows_a_killed_one_on_one_cluster(port):
    """Serve starts again for another port and no other; without a root, the proxy says when to come again."""
    start_serve(HERE, promise_ports(1)[0], ours=OURS)
    deploy(OURS[0])
    start_serve(HERE, port, ours=OURS)
    asked(port, 503)  # Before the routes are known.
    deploy(OURS[0])
    asked(port, 200)
    start_serve(HERE, port, ours=OURS)
    assert answer(port) == "good day"
    end_serve(ours=OURS, cluster_stays=False)
    asked(port, 503)


def asked(port, wanted):
    """Wait for the expected answer; only these two may come before it."""

    def look():
        body = httpx.get(f"http://{HERE}:{port}/v1/runs/night", timeout=ANSWER_S)
        assert body.status_code == 200 or (body.status_code, body.headers.get("Retry-After")) == (503, "1"), body.text
        return body.status_code == wanted

    eventually(look)


@pytest.mark.slow
@pytest.mark.faults
def test_the_next_root_serves_on_its_own_port_after_an_end(port):
    start_serve(HERE, promise_ports(1)[0], ours=OURS)
    deploy(OURS[0])
    end_serve(ours=OURS, cluster_stays=True)
    start_serve(HERE, port, ours=OURS)
    deploy(OURS[0])
    assert answer(port) == "good day"


def test_a_serve_that_others_use_is_left_as_it_is(port):
    serve.start(http_options={"host": HERE, "port": port})
    for theirs in ("a stranger's", THEIRS[0]):
        deploy(theirs)
        for wanted in (port, promise_ports(1)[0]):
            with pytest.raises(
                RuntimeAdapterError, match=rf"listens on {HERE}:{port}, for {theirs}.*name another cluster in `root\.cluster`"
            ):
                start_serve(HERE, wanted, ours=OURS)
        end_serve(ours=OURS, cluster_stays=True)
        assert answer(port) == "good day"
        serve.delete(theirs)


@pytest.mark.slow
@pytest.mark.faults
def test_the_proxy_closes_slow_connections_and_no_others(port):
    start_serve(HERE, port, ours=OURS)
    deploy(OURS[0])
    deploy(OURS[1], Ticking, "/ticks")
    address = f"http://{HERE}:{port}"
    with httpx.Client(timeout=ANSWER_S) as http, http.stream("GET", f"{address}/ticks") as stream:
        ticks = (line for line in stream.iter_lines() if line)
        assert next(ticks) == "data: tick"
        with slow(address, b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: a") as headers, slow(address, head("/", "none")) as bodies:
            assert answer(port) == "good day"
            closed = closed_in_the_end([*headers, *bodies])
        assert [each.split(b" ", 2)[1] for each in closed[CLIENTS:]] == [b"408"] * CLIENTS
        assert next(ticks) == "data: tick"
    assert answer(port) == "good day"
