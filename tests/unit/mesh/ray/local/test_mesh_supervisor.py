"""Supervisor without Ray: repeated requests, closing pools, names of tasks and late reports."""

from __future__ import annotations

import asyncio
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
from mesh.ray.local.agent_messages import AgentStatus, HostCommand
from mesh.ray.local.services.supervisor import MeshSupervisor
from mesh.ray.local.status_values import GroupGiven, RequestRefused
from mesh.ray.local.store.archive import Archive
from mesh.ray.local.store.mesh_folder import MeshFolder
from mesh.ray.local.supervision_errors import PoolUnknown, TaskExists, TaskNotRunning
from mesh.ray.local.supervisor.control_loop import ControlLoop, MeshClock
from mesh.ray.local.supervisor.supervisor_options import SupervisorOptions
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.events import (
    GroupGone,
    GroupReady,
    NodeJoined,
    PoolConfigured,
    TaskEnded,
    TaskStarted,
    TaskStopped,
    TaskSubmitted,
)
from mesh.tasks.scheduler import MeshScheduler

ONE = ResourceSet.of({"cpu": 1})
POOL = PoolSpec(pool="p", capacity=ONE, groups=GroupPoolSpec(max_dynamic=2))


class Starting(MeshSupervisor):
    """Supervisor whose start the test calls."""

    def __init__(self, folder):
        self._options = SupervisorOptions(mesh="m", namespace="tests", state_dir=str(folder))
        self._is_stopped = self._is_again = False


class Kept:
    """Payloads of tasks, in memory."""

    def __init__(self):
        self.kept = []

    def submit(self, order):
        self.kept.append(order.code)

    def forget(self, task):
        """Nothing is kept of a task here."""


class Bare(MeshSupervisor):
    """Supervisor around a loop without a driver; tests report what became of orders."""

    def __init__(self, folder):
        plugins = PluginHost()
        self._options = SimpleNamespace(mesh="m")
        self._clock, self._plugins = MeshClock(), plugins
        self._loop = ControlLoop(Archive(folder, plugins=plugins), MeshScheduler, self._clock, plugins)
        self._observer = SimpleNamespace(fold=lambda *_: None)
        self._jobs = SimpleNamespace(hear=lambda *_: None)
        self._payloads = Kept()
        self._driver = SimpleNamespace(hosts={})
        self._ready = asyncio.get_running_loop().create_future()
        self._ready.set_result(None)
        self._reports: dict[str, AgentStatus] = {}
        self._listen()
        self.send(NodeJoined, node="n", total=ONE, labels={})
        self.send(PoolConfigured, spec=POOL)

    def send(self, kind, **fields):
        self._loop.send(kind(at_ms=self._clock.now_ms(), **fields))

    async def ask(self, holder, *, is_made=True, **more):
        """Call `allocate_pg` and let Ray make the ordered group."""
        request = TaskRequest(task=holder, pool="p", resources=ONE, has_agent=False, preemptible=False, **more)
        asking = asyncio.create_task(self.give_group(request, 60.0 if is_made else 0.0))
        await asyncio.sleep(0)
        for group, order in tuple(self._loop.task_index.creates.items()) if is_made else ():
            self.send(GroupReady, group=group, nodes=order.nodes)
        return await asking

    async def give_back(self, holder):
        await self.cancel(holder, keep_state=False, destroy_group=False, requeue=False)


def in_scene(check, folder):
    async def scene():
        await check(Bare(folder))

    asyncio.run(scene())


def test_s7_a_holder_that_released_its_group_may_ask_again(tmp_path):
    async def check(mesh):
        reasons = []
        for priority in (5.0, 5.0, 6.0):
            given = await mesh.ask("mine", priority=priority)
            assert isinstance(given, GroupGiven)
            reasons.append(given.reason)
            await mesh.give_back("mine")
        assert reasons == [Reason.GROUP_CREATED, Reason.GROUP_REUSED, Reason.GROUP_REUSED]

    in_scene(check, tmp_path)


