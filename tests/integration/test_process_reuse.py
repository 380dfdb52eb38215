"""Agent processes that serve one task after another, on one node with two CPUs."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import cloudpickle
import pytest
import ray
from patience import eventually

import mesh
from mesh.ray.local.supervisor.driver import DriverSettings

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

#: Nothing ends for being idle while a test runs.
KEPT = DriverSettings(idle_ms_max=3_600_000, standbys_per_node=0)


class Task:
    """Methods that return their process."""

    def pid(self):
        return os.getpid()

    def fail(self):
        raise ValueError(str(os.getpid()))

    def leave_a_thread(self):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        return os.getpid()

    def move(self):
        os.environ["LEFT"] = "behind"
        os.chdir(tempfile.gettempdir())
        return os.getpid()

    def surroundings(self):
        return os.getpid(), os.environ.get("LEFT"), str(Path.cwd())

    def attempt(self):
        return os.getpid(), mesh.current_task().task, mesh.current_task().attempt


@pytest.fixture(scope="module")
def shared(two_nodes, tmp_path_factory):
    """A mesh for all tests of this file that want no settings of their own."""
    folder = tmp_path_factory.mktemp("mesh")
    with mesh.running_mesh("reused", state_dir=folder / "mesh", node_labels={"zone": "east"}, driver=KEPT) as started:
        started.create_pool("main", capacity={"cpu": 2})
        yield started
    left = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    assert not [name for name in left if name.startswith("schedulemesh:reused")]


@pytest.fixture
def running(shared):
    """The mesh with its first pool alone and without idle processes, so the first task of a test gets a new one."""
    for pool in shared.list_pools():
        if pool.pool != "main":
            shared.delete_pool(pool.pool)
    idle = processes(shared)
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["name"] in idle:
            ray.kill(ray.get_actor(**actor))
    eventually(lambda: not shared.list_agents() and len(shared.list_pools()) == 1)
    return shared


def run(running, method="pid", **options):
    return running.submit_task(Task, **{"pool": "main", "resources": {"cpu": 1}, "method": method, **options}).result(120)


def processes(running):
    return [agent.process for agent in running.list_agents()]


def test_a_process_serves_task_after_task_of_one_program(running):
    first = run(running)
    assert [run(running) for _ in range(5)] == [first] * 5
    assert [(agent.task, agent.is_warm) for agent in running.list_agents()] == [(None, True)]
    assert running.list_pools()[0].used == mesh.ResourceSet()
    assert eventually(running.audit)


def test_each_attempt_names_its_own_task(running):
    _, *first = run(running, "attempt", task_id="first")
    _, *second = run(running, "attempt", task_id="second")
    assert (first, second) == (["first", 1], ["second", 1])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"tenant": "acme"}, id="another tenant"),
        pytest.param({"label": "tier:gold"}, id="another label"),
        pytest.param({"environment": {"FLAVOR": "a"}}, id="another environment"),
        pytest.param({"own_process": True}, id="a process of its own"),
    ],
)
def test_a_task_of_another_kind_gets_another_process(running, other):
    first, second = run(running), run(running, **other)
    assert first != second
    assert (run(running) == first, run(running, **other) == second) == (True, "own_process" not in other)


@ray.remote(num_cpus=0)
def pid_from_another_program(name):
    return mesh.ScheduleMesh.attach(name).submit_task(Task, pool="main", resources={"cpu": 1}, method="pid").result(120)


def test_a_program_within_ray_shares_with_its_driver(running):
    first = run(running)
    assert ray.get(pid_from_another_program.remote("reused")) == first


def test_what_a_task_changed_around_it_is_restored(running):
    before = run(running, "surroundings")
    assert run(running, "move") == before[0]
    assert run(running, "surroundings") == before


def test_the_process_of_a_failed_task_ends(running):
    first = run(running)
    with pytest.raises(mesh.TaskFailed, match=str(first)):
        run(running, "fail")
    assert run(running) != first


def test_a_process_with_a_stray_thread_ends(running):
    assert run(running, "leave_a_thread") != run(running)


def test_a_cancelled_task_ends_its_process(running):
    task = running.submit_task(Task, pool="main", resources={"cpu": 1})
    first = task.call("pid")
    task.cancel()
    task.wait(120)
    assert run(running) != first


def test_idle_processes_leave_their_room_to_others(running):
    first = run(running)
    assert run(running, resources={"cpu": 2}) != first
    running.create_pool("grouped", capacity={"cpu": 2})
    running.configure_pool("grouped", max_dynamic_pgs=1)
    assert run(running, pool="grouped", resources={"cpu": 2}) != first
    assert eventually(running.audit)


def test_the_death_of_an_idle_process_delays_the_next_task_only(running):
    first = run(running)
    os.kill(first, signal.SIGKILL)
    assert run(running) != first
    assert eventually(running.audit)


def test_idle_processes_end_with_their_supervisor(running):
    first = run(running)
    (idle,) = processes(running)
    os.kill(running.status().pid, signal.SIGKILL)
    assert run(running) != first
    assert idle not in processes(running)
    assert eventually(running.audit)


def test_without_idle_time_each_task_has_a_process(two_nodes, tmp_path):
    with mesh.running_mesh("single", state_dir=tmp_path / "mesh", driver=DriverSettings(idle_ms_max=0, standbys_per_node=0)) as started:
        started.create_pool("main", capacity={"cpu": 1})
        assert run(started) != run(started)
        assert processes(started) == []


def test_an_idle_process_ends_after_its_time(two_nodes, tmp_path):
    with mesh.running_mesh("brief", state_dir=tmp_path / "mesh", driver=DriverSettings(idle_ms_max=1, standbys_per_node=0)) as started:
        started.create_pool("main", capacity={"cpu": 1})
        run(started)
        eventually(lambda: not processes(started))
