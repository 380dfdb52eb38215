"""Deaths and suspensions of a mesh's processes on three raylets: nothing is lost, repeated or left behind."""

from __future__ import annotations

import os
import signal
import threading

import psutil
import pytest
import ray
from mesh_scene import (
    Gated,
    Probe,
    SlowToLeave,
    Ticker,
    Trainer,
    asleep,
    clean,
    has_ended,
    is_called,
    is_stopped,
    joined,
    kept_step,
    kill_session,
    left_in_ray,
    node_named,
    processes_of,
    steps_of,
    ticks_of,
)
from patience import eventually

import mesh
from mesh.core.reasons import Reason
from mesh.core.task_spec import TaskState
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec
from mesh.ray.local.supervision_errors import TaskFailed
from mesh.ray.local.supervisor.driver import DriverSettings
from mesh.tasks.settings import SchedulerSettings

pytestmark = pytest.mark.ray

#: A path that another case of `make test` takes runs in `make faults`.
FAULTS = (pytest.mark.faults, pytest.mark.slow)
GROUPED = ("without a placement group", "with a placement group")
EAST, WEST = {"zone": "east"}, {"zone": "west"}


@pytest.fixture(scope="module")
def running(three_nodes, tmp_path_factory):
    driver = DriverSettings(standbys_per_node=0, margin_s=2.0, group_s_max=120.0)
    with mesh.running_mesh("faults", state_dir=tmp_path_factory.mktemp("mesh"), driver=driver) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_left(running):
    """Check after every test: no pool, no placement group, nothing held, and agreeing ledgers."""
    yield
    clean(running)


@pytest.fixture
def patient(running):
    """Settings under which no process is killed for stopping slowly."""
    running.change_settings(grace_ms=120_000)
    yield
    running.change_settings(grace_ms=SchedulerSettings().grace_ms)


def is_running(task, attempt=1):
    status = task.status()
    return status.state is TaskState.RUNNING and status.attempt == attempt and status


def idle_reserved(running):
    return [each.group for each in running.list_groups() if (each.layer, each.state) == ("RESERVED", "IDLE")]


def raylet_of(cluster, node):
    """Return the raylet process of a node of the fixture."""
    return next(process.pid for process in processes_of(cluster.pids[node]) if is_called(process, "raylet"))


def kill_supervisor(running):
    os.kill(running.status().pid, signal.SIGKILL)


def hosting(running):
    """Return the tasks hosted by live processes, once per process."""
    return sorted(str(agent.task) for agent in running.list_agents() if agent.task is not None)


def test_s20_killed_agent_restarts_up_to_its_limit(running):
    running.create_pool("main", capacity={"cpu": 2})
    task = running.submit_task(Probe, pool="main", resources={"cpu": 2}, max_restarts=1)
    first = task.call("pid")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: is_running(task, attempt=2))
    second = task.call("pid")
    assert second != first
    os.kill(second, signal.SIGKILL)
    with pytest.raises(TaskFailed, match="AGENT_LOST"):
        task.result(60)
    assert running.list_pools()[0].free == running.list_pools()[0].capacity
    assert running.submit_task(Probe, pool="main", resources={"cpu": 2}).call("add") == 1


def test_s20_dead_agent_resumes_from_its_last_checkpoint(running, tmp_path):
    running.create_pool("main", capacity={"cpu": 2})
    task = running.submit_task(
        Trainer, pool="main", resources={"cpu": 1}, method="run", method_args=(str(tmp_path), 20, 10), max_restarts=-1
    )
    eventually(lambda: len(steps_of(tmp_path)) == 10)
    eventually(lambda: kept_step(running, task) == 10)
    os.kill(running.collect_metrics(task.task)[task.task].pid, signal.SIGKILL)
    (tmp_path / "gate").touch()
    assert task.result(60) == (10, 20)
    assert steps_of(tmp_path) == list(range(20))