def test_s7_a_holder_that_was_refused_may_ask_again(tmp_path):
    async def check(mesh):
        assert isinstance(await mesh.ask("other"), GroupGiven)
        assert isinstance(await mesh.ask("mine", is_made=False), RequestRefused)
        await mesh.give_back("other")
        assert isinstance(await mesh.ask("mine"), GroupGiven)

    in_scene(check, tmp_path)


def test_s7_a_holder_of_a_group_gets_the_same_answer_again(tmp_path):
    async def check(mesh):
        assert (await mesh.ask("mine")).group == (await mesh.ask("mine")).group
        with pytest.raises(TaskExists):
            await mesh.ask("mine", priority=9.0)

    in_scene(check, tmp_path)


def test_a_closing_pool_reopens_with_the_same_spec(tmp_path):
    async def check(mesh):
        await mesh.ask("mine")
        mesh._loop.scheduler.state.pools.pools["p"].is_closing = True
        await mesh.configure_pool(POOL)
        assert not mesh._loop.scheduler.state.pools.pools["p"].is_closing

    in_scene(check, tmp_path)


def test_a_task_that_no_agent_has_cannot_be_finished(tmp_path):
    async def check(mesh):
        mesh.send(TaskSubmitted, request=TaskRequest(task="t", pool="p", resources=ONE.times(9)))
        with pytest.raises(TaskNotRunning, match="wait until it runs"):
            await mesh.finish("t")

    in_scene(check, tmp_path)


def test_reports_of_a_task_go_when_it_ends(tmp_path):
    async def check(mesh):
        mesh.send(TaskSubmitted, request=TaskRequest(task="t", pool="p", resources=ONE, bundles=()))
        for group, order in tuple(mesh._loop.task_index.creates.items()):
            mesh.send(GroupReady, group=group, nodes=order.nodes)
        mesh.send(TaskStarted, task="t", attempt=1, agent=mesh._loop.task_index.starts["t"].agent)
        report = object()
        mesh._report("t", report)
        assert await mesh.metrics(None) == {"t": report}
        mesh.send(TaskEnded, task="t", attempt=1)
        mesh._report("t", report)
        assert mesh._loop.task_index.tasks["t"].state is TaskState.SUCCEEDED
        assert await mesh.metrics(None) == {}

    in_scene(check, tmp_path)


def test_a_failed_start_removes_what_it_wrote_under_its_lock(tmp_path, monkeypatch):
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

    async def scene():
        with pytest.raises(RuntimeAdapterError, match="no space left"):
            await Starting(tmp_path / "mesh")._start()

    asyncio.run(scene())
    assert len(refusals) == 1
    assert "another process writes the journal" in refusals[0]
    assert not (tmp_path / "mesh").exists()


def work_of(task, code):
    return HostCommand(task=task, attempt=0, code=code)


def test_the_name_of_an_ended_task_is_reused_only_on_request(tmp_path):
    async def check(mesh):
        old = TaskRequest(task="t", pool="p", resources=ONE.times(9), work="old")
        new = replace(old, work="new")
        assert (await mesh.submit(old, work_of("t", b"old"))).state is TaskState.INFEASIBLE
        with pytest.raises(TaskExists):
            await mesh.submit(new, work_of("t", b"new"), replaces=0)
        await mesh.cancel("t", keep_state=False, destroy_group=False, requeue=False)
        with pytest.raises(TaskExists):
            await mesh.submit(new, work_of("t", b"new"))
        assert (await mesh.submit(old, work_of("t", b"old"))).state is TaskState.CANCELLED
        assert (await mesh.submit(new, work_of("t", b"new"), replaces=0)).state is TaskState.INFEASIBLE
        assert mesh._payloads.kept == [b"old", b"new"]
        assert (await mesh.submit(new, work_of("t", b"new"), replaces=0)).state is TaskState.INFEASIBLE
        assert mesh._payloads.kept == [b"old", b"new"]

    in_scene(check, tmp_path)


