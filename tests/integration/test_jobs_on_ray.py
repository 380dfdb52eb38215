"""Jobs on real Ray with two nodes of two CPUs: killed members, full nodes, and a dead supervisor."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from job_members import Leader, LeaderThatFails, PlainLeader, Worker, starts
from patience import PATIENCE_S, eventually
from supervised import Counter

import mesh
from mesh.core.reasons import Reason
from mesh.jobs.states import ScheduleState, Stage
from mesh.ray.local.supervision_errors import JobExists, JobFailed, JobTerminated, JobUnknown, SubmissionError, TaskUnknown

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def running(two_nodes, tmp_path_factory):
    with mesh.running_mesh("jobs", state_dir=tmp_path_factory.mktemp("mesh"), standbys_per_node=0) as started:
        yield started


@pytest.fixture
def pool(running):
    running.create_pool("train", capacity={"cpu": 4})
    yield "train"
    for job in running.list_jobs():
        running.job(job.job).terminate()
    running.delete_pool("train")
    eventually(lambda: not running.list_pools())
    eventually(running.audit)


def job_form(name, *, workers=2, cpu=1, minimum=1, limit=3, clean="All", policy="BinPack", priority=5):
    return {
        "name": name,
        "pool": "train",
        "leader": {"resources": {"cpu": cpu}},
        "workerSets": [{"name": "actors", "counts": workers, "resources": {"cpu": cpu}}],
        "minWorkersNum": minimum,
        "restartLimit": limit,
        "cleanPodPolicy": clean,
        "priority": priority,
        "schedulerPolicy": {"basicPolicy": policy},
    }


def submitted(running, folder, form, leader=Leader):
    return running.submit_job(form, leader=leader, workers={"actors": Worker}, args={"leader": (folder,), "actors": (folder,)})


def states(job):
    return [member.state.value for member in job.status().members]


def is_running(job, workers=2):
    return job.status().stage is Stage.RUNNING and states(job).count("Running") == workers + 1


def until_running(job, workers):
    """Wait until the job and so many workers run. Say what runs where they do not."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: is_running(job, workers))
    assert is_running(job, workers), job.status()


def test_s34_s35_workers_start_with_the_leaders_address(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("pong"))
    eventually(lambda: is_running(job))
    ((_, leader_pid, leader_address),) = starts(tmp_path, "leader")
    address = f"leader-of-{leader_pid}:1"
    assert leader_address.rpartition(":")[2].isdigit()
    assert sorted((rank, of) for rank, _, of in eventually(lambda: starts(tmp_path, "actors"))) == [(1, address), (2, address)]
    assert job.status().leader_address == address
    assert job.member("actors", 1).status().node == job.status().members[2].node
    (tmp_path / "enough").touch()
    assert job.result(PATIENCE_S) == {"rank": "0", "size": "3"}
    assert job.status().stage is Stage.SUCCEEDED
    assert set(states(job)) == {"Removed"}
    assert [view.job for view in running.list_jobs()] == ["pong"]


def test_s35_a_leader_without_an_address_gets_a_free_one(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("plain", workers=1), leader=PlainLeader)
    eventually(lambda: is_running(job, 1))
    (tmp_path / "enough").touch()
    address = job.result(PATIENCE_S)
    host, _, port = address.rpartition(":")
    assert host
    assert 1024 < int(port) < 65536
    assert [of for _, _, of in starts(tmp_path, "actors")] == [address]


def test_s35_a_killed_worker_is_restarted_on_its_place(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("killed-worker"))
    eventually(lambda: is_running(job))
    before = job.status().members[1]
    os.kill(next(pid for rank, pid, _ in starts(tmp_path, "actors") if rank == 1), signal.SIGKILL)
    after = eventually(lambda: (member := job.status().members[1]).attempt == 2 and member.state.value == "Running" and member)
    assert (after.node, after.failures) == (before.node, 1)
    assert [rank for rank, _, _ in starts(tmp_path, "actors")].count(1) == 2
    assert job.status().members[0].attempt == 1


def test_s35_workers_get_the_new_address_of_a_killed_leader(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("killed-leader"))
    eventually(lambda: is_running(job))
    os.kill(starts(tmp_path, "leader")[0][1], signal.SIGKILL)
    eventually(lambda: len(starts(tmp_path, "actors")) == 4 and is_running(job))
    address = f"leader-of-{starts(tmp_path, 'leader')[1][1]}:1"
    assert {of for _, _, of in starts(tmp_path, "actors")[2:]} == {address}
    assert [member.failures for member in job.status().members] == [1, 0, 0]


def test_s34_a_leader_beyond_its_restart_limit_fails_the_job(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("hopeless", limit=1), leader=LeaderThatFails)
    with pytest.raises(JobFailed, match="the model is not to be found") as failed:
        job.result(PATIENCE_S)
    assert isinstance(failed.value.__cause__, RuntimeError)
    assert (job.status().stage, job.status().reason) == (Stage.FAILED, Reason.RESTART_LIMIT)
    assert len(starts(tmp_path, "leader")) == 2


def test_s34_s38_a_job_starts_partly_and_gets_late_workers(running, pool, tmp_path):
    holder = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    holder.wait_started(PATIENCE_S)
    job = submitted(running, tmp_path, job_form("late", workers=3, minimum=1))
    eventually(lambda: is_running(job, 2))
    assert job.status().schedule_state is ScheduleState.SCHEDULED_PARTLY
    holder.finish()
    eventually(lambda: is_running(job, 3))
    assert job.status().schedule_state is ScheduleState.SCHEDULED_SUCCEED


