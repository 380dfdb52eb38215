"""Choice of the idle process that serves a task, without Ray."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.core.resources import ResourceSet
from mesh.ray.local.store.task_payloads import Owner
from mesh.ray.local.supervisor.agent_client import AgentProcess
from mesh.ray.local.supervisor.idle_processes import IdleProcesses

ONE, TWO = (ResourceSet.of({"cpu": count}) for count in (1, 2))
OWNER = Owner(submitter="job", tenant="acme", label="tier:gold", environment=frozenset({("A", "1")}))
IDLE_MS_MAX = 100


class Kept:
    """Idle processes, and their clock."""

    def __init__(self, idle_ms_max=IDLE_MS_MAX):
        self.now_ms = 0
        self.idle = IdleProcesses(idle_ms_max, lambda: self.now_ms)

    def put(self, name, node="n", holds=ONE, owner=OWNER):
        process = AgentProcess(name=name, handle=None, node=node, holds=holds)
        return process if self.idle.put(process, owner) else None


@pytest.fixture
def kept():
    return Kept()


def test_the_process_that_ended_last_serves_first(kept):
    first, second = kept.put("p1"), kept.put("p2")
    assert [kept.idle.take("n", ONE, OWNER) for _ in range(3)] == [second, first, None]


@pytest.mark.parametrize(
    ("node", "resources", "owner"),
    [
        pytest.param("other", ONE, OWNER, id="another node"),
        pytest.param("n", TWO, OWNER, id="other resources"),
        pytest.param("n", ONE, replace(OWNER, submitter="another"), id="another program"),
        pytest.param("n", ONE, replace(OWNER, tenant="other"), id="another tenant"),
        pytest.param("n", ONE, replace(OWNER, label=""), id="another label"),
        pytest.param("n", ONE, replace(OWNER, environment=frozenset()), id="other environment variables"),
    ],
)
def test_a_process_serves_tasks_of_its_kind_alone(kept, node, resources, owner):
    process = kept.put("p")
    assert kept.idle.take(node, resources, owner) is None
    assert kept.idle.take("n", ONE, OWNER) is process


def test_the_longest_idle_processes_leave_their_room_first(kept):
    first, _, third = kept.put("p1"), kept.put("p2", node="other"), kept.put("p3", holds=TWO)
    assert kept.idle.take_surplus("n", ResourceSet.of({"cpu": 3})) == []
    assert kept.idle.take_surplus("n", TWO) == [first]
    assert kept.idle.take_surplus("n", ONE) == [third]
    assert kept.idle.nodes() == {"other"}


def test_a_process_is_idle_for_a_limited_time(kept):
    first = kept.put("p1")
    kept.now_ms = 1
    kept.put("p2")
    kept.now_ms = IDLE_MS_MAX
    assert kept.idle.take_expired() == [first]
    assert kept.idle.take_expired() == []


def test_a_dead_process_serves_nobody(kept):
    kept.idle.lost(kept.put("p"))
    assert kept.idle.take("n", ONE, OWNER) is None


def test_without_idle_time_no_process_is_kept():
    assert Kept(idle_ms_max=0).put("p") is None