def test_s20_placement_group_removed_by_others_is_made_anew(running):
    running.create_pool("main", capacity={"cpu": 4})
    running.configure_pool("main", high_priority_pg_specs=[{"cpu": 1}], max_dynamic_pgs=2)
    reserved = eventually(lambda: idle_reserved(running))
    task = running.submit_task(Probe, pool="main", resources={"cpu": 1}, max_restarts=1)
    group = task.wait_started(60).group
    for gone in (reserved[0], group):
        ray.util.remove_placement_group(ray.util.get_placement_group(f"schedulemesh:faults:group:{gone}"))
    assert eventually(lambda: is_running(task, attempt=2)).group not in (group, *reserved)
    eventually(lambda: idle_reserved(running) not in ([], reserved))
    assert eventually(running.audit)


def test_s20_joining_node_starts_work_and_dying_node_moves_it(three_nodes, running):
    running.create_pool("main", capacity={"cpu": 8, "accelerator": 4})
    running.create_pool("grouped", capacity={"cpu": 8, "accelerator": 4})
    running.configure_pool("grouped", high_priority_pg_specs=[{"cpu": 1, "accelerator": 1}], max_dynamic_pgs=2)
    plain = running.submit_task(Probe, pool="main", resources={"cpu": 1, "accelerator": 1}, max_restarts=1)
    assert (plain.status().state, plain.status().reason) == (TaskState.INFEASIBLE, Reason.NO_NODE_FITS)
    needed = {"accelerator": 4.0}
    with joined(three_nodes, ClusterNodeSpec(cpu=3, labels={"zone": "first"}, resources=needed)) as first:
        eventually(lambda: [group.state for group in running.list_groups()] == ["IDLE"])
        grouped = running.submit_task(Probe, pool="grouped", resources={"cpu": 1, "accelerator": 1}, priority=9, max_restarts=1)
        assert plain.wait_started(60).state is TaskState.RUNNING
        assert grouped.wait_started(60).state is TaskState.RUNNING
        layer = {group.group: group.layer for group in running.list_groups()}
        assert layer[grouped.status().group] == "RESERVED"
        assert plain.call("node") == grouped.call("node") == node_named(zone="first")
        with joined(three_nodes, ClusterNodeSpec(cpu=3, labels={"zone": "second"}, resources=needed)):
            eventually(lambda: len(running.list_nodes()) == 5)
            kill_session(first)
            for task in (plain, grouped):
                # An attempt may have been sent to the dead node before the mesh knew of its death.
                eventually(lambda task=task: task.status().attempt > 1 and task.status().state is TaskState.RUNNING)
                assert running.task(task.task).call("node") == node_named(zone="second")
            eventually(lambda: {node for group in running.list_groups() for node in group.nodes} == {node_named(zone="second")})
            assert eventually(lambda: [each.layer for each in running.list_groups() if each.layer == "RESERVED"]) == ["RESERVED"]
            assert eventually(running.audit)
            running.delete_pool("main")
            running.delete_pool("grouped")
            eventually(lambda: not running.list_pools())
    eventually(lambda: len(running.list_nodes()) == 3)


# -- the supervisor dies in each of the five steps of an agent's creation -----------------------------------------------


def submitted_while_killed(running, **options):
    """Submit from another thread while the supervisor dies, and return the call's handle."""
    handles = []
    thread = threading.Thread(target=lambda: handles.append(running.submit_task(**options)))
    pid = running.status().pid
    thread.start()
    os.kill(pid, signal.SIGKILL)
    thread.join(90)
    return handles[0]


def assert_one_agent(running, task):
    assert task.wait_started(90).state is TaskState.RUNNING
    assert eventually(running.audit)
    assert hosting(running) == [str(task.task)]
    assert [pool.used["cpu"] for pool in running.list_pools()] == [10_000]


@pytest.mark.parametrize("groups", [False, pytest.param(True, marks=FAULTS)], ids=GROUPED)
def test_s22_supervisor_dies_while_quota_is_reserved(running, groups):
    running.create_pool("main", capacity={"cpu": 2})
    if groups:
        running.configure_pool("main", max_dynamic_pgs=1)
    task = submitted_while_killed(running, actor_class=Probe, pool="main", resources={"cpu": 1}, task_id=f"once-{groups}")
    assert_one_agent(running, task)


