"""Ray clusters that test files share, and this process as their driver for one file at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import eventually, gone
from sharing import SHARING

from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.own_cluster import OwnCluster

REPOSITORY = Path(__file__).parents[1]
#: Folder that makes workers of Ray start warm when their Python finds it first.
WARM_WORKERS = REPOSITORY / "tests/warm_workers"
#: Workers import the classes of tasks from here.
PYTHON_PATH = tuple(str(REPOSITORY / folder) for folder in (".", "tests", "tests/integration", "tests/acceptance"))
ONE_NODE = ClusterSpec(
    nodes=(ClusterNodeSpec(cpu=2, gpu=2, labels={"zone": "east"}, resources={"lamp": 1}),), object_store_bytes=160 * 2**20
)
TWO_NODES = ClusterSpec(
    nodes=(ClusterNodeSpec(cpu=2, gpu=2, labels={"zone": "east"}), ClusterNodeSpec(cpu=2, labels={"zone": "west"})),
    object_store_bytes=80 * 2**20,
)
#: Ray frees the room of what has ended within a second; the rest is for a busy machine.
FREED_S = 5.0


@contextmanager
def running(spec: ClusterSpec, python_path: tuple[str, ...]) -> Iterator[OwnCluster]:
    """Run a cluster."""
    cluster = OwnCluster.start(spec, python_path=python_path)
    try:
        yield cluster
    finally:
        cluster.kill()  # `stop` lets processes end by themselves first, for up to two seconds.


@contextmanager
def driving(cluster: OwnCluster) -> Iterator[OwnCluster]:
    """Make this process a driver of the cluster: it drives one at a time."""
    import ray  # Takes a second, which other tests do not need.

    if ray.is_initialized():
        ray.shutdown()
    cluster.connect(namespace="tests")
    yield cluster
    ray.shutdown()


@pytest.fixture(scope="module")
def ray_cluster() -> OwnCluster:
    """One node with two CPUs, whose workers import this repository only."""
    return SHARING.get("ray_cluster", "one node", lambda: running(ONE_NODE, (str(REPOSITORY),)))


@pytest.fixture(scope="module")
def ray_driver(ray_cluster: OwnCluster) -> Iterator[OwnCluster]:
    """The cluster of one node, with this process as its driver."""
    with driving(ray_cluster) as driven:
        yield driven
        gone(_holders)
        _replace_if_held("ray_cluster", ONE_NODE)


def _replace_if_held(name: str, spec: ClusterSpec) -> None:
    """Close a cluster that Ray does not free: the next file gets another."""
    if not _is_free(spec):
        SHARING.close(name)


def _holders() -> list[Any]:
    """Return what holds room of the cluster."""
    from mesh.ray.user_code import ray_tables

    rows = (*ray_tables.actors(), *ray_tables.tasks().rows)
    return [*ray_tables.groups(), *(row for row in rows if row.amounts or row.group)]


def _is_free(spec: ClusterSpec) -> bool:
    """Return whether all processors are free once nothing holds them.

    Ray keeps the room of a group that was removed while it was being placed, as `docs/limits.md` says.
    """
    import ray

    with contextlib.suppress(AssertionError):
        return bool(eventually(lambda: ray.available_resources().get("CPU") == sum(node.cpu for node in spec.nodes), FREED_S))
    return False


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[OwnCluster]:
    """Two nodes with two CPUs each, with this process as their driver. Each file stops the meshes that it starts; they have own names."""
    with driving(SHARING.get("two_nodes", "two nodes", lambda: running(TWO_NODES, PYTHON_PATH))) as driven:
        yield driven
        _replace_if_held("two_nodes", TWO_NODES)
