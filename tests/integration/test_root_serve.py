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
from serve_apps.root_serve import end_serve, start_serve

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

HERE = "127.0.0.1"
ANSWER_S = 60.0


class Greeting:
    async def __call__(self, _request) -> str:
        return "good day"


@pytest.fixture(scope="module")
def cluster():
    if ray.is_initialized():
        ray.shutdown()
    cluster = OwnCluster.start(ClusterSpec(nodes=(NodeSpec(cpu=1),), object_store_bytes=80 * 2**20))
    ray.init(address=cluster.address, namespace="roots", log_to_driver=False, logging_level="ERROR")
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
    start_serve(HERE, promise_ports(1)[0])
    deploy("gateway")
    end_serve(cluster_stays=True)
    start_serve(HERE, port)
    deploy("gateway")
    assert answer(port) == "good day"


def test_the_next_root_answers_at_its_own_port_when_the_one_before_it_was_killed(port):
    start_serve(HERE, promise_ports(1)[0])
    deploy("gateway")
    start_serve(HERE, port)
    deploy("gateway")
    assert answer(port) == "good day"


def test_a_root_that_comes_back_at_the_same_port_finds_its_applications(port):
    start_serve(HERE, port)
    deploy("gateway")
    start_serve(HERE, port)
    assert answer(port) == "good day"


def test_a_serve_that_others_use_is_left_as_it_is(port):
    start_serve(HERE, port)
    deploy("theirs")
    with pytest.raises(RuntimeDoorError, match=rf"answers at {HERE}:{port}, for theirs.*name another cluster in `root\.cluster`"):
        start_serve(HERE, promise_ports(1)[0])
    end_serve(cluster_stays=True)
    assert answer(port) == "good day"
