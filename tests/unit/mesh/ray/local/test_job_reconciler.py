"""Reconciler between jobs and scheduler, without Ray: starts, ends, preemption, lost places and crashes."""

from __future__ import annotations

import asyncio

import pytest

from mesh.core.ids import TaskId
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.jobs.invariants import violations
from mesh.jobs.spec import JobSpec, ReplicaSpec, WorkerSetSpec
from mesh.jobs.states import MemberState, ScheduleState, Stage
from mesh.policies.catalogue import node_policy
from mesh.ray.local.agent_messages import Ended, HostCommand, Hosted, JobPayload
from mesh.ray.local.store.archive import Archive
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.store.snapshot_store import FileSnapshots
from mesh.ray.local.store.task_payloads import TaskPayloads
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.supervisor.job_reconciler import JobReconciler, JobSettings
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.events import (
    AgentLost,
    NodeJoined,
    NodeLeft,
    PoolConfigured,
    SettingsChanged,
    TaskEnded,
    TaskStarted,
    TaskStopped,
    TaskSubmitted,
    Ticked,
)
from mesh.tasks.scheduler import MeshScheduler

ONE = ResourceSet.of({"cpu": 1})
WORK = JobPayload(commands={role: HostCommand(task=TaskId(""), attempt=0, code=b"", entry="run") for role in ("leader", "actors")})


class Clock:
    """Clock that is set by hand."""

    def __init__(self):
        self.ms = 1_000

    def now_ms(self):
        return self.ms


class Scene:
    """Supervisor without processes; tests report what became of them."""

    def __init__(self, folder, clock=None):
        self.folder, self.clock = folder, clock or Clock()
        plugins = PluginHost()
        self.archive = Archive(folder / "journal", plugins=plugins)
        self.loop = ControlLoop(self.archive, MeshScheduler, self.clock, plugins)
        self.payloads = TaskPayloads(PayloadStore(folder / "tasks"), FileSnapshots(folder / "kept"), self.row_of)
        self.loop.payloads = self.payloads
        self.reconciler = JobReconciler(self.loop, self.payloads, node_policy, JobSettings(room_wait_ms=5_000), seed=0)
        self.loop.listeners.append(self.reconciler.hear)

    def row_of(self, task):
        return self.loop.task_index.tasks.get(task)

    def died_and_came_back(self):
        self.archive.close()
        again = Scene(self.folder, self.clock)
        again.reconciler.recover()
        again.turn()
        return again

    def turn(self, times=4):
        for _ in range(times):
            self.reconciler.turn()
        assert violations(self.loop.jobs) == []

    def send(self, kind, **fields):
        self.loop.send(kind(at_ms=self.clock.ms, **fields))

    def up(self, task, address="lead:1"):
        order = self.loop.task_index.starts[task]
        if ":leader:" in task:
            self.payloads.keep_hosted(
                Hosted(task=task, attempt=order.attempt, agent=order.agent, pid=1, node=order.node, methods=(), address=address)
            )
        self.send(TaskStarted, task=task, attempt=order.attempt, agent=order.agent)
        self.turn()

    def all_up(self):
        while self.loop.task_index.starts:
            self.up(next(iter(self.loop.task_index.starts)))

    @property
    def job(self):
        return self.reconciler.view("pong")

    def states(self):
        return [member.state for member in self.job.members]


@pytest.fixture
def scene(tmp_path):
    scene = Scene(tmp_path)
    for name in ("a", "b"):
        scene.send(NodeJoined, node=name, total=ONE.times(2), labels={})
    scene.send(PoolConfigured, spec=PoolSpec(pool="train", capacity=ONE.times(4)))
    return scene


def pong(**more):
    options = {"worker_sets": (WorkerSetSpec(name="actors", counts=2, resources=ONE),), **more}
    return JobSpec(job="pong", pool="train", leader=ReplicaSpec(resources=ONE), **options)


def submit(scene, **more):
    assert scene.reconciler.submit(pong(**more), WORK) is None
    scene.turn()


def test_s35_the_leader_starts_first_workers_get_its_address(scene):
    submit(scene)
    assert list(scene.loop.task_index.starts) == ["pong:leader:0:1"]
    scene.up("pong:leader:0:1", address="here:7")
    assert sorted(scene.loop.task_index.starts) == ["pong:actors:0:1", "pong:actors:1:1"]
    order = scene.payloads.host_command(scene.loop.task_index.starts["pong:actors:1:1"])
    assert (order.task, order.environment["SCHEDULEMESH_LEADER_ADDRESS"]) == ("pong:actors:1:1", "here:7")
    scene.all_up()
    assert (scene.job.stage, scene.job.schedule_state) == (Stage.RUNNING, ScheduleState.SCHEDULED_SUCCEED)


def test_s38_a_plain_task_cannot_take_a_waiting_workers_place(scene):
    submit(scene)
    node = scene.job.members[1].node
    for number in range(2):
        request = TaskRequest(task=f"other{number}", pool="train", resources=ONE, policy="node_affinity", node=node, priority=10)
        scene.send(TaskSubmitted, request=request)
    scene.up("pong:leader:0:1")
    scene.turn()
    scene.all_up()
    assert [state.value for state in scene.states()] == ["Running", "Running", "Running"]