def test_s37_a_gang_waits_until_all_of_it_fits(running, pool, tmp_path):
    holder = running.submit_task(Counter, pool=pool, resources={"cpu": 1})
    holder.wait_started(PATIENCE_S)
    job = submitted(running, tmp_path, job_form("gang", workers=3, policy="Gang"))
    view = eventually(lambda: (view := job.status()).reason is not None and view)
    assert (view.stage, view.schedule_state) == (Stage.PENDING, ScheduleState.UNSCHEDULED)
    assert running.list_pools()[0].free == mesh.ResourceSet.of({"cpu": 3})
    holder.finish()
    eventually(lambda: is_running(job, 3))


def test_s34_a_job_that_no_nodes_could_ever_hold_fails_at_once(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("large", cpu=3))
    with pytest.raises(JobFailed):
        job.result(PATIENCE_S)
    assert job.status().schedule_state is ScheduleState.SCHEDULED_FAILED


@pytest.mark.parametrize(
    ("clean", "left"),
    [
        pytest.param("All", ["Removed", "Removed", "Removed"], id="all are stopped and forgotten"),
        pytest.param(
            "Running",
            ["Removed", "Removed", "Succeeded"],
            id="those that ended stay to be looked at",
            marks=[pytest.mark.faults, pytest.mark.slow],
        ),
        pytest.param("None", ["Running", "Running", "Succeeded"], id="those that run go on"),
    ],
)
def test_s34_terminate_cleans_up_as_the_job_asks(running, pool, tmp_path, clean, left):
    spec = job_form(f"clean-{clean}", clean=clean)
    spec["workerSets"] = [{"name": "actors", "resources": {"cpu": 1}}, {"name": "short", "resources": {"cpu": 1}}]
    job = running.submit_job(
        spec,
        leader=Leader,
        workers={"actors": Worker, "short": Counter},
        args={"leader": (tmp_path,), "actors": (tmp_path,), "short": (7,)},
        method="run",
    )
    eventually(lambda: is_running(job))
    ended = job.member("short")
    ended.finish()
    eventually(lambda: states(job)[2] == "Succeeded")
    job.terminate()
    view = job.wait(PATIENCE_S)
    assert (view.stage, view.reason) == (Stage.SUCCEEDED, Reason.CANCELLED_BY_USER)
    assert [member.state.value for member in view.members] == left
    with pytest.raises(JobTerminated):
        job.result(PATIENCE_S)
    if clean == "All":
        with pytest.raises(TaskUnknown):
            ended.status()
    else:
        assert ended.status().state is mesh.TaskState.SUCCEEDED
    (tmp_path / "enough").touch()
    (tmp_path / "workers may end").touch()
    eventually(lambda: "Running" not in states(job))


def test_s35_a_preempted_leader_reschedules_its_whole_job(running, pool, tmp_path):
    running.change_settings(rules__min_run_ms=0)
    job = submitted(running, tmp_path, job_form("yields", workers=1, cpu=2, priority=1))
    eventually(lambda: is_running(job, 1))
    node = job.status().members[0].node
    urgent = running.submit_task(Counter, pool=pool, resources={"cpu": 2}, priority=9, node=node, policy="node_affinity")
    assert urgent.wait_started(PATIENCE_S).state is mesh.TaskState.RUNNING
    eventually(lambda: job.status().stage is Stage.RESCHEDULING)
    eventually(lambda: job.status().reason is Reason.NODES_BUSY)  # The urgent task has one of its nodes.
    urgent.finish()
    eventually(lambda: is_running(job, 1))
    assert [member.failures for member in job.status().members] == [0, 0]


def test_s22_s35_jobs_survive_the_supervisor(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("survivor", workers=3, minimum=1))
    until_running(job, 3)
    before = starts(tmp_path, "actors")
    os.kill(running.status().pid, signal.SIGKILL)
    assert job.status().stage is Stage.RUNNING
    os.kill(before[0][1], signal.SIGKILL)
    eventually(lambda: len(starts(tmp_path, "actors")) == 4 and is_running(job, 3))
    os.kill(running.status().pid, signal.SIGKILL)
    (tmp_path / "enough").touch()
    assert job.result(PATIENCE_S) == {"rank": "0", "size": "4"}


def test_s22_a_job_survives_a_supervisors_death_while_starting(running, pool, tmp_path):
    job = submitted(running, tmp_path, job_form("early"))
    os.kill(running.status().pid, signal.SIGKILL)
    eventually(lambda: is_running(job))
    assert len(starts(tmp_path, "leader")) == 1
    assert len(starts(tmp_path, "actors")) == 2


def test_s34_an_invalid_job_is_reported_before_anything_starts(running, pool, tmp_path):
    with pytest.raises(mesh.JobSpecError, match=r"minWorkersNum: 5 is more than"):
        submitted(running, tmp_path, job_form("wrong", minimum=5))
    with pytest.raises(SubmissionError, match="'actors' has no class"):
        running.submit_job(job_form("wrong"), leader=Leader)
    with pytest.raises(SubmissionError, match="'actor' is not a role"):
        running.submit_job(job_form("wrong"), leader=Leader, workers={"actors": Worker, "actor": Worker})
    with pytest.raises(JobUnknown, match="there is no job wrong"):
        running.job("wrong")
    job = submitted(running, tmp_path, job_form("right"))
    assert submitted(running, tmp_path, job_form("right")).job == job.job
    with pytest.raises(JobExists, match="job right exists with another spec"):
        submitted(running, tmp_path, job_form("right", workers=1))