def test_s22_supervisor_dies_while_ray_makes_the_group(three_nodes, running):
    running.create_pool("main", capacity={"cpu": 2}, labels=EAST)
    running.configure_pool("main", max_dynamic_pgs=1)
    before = running.status().incarnation
    with asleep(raylet_of(three_nodes, 1)):  # Ray cannot make the group before this node has answered.
        task = running.submit_task(Probe, pool="main", resources={"cpu": 1})
        eventually(lambda: [group.state for group in running.list_groups()] == ["CREATING"])
        kill_supervisor(running)
        assert running.status().incarnation == before + 1
        assert [group.state for group in running.list_groups()] == ["CREATING"]
    assert_one_agent(running, task)
    assert len(running.list_groups()) == 1


def test_s22_supervisor_dies_while_others_use_a_node(running):
    stranger = ray.remote(num_cpus=2, label_selector=EAST)(Probe).remote()
    ray.get(stranger.pid.remote(), timeout=60)
    eventually(lambda: {node.labels["zone"]: node.used["cpu"] for node in running.list_nodes()}["east"] == 20_000)
    before = running.status().incarnation
    kill_supervisor(running)
    assert running.status().incarnation == before + 1
    ray.kill(stranger)  # The check after every test covers the freed capacity.


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("groups", [False, True], ids=GROUPED)
def test_s22_supervisor_dies_while_the_agent_starts(running, tmp_path, groups):
    running.create_pool("main", capacity={"cpu": 2})
    if groups:
        running.configure_pool("main", max_dynamic_pgs=1)
    task = running.submit_task(Gated, pool="main", resources={"cpu": 1}, args=(str(tmp_path / "gate"),))
    eventually(lambda: hosting(running) == [str(task.task)])
    kill_supervisor(running)
    assert task.status().state is TaskState.SWAP
    (tmp_path / "gate").touch()
    assert_one_agent(running, task)


@pytest.mark.faults
@pytest.mark.slow
def test_s22_supervisor_dies_while_an_agent_runs(running):
    running.create_pool("main", capacity={"cpu": 2})
    task = running.submit_task(Probe, pool="main", resources={"cpu": 1}, args=(5,))
    pid = task.call("pid")
    kill_supervisor(running)
    assert_one_agent(running, task)
    assert (task.call("pid"), task.call("add")) == (pid, 6)


@pytest.mark.parametrize("groups", [False, pytest.param(True, marks=FAULTS)], ids=GROUPED)
@pytest.mark.usefixtures("patient")
def test_s22_supervisor_dies_while_an_agent_is_released(running, groups):
    running.create_pool("main", capacity={"cpu": 2})
    if groups:
        running.configure_pool("main", max_dynamic_pgs=1)
    task = running.submit_task(SlowToLeave, pool="main", resources={"cpu": 1})
    task.wait_started(60)
    pid = running.collect_metrics(task.task)[task.task].pid
    task.cancel()
    eventually(lambda: is_stopped(pid))
    with asleep(pid):
        kill_supervisor(running)
        assert task.status().state is not TaskState.CANCELLED
    assert task.wait(60).state is TaskState.CANCELLED
    assert eventually(running.audit)
    assert hosting(running) == []
    assert running.list_pools()[0].free == running.list_pools()[0].capacity


