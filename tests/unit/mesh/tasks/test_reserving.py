"""Accumulating reservations for starved work, and backfilling around them."""

from __future__ import annotations

import json

from scheduled_mesh import RULES, Mesh, cpus, of, starts

from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.tasks import events
from mesh.tasks.decisions import StartTask
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings

WAIT_MS = 1_000


def full(after_ms: int | None = WAIT_MS, nodes: int = 2) -> Mesh:
    """Return a mesh of nodes with two CPUs each, all busy with tasks of one."""
    made = Mesh(SchedulerSettings(rules=RULES, reserve_after_ms=after_ms))
    for index in range(nodes):
        made.node(f"n{index}", cpus(2))
    made.pool(cpus(2 * nodes))
    for index in range(2 * nodes):
        made.run(f"small{index}", preemptible=False)
    return made


def wait(mesh: Mesh) -> None:
    mesh.now_ms += WAIT_MS
    mesh.send(events.Ticked)


def replace_small(mesh: Mesh, task: str, by: str, **request: object) -> list[tuple[str, str]]:
    """Submit a small task, end another, and return the tasks that start."""
    mesh.submit(by, priority=5.0, **request)
    return starts(mesh.ended(task))


def test_without_a_reservation_small_tasks_starve_the_large():
    mesh = full(None)
    mesh.submit("large", 2)
    wait(mesh)
    for index in range(4):
        assert replace_small(mesh, f"small{index}", f"next{index}") == [(f"next{index}", "PLACED")]
        mesh.started(f"next{index}")


def test_a_large_task_accumulates_its_node_after_waiting():
    mesh = full()
    mesh.submit("large", 2)
    wait(mesh)
    assert mesh.why("large") is Reason.ACCUMULATING_RESERVATION
    assert replace_small(mesh, "small0", "next") == []
    assert mesh.why("next") is Reason.CAPACITY_RESERVED
    beside = next(name for name in ("small1", "small2", "small3") if mesh.scheduler.state.records[TaskId(name)].node == "n0")
    assert starts(mesh.ended(beside)) == [("large", "PLACED")]
    assert mesh.scheduler.state.reservations == {}


def test_a_gang_accumulates_its_places_after_waiting():
    mesh = full()
    for index in range(3):
        mesh.submit(f"g{index}", gang="g", gang_size=3)
    wait(mesh)
    for index in range(2):
        assert replace_small(mesh, f"small{index}", f"next{index}") == []
    assert {name for name, _ in replace_small(mesh, "small2", "next2")} == {"g0", "g1", "g2"}


def test_small_work_known_to_end_earlier_is_backfilled():
    mesh = Mesh(SchedulerSettings(rules=RULES, reserve_after_ms=WAIT_MS))
    mesh.node("n0", cpus(2))
    mesh.pool(cpus(2))
    mesh.run("long", estimated_ms=60_000, preemptible=False)
    mesh.submit("large", 2)
    wait(mesh)
    assert mesh.why("large") is Reason.ACCUMULATING_RESERVATION
    assert starts(mesh.submit("unknown")) == []
    assert starts(mesh.submit("too-long", estimated_ms=90_000)) == []
    assert starts(mesh.submit("brief", estimated_ms=10_000)) == [("brief", "PLACED")]
    mesh.started("brief")
    mesh.ended("brief")
    assert mesh.why("unknown") is Reason.CAPACITY_RESERVED
    wait(mesh)
    wait(mesh)
    assert starts(mesh.submit("late", estimated_ms=10)) == []  # The estimate may be wrong: after the same wait again a reservation is made.
    assert starts(mesh.ended("long")) == [("large", "PLACED")]


def test_a_reservation_does_not_delay_work_ahead_of_it():
    mesh = full()
    mesh.submit("large", 2, priority=1)
    wait(mesh)
    mesh.submit("urgent", priority=9)
    assert starts(mesh.ended("small0")) == [("urgent", "PLACED")]


def test_heads_of_two_pools_on_shared_nodes_never_deadlock():
    mesh = Mesh(SchedulerSettings(rules=RULES, reserve_after_ms=WAIT_MS))
    mesh.node("n0", cpus(2))
    for pool in ("a", "b"):
        mesh.send(events.PoolConfigured, spec=PoolSpec(pool=PoolName(pool), capacity=cpus(2)))
    for index, pool in enumerate("ab"):
        mesh.run(f"small{index}", pool=PoolName(pool), preemptible=False)
        mesh.submit(f"large{index}", 2, pool=PoolName(pool))
    wait(mesh)
    assert starts(mesh.ended("small0")) == []
    assert starts(mesh.ended("small1")) == [("large0", "PLACED")]
    mesh.started("large0")
    assert starts(mesh.ended("large0")) == [("large1", "PLACED")]


def test_a_cancelled_task_frees_its_reservation_at_once():
    mesh = full()
    mesh.submit("large", 2)
    wait(mesh)
    replace_small(mesh, "small0", "next")
    assert starts(mesh.send(events.TaskCancelled, task=TaskId("large"))) == [("next", "PLACED")]


def test_nothing_is_reserved_for_what_never_fits():
    mesh = full()
    for index in range(5):
        mesh.submit(f"g{index}", gang="g", gang_size=5)
    wait(mesh)
    assert replace_small(mesh, "small0", "next") == [("next", "PLACED")]


def test_a_reservation_survives_a_snapshot_but_not_its_node():
    mesh = full()
    mesh.submit("large", 2)
    wait(mesh)
    replace_small(mesh, "small0", "next")
    mesh.scheduler = MeshScheduler.from_snapshot(json.loads(json.dumps(mesh.scheduler.to_snapshot())))
    assert mesh.scheduler.state.reservations["pool"].task == "large"
    mesh.send(events.NodeLeft, node=NodeName("n0"))
    mesh.node("n0", cpus(2))
    assert "large" in {start.task for start in of(StartTask, mesh.send(events.Ticked))} | {
        task for task, record in mesh.scheduler.state.records.items() if record.node is not None
    }


def test_less_urgent_arrivals_leave_a_reservation_whole():
    mesh = full()
    mesh.submit("large", 2, priority=7)
    wait(mesh)
    mesh.submit("low", priority=1)
    mesh.ended("small0")
    assert mesh.scheduler.state.reservations["pool"].quota == cpus(1)
