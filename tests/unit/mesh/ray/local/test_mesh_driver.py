"""Driver with two attempts of one task, without Ray."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.ray.local.agent_messages import Ended, HostCommand, Hosted, StopHow, Stopped
from mesh.ray.local.store.task_payloads import Owner
from mesh.ray.local.supervisor import driver
from mesh.ray.local.supervisor.agent_client import AgentProcess
from mesh.ray.local.supervisor.driver import Driver, DriverSettings
from mesh.tasks.decisions import StartTask, StopTask
from mesh.tasks.events import AgentLost, GroupGone, TaskEnded, TaskStarted, TaskStopped

ONE = ResourceSet.of({"cpu": 1})
OWNER = Owner(submitter="job", tenant="", label="", environment=frozenset())


class FakeAgents:
    """Agent processes that answer when the test says so."""

    def __init__(self):
        self.processes, self.answers = {}, {}

    def start(self, *, node, resources=ONE, group=None, inside=None):  # noqa: ARG002 - the interface's signature
        name = f"p{len(self.answers) + 1}"
        answer = self.answers[name] = asyncio.get_running_loop().create_future()
        handle = SimpleNamespace(host=SimpleNamespace(remote=lambda _: answer))
        process = self.processes[name] = AgentProcess(name=name, handle=handle, node=node, group=group, holds=resources)
        return process

    def end(self, process):
        process.is_wanted = False
        self.processes.pop(process.name, None)
        if not self.answers[process.name].done():
            self.answers[process.name].set_exception(RayActorError())


class DriverPayloads:
    """Tasks without an entry method."""

    def is_call(self, _):
        return False

    def host_command(self, order):
        return HostCommand(task=order.task, attempt=order.attempt, code=b"")

    def tenant(self, _):
        return ""

    def owner(self, _):
        return OWNER

    def has_own_process(self, _):
        return False

    def keep_ended(self, *_):
        return None

    def has_entry(self, _):
        return False

    def keep_hosted(self, _):
        return None

    def keep_stopped(self, stopped):
        return stopped.unkept


class Scene:
    """Driver, its events, and the errors that its listener raises first."""

    def __init__(self, *errors):
        self.reported, self.errors, self.client = [], list(errors), FakeAgents()
        self.events = []
        self.dropped, self.may_remove = [], asyncio.Event()
        store = SimpleNamespace(keep=lambda *_: None, drop=lambda *kept: self.dropped.append(kept))
        self.driver = Driver(
            agents=self.client,
            groups=SimpleNamespace(handle=lambda _: object(), remove=self.remove),
            standbys=SimpleNamespace(take=lambda _: None, lost=lambda _: False),
            payloads=DriverPayloads(),
            store=store,
            autoscaling=None,
            settings=DriverSettings(),
            send=self.take,
            now_ms=lambda: 1,
            free_on=lambda _: ONE,
        )

    def take(self, *events):
        if self.errors:
            raise self.errors.pop(0)
        self.events += events
        self.reported += [(type(event), getattr(event, "attempt", None) or getattr(event, "group", None)) for event in events]

    async def remove(self, _):
        await self.may_remove.wait()

    async def carry_out(self, *orders):
        for order in orders:
            self.driver.carry_out(order)
        await locks()

    async def up(self, process, attempt):
        self.client.answers[process].set_result(Hosted(task="t", attempt=attempt, agent=f"t.{attempt}", pid=1, node="n", methods=()))
        await locks()


async def locks(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def start(attempt, group=None):
    return StartTask(version=1, task="t", agent=f"t.{attempt}", attempt=attempt, node="n", resources=ONE, reason=Reason.PLACED, group=group)


def stop(attempt):
    return StopTask(version=1, task="t", attempt=attempt, reason=Reason.CANCELLED_BY_USER, keep_state=False, grace_ms=0)


def test_a_start_ends_the_given_up_attempt_without_waiting():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.carry_out(start(2))
        assert list(scene.client.processes) == ["p2"]
        await scene.up("p2", 2)
        assert scene.reported == [(TaskStarted, 2)]
        assert scene.driver.hosts["t"].name == "p2"

    asyncio.run(scene())


def test_an_agent_on_a_lost_node_ends_when_its_task_moves():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.up("p1", 1)
        await scene.carry_out(start(2))
        assert list(scene.client.processes) == ["p2"]

    asyncio.run(scene())


def test_a_cancel_after_a_second_start_ends_both_attempts():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1, group="g1"))
        await scene.carry_out(start(2, group="g2"), stop(2))
        assert scene.reported == [(TaskStopped, 2)]
        assert not scene.client.processes
        assert not scene.driver.hosts

    asyncio.run(scene())


def test_stopping_an_earlier_attempt_cancels_no_newer_start():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(2), stop(1))
        assert scene.reported == [(TaskStopped, 1)]
        await scene.up("p1", 2)
        assert scene.reported == [(TaskStopped, 1), (TaskStarted, 2)]
        assert list(scene.client.processes) == ["p1"]

    asyncio.run(scene())


def test_losing_one_attempt_leaves_the_next_its_process():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1, group="g1"))
        await scene.up("p1", 1)
        scene.driver.group_vanished("g1")
        await locks()
        await scene.carry_out(start(2, group="g2"))
        await scene.up("p2", 2)
        scene.may_remove.set()
        await locks()
        assert scene.reported == [(TaskStarted, 1), (TaskStarted, 2), (AgentLost, 1), (GroupGone, "g1")]
        assert scene.driver.hosts["t"].name == "p2"

    asyncio.run(scene())


def test_a_dead_process_is_forgotten_on_disk_too():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.up("p1", 1)
        scene.driver.process_ended(scene.client.processes["p1"], "it died")
        await locks()
        assert scene.reported == [(TaskStarted, 1), (AgentLost, 1)]
        assert (scene.driver.hosts, scene.dropped) == ({}, [("t", "process")])

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("answer", "unkept"),
    [
        pytest.param(
            Stopped(task="t", attempt=1, saved=None, lost_ms=0, how=StopHow.IDLE, reusable=True, unkept="the preserver raised"),
            "the preserver raised",
            id="its preserver failed",
        ),
        pytest.param(RayActorError(), "its agent did not answer the command to stop and was killed", id="its agent has gone"),
        pytest.param(Stopped(task="t", attempt=1, saved=None, lost_ms=0, how=StopHow.IDLE, reusable=True), "", id="all was kept"),
    ],
)
def test_s17_state_that_was_not_saved_is_reported_with_the_stop(answer, unkept):
    async def stopping(_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.up("p1", 1)
        scene.client.processes["p1"].handle.stop = SimpleNamespace(remote=stopping)
        await scene.carry_out(replace(stop(1), keep_state=True))
        assert [event.unkept for event in scene.events if isinstance(event, TaskStopped)] == [unkept]

    asyncio.run(scene())


def test_an_end_before_the_stop_counts():
    async def stopping(_):
        ended = Ended(task="t", attempt=1, result=b"value", spoiled="")
        return Stopped(task="t", attempt=1, saved=None, lost_ms=0, how=StopHow.NOT_HERE, reusable=True, ended=ended)

    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.up("p1", 1)
        scene.client.processes["p1"].handle.stop = SimpleNamespace(remote=stopping)
        await scene.carry_out(stop(1))
        assert scene.reported == [(TaskStarted, 1), (TaskEnded, 1)]
        assert scene.client.processes["p1"].task is None

    asyncio.run(scene())


def test_s17_state_that_was_not_restored_is_reported_at_start():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        hosted = Hosted(task="t", attempt=1, agent="t.1", pid=1, node="n", methods=(), unrestored="the restorer raised")
        scene.client.answers["p1"].set_result(hosted)
        await locks()
        assert [event.unrestored for event in scene.events] == ["the restorer raised"]

    asyncio.run(scene())


class Calls:
    """Fake of Ray's answers to each call of an entry method."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.made = 0

    def remote(self, *_):
        self.made += 1
        return self._answer(self._answers.pop(0)), "the value, left with Ray"

    async def _answer(self, answer):
        if isinstance(answer, Exception):
            raise answer
        return answer