def test_s35_a_worker_with_a_taken_place_gets_another_uncounted(scene):
    submit(scene)
    node = scene.job.members[1].node
    scene.clock.ms += JobSettings().leader_wait_ms
    scene.send(Ticked)  # The leader took so long that the reservations expired.
    taken = {"pool": "train", "resources": ONE, "policy": "node_affinity", "node": node, "preemptible": False}
    for number in range(2):
        scene.send(TaskSubmitted, request=TaskRequest(task=f"other{number}", **taken))
    scene.up("pong:leader:0:1")
    scene.turn()
    assert scene.states().count(MemberState.STARTING) == 2
    scene.clock.ms += 6_000
    scene.turn()
    assert [member.failures for member in scene.job.members] == [0, 0, 0]
    scene.all_up()
    assert sorted(state.value for state in scene.states()[1:]) == ["Running", "Unplaced"]
    assert [member.failures for member in scene.job.members] == [0, 0, 0]


def test_s35_a_preempted_worker_loses_its_place_and_task(scene):
    scene.send(SettingsChanged, settings={"rules.min_run_ms": 0})
    submit(scene, priority=1)
    scene.all_up()
    scene.clock.ms += 1_000
    scene.send(TaskSubmitted, request=TaskRequest(task="urgent", pool="train", resources=ONE.times(2), priority=9))
    (victim,) = scene.loop.task_index.stops
    order = scene.loop.task_index.stops[victim]
    scene.send(TaskStopped, task=victim, attempt=order.attempt)
    scene.turn()
    assert scene.loop.task_index.tasks[victim].reason is Reason.CANCELLED_BY_USER
    assert len(scene.loop.scheduler.state.queues) == 0
    assert not any(member.failures for member in scene.job.members)


def test_s35_a_worker_that_is_being_stopped_keeps_its_order(scene):
    scene.send(SettingsChanged, settings={"rules.min_run_ms": 0})
    submit(scene, priority=1)
    scene.all_up()
    scene.clock.ms += 1_000
    scene.send(TaskSubmitted, request=TaskRequest(task="urgent", pool="train", resources=ONE.times(2), priority=9))
    (victim,) = scene.loop.task_index.stops
    scene.turn()
    assert set(scene.states()) == {MemberState.RUNNING}
    assert scene.loop.task_index.stops[victim].reason is Reason.PREEMPTED
    assert scene.loop.scheduler.state.records[victim].requeue


def test_s35_a_lost_node_loses_the_places_of_its_members(scene):
    submit(scene, min_workers_num=1)
    scene.all_up()
    node = scene.job.members[0].node
    scene.send(NodeLeft, node=node)
    scene.turn()
    assert scene.job.stage is Stage.RESCHEDULING
    for task, order in tuple(scene.loop.task_index.stops.items()):
        scene.send(TaskStopped, task=task, attempt=order.attempt)
    scene.turn()
    scene.all_up()
    assert scene.job.stage is Stage.RUNNING
    assert scene.job.schedule_state is ScheduleState.SCHEDULED_PARTLY
    scene.send(NodeJoined, node="c", total=ONE.times(2), labels={})
    scene.turn()
    scene.all_up()
    assert scene.job.schedule_state is ScheduleState.SCHEDULED_SUCCEED


def test_s34_the_leaders_result_outlives_its_job(scene):
    submit(scene)
    scene.all_up()
    scene.payloads.keep_ended(Ended(task="pong:leader:0:1", attempt=1, result=b"42"), None)
    scene.send(TaskEnded, task="pong:leader:0:1", attempt=1)
    scene.turn()
    for task, order in tuple(scene.loop.task_index.stops.items()):
        scene.send(TaskStopped, task=task, attempt=order.attempt)
    scene.turn()
    assert set(scene.states()) == {MemberState.REMOVED}
    assert scene.payloads.job_ended("pong")[0].result == b"42"
    assert "pong:leader:0:1" not in scene.loop.task_index.tasks


def test_s22_a_member_ordered_before_a_crash_is_submitted_after(scene, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr(scene.reconciler, "_start", lambda *_: None)
        submit(scene)
    assert "pong:leader:0:1" not in scene.loop.task_index.tasks
    again = scene.died_and_came_back()
    assert list(again.loop.task_index.starts) == ["pong:leader:0:1"]


def test_s22_an_end_missed_in_a_crash_reaches_the_jobs(scene):
    submit(scene)
    scene.all_up()
    scene.loop.listeners.clear()
    scene.send(AgentLost, task="pong:actors:0:1", attempt=1, detail="killed")
    again = scene.died_and_came_back()
    assert again.job.members[1].failures == 1
    assert "pong:actors:0:2" in again.loop.task_index.starts


def test_s22_a_stop_ordered_before_a_crash_is_sent_after(scene, monkeypatch):
    submit(scene)
    scene.all_up()
    with monkeypatch.context() as dying:
        dying.setattr(scene.reconciler, "_stop", lambda _: None)
        scene.reconciler.terminate("pong")
    again = scene.died_and_came_back()
    assert len(again.loop.task_index.stops) == 3


def test_s38_a_round_that_finds_nothing_new_writes_nothing_down(scene, monkeypatch):
    scene.send(TaskSubmitted, request=TaskRequest(task="holder", pool="train", resources=ONE.times(2), preemptible=False))
    scene.send(TaskSubmitted, request=TaskRequest(task="holder2", pool="train", resources=ONE.times(2), preemptible=False))
    submit(scene)
    size = sum(file.stat().st_size for file in (scene.folder / "journal").iterdir())
    rounds = iter([asyncio.TimeoutError()] * 5)

    async def wait_for(waiting, _):
        waiting.close()
        scene.clock.ms += 1_000
        raise next(rounds, asyncio.CancelledError())

    monkeypatch.setattr(asyncio, "wait_for", wait_for)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scene.reconciler.run())
    assert sum(file.stat().st_size for file in (scene.folder / "journal").iterdir()) == size
    assert scene.job.reason is not None
