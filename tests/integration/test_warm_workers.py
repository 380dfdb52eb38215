"""Worker processes of Ray that are forked from one that has imported Ray: `tests/warm_workers`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import ray
from patience import eventually
from shared_clusters import ONE_NODE, REPOSITORY, WARM_WORKERS, driving, running

from mesh.ray.cluster.own_cluster import OwnCluster

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.slow]


@ray.remote(num_cpus=0)
class Member:
    """An actor that shows its process."""

    def look(self) -> tuple[int, str, float, list[str]]:
        return os.getpid(), ray.get_runtime_context().get_worker_id(), random.random(), psutil.Process().parent().cmdline()


@pytest.fixture(scope="module")
def warm() -> Iterator[OwnCluster]:
    """A cluster whose workers are forked, with this process as its driver."""
    with running(ONE_NODE, (str(WARM_WORKERS), str(REPOSITORY))) as cluster, driving(cluster):
        yield cluster


def looks(members: list[Any]) -> Any:
    return zip(*ray.get([member.look.remote() for member in members], timeout=100), strict=True)


def test_workers_of_a_node_are_forked_and_differ(warm):
    members = [Member.remote() for _ in range(3)]
    pids, workers, numbers, parents = looks(members)
    assert [len(set(each)) for each in (pids, workers, numbers)] == [3, 3, 3]
    (parent,) = {psutil.Process(pid).ppid() for pid in pids}
    assert all("default_worker.py" in part[1] for part in parents)
    assert "raylet" in psutil.Process(parent).parent().name()
    ray.kill(members[0])
    eventually(lambda: not psutil.pid_exists(pids[0]))
    assert tuple(next(looks(members[1:]))) == pids[1:]


def test_workers_start_when_the_forking_process_is_dead(warm):
    members = [Member.remote()]
    (pid,) = next(looks(members))
    psutil.Process(psutil.Process(pid).ppid()).kill()
    members.append(Member.remote())
    pids = next(looks(members))
    assert len(set(pids)) == 2
