"""Assignment of agent processes to tasks and to idle groups, without Ray."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.ray.local.store.task_payloads import Owner
from mesh.ray.local.supervisor.agent_assignments import AgentAssignments
from mesh.ray.local.supervisor.agent_client import AgentProcess
from mesh.ray.local.supervisor.idle_processes import IdleProcesses
from mesh.tasks.decisions import StartTask

ONE = ResourceSet.of({"cpu": 1})
TASKS_MAX = 3
OWNER = Owner(submitter="job", tenant="x", label="", environment=frozenset())


class Agents:
    """Fake processes by name."""

    def __init__(self):
        self.processes = {}

    def start(self, *, node, resources=ONE, group=None, inside=None):  # noqa: ARG002 - the interface's signature
        name = f"p{len(self.processes) + 1}"
        self.processes[name] = AgentProcess(name=name, handle=None, node=node, group=group, holds=resources)
        return self.processes[name]

    def end(self, process):
        process.is_wanted = False


class Kept(dict):
    """Record that the next supervisor would find."""

    def keep(self, task, part, content):
        self[task, part] = json.loads(content)

    def drop(self, task, part):
        self.pop((task, part), None)


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def assignments(kept):
    return AgentAssignments(
        Agents(),
        SimpleNamespace(handle=lambda group: None if group == "gone" else object()),
        SimpleNamespace(take=lambda _: None),
        IdleProcesses(1, lambda: 0),
        kept,
        TASKS_MAX,
    )


def start(task, attempt=1, group="g"):
    return StartTask(version=1, task=task, agent="a", attempt=attempt, node="n", resources=ONE, reason=Reason.PLACED, group=group)


def hosting(assignments, task, *, attempt=1, tenant="x", group="g"):
    process = assignments.process_for(start(task, attempt, group), tenant)
    assignments.give(process, task, attempt, tenant)
    return process


def test_a_kept_process_serves_its_group_and_tenant(assignments, kept):
    first = hosting(assignments, "t")
    assert kept == {("t", "process"): {"process": "p1", "attempt": 1}}
    assignments.settle(first, may_stay=True)
    assert (assignments.hosts, assignments.residents, kept) == ({}, {"g": first}, {})
    assert hosting(assignments, "u") is first
    assert (assignments.hosts, assignments.residents) == ({"u": first}, {})


def test_a_process_never_serves_a_second_tenant(assignments):
    first = hosting(assignments, "t", tenant="x")
    assignments.settle(first, may_stay=True)
    assert hosting(assignments, "u", tenant="y") is not first
    assert not first.is_wanted


def test_one_process_waits_in_a_group_and_others_end(assignments):
    first, second = hosting(assignments, "t"), hosting(assignments, "u")
    assignments.settle(first, may_stay=True)
    assignments.settle(second, may_stay=True)
    assert (first.is_wanted, second.is_wanted, assignments.residents) == (True, False, {"g": first})


def test_a_process_that_may_not_stay_ends(assignments):
    process = hosting(assignments, "t", group=None)
    assignments.settle(process, may_stay=False)
    assert (process.is_wanted, assignments.hosts, assignments.residents) == (False, {}, {})


def test_an_idle_process_serves_its_owners_next_task(assignments):
    first = hosting(assignments, "t", group=None)
    assignments.settle(first, may_stay=True, owner=OWNER)
    assignments.give_idle(start("u", group=None), OWNER)
    assert (assignments.hosts, first.task, first.is_wanted) == ({"u": first}, "u", True)
    assignments.give_idle(start("v", group=None), OWNER)
    assert assignments.hosts == {"u": first}


def test_a_process_ends_after_its_last_task(assignments):
    process = hosting(assignments, "t0", group=None)
    for number in range(1, TASKS_MAX):
        assignments.settle(process, may_stay=True, owner=OWNER)
        assignments.give_idle(start(f"t{number}", group=None), OWNER)
    assert process.is_wanted
    assignments.settle(process, may_stay=True, owner=OWNER)
    assert not process.is_wanted


def test_a_task_with_a_process_of_its_own_takes_no_used_one(assignments):
    first = hosting(assignments, "t")
    assignments.settle(first, may_stay=True)
    assert assignments.process_for(start("u"), "x", is_new=True) is not first
    assert not first.is_wanted


def test_needed_room_ends_idle_processes(assignments):
    process = hosting(assignments, "t", group=None)
    assignments.settle(process, may_stay=True, owner=OWNER)
    assignments.make_room("n", ONE)
    assert process.is_wanted
    assignments.make_room("n", ResourceSet())
    assert not process.is_wanted


def test_the_end_of_one_attempt_leaves_the_other_alone(assignments, kept):
    first = hosting(assignments, "t", attempt=1)
    second = hosting(assignments, "t", attempt=2)
    assignments.end_attempt("t", 1)
    assert (first.is_wanted, second.is_wanted, assignments.hosts) == (False, True, {"t": second})
    assert kept["t", "process"]["attempt"] == 2


def test_a_left_group_is_unassigned_and_losses_stay_known(assignments):
    waits, payloads = hosting(assignments, "t"), hosting(assignments, "u")
    assignments.settle(waits, may_stay=True)
    assignments.leave("g")
    assert (waits.is_wanted, payloads.is_wanted, assignments.residents, assignments.hosts) == (False, False, {}, {"u": payloads})


def test_nobody_comes_for_a_task_whose_group_is_gone(assignments):
    assert assignments.process_for(start("t", group="gone"), "x") is None
