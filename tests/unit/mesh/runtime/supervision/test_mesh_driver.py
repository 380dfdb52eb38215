"""What the driver does with two attempts of one task; without Ray."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ray.exceptions import RayActorError

from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.runtime.supervision.agent_door import AgentProcess
from mesh.runtime.supervision.agent_orders import Hosted, HostOrder, StopHow, Stopped
from mesh.runtime.supervision.driver import Driver, DriverSettings
from mesh.scheduling.decisions import StartTask, StopTask
from mesh.scheduling.events import AgentLost, GroupGone, TaskStarted, TaskStopped

ONE = ResourceSet.of({"cpu": 1})


class Door:
    """Processes that answer when the test says so."""

    def __init__(self):
        self.processes, self.answers = {}, {}

    def start(self, *, node, resources=ONE, group=None, inside=None):  # noqa: ARG002 - the door's own signature
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


class Works:
    """Tasks without an entry method."""

    def is_call(self, _):
        return False

    def host_order(self, order):
        return HostOrder(task=order.task, attempt=order.attempt, code=b"")

    def tenant(self, _):
        return ""

    def has_entry(self, _):
        return False

    def keep_hosted(self, _):
        return None

    def keep_stopped(self, stopped):
        return stopped.unkept


class Scene:
    """A driver; what it tells, and what the one who listens raises first."""

    def __init__(self, *errors):
        self.told, self.errors, self.door = [], list(errors), Door()
        self.events = []
        self.dropped, self.may_remove = [], asyncio.Event()
        store = SimpleNamespace(keep=lambda *_: None, drop=lambda *kept: self.dropped.append(kept))
        self.driver = Driver(
            agents=self.door,
            groups=SimpleNamespace(handle=lambda _: object(), remove=self.remove),
            standbys=SimpleNamespace(take=lambda _: None, lost=lambda _: False),
            works=Works(),
            store=store,
            autoscaling=None,
            settings=DriverSettings(),
            tell=self.take,
            now_ms=lambda: 1,
        )

    def take(self, *events):
        if self.errors:
            raise self.errors.pop(0)
        self.events += events
        self.told += [(type(event), getattr(event, "attempt", None) or getattr(event, "group", None)) for event in events]

    async def remove(self, _):
        await self.may_remove.wait()

    async def carry_out(self, *orders):
        for order in orders:
            self.driver.carry_out(order)
        await turns()

    async def up(self, process, attempt):
        self.door.answers[process].set_result(Hosted(task="t", attempt=attempt, agent=f"t.{attempt}", pid=1, node="n", methods=()))
        await turns()


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def start(attempt, group=None):
    return StartTask(version=1, task="t", agent=f"t.{attempt}", attempt=attempt, node="n", resources=ONE, reason=Reason.PLACED, group=group)


def stop(attempt):
    return StopTask(version=1, task="t", attempt=attempt, reason=Reason.CANCELLED_BY_USER, keep_state=False, grace_ms=0)


def test_a_start_ends_the_earlier_one_that_the_scheduler_has_given_up_and_does_not_wait_for_it():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.carry_out(start(2))
        assert list(scene.door.processes) == ["p2"]
        await scene.up("p2", 2)
        assert scene.told == [(TaskStarted, 2)]
        assert scene.driver.hosts["t"].name == "p2"

    asyncio.run(scene())


def test_an_agent_whose_node_is_seen_no_more_ends_when_its_task_starts_elsewhere():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.up("p1", 1)
        await scene.carry_out(start(2))
        assert list(scene.door.processes) == ["p2"]

    asyncio.run(scene())


def test_a_cancel_right_after_a_second_start_ends_both_attempts_and_leaves_no_process():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1, group="g1"))
        await scene.carry_out(start(2, group="g2"), stop(2))
        assert scene.told == [(TaskStopped, 2)]
        assert not scene.door.processes
        assert not scene.driver.hosts

    asyncio.run(scene())


def test_the_order_to_stop_an_earlier_attempt_never_calls_off_a_newer_start():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(2), stop(1))
        assert scene.told == [(TaskStopped, 1)]
        await scene.up("p1", 2)
        assert scene.told == [(TaskStopped, 1), (TaskStarted, 2)]
        assert list(scene.door.processes) == ["p1"]

    asyncio.run(scene())


def test_the_loss_of_one_attempt_leaves_the_next_one_its_process():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1, group="g1"))
        await scene.up("p1", 1)
        scene.driver.group_vanished("g1")
        await turns()
        await scene.carry_out(start(2, group="g2"))
        await scene.up("p2", 2)
        scene.may_remove.set()
        await turns()
        assert scene.told == [(TaskStarted, 1), (TaskStarted, 2), (AgentLost, 1), (GroupGone, "g1")]
        assert scene.driver.hosts["t"].name == "p2"

    asyncio.run(scene())


def test_which_process_had_a_task_is_forgotten_on_disk_too_when_it_dies():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.up("p1", 1)
        scene.driver.process_ended(scene.door.processes["p1"], "it died")
        await turns()
        assert scene.told == [(TaskStarted, 1), (AgentLost, 1)]
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
        pytest.param(RayActorError(), "its agent did not answer the order to stop and was killed", id="its agent has gone"),
        pytest.param(Stopped(task="t", attempt=1, saved=None, lost_ms=0, how=StopHow.IDLE, reusable=True), "", id="all was kept"),
    ],
)
def test_s17_what_of_a_state_was_not_kept_is_told_with_the_stop(answer, unkept):
    async def stopping(_):
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        await scene.up("p1", 1)
        scene.door.processes["p1"].handle.stop = SimpleNamespace(remote=stopping)
        await scene.carry_out(replace(stop(1), keep_state=True))
        assert [event.unkept for event in scene.events if isinstance(event, TaskStopped)] == [unkept]

    asyncio.run(scene())


def test_s17_what_of_a_state_did_not_come_back_is_told_with_the_start():
    async def scene():
        scene = Scene()
        await scene.carry_out(start(1))
        hosted = Hosted(task="t", attempt=1, agent="t.1", pid=1, node="n", methods=(), unrestored="the restorer raised")
        scene.door.answers["p1"].set_result(hosted)
        await turns()
        assert [event.unrestored for event in scene.events] == ["the restorer raised"]

    asyncio.run(scene())