ENDED = Ended(task="t", attempt=1)  # Its value is too large for a message.


@pytest.mark.parametrize(
    ("answers", "made", "kept"),
    [
        pytest.param([ENDED], 1, 1, id="heard at once"),
        pytest.param([ActorUnavailableError("the connection broke", None), ENDED], 2, 1, id="not heard at first"),
        pytest.param([RayActorError()], 1, 0, id="dead"),
    ],
)
def test_a_call_that_the_connection_broke_is_made_again(monkeypatch, answers, made, kept):
    async def scene():
        monkeypatch.setattr(driver, "REACH_AGAIN_S", 0)
        scene, ends = Scene(), []
        monkeypatch.setattr(DriverPayloads, "has_entry", lambda *_: True)
        monkeypatch.setattr(DriverPayloads, "keep_ended", lambda _, ended, value: ends.append((ended, value)))
        await scene.carry_out(start(1))
        calls = scene.client.processes["p1"].handle.run = Calls(*answers)
        await scene.up("p1", 1)
        assert calls.made == made
        assert ends == [(ENDED, "the value, left with Ray")] * kept
        assert scene.reported.count((TaskEnded, 1)) == kept

    asyncio.run(scene())


def test_a_call_of_a_task_that_is_gone_is_not_retried(monkeypatch):
    async def scene():
        monkeypatch.setattr(driver, "REACH_AGAIN_S", 0)
        monkeypatch.setattr(DriverPayloads, "has_entry", lambda *_: True)
        scene = Scene()
        await scene.carry_out(start(1))
        process = scene.client.processes["p1"]

        class Died(Calls):
            async def _answer(self, answer):
                scene.driver.process_ended(process, "it died")
                raise answer

        calls = process.handle.run = Died(ActorUnavailableError("the connection broke", None))
        await scene.up("p1", 1)
        assert (calls.made, scene.reported) == (1, [(TaskStarted, 1), (AgentLost, 1)])

    asyncio.run(scene())


@pytest.mark.parametrize("cause", [KeyError("a bug"), ActorUnavailableError("another actor", None)], ids=["bug", "of another actor"])
def test_a_failed_call_loses_the_task_and_ends_its_process(monkeypatch, cause):
    async def scene():
        monkeypatch.setattr(DriverPayloads, "has_entry", lambda *_: True)
        scene = Scene()
        await scene.carry_out(start(1))
        process = scene.client.processes["p1"]
        calls = process.handle.run = Calls(RayTaskError("run", "traceback", cause).as_instanceof_cause())
        await scene.up("p1", 1)
        assert (calls.made, scene.reported) == (1, [(TaskStarted, 1), (AgentLost, 1)])
        assert not process.is_wanted
        assert scene.driver.hosts == {}

    asyncio.run(scene())