@pytest.mark.parametrize("ticks", [70, pytest.param(350, marks=FAULTS)], ids=["for two seconds", "for ten seconds"])
def test_s22_suspended_supervisor_loses_nothing(running, tmp_path, ticks):
    running.create_pool("main", capacity={"cpu": 2})
    school, steps = tmp_path / "school", 100
    school.mkdir()
    trainer = running.submit_task(Trainer, pool="main", resources={"cpu": 1}, method="run", method_args=(str(school), steps, 50))
    ticker = running.submit_task(Ticker, pool="main", resources={"cpu": 1}, method="run", method_args=(str(tmp_path),))
    waiting = running.submit_task(Probe, pool="main", resources={"cpu": 1})
    eventually(lambda: is_running(ticker) and is_running(trainer))
    begun = len(ticks_of(tmp_path))
    pid = running.status().pid
    with asleep(pid):
        (school / "gate").touch()
        eventually(lambda: len(steps_of(school)) == steps)  # All of its steps, and its end, which no one hears now.
        eventually(lambda: len(ticks_of(tmp_path)) > begun + ticks)  # The ticker measures the time.
    assert trainer.result(60) == (0, steps)
    assert waiting.wait_started(60).state is TaskState.RUNNING
    assert (running.status().pid, ticker.status().attempt, ticker.status().state) == (pid, 1, TaskState.RUNNING)
    (tmp_path / "gate").touch()
    assert ticker.result(60) in ticks_of(tmp_path)
    assert len(set(ticks_of(tmp_path))) == 1


def test_s20_agent_suspended_past_its_heartbeat_runs_once(running, tmp_path):
    running.create_pool("main", capacity={"cpu": 2})
    task = running.submit_task(
        Ticker,
        pool="main",
        resources={"cpu": 1},
        method="run",
        method_args=(str(tmp_path),),
        max_restarts=-1,
        metrics_period_ms=200,
    )
    eventually(lambda: ticks_of(tmp_path) and running.collect_metrics())
    pid = ticks_of(tmp_path)[0]
    with asleep(pid):
        ticks = len(ticks_of(tmp_path))
        eventually(lambda: (running.metrics().agent_heartbeat_gap_ms or 0) > 5_000)
        assert len(ticks_of(tmp_path)) == ticks
        assert task.status().attempt == 1
    eventually(lambda: len(ticks_of(tmp_path)) > ticks)
    (tmp_path / "gate").touch()
    assert task.result(60) == pid
    assert (set(ticks_of(tmp_path)), task.status().attempt) == ({pid}, 1)


def test_s20_agent_suspended_during_its_stop_is_killed(running, tmp_path):
    running.create_pool("main", capacity={"cpu": 1})
    running.change_settings(grace_ms=300)
    task = running.submit_task(Ticker, pool="main", resources={"cpu": 1}, method="run", method_args=(str(tmp_path),))
    eventually(lambda: ticks_of(tmp_path))
    pid = ticks_of(tmp_path)[0]
    process = psutil.Process(pid)
    with asleep(pid):
        task.cancel()
        other = running.submit_task(Probe, pool="main", resources={"cpu": 1})
        assert task.wait(60).state is TaskState.CANCELLED
        assert other.wait_started(60).state is TaskState.RUNNING
    eventually(lambda: has_ended(process))
    assert task.status().state is TaskState.CANCELLED
    assert other.call("add") == 1


def test_s22_stopped_mesh_leaves_no_actor_group_or_process(three_nodes, tmp_path):
    def is_ours(process):
        try:
            return any("HostingAgent" in part or "MeshSupervisor" in part for part in process.cmdline())
        except psutil.NoSuchProcess:  # It has ended since, or is a zombie not yet reaped.
            return False

    def agents():
        return {process.pid for session in three_nodes.pids for process in processes_of(session) if is_ours(process)}

    others = agents()
    second = mesh.ScheduleMesh.start("short", state_dir=tmp_path, standbys_per_node=1)
    second.create_pool("main", capacity={"cpu": 3})
    second.configure_pool("main", high_priority_pg_specs=[{"cpu": 1}], max_dynamic_pgs=1)
    second.submit_task(Probe, pool="main", resources={"cpu": 1}).wait_started(60)
    second.submit_task(Probe, pool="main", resources={"cpu": 1}, priority=9).wait_started(60)
    assert len(left_in_ray("short")) >= 5
    assert len(agents() - others) >= 3
    second.stop(forget=True)
    eventually(lambda: not left_in_ray("short"))
    eventually(lambda: not agents() - others)
    assert not list(tmp_path.glob("*"))
