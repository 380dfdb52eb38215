"""Kills of the supervisor in every state of an agent's creation: ledgers and Ray agree afterwards, and clients resume."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import ray
from patience import eventually, gone
from supervised import Counter, Gated, Looper

from mesh.core.shapes import GroupPoolSpec
from mesh.core.task_spec import TaskState
from mesh.ray.local.client.schedule_mesh import ScheduleMesh
from mesh.ray.local.supervisor.driver import DriverSettings

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def started(two_nodes, tmp_path_factory):
    mesh = ScheduleMesh.start("killed", state_dir=tmp_path_factory.mktemp("mesh"), driver=DriverSettings(standbys_per_node=0))
    yield mesh
    mesh.stop(forget=True)


@pytest.fixture
def running(started):
    started.create_pool("main", capacity={"cpu": 4})
    started.create_pool("grouped", capacity={"cpu": 4}, groups=GroupPoolSpec(max_dynamic=2))
    yield started
    for pool in ("main", "grouped"):
        started.delete_pool(pool)
    gone(started.list_pools)
    gone(started.list_groups)
    eventually(started.audit)


def kill_supervisor(mesh):
    os.kill(mesh.status().pid, signal.SIGKILL)


@pytest.mark.parametrize("pool", ["main", "grouped"])
def test_s22_an_agent_starts_although_its_supervisor_died(running, tmp_path, pool):
    gate, before = tmp_path / "gate", running.status().incarnation
    task = running.submit_task(Gated, pool=pool, resources={"cpu": 1}, args=(str(gate),), task_id=f"gated-{pool}")
    eventually(lambda: task.status().state is TaskState.SWAP)
    kill_supervisor(running)
    again = running.submit_task(Gated, pool=pool, resources={"cpu": 1}, args=(str(gate),), task_id=f"gated-{pool}")
    gate.touch()
    assert again.wait_started(60).state is TaskState.RUNNING
    assert again.call("pid") > 0
    assert running.status().incarnation == before + 1
    assert eventually(running.audit)
    assert len([agent for agent in running.list_agents() if agent.task]) == 1


def test_s22_the_order_to_make_a_group_survives_the_supervisor(running):
    tasks = [running.submit_task(Counter, pool="grouped", resources={"cpu": 1}, task_id=f"t{number}") for number in range(2)]
    kill_supervisor(running)
    assert [task.wait_started(60).state for task in tasks] == [TaskState.RUNNING] * 2
    assert eventually(running.audit)


def test_s22_running_agents_keep_state_and_waiting_tasks_order(running):
    up = running.submit_task(Counter, pool="main", resources={"cpu": 2})
    up.call("add", 7)
    also = running.submit_task(Counter, pool="main", resources={"cpu": 2})
    first, second = (running.submit_task(Counter, pool="main", resources={"cpu": 2}) for _ in range(2))
    also.wait_started(60)
    kill_supervisor(running)
    assert (first.status().position, second.status().position) == (1, 2)
    assert up.call("add") == 8
    up.finish()
    assert first.wait_started(60).state is TaskState.RUNNING
    assert eventually(running.audit)


def test_s22_a_result_without_a_supervisor_is_not_lost(running):
    task = running.submit_task(Looper, pool="main", resources={"cpu": 1}, method="run", method_args=(30,))
    task.wait_started(60)
    kill_supervisor(running)
    assert task.result(60) == (0, 30)


def test_s22_an_agent_lost_with_the_supervisor_is_restarted(running):
    task = running.submit_task(Counter, pool="main", resources={"cpu": 1}, max_restarts=1)
    agent = task.call("pid")
    kill_supervisor(running)
    os.kill(agent, signal.SIGKILL)
    assert eventually(lambda: task.status().attempt == 2 and task.status().state is TaskState.RUNNING)
    assert eventually(running.audit)


def test_s22_an_open_call_is_answered_by_the_next_supervisor(running, tmp_path):
    gate = tmp_path / "gate"
    task = running.submit_task(Gated, pool="main", resources={"cpu": 1}, args=(str(gate),))
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(task.wait_started(60).state))
    waiting.start()
    kill_supervisor(running)
    gate.touch()
    waiting.join(90)
    assert answers == [TaskState.RUNNING]


def test_processes_that_nobody_knows_are_ended_after_a_restart(running):
    from mesh.ray.local.agent.agent import Agent
    from mesh.ray.local.ray_names import process_name, supervisor_name

    name = process_name("killed", "stray")
    Agent.options(name=name, namespace="schedulemesh", lifetime="detached").remote(
        "killed", supervisor_name("killed"), "schedulemesh", name
    )
    eventually(lambda: name in [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)])
    kill_supervisor(running)
    assert eventually(running.audit)
