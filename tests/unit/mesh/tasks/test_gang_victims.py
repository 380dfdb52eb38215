"""Preemption for a gang or for a task of several bundles: for all places at once, or not at all."""

from __future__ import annotations

import json

import pytest
from scheduled_mesh import POOL, RULES, Mesh, cpus, of, starts

from mesh.core.ids import GroupId, LabelName, NodeName, TaskId
from mesh.core.reasons import Reason
from mesh.core.shapes import GroupPoolSpec
from mesh.core.task_spec import TaskRequest
from mesh.preemption.rules import PreemptionRules
from mesh.preemption.victims import PreemptionPlan, PreemptionRefused
from mesh.tasks import events
from mesh.tasks.decisions import CreateGroup, RemoveGroup, StartTask, StopTask
from mesh.tasks.evicting import dry_run
from mesh.tasks.explaining import explain_task
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings


def two_nodes(settings: SchedulerSettings | None = None, *, quota: float = 4, **pool: object) -> Mesh:
    made = Mesh(settings)
    made.node("n1", cpus(2), zone="a")
    made.node("n2", cpus(2), zone="b")
    made.pool(cpus(quota), **pool)
    return made


def gang(mesh: Mesh, size: int, count: float = 1, **request: object) -> list[str]:
    """Submit a gang, and return the victims of the last submission."""
    decisions = []
    for index in range(size):
        decisions = mesh.submit(f"g{index}", count, **{"gang": "g", "gang_size": size, "priority": 9.0, **request})
    return sorted(stop.task for stop in of(StopTask, decisions))


def test_s9_a_gang_stops_enough_victims_and_starts_whole():
    mesh = two_nodes()
    for index in range(4):
        mesh.run(f"low{index}", priority=1.0)
    victims = gang(mesh, 3)
    assert len(victims) == 3
    assert {mesh.why(f"g{index}") for index in range(3)} == {Reason.WAITING_FOR_VICTIMS}
    assert starts(mesh.stopped(victims[0])) == []
    assert starts(mesh.submit("thief", priority=9.5, label=LabelName("other"))) == []
    assert starts(mesh.stopped(victims[1])) == []
    assert starts(mesh.stopped(victims[2])) == [("g0", "PLACED"), ("g1", "PLACED"), ("g2", "PLACED")]
    assert mesh.scheduler.state.evictions == {}


def test_nobody_is_preempted_if_one_member_would_still_not_fit():
    mesh = two_nodes()
    mesh.run("firm", 2, priority=1, preemptible=False)
    mesh.run("low", 2, priority=1)
    assert gang(mesh, 2, 2) == []
    assert "PREEMPTION_INSUFFICIENT" in explain_task(mesh.scheduler.state, TaskId("g0"), mesh.now_ms).detail


def test_free_room_is_reserved_for_a_gang_while_victims_stop():
    mesh = two_nodes()
    mesh.run("low", 2, priority=1)
    (victim,) = gang(mesh, 2, 2)
    assert victim == "low"
    assert starts(mesh.submit("thief", priority=9.5, label=LabelName("other"))) == []
    assert len(starts(mesh.stopped("low"))) == 2


def test_a_victim_that_another_makes_needless_is_spared():
    mesh = two_nodes()
    mesh.run("small", 1, priority=1)
    mesh.run("large", 2, priority=3)
    assert gang(mesh, 2) == ["small"]


def test_a_cancelled_member_releases_its_gangs_reservations():
    mesh = two_nodes()
    for index in range(2):
        mesh.run(f"low{index}", 2, priority=1.0)
    victims = gang(mesh, 2, 2)
    mesh.stopped(victims[0])
    assert starts(mesh.send(events.TaskCancelled, task=TaskId("g1"))) == [(victims[0], "PLACED")]
    assert mesh.scheduler.state.evictions == {}


def test_room_from_elsewhere_ends_the_wait_for_victims():
    mesh = two_nodes()
    mesh.run("low0", 2, priority=1.0)
    mesh.run("low1", 2, priority=1.0)
    gang(mesh, 2, 2)
    mesh.pool(cpus(8))
    mesh.node("n3", cpus(2))
    assert len(starts(mesh.node("n4", cpus(2)))) == 2
    assert mesh.scheduler.state.evictions == {}


def test_a_node_that_leaves_ends_the_plan_that_counted_on_it():
    mesh = two_nodes()
    mesh.run("low0", 2, priority=1.0)
    mesh.run("low1", 2, priority=1.0)
    victims = gang(mesh, 2, 2)
    mesh.stopped(victims[0])
    mesh.send(events.NodeLeft, node=NodeName("n1"))
    assert mesh.scheduler.state.evictions == {}
    mesh.node("n1", cpus(2))


def test_the_preemption_limit_of_a_label_delays_a_whole_gang():
    rules = PreemptionRules(min_run_ms=0, kappa_per_s=0.0, lost_work_per_s=0.0, per_minute_max=1)
    mesh = two_nodes(SchedulerSettings(rules=rules))
    mesh.run("low0", 2, priority=1.0)
    mesh.run("low1", 2, priority=1.0)
    assert gang(mesh, 2, 2) == []