async def an_agent_that_runs(mesh):
    """Return a running agent with room of its own, and its status."""
    request = TaskRequest(task="t", pool="p", resources=ONE, work="old", max_restarts=-1)
    await mesh.submit(request, work_of("t", b"old"))
    for group, order in tuple(mesh._loop.task_index.creates.items()):
        mesh.send(GroupReady, group=group, nodes=order.nodes)
    order = mesh._loop.task_index.starts["t"]
    mesh.send(TaskStarted, task="t", attempt=order.attempt, agent=order.agent)
    return request, await mesh.task("t")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param({"pool": "p", "max_restarts": -5}, id="at once, as it cannot be"),
        pytest.param({"pool": "p"}, id="after its agent ran"),
    ],
)
def test_a_submission_that_takes_a_name_over_is_idempotent(tmp_path, end):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        mesh.send(TaskEnded, task="t", attempt=first.attempt)
        new = replace(request, **end)
        await mesh.submit(new, work_of("t", b"new"), replaces=first.attempt)
        for order in tuple(mesh._loop.task_index.starts.values()):
            mesh.send(TaskStarted, task="t", attempt=order.attempt, agent=order.agent)
            mesh.send(TaskEnded, task="t", attempt=order.attempt)
        over = await mesh.task("t")
        assert over.is_over
        assert over.attempt > first.attempt
        assert await mesh.submit(new, work_of("t", b"new"), replaces=first.attempt) == over
        assert mesh._payloads.kept == [b"old", b"new"]

    in_scene(check, tmp_path)


def test_taking_over_the_name_of_an_ending_agent_waits_for_it(tmp_path):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        assert not first.is_ending
        ending = await mesh.cancel("t", keep_state=False, destroy_group=False, requeue=False)
        assert (ending.state, ending.is_ending) == (TaskState.RUNNING, True)
        asking = asyncio.create_task(mesh.submit(request, work_of("t", b"new"), replaces=first.attempt))
        await asyncio.sleep(0)
        assert mesh._payloads.kept == [b"old"]
        mesh.send(TaskStopped, task="t", attempt=first.attempt)
        again = await asking
        assert (again.is_over, again.is_ending) == (False, False)
        assert mesh._payloads.kept == [b"old", b"new"]

    in_scene(check, tmp_path)


def test_a_preempted_agent_comes_back_and_keeps_its_name(tmp_path):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        assert not (await mesh.cancel("t", keep_state=True, destroy_group=False, requeue=True)).is_ending
        assert (await mesh.submit(request, work_of("t", b"old"), replaces=first.attempt)).attempt == first.attempt
        assert mesh._payloads.kept == [b"old"]

    in_scene(check, tmp_path)


def test_an_unknown_pool_is_reported_by_each_call_that_names_it(tmp_path):
    async def check(mesh):
        request = TaskRequest(task="t", pool="gone", resources=ONE)
        for call in (
            mesh.submit(request, work_of("t", b"t")),
            mesh.give_group(replace(request, has_agent=False), 0.0),
            mesh.members("gone", None, None),
            mesh.reserve_slot("slot", "gone", ONE),
            mesh.evaluate_preemption(request),
            mesh.pool("gone"),
            mesh.submit_job(JobSpec(job="j", pool="gone", leader=ReplicaSpec(), min_workers_num=0), None),
        ):
            with pytest.raises(PoolUnknown, match="there is no pool gone; known pools: p"):
                await call
        assert mesh._payloads.kept == []

    in_scene(check, tmp_path)


def test_a_repeated_submission_is_answered_after_its_pool_went(tmp_path):
    async def check(mesh):
        request, first = await an_agent_that_runs(mesh)
        mesh.send(TaskEnded, task="t", attempt=first.attempt)
        await mesh.delete_pool("p")
        for group in tuple(mesh._loop.task_index.removes):
            mesh.send(GroupGone, group=group)
        assert "p" not in mesh._state.pools.pools
        assert (await mesh.submit(request, work_of("t", b"old"))).state is TaskState.SUCCEEDED
        with pytest.raises(PoolUnknown):
            await mesh.submit(request, work_of("t", b"old"), replaces=first.attempt)

    in_scene(check, tmp_path)
