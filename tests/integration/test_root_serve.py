"""Serve on a cluster that outlives the roots that use it."""

from __future__ import annotations

import sys

import cloudpickle
import httpx
import pytest
import ray
from ray import serve

from mesh.errors import RuntimeDoorError
from mesh.runtime.cluster import ClusterSpec, NodeSpec, OwnCluster
from mesh.runtime.ports import promise_ports
from serve_apps.root.deployments import root_applications
from serve_apps.root.serve import end_serve, start_serve

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

HERE = "127.0.0.1"
OURS, THEIRS = root_applications("one"), root_applications("another")
ANSWER_S = 60.0


class Greeting:
    async def __call__(self, _request) -> str:
        return "good day"


@pytest.fixture(scope="module")
def cluster():
    if ray.is_initialized():
        ray.shutdown()
    cluster = OwnCluster.start(ClusterSpec(nodes=(NodeSpec(cpu=1),), object_store_bytes=80 * 2**20))
    cluster.connect(namespace="roots")
    yield
    ray.shutdown()
    cluster.stop()


@pytest.fixture
def port(cluster):
    yield promise_ports(1)[0]
    serve.shutdown()


def deploy(name):
    deployment = serve.deployment(ray_actor_options={"num_cpus": 0})(Greeting)
    serve.run(deployment.bind(), name=name, route_prefix="/")


def answer(port):
    return httpx.get(f"http://{HERE}:{port}/", timeout=ANSWER_S).text


def test_the_next_root_answers_at_its_own_port_when_the_one_before_it_ended(port):
    start_serve(HERE, promise_ports(1)[0], ours=OURS)
    deploy(OURS[0])
    end_serve(ours=OURS, cluster_stays=True)
    start_serve(HERE, port, ours=OURS)
    deploy(OURS[0])
    assert answer(port) == "good day"


def test_the_next_root_answers_at_its_own_port_when_the_one_before_it_was_killed(port):
    start_serve(HERE, promise_ports(1)[0], ours=OURS)
    deploy(OURS[0])
    start_serve(HERE, port, ours=OURS)
    deploy(OURS[0])
    assert answer(port) == "good day"


def test_a_root_that_comes_back_at_the_same_port_finds_its_applications(port):
    start_serve(HERE, port, ours=OURS)
    deploy(OURS[0])
    start_serve(HERE, port, ours=OURS)
    assert answer(port) == "good day"


@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("theirs", ["their own", THEIRS[0]], ids=["a stranger", "another federation"])
def test_a_serve_that_others_use_is_left_as_it_is(port, theirs, where):
    serve.start(http_options={"host": HERE, "port": port})
    deploy(theirs)
    wanted = port if where == "here" else promise_ports(1)[0]
    with pytest.raises(RuntimeDoorError, match=rf"answers at {HERE}:{port}, for {theirs}.*name another cluster in `root\.cluster`"):
        start_serve(HERE, wanted, ours=OURS)
    end_serve(ours=OURS, cluster_stays=True)
    assert answer(port) == "good day"