@pytest.mark.parametrize(
    ("strategy", "stops"),
    [
        pytest.param("STRICT_SPREAD", 2, id="one victim on each of two nodes"),
        pytest.param("STRICT_PACK", 2, id="two victims on one node"),
        pytest.param("PACK", 2, id="wherever"),
    ],
)
def test_a_task_of_two_bundles_stops_victims_for_both(strategy: str, stops: int):
    mesh = two_nodes()
    for index in range(4):
        mesh.run(f"low{index}", priority=1.0)
    victims = [stop.task for stop in of(StopTask, mesh.submit("wide", bundles=(cpus(1), cpus(1)), strategy=strategy, priority=9.0))]
    assert len(victims) == stops
    nodes = [mesh.scheduler.state.records[TaskId(victim)].node for victim in victims]
    assert len(set(nodes)) == (2 if strategy == "STRICT_SPREAD" else 1 if strategy == "STRICT_PACK" else len(set(nodes)))
    mesh.stopped(victims[0])
    (made,) = of(CreateGroup, mesh.stopped(victims[1]))
    assert sorted(made.nodes) == sorted(nodes)
    assert starts(mesh.send(events.GroupReady, group=made.group, nodes=made.nodes)) == [("wide", "GROUP_CREATED")]


def test_in_a_pool_of_groups_victims_groups_are_replaced():
    mesh = two_nodes(groups=GroupPoolSpec(max_dynamic=4))
    for index in range(4):
        mesh.run(f"low{index}", priority=1.0)
    victims = gang(mesh, 2)
    assert len(victims) == 2
    removals = [order for victim in victims for order in of(RemoveGroup, mesh.stopped(victim))]
    assert len(removals) == 2
    assert of(CreateGroup, mesh.send(events.GroupGone, group=removals[0].group)) == []
    made = of(CreateGroup, mesh.send(events.GroupGone, group=removals[1].group))
    assert len(made) == 2
    again = [start for order in made for start in starts(mesh.send(events.GroupReady, group=GroupId(order.group), nodes=order.nodes))]
    assert again == [("g0", "GROUP_CREATED"), ("g1", "GROUP_CREATED")]


def test_a_gang_whose_members_have_several_labels_stops_nobody():
    mesh = two_nodes()
    mesh.run("low", 2, priority=1.0)
    mesh.run("lower", 2, priority=1.0)
    mesh.submit("g0", 2, gang="g", gang_size=2, priority=9.0)
    assert of(StopTask, mesh.submit("g1", 2, gang="g", gang_size=2, priority=9.0, label=LabelName("other"))) == []


def test_victims_of_a_gang_are_below_every_member():
    mesh = two_nodes()
    mesh.run("low", 2, priority=5.0)
    mesh.run("lower", 2, priority=5.0)
    mesh.submit("g0", 2, gang="g", gang_size=2, priority=9.0)
    assert of(StopTask, mesh.submit("g1", 2, gang="g", gang_size=2, priority=5.0)) == []


def test_a_gang_resumes_from_a_snapshot_while_victims_stop():
    mesh = two_nodes()
    for index in range(4):
        mesh.run(f"low{index}", priority=1.0)
    victims = gang(mesh, 4)
    mesh.stopped(victims[0])
    mesh.scheduler = MeshScheduler.from_snapshot(json.loads(json.dumps(mesh.scheduler.to_snapshot())))
    for victim in victims[1:3]:
        assert starts(mesh.stopped(victim)) == []
    assert len(of(StartTask, mesh.stopped(victims[3]))) == 4


def test_s9_the_dry_run_names_victims_of_a_gang_or_the_reason():
    mesh = two_nodes()
    mesh.run("low0", 2, priority=1.0)
    mesh.run("low1", 2, priority=1.0)
    before = mesh.scheduler.to_snapshot()
    urgent = TaskRequest(task=TaskId("x"), pool=POOL, resources=cpus(2), priority=9.0)
    plans = {count: dry_run(mesh.scheduler.state, urgent, mesh.now_ms, count)[1] for count in (1, 2, 3)}
    assert [len(plan.victims) if isinstance(plan, PreemptionPlan) else plan.reason for plan in plans.values()] == [
        1,
        2,
        Reason.PREEMPTION_INSUFFICIENT,
    ]
    modest = TaskRequest(task=TaskId("x"), pool=POOL, resources=cpus(2), priority=1.0)
    refused = dry_run(mesh.scheduler.state, modest, mesh.now_ms, 2)[1]
    assert isinstance(refused, PreemptionRefused)
    assert refused.reason is Reason.NO_PREEMPTION_CANDIDATES
    assert mesh.scheduler.to_snapshot() == before


def test_a_resource_that_nobody_knew_comes_while_room_is_held():
    mesh = Mesh(SchedulerSettings(rules=RULES))
    mesh.node("n1", cpus(4))
    mesh.pool(cpus(4))
    for index in range(2):
        mesh.run(f"low{index}", 2, priority=1.0)
    mesh.submit("high", 4, priority=9.0)
    mesh.stopped("low0")
    mesh.node("n2", cpus(1, tpu=1))
    assert starts(mesh.stopped("low1")) == [("high", "PLACED")]
