"""Index of tasks and their orders."""

from __future__ import annotations

from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec
from mesh.core.task_spec import TaskRequest, TaskState
from mesh.jobs.controller import JobController
from mesh.ray.local.store.archive import Archive, Memory
from mesh.ray.local.store.task_index import TaskIndex
from mesh.ray.local.supervisor.views import task_status
from mesh.tasks.decisions import EndTask, GiveGroup, StartTask, StopTask
from mesh.tasks.events import NodeJoined, NodeLeft, PoolConfigured, TaskCancelled, TaskEnded, TaskStarted, TaskStopped, TaskSubmitted
from mesh.tasks.scheduler import MeshScheduler

ONE = ResourceSet.of({"cpu": 1})


def carry(archive, scheduler, task_index, *events):
    decisions = scheduler.handle(*events)
    archive.append(scheduler.state.version, events, decisions)
    task_index.fold(events, decisions)
    return decisions


def busy_mesh(archive):
    """Return a mesh of one node with one CPU, a running task and a waiting one."""
    scheduler, task_index = MeshScheduler(), TaskIndex()
    carry(archive, scheduler, task_index, NodeJoined(at_ms=1, node="n", total=ONE, labels={}))
    carry(archive, scheduler, task_index, PoolConfigured(at_ms=2, spec=PoolSpec(pool="p", capacity=ONE.times(4))))
    carry(archive, scheduler, task_index, PoolConfigured(at_ms=2, spec=PoolSpec(pool="g", capacity=ONE, groups=GroupPoolSpec())))
    for task in ("a", "b"):
        carry(archive, scheduler, task_index, TaskSubmitted(at_ms=3, request=TaskRequest(task=task, pool="p", resources=ONE)))
    carry(archive, scheduler, task_index, TaskStarted(at_ms=4, task="a", attempt=1, agent="a.1"))
    return scheduler, task_index


def test_a_decision_is_open_until_it_is_answered(tmp_path):
    archive = Archive(tmp_path)
    scheduler, task_index = busy_mesh(archive)
    assert (list(task_index.starts), task_index.tasks["a"].state) == ([], TaskState.RUNNING)
    carry(archive, scheduler, task_index, TaskEnded(at_ms=5, task="a", attempt=1))
    assert (task_index.tasks["a"].state, list(task_index.starts), task_index.tasks["b"].state) == (
        TaskState.SUCCEEDED,
        ["b"],
        TaskState.SWAP,
    )


def test_s22_journal_alone_gives_scheduler_and_index_back(tmp_path):
    archive = Archive(tmp_path)
    scheduler, task_index = busy_mesh(archive)
    archive.close()
    again = Archive(tmp_path).load(MeshScheduler)
    assert again.task_index == task_index
    assert again.scheduler.to_snapshot() == scheduler.to_snapshot()


def test_s22_snapshot_and_the_journal_after_it_give_them_back(tmp_path):
    archive = Archive(tmp_path)
    scheduler, task_index = busy_mesh(archive)
    archive.snapshot(Memory(scheduler=scheduler, task_index=task_index, jobs=JobController()))
    carry(archive, scheduler, task_index, TaskEnded(at_ms=5, task="a", attempt=1))
    archive.close()
    again = Archive(tmp_path).load(MeshScheduler)
    assert again.task_index == task_index
    assert again.scheduler.to_snapshot() == scheduler.to_snapshot()


def test_decisions_about_a_forgotten_task_change_nothing():
    gone = {"version": 1, "task": "gone"}
    decisions = [
        StartTask(**gone, attempt=1, agent="gone.1", node="n", group=None, resources=ONE, reason=Reason.PLACED),
        StopTask(**gone, attempt=1, keep_state=False, grace_ms=0, reason=Reason.CANCELLED_BY_USER),
        GiveGroup(**gone, group="g", reason=Reason.GROUP_REUSED),
        EndTask(**gone, reason=Reason.FINISHED),
    ]
    task_index = TaskIndex()
    task_index.fold([TaskStarted(at_ms=0, task="gone", attempt=1, agent="gone.1")], decisions)
    assert task_index == TaskIndex()


def test_a_stop_of_a_given_up_attempt_is_not_of_the_running_one(tmp_path):
    _, task_index = busy_mesh(Archive(tmp_path))
    stop = StopTask(version=9, task="a", attempt=0, keep_state=False, grace_ms=0, reason=Reason.PREEMPTED)
    task_index.fold([TaskStarted(at_ms=5, task="a", attempt=0, agent="a.0")], [stop])
    assert (task_index.tasks["a"].state, list(task_index.stops)) == (TaskState.RUNNING, [])


def test_a_next_start_acks_the_stop_of_a_given_up_attempt():
    task_index = TaskIndex()
    request = TaskRequest(task="t", pool="p", resources=ONE)
    start = {"version": 1, "task": "t", "agent": "a", "node": "n", "group": None, "resources": ONE, "reason": Reason.PLACED}
    stop = StopTask(version=1, task="t", attempt=1, keep_state=False, grace_ms=0, reason=Reason.AGENT_LOST)
    task_index.fold([TaskSubmitted(at_ms=1, request=request)], [StartTask(**start, attempt=1)])
    task_index.fold([NodeLeft(at_ms=2, node="m")], [stop, StartTask(**start, attempt=2)])
    assert task_index.stops == {"t": stop}
    task_index.fold([TaskStopped(at_ms=3, task="t", attempt=1)], [])
    assert (task_index.stops, task_index.starts["t"].attempt, task_index.tasks["t"].state) == ({}, 2, TaskState.SWAP)


def test_s17_a_failed_save_is_remembered_until_one_works(tmp_path):
    archive = Archive(tmp_path)
    scheduler, task_index = busy_mesh(archive)
    carry(archive, scheduler, task_index, TaskCancelled(at_ms=5, task="b"))
    carry(archive, scheduler, task_index, TaskCancelled(at_ms=5, task="a"))
    carry(archive, scheduler, task_index, TaskStopped(at_ms=6, task="a", attempt=1, unkept="the preserver raised"))
    assert task_status(scheduler.state, task_index, "a", task_index.tasks["a"]).detail.startswith(
        "the preserver raised; the default state is used"
    )
    again = TaskSubmitted(at_ms=7, request=task_index.tasks["a"].request, resume=True, first_attempt=1)
    carry(archive, scheduler, task_index, again)
    carry(archive, scheduler, task_index, TaskStarted(at_ms=8, task="a", attempt=2, agent="a.2"))
    assert "the preserver raised" in task_status(scheduler.state, task_index, "a", task_index.tasks["a"]).detail
    carry(archive, scheduler, task_index, TaskCancelled(at_ms=9, task="a", requeue=True))
    carry(archive, scheduler, task_index, TaskStopped(at_ms=10, task="a", attempt=2))
    carry(archive, scheduler, task_index, TaskStarted(at_ms=11, task="a", attempt=3, agent="a.3", unrestored="the restorer raised"))
    assert "the restorer raised" in task_status(scheduler.state, task_index, "a", task_index.tasks["a"]).detail
    archive.close()
    assert Archive(tmp_path).load(MeshScheduler).task_index == task_index
