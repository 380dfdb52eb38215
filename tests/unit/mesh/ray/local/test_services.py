"""The supervisor's services without Ray: repeated group requests, closing pools, names of ended tasks, old reports."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec
from mesh.core.task_spec import TaskRequest, TaskState
from mesh.errors import RuntimeAdapterError
from mesh.jobs.spec import JobSpec, ReplicaSpec
from mesh.ray.local.agent_messages import HostCommand
from mesh.ray.local.services.agent_service import AgentService
from mesh.ray.local.services.group_service import GroupService
from mesh.ray.local.services.job_service import JobService
from mesh.ray.local.services.pool_service import PoolService
from mesh.ray.local.services.task_service import TaskService
from mesh.ray.local.status_values import GroupGiven, RequestRefused
from mesh.ray.local.store.archive import Archive
from mesh.ray.local.store.mesh_folder import MeshFolder
from mesh.ray.local.supervision_errors import PoolUnknown, TaskExists, TaskNotRunning
from mesh.ray.local.supervisor.control_loop import ControlLoop, MeshClock
from mesh.ray.local.supervisor.supervised_mesh import SupervisedMesh
from mesh.ray.local.supervisor.supervisor_options import SupervisorOptions
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.events import (
    GroupGone,
    GroupReady,
    NodeJoined,
    PoolConfigured,
    PoolDeleted,
    TaskEnded,
    TaskStarted,
    TaskStopped,
    TaskSubmitted,
)
from mesh.tasks.scheduler import MeshScheduler

ONE = ResourceSet.of({"cpu": 1})
POOL = PoolSpec(pool="p", capacity=ONE, groups=GroupPoolSpec(max_dynamic=2))


class Kept:
    """Payloads of tasks, in memory."""

    def __init__(self):
        self.kept = []

    def submit(self, order):
        self.kept.append(order.code)

    def forget(self, task):
        """Nothing is kept of a task here."""


class Mesh:
    """The services around a loop that has no driver: the test says what becomes of orders."""

    def __init__(self, folder):
        plugins, driver = PluginHost(), SimpleNamespace(hosts={})
        self.loop = ControlLoop(Archive(folder, plugins=plugins), MeshScheduler, MeshClock(), plugins)
        self.payloads = Kept()
        self.tasks = TaskService(self.loop, self.payloads, driver, plugins)
        self.pools = PoolService(self.loop)
        self.groups = GroupService("m", self.loop, self.tasks)
        self.jobs = JobService(self.loop, None, self.payloads)
        self.processes = {}
        self.agents = AgentService(
            loop=self.loop,
            driver=driver,
            agents=SimpleNamespace(processes=self.processes),
            standbys=None,
            payloads=self.payloads,
            feedback=SimpleNamespace(hear=lambda *_: None),
        )
        self.send(NodeJoined, node="n", total=ONE, labels={})
        self.send(PoolConfigured, spec=POOL)

    @property
    def index(self):
        return self.loop.task_index

    def send(self, kind, **fields):
        self.loop.send(kind(at_ms=self.loop.clock.now_ms(), **fields))

    def make_groups(self):
        """Ray makes the groups that are ordered."""
        for group, order in tuple(self.index.creates.items()):
            self.send(GroupReady, group=group, nodes=order.nodes)

    async def ask(self, holder, *, is_made=True, **more):
        """`allocate_pg`, and Ray makes what is ordered."""
        request = TaskRequest(task=holder, pool="p", resources=ONE, has_agent=False, preemptible=False, **more)
        asking = asyncio.create_task(self.groups.allocate_group(request, 60.0 if is_made else 0.0))
        await asyncio.sleep(0)
        if is_made:
            self.make_groups()
        return await asking

    async def cancel(self, task, *, requeue=False):
        return await self.tasks.cancel(task, keep_state=requeue, destroy_group=False, requeue=requeue)


def in_scene(check, folder):
    async def scene():
        await check(Mesh(folder))

    asyncio.run(scene())


def test_s7_a_holder_that_released_its_group_may_ask_again(tmp_path):
    async def check(mesh):
        reasons = []
        for priority in (5.0, 5.0, 6.0):
            given = await mesh.ask("mine", priority=priority)
            assert isinstance(given, GroupGiven)
            reasons.append(given.reason)
            await mesh.cancel("mine")
        assert reasons == [Reason.GROUP_CREATED, Reason.GROUP_REUSED, Reason.GROUP_REUSED]

    in_scene(check, tmp_path)


def test_s7_a_refused_holder_may_ask_again(tmp_path):
    async def check(mesh):
        assert isinstance(await mesh.ask("other"), GroupGiven)
        assert isinstance(await mesh.ask("mine", is_made=False), RequestRefused)
        await mesh.cancel("other")
        assert isinstance(await mesh.ask("mine"), GroupGiven)

    in_scene(check, tmp_path)


def test_s7_a_repeated_request_gets_the_same_group(tmp_path):
    async def check(mesh):
        assert (await mesh.ask("mine")).group == (await mesh.ask("mine")).group
        with pytest.raises(TaskExists):
            await mesh.ask("mine", priority=9.0)

    in_scene(check, tmp_path)


def test_a_closing_pool_configured_again_is_open(tmp_path):
    async def check(mesh):
        await an_agent_that_runs(mesh)
        mesh.send(PoolDeleted, pool="p")
        assert (await mesh.pools.pool("p")).is_closing
        assert not (await mesh.pools.configure_pool(POOL)).is_closing

    in_scene(check, tmp_path)


def test_a_task_that_no_agent_has_cannot_be_finished(tmp_path):
    async def check(mesh):
        mesh.send(TaskSubmitted, request=TaskRequest(task="t", pool="p", resources=ONE.times(9)))
        with pytest.raises(TaskNotRunning, match="wait until it runs"):
            await mesh.tasks.finish("t")

    in_scene(check, tmp_path)


def test_a_report_is_kept_until_its_task_is_over(tmp_path):
    async def check(mesh):
        await an_agent_that_runs(mesh)
        mesh.processes["a"] = SimpleNamespace(task="t", attempt=1)
        report = object()
        await mesh.agents.report("a", "t", 1, "report", report)
        assert await mesh.agents.agent_metrics(None) == {"t": report}
        mesh.send(TaskEnded, task="t", attempt=1)
        await mesh.agents.report("a", "t", 1, "report", report)
        assert mesh.index.tasks["t"].state is TaskState.SUCCEEDED
        assert await mesh.agents.agent_metrics(None) == {}

    in_scene(check, tmp_path)


@pytest.mark.parametrize(("task", "attempt"), [("t", 2), ("next", 1)])
def test_a_late_report_of_a_process_is_ignored(tmp_path, task, attempt):
    async def check(mesh):
        await an_agent_that_runs(mesh)
        mesh.processes["a"] = SimpleNamespace(task=task, attempt=attempt)
        await mesh.agents.report("a", "t", 1, "report", object())
        assert await mesh.agents.agent_metrics(None) == {}

    in_scene(check, tmp_path)


def test_a_failed_start_removes_its_files_under_the_lock(tmp_path, monkeypatch):
    refusals, forget = [], MeshFolder.forget_first

    def forget_watched(folder):
        with pytest.raises(RuntimeAdapterError) as refused:
            Archive(folder.path / "journal")
        refusals.append(str(refused.value))
        forget(folder)

    def full(_):
        raise RuntimeAdapterError("no space left")

    monkeypatch.setattr(MeshFolder, "forget_first", forget_watched)
    monkeypatch.setattr(MeshFolder, "count_start", full)
    options = SupervisorOptions(mesh="m", namespace="tests", state_dir=str(tmp_path / "mesh"))

    async def scene():
        async with AsyncExitStack() as made:
            SupervisedMesh(options, made, is_again=False)

    with pytest.raises(RuntimeAdapterError, match="no space left"):
        asyncio.run(scene())
    assert len(refusals) == 1
    assert "another process writes the journal" in refusals[0]
    assert not (tmp_path / "mesh").exists()


def work_of(task, code):
    return HostCommand(task=task, attempt=0, code=code)


def test_a_name_is_taken_over_only_on_request(tmp_path):
    async def check(mesh):
        old = TaskRequest(task="t", pool="p", resources=ONE.times(9), work="old")
        new = replace(old, work="new")
        assert (await mesh.tasks.submit(old, work_of("t", b"old"))).state is TaskState.INFEASIBLE
        with pytest.raises(TaskExists):
            await mesh.tasks.submit(new, work_of("t", b"new"), replaces=0)
        await mesh.cancel("t")
        with pytest.raises(TaskExists):
            await mesh.tasks.submit(new, work_of("t", b"new"))
        assert (await mesh.tasks.submit(old, work_of("t", b"old"))).state is TaskState.CANCELLED
        assert (await mesh.tasks.submit(new, work_of("t", b"new"), replaces=0)).state is TaskState.INFEASIBLE
        assert mesh.payloads.kept == [b"old", b"new"]
        assert (await mesh.tasks.submit(new, work_of("t", b"new"), replaces=0)).state is TaskState.INFEASIBLE
        assert mesh.payloads.kept == [b"old", b"new"]

    in_scene(check, tmp_path)


async def an_agent_that_runs(mesh):
    """One with room of its own, and its status."""
    request = TaskRequest(task="t", pool="p", resources=ONE, work="old", max_restarts=-1)
    await mesh.tasks.submit(request, work_of("t", b"old"))
    mesh.make_groups()
    order = mesh.index.starts["t"]
    mesh.send(TaskStarted, task="t", attempt=order.attempt, agent=order.agent)
    return request, await mesh.tasks.task("t")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param({"pool": "p", "max_restarts": -5}, id="at once, as it cannot be"),
        pytest.param({"pool": "p"}, id="after its agent ran"),
    ],
)
def test_a_take_over_may_be_sent_twice(tmp_path, end):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        mesh.send(TaskEnded, task="t", attempt=first.attempt)
        new = replace(request, **end)
        await mesh.tasks.submit(new, work_of("t", b"new"), replaces=first.attempt)
        for order in tuple(mesh.index.starts.values()):
            mesh.send(TaskStarted, task="t", attempt=order.attempt, agent=order.agent)
            mesh.send(TaskEnded, task="t", attempt=order.attempt)
        over = await mesh.tasks.task("t")
        assert over.is_over
        assert over.attempt > first.attempt
        assert await mesh.tasks.submit(new, work_of("t", b"new"), replaces=first.attempt) == over
        assert mesh.payloads.kept == [b"old", b"new"]

    in_scene(check, tmp_path)


def test_a_take_over_waits_for_the_ending_agent(tmp_path):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        assert not first.is_ending
        ending = await mesh.cancel("t")
        assert (ending.state, ending.is_ending) == (TaskState.RUNNING, True)
        asking = asyncio.create_task(mesh.tasks.submit(request, work_of("t", b"new"), replaces=first.attempt))
        await asyncio.sleep(0)
        assert mesh.payloads.kept == [b"old"]
        mesh.send(TaskStopped, task="t", attempt=first.attempt)
        again = await asking
        assert (again.is_over, again.is_ending) == (False, False)
        assert mesh.payloads.kept == [b"old", b"new"]

    in_scene(check, tmp_path)


def test_a_preempted_agent_keeps_its_name(tmp_path):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        assert not (await mesh.cancel("t", requeue=True)).is_ending
        assert (await mesh.tasks.submit(request, work_of("t", b"old"), replaces=first.attempt)).attempt == first.attempt
        assert mesh.payloads.kept == [b"old"]

    in_scene(check, tmp_path)


def test_every_use_of_an_unknown_pool_is_refused(tmp_path):
    async def check(mesh):
        request = TaskRequest(task="t", pool="gone", resources=ONE)
        for call in (
            mesh.tasks.submit(request, work_of("t", b"t")),
            mesh.groups.allocate_group(replace(request, has_agent=False), 0.0),
            mesh.agents.members("gone", None, None),
            mesh.pools.reserve_slot("slot", "gone", ONE),
            mesh.tasks.evaluate_preemption(request),
            mesh.pools.pool("gone"),
            mesh.jobs.submit_job(JobSpec(job="j", pool="gone", leader=ReplicaSpec(), min_workers_num=0), None),
        ):
            with pytest.raises(PoolUnknown, match="there is no pool gone; known pools: p"):
                await call
        assert mesh.payloads.kept == []

    in_scene(check, tmp_path)


def test_a_repeated_submission_is_answered_without_its_pool(tmp_path):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        mesh.send(TaskEnded, task="t", attempt=first.attempt)
        await mesh.pools.delete_pool("p")
        for group in tuple(mesh.index.removes):
            mesh.send(GroupGone, group=group)
        assert "p" not in mesh.loop.state.pools.pools
        assert (await mesh.tasks.submit(request, work_of("t", b"old"))).state is TaskState.SUCCEEDED
        with pytest.raises(PoolUnknown):
            await mesh.tasks.submit(request, work_of("t", b"old"), replaces=first.attempt)

    in_scene(check, tmp_path)
