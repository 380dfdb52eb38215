"""Which process has which task, and which waits in its group for the next; without Ray."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.runtime.supervision.agent_client import AgentProcess
from mesh.runtime.supervision.crew import Crew
from mesh.scheduling.decisions import StartTask

ONE = ResourceSet.of({"cpu": 1})


class Agents:
    """Processes by name, without anything behind them."""

    def __init__(self):
        self.processes = {}

    def start(self, *, node, resources=ONE, group=None, inside=None):  # noqa: ARG002 - the door's own signature
        name = f"p{len(self.processes) + 1}"
        self.processes[name] = AgentProcess(name=name, handle=None, node=node, group=group, holds=resources)
        return self.processes[name]

    def end(self, process):
        process.is_wanted = False


class Kept(dict):
    """What the next supervisor would find."""

    def keep(self, task, part, content):
        self[task, part] = json.loads(content)

    def drop(self, task, part):
        self.pop((task, part), None)


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def crew(kept):
    return Crew(
        Agents(), SimpleNamespace(handle=lambda group: None if group == "gone" else object()), SimpleNamespace(take=lambda _: None), kept
    )


def start(task, attempt=1, group="g"):
    return StartTask(version=1, task=task, agent="a", attempt=attempt, node="n", resources=ONE, reason=Reason.PLACED, group=group)


def hosting(crew, task, *, attempt=1, tenant="x", group="g"):
    process = crew.process_for(start(task, attempt, group), tenant)
    crew.give(process, task, attempt, tenant)
    return process


def test_a_process_that_may_stay_has_the_next_task_of_its_group_and_tenant(crew, kept):
    first = hosting(crew, "t")
    assert kept == {("t", "process"): {"process": "p1", "attempt": 1}}
    crew.settle(first, may_stay=True)
    assert (crew.hosts, crew.residents, kept) == ({}, {"g": first}, {})
    assert hosting(crew, "u") is first
    assert (crew.hosts, crew.residents) == ({"u": first}, {})


def test_a_process_never_serves_a_second_tenant(crew):
    first = hosting(crew, "t", tenant="x")
    crew.settle(first, may_stay=True)
    assert hosting(crew, "u", tenant="y") is not first
    assert not first.is_wanted


def test_one_process_waits_in_a_group_and_others_end(crew):
    first, second = hosting(crew, "t"), hosting(crew, "u")
    crew.settle(first, may_stay=True)
    crew.settle(second, may_stay=True)
    assert (first.is_wanted, second.is_wanted, crew.residents) == (True, False, {"g": first})


def test_a_process_that_may_not_stay_ends(crew):
    process = hosting(crew, "t", group=None)
    crew.settle(process, may_stay=False)
    assert (process.is_wanted, crew.hosts, crew.residents) == (False, {}, {})


def test_the_end_of_one_attempt_leaves_the_other_alone(crew, kept):
    first = hosting(crew, "t", attempt=1)
    second = hosting(crew, "t", attempt=2)
    crew.end_attempt("t", 1)
    assert (first.is_wanted, second.is_wanted, crew.hosts) == (False, True, {"t": second})
    assert kept["t", "process"]["attempt"] == 2


def test_a_group_that_is_left_has_nobody_and_what_was_lost_is_still_known(crew):
    waits, payloads = hosting(crew, "t"), hosting(crew, "u")
    crew.settle(waits, may_stay=True)
    crew.leave("g")
    assert (waits.is_wanted, payloads.is_wanted, crew.residents, crew.hosts) == (False, False, {}, {"u": payloads})


def test_nobody_comes_for_a_task_whose_group_is_gone(crew):
    assert crew.process_for(start("t", group="gone"), "x") is None
