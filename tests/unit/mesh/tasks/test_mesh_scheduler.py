"""Local scheduler: its decisions step by step, with consistent ledgers after each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from scheduled_mesh import POOL, RULES, Mesh, cpus, of, starts

from mesh.core.ids import GroupId, LabelName, NodeName, PoolName, TaskId
from mesh.core.json_codec import json_text
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.core.task_spec import TaskRequest, TaskState
from mesh.errors import MeshError
from mesh.preemption.rules import PreemptionRules
from mesh.tasks import events
from mesh.tasks.decisions import (
    AnswerSlot,
    CreateGroup,
    Decision,
    EndTask,
    ExplainWaiting,
    GiveGroup,
    RemoveGroup,
    RequestCapacity,
    StartTask,
    StopTask,
)
from mesh.tasks.evicting import check_targets
from mesh.tasks.explaining import explain_task
from mesh.tasks.request_validation import misspelt_resource, unknown_resource
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings, SettingError


@pytest.fixture
def mesh() -> Iterator[Mesh]:
    made = Mesh()
    made.node("n1", cpus(4), zone="a")
    made.pool(cpus(4))
    yield made
    assert made.scheduler.state.check() == []


@pytest.fixture
def grouped() -> Mesh:
    """Return a mesh of four CPUs: one in a ready reserved group, three for up to three dynamic groups."""
    made = Mesh()
    made.node("n1", cpus(4))
    made.pool(cpus(4), groups=GroupPoolSpec(reserved=(GroupShape((cpus(1),)),), max_dynamic=3, idle_ms=1_000))
    made.send(events.GroupReady, group=GroupId("g1"), nodes=(NodeName("n1"),))
    return made


# -- the loop ----------------------------------------------------------------------------------------------------------


def test_s12_the_highest_workload_priority_is_placed_first(mesh: Mesh):
    mesh.run("runs", 4)
    mesh.submit("low", 2, priority=1)
    mesh.submit("high", 2, priority=5)
    mesh.submit("middle", 2, priority=3)
    assert starts(mesh.ended("runs")) == [("high", "PLACED"), ("middle", "PLACED")]


def test_s10_a_label_with_its_own_priority_goes_first(mesh: Mesh):
    mesh.send(events.LabelConfigured, label=LabelName("tenant:gold"), priority=3.0)
    mesh.run("runs", 4, preemptible=False)
    mesh.submit("plain", 4, priority=5)
    mesh.submit("gold", 4, priority=4, label=LabelName("tenant:gold"))
    assert starts(mesh.ended("runs")) == [("gold", "PLACED")]


def test_s10_waiting_raises_priority_and_prevents_starvation():
    mesh = Mesh(SchedulerSettings(rules=RULES, aging_per_s=1.0))
    mesh.node("n1", cpus(4))
    mesh.pool(cpus(4))
    mesh.run("runs", 4, preemptible=False)
    mesh.submit("old", 4, priority=1)
    mesh.now_ms += 10_000
    mesh.submit("new", 4, priority=9)
    assert starts(mesh.ended("runs")) == [("old", "PLACED")]


def test_s11_weights_come_from_the_label_then_the_workload_type():
    mesh = Mesh()
    mesh.node("n1", cpus(4))
    mesh.node("n2", cpus(4))
    mesh.pool(cpus(8), policy="weighted")
    spread = {"availability": 5.0, "fragmentation": 0.0}
    mesh.send(events.LabelConfigured, label=LabelName("workload:serving"), weights=spread)
    mesh.send(events.LabelConfigured, label=LabelName("tenant:gold"), weights={"availability": -1.0, "contention": 0.0})
    assert [start.node for start in of(StartTask, mesh.submit("one", workload_type="serving"))] == ["n1"]
    assert [start.node for start in of(StartTask, mesh.submit("two", workload_type="serving"))] == ["n2"]
    gold = {"workload_type": "serving", "label": LabelName("tenant:gold")}
    packed = [start.node for name in ("three", "four") for start in of(StartTask, mesh.submit(name, **gold))]
    assert packed[0] == packed[1]


def test_small_work_is_packed_so_that_a_whole_node_stays_free():
    mesh = Mesh()
    mesh.node("n1", cpus(2, memory="8GiB"))
    mesh.node("n2", cpus(2, memory="8GiB"))
    mesh.pool(cpus(4), policy="weighted")
    nodes = {start.node for name in ("one", "two", "three") for start in of(StartTask, mesh.submit(name, 0.5))}
    assert len(nodes) == 1


def test_an_unfitting_task_blocks_no_other_shape(mesh: Mesh):
    mesh.run("runs", 3, preemptible=False)
    mesh.submit("wide", 4, priority=9)
    assert starts(mesh.submit("small", 1, priority=1)) == [("small", "PLACED")]


def test_s12_a_refused_start_returns_all_and_keeps_its_place(mesh: Mesh):
    mesh.submit("first", 4)
    mesh.submit("second", 4)
    refused = mesh.send(events.TaskRefused, task=TaskId("first"), attempt=1, reason=Reason.WORKER_LOST, detail="no process")
    assert [(start.task, start.attempt) for start in of(StartTask, refused)] == [("first", 2)]


def test_a_start_that_never_comes_about_fails_after_some_tries(mesh: Mesh):
    mesh.submit("task")
    decisions: list[Decision] = []
    for attempt in range(1, 6):
        decisions = mesh.send(events.TaskRefused, task=TaskId("task"), attempt=attempt, reason=Reason.WORKER_LOST, detail="no process")
    assert [(end.reason, end.detail) for end in of(EndTask, decisions)] == [(Reason.START_FAILED, "no process")]


def test_s12_a_choice_on_stale_state_is_refused_and_repeated(mesh: Mesh):
    mesh.node("n2", cpus(4))
    before = mesh.scheduler.state.version
    mesh.run("runs", 4, node=NodeName("n1"), policy="node_affinity")
    request = TaskRequest(task=TaskId("late"), pool=POOL, resources=cpus(1), node=NodeName("n1"), policy="node_affinity")
    mesh.pool(cpus(8))
    decisions = mesh.send(events.TaskSubmitted, request=request, version=before)
    assert [explained.reason for explained in of(ExplainWaiting, decisions)] == [Reason.STALE_PLACEMENT]
    assert [start.node for start in of(StartTask, decisions)] == ["n2"]


def test_an_answer_about_an_earlier_attempt_changes_nothing(mesh: Mesh):
    mesh.run("task", max_restarts=1)
    mesh.send(events.AgentLost, task=TaskId("task"), attempt=1, detail="killed")
    assert mesh.state_of("task") is TaskState.SWAP
    mesh.send(events.AgentLost, task=TaskId("task"), attempt=1, detail="killed")
    mesh.send(events.TaskEnded, task=TaskId("task"), attempt=1)
    assert mesh.state_of("task") is TaskState.SWAP


def test_a_start_that_nobody_waits_for_any_more_is_stopped(mesh: Mesh):
    mesh.submit("task")
    mesh.send(events.NodeLeft, node=NodeName("n1"))
    decisions = mesh.send(events.TaskStarted, task=TaskId("task"), attempt=1, agent="task.1")
    assert [(stop.task, stop.attempt, stop.keep_state) for stop in of(StopTask, decisions)] == [("task", 1, False)]


def test_a_submission_that_comes_again_is_the_same_task(mesh: Mesh):
    mesh.run("task")
    assert mesh.submit("task") == []
    mesh.ended("task")
    assert mesh.submit("task") == []


# -- what fits nowhere -------------------------------------------------------------------------------------------------


def test_s28_an_infeasible_task_waits_until_a_node_joins(mesh: Mesh):
    mesh.pool(cpus(100))
    decisions = mesh.submit("large", 16)
    assert mesh.state_of("large") is TaskState.INFEASIBLE
    assert of(ExplainWaiting, decisions)[0].reason is Reason.NO_NODE_FITS
    assert of(RequestCapacity, decisions)[0].demands == (cpus(16),)
    assert starts(mesh.node("n2", cpus(16))) == [("large", "PLACED")]


def test_s31_an_unknown_resource_is_reported_and_holds_no_quota(mesh: Mesh):
    mesh.pool(cpus(4, accelerator=8))
    mesh.submit("odd", resources=cpus(1, accelerator=1))
    assert mesh.why("odd") is Reason.NO_NODE_FITS
    assert mesh.scheduler.state.pools.pool(POOL).is_empty


def test_a_node_without_the_labels_is_none(mesh: Mesh):
    mesh.submit("task", selector={"zone": "b"})
    assert mesh.why("task") is Reason.NO_NODE_FITS
    assert starts(mesh.node("n2", cpus(1), zone="b")) == [("task", "PLACED")]


def test_s20_a_pool_grows_and_shrinks_while_it_is_in_use(mesh: Mesh):
    mesh.run("one", 3)
    mesh.pool(cpus(1))
    mesh.submit("two", 1)
    assert mesh.why("two") is Reason.POOL_BUSY
    assert mesh.scheduler.state.pools.pool(POOL).excess == cpus(2)
    assert starts(mesh.ended("one")) == [("two", "PLACED")]


def test_more_than_the_pool_has_is_reported_as_never(mesh: Mesh):
    mesh.pool(cpus(2))
    mesh.submit("task", 3)
    assert (mesh.state_of("task"), mesh.why("task")) == (TaskState.INFEASIBLE, Reason.POOL_TOO_SMALL)


def test_an_unknown_pool_is_named(mesh: Mesh):
    (end,) = of(EndTask, mesh.submit("task", pool=PoolName("nowhere")))
    assert (end.reason, end.detail) == (Reason.POOL_UNKNOWN, "there is no pool nowhere; pools: pool")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        pytest.param({"policy": "fastest"}, "fastest", id="a policy that is not there"),
        pytest.param({"selector": {"zone": "in(a"}}, "zone", id="a selector that cannot be read"),
        pytest.param({"strategy": "TIGHT"}, "STRICT_PACK", id="a strategy that Ray does not know"),
        pytest.param({"gang": "g"}, "size", id="a gang without a size"),
    ],
)
def test_what_cannot_be_understood_is_refused_when_it_comes(mesh: Mesh, request_: dict[str, Any], words: str):
    (end,) = of(EndTask, mesh.submit("task", **request_))
    assert end.reason is Reason.REQUEST_INVALID
    assert words in end.detail


# -- placement groups --------------------------------------------------------------------------------------------------


def test_s7_an_urgent_task_takes_the_reserved_group_at_once(grouped: Mesh):
    assert starts(grouped.submit("urgent", priority=8.0)) == [("urgent", "RESERVED_LAYER")]


def test_s7_a_task_below_the_threshold_gets_no_reserved_group(grouped: Mesh):
    decisions = grouped.submit("plain", priority=7.9)
    assert [order.group for order in of(CreateGroup, decisions)] == ["g2"]
    assert starts(grouped.send(events.GroupReady, group=GroupId("g2"), nodes=(NodeName("n1"),))) == [("plain", "GROUP_CREATED")]


def test_s7_a_released_group_is_reused_and_counted(grouped: Mesh):
    grouped.run("one")
    grouped.ended("one")
    assert starts(grouped.submit("two")) == [("two", "GROUP_REUSED")]
    assert grouped.scheduler.state.groups.records[GroupId("g2")].reuse_count == 1


def test_s7_a_released_group_can_be_destroyed(grouped: Mesh):
    grouped.run("one")
    decisions = grouped.send(events.TaskCancelled, task=TaskId("one"), destroy_group=True)
    assert [stop.reason for stop in of(StopTask, decisions)] == [Reason.CANCELLED_BY_USER]
    assert [removal.group for removal in of(RemoveGroup, grouped.stopped("one"))] == ["g2"]


def test_s7_no_more_than_max_dynamic_groups_are_made(grouped: Mesh):
    for index in range(3):
        grouped.run(f"t{index}", 0.5, preemptible=False)
    assert of(CreateGroup, grouped.submit("fourth", 0.5)) == []
    assert grouped.why("fourth") is Reason.GROUPS_AT_LIMIT


def test_a_lost_reserved_group_is_remade_within_its_quota(grouped: Mesh):
    decisions = grouped.send(events.GroupGone, group=GroupId("g1"))
    assert [(order.shape, order.warm) for order in of(CreateGroup, decisions)] == [(GroupShape((cpus(1),)), True)]
    assert grouped.scheduler.state.pools.pool(POOL).reserved == cpus(1)


def test_a_reserved_group_survives_its_task(grouped: Mesh):
    grouped.run("urgent", priority=9.0)
    assert of(RemoveGroup, grouped.ended("urgent")) == []
    assert starts(grouped.submit("next", priority=9.0)) == [("next", "RESERVED_LAYER")]


def test_idle_groups_make_way_for_a_task_that_needs_their_room(grouped: Mesh):
    for index in range(3):
        grouped.run(f"t{index}")
    for index in range(3):
        grouped.ended(f"t{index}")
    removed = {order.group for order in of(RemoveGroup, grouped.submit("wide", 3))}
    for group in sorted(removed):
        grouped.send(events.GroupGone, group=group)
    while grouped.state_of("wide") is TaskState.PLACEABLE:
        again = [group.group for group in grouped.scheduler.state.groups.records.values() if group.state.value == "REMOVING"]
        assert again, "nothing is on its way for the task"
        grouped.send(events.GroupGone, group=again[0])
    assert grouped.state_of("wide") is TaskState.READY


def test_an_idle_group_expires(grouped: Mesh):
    grouped.run("one")
    grouped.ended("one")
    assert of(RemoveGroup, grouped.send(events.Ticked)) == []
    grouped.now_ms += 1_000
    assert [(order.group, order.reason) for order in of(RemoveGroup, grouped.send(events.Ticked))] == [("g2", Reason.GROUP_IDLE)]


def test_s8_a_group_that_ray_does_not_make_is_retried(grouped: Mesh):
    grouped.submit("task")
    decisions = grouped.send(events.GroupFailed, group=GroupId("g2"), detail="no room after 5 s")
    assert [order.group for order in of(CreateGroup, decisions)] == ["g3"]
    assert grouped.scheduler.state.groups.held_by(TaskId("task")) is not None


def test_a_group_that_arrives_unwanted_is_removed(grouped: Mesh):
    grouped.submit("task")
    grouped.send(events.GroupFailed, group=GroupId("g2"), detail="no answer")
    late = grouped.send(events.GroupReady, group=GroupId("g2"), nodes=(NodeName("n1"),))
    assert [order.group for order in of(RemoveGroup, late)] == ["g2"]


def test_s7_a_group_can_be_held_without_an_agent_and_given_back(grouped: Mesh):
    decisions = grouped.submit("mine", has_agent=False, priority=9.0)
    assert [(gift.group, gift.reason) for gift in of(GiveGroup, decisions)] == [("g1", Reason.RESERVED_LAYER)]
    assert grouped.scheduler.state.pools.pool(POOL).used == cpus(1)
    assert of(EndTask, grouped.send(events.TaskCancelled, task=TaskId("mine")))[0].reason is Reason.CANCELLED_BY_USER


@pytest.mark.parametrize(
    ("strategy", "nodes"),
    [
        pytest.param("STRICT_PACK", {("n2", "n2")}, id="strictly packed bundles need one node that holds all"),
        pytest.param("STRICT_SPREAD", {("n1", "n2"), ("n2", "n1")}, id="strictly spread bundles need a node each"),
        pytest.param("SPREAD", {("n1", "n2"), ("n2", "n1")}, id="spread bundles take a node each where there are enough"),
    ],
)
def test_a_task_of_several_bundles_gets_a_group_of_that_shape(strategy: str, nodes: set[tuple[str, str]]):
    mesh = Mesh()
    mesh.node("n1", cpus(2))
    mesh.node("n2", cpus(4))
    mesh.pool(cpus(8))
    decisions = mesh.submit("wide", bundles=(cpus(2), cpus(2)), strategy=strategy)
    assert of(CreateGroup, decisions)[0].nodes in nodes


def wide_on_two_nodes(*, is_up: bool, **request: Any) -> Mesh:
    """Return a task of a bundle per node, whose agent runs or starts on n1."""
    mesh = Mesh()
    mesh.node("n1", cpus(2))
    mesh.node("n2", cpus(2))
    mesh.pool(cpus(8))
    mesh.submit("wide", bundles=(cpus(2), cpus(1)), strategy="STRICT_SPREAD", max_restarts=1, **request)
    mesh.send(events.GroupReady, group=GroupId("g1"), nodes=(NodeName("n1"), NodeName("n2")))
    if is_up:
        mesh.started("wide")
    return mesh


def stops(decisions: list[Decision]) -> list[tuple[str, int]]:
    return [(stop.task, stop.attempt) for stop in of(StopTask, decisions)]


@pytest.mark.parametrize("is_up", [True, False], ids=["its agent is up", "its agent is on its way"])
def test_an_attempt_that_loses_a_bundle_is_ended(is_up: bool):
    mesh = wide_on_two_nodes(is_up=is_up)
    lost = mesh.send(events.NodeLeft, node=NodeName("n2"))
    assert stops(lost) == [("wide", 1)]
    assert of(StopTask, lost)[0].keep_state is False
    assert mesh.send(events.TaskStopped, task=TaskId("wide"), attempt=1) == []
    mesh.node("n3", cpus(2))
    mesh.send(events.GroupReady, group=GroupId("g2"), nodes=(NodeName("n1"), NodeName("n3")))
    assert mesh.scheduler.state.records[TaskId("wide")].attempt == 2


@pytest.mark.parametrize(
    ("gone", "request_more", "cancelled"),
    [
        pytest.param("n1", {}, False, id="its agent went with the node"),
        pytest.param("n2", {"has_agent": False}, False, id="it has no agent"),
        pytest.param("n2", {}, True, id="it is being stopped already"),
    ],
)
def test_nothing_is_ordered_to_stop_when_nothing_of_it_runs_on(gone: str, request_more: dict[str, Any], *, cancelled: bool):
    mesh = wide_on_two_nodes(is_up=request_more.get("has_agent", True), **request_more)
    if cancelled:
        mesh.send(events.TaskCancelled, task=TaskId("wide"))
    assert stops(mesh.send(events.NodeLeft, node=NodeName(gone))) == []


# -- preemption --------------------------------------------------------------------------------------------------------


def test_s18_a_full_pool_preempts_and_reuses_the_victims_group(grouped: Mesh):
    for index in range(3):
        grouped.run(f"low{index}", priority=1.0)
    grouped.run("first", priority=9.0)
    decisions = grouped.submit("high", priority=8.5)
    (stop,) = of(StopTask, decisions)
    assert (stop.keep_state, stop.by, stop.reason) == (True, "high", Reason.PREEMPTED)
    assert grouped.why("high") is Reason.WAITING_FOR_VICTIMS
    again = grouped.stopped(stop.task)
    assert starts(again) == [("high", "GROUP_REUSED")]
    assert grouped.state_of(stop.task) is TaskState.PLACEABLE
    grouped.started("high")
    grouped.ended("high")
    resumed = of(StartTask, grouped.send(events.Ticked)) or [grouped.scheduler.state.records[stop.task]]
    assert resumed[0].resume


def test_two_small_tasks_are_preempted_for_one_large(mesh: Mesh):
    for index in range(4):
        mesh.run(f"low{index}", priority=1.0)
    victims = [stop.task for stop in of(StopTask, mesh.submit("high", 2, priority=9.0))]
    assert len(victims) == 2
    assert starts(mesh.stopped(victims[0])) == []
    assert starts(mesh.submit("thief", 1, priority=9.5, preemptible=True)) == []
    assert starts(mesh.stopped(victims[1])) == [("high", "PLACED")]


def test_equal_priority_waits_with_a_reason_and_is_no_error(mesh: Mesh):
    mesh.run("runs", 4, priority=5)
    assert of(StopTask, mesh.submit("equal", 4, priority=5)) == []
    assert mesh.why("equal") is Reason.POOL_BUSY


def test_s9_the_dry_run_covers_running_tasks_without_effect(mesh: Mesh):
    mesh.run("low", 2, priority=1)
    mesh.run("firm", 1, priority=1, preemptible=False)
    mesh.run("equal", 1, priority=9)
    before = mesh.scheduler.to_snapshot()
    found = check_targets(mesh.scheduler.state, TaskRequest(task=TaskId("x"), pool=POOL, resources=cpus(2), priority=9.0), mesh.now_ms)
    assert {scored.candidate.task: scored.verdict for scored in found} == {
        "low": Reason.ELIGIBLE,
        "firm": Reason.NOT_PREEMPTIBLE,
        "equal": Reason.PRIORITY_NOT_LOWER,
    }
    assert mesh.scheduler.to_snapshot() == before


def test_two_tasks_never_evict_each_other_in_turns():
    mesh = Mesh(SchedulerSettings(rules=RULES, aging_per_s=100.0))
    mesh.node("n1", cpus(1))
    mesh.pool(cpus(1))
    mesh.run("low", priority=1)
    mesh.submit("high", priority=5)
    mesh.stopped("low")
    mesh.started("high")
    mesh.now_ms += 1_000_000  # By its age the low one would have overtaken the other many times.
    assert of(StopTask, mesh.send(events.Ticked)) == []


def test_a_victim_that_ends_by_itself_makes_room_all_the_same(mesh: Mesh):
    mesh.run("low", 4, priority=1)
    mesh.submit("high", 4, priority=9)
    assert starts(mesh.ended("low")) == [("high", "PLACED")]


def test_room_is_not_held_for_a_preemptor_that_was_cancelled(mesh: Mesh):
    for index in range(2):
        mesh.run(f"low{index}", 2, priority=1.0)
    mesh.submit("high", 4, priority=9.0)
    mesh.stopped("low0")
    decisions = mesh.send(events.TaskCancelled, task=TaskId("high"))
    assert starts(decisions) == [("low0", "PLACED")]


def test_two_preemptors_in_one_pass_pick_different_victims(mesh: Mesh):
    for name in "abcd":
        mesh.run(name, priority=1)
    requests = [TaskRequest(task=TaskId(name), pool=POOL, resources=cpus(count), priority=7) for name, count in (("x", 1), ("y", 3))]
    decisions = mesh.scheduler.handle(*(events.TaskSubmitted(at_ms=mesh.now_ms, request=request) for request in requests))
    asked = [(order.task, order.by) for order in of(StopTask, decisions)]
    assert sorted(task for task, _ in asked) == ["a", "b", "c", "d"]
    assert sorted(by for _, by in asked) == ["x", "y", "y", "y"]


def test_a_task_is_preempted_only_after_its_minimum_run_time():
    mesh = Mesh(SchedulerSettings(rules=PreemptionRules(min_run_ms=500, kappa_per_s=0.0, lost_work_per_s=0.0)))
    mesh.node("n1", cpus(1))
    mesh.pool(cpus(1))
    mesh.run("low", priority=1)
    assert of(StopTask, mesh.submit("high", priority=9)) == []
    mesh.now_ms += 500
    assert [stop.task for stop in of(StopTask, mesh.send(events.Ticked))] == ["low"]


def test_an_urgent_task_at_the_group_limit_takes_over_a_group():
    mesh = Mesh()
    mesh.node("n1", cpus(8))
    mesh.pool(cpus(8), groups=GroupPoolSpec(max_dynamic=1))
    mesh.run("low", priority=1)
    assert [stop.task for stop in of(StopTask, mesh.submit("high", priority=9))] == ["low"]
    assert starts(mesh.stopped("low")) == [("high", "GROUP_REUSED")]


def test_another_shape_at_the_group_limit_replaces_a_group():
    mesh = Mesh()
    mesh.node("n1", cpus(8))
    mesh.pool(cpus(8), groups=GroupPoolSpec(max_dynamic=1))
    mesh.run("low", priority=1)
    mesh.submit("high", 2, priority=9)
    assert [removal.group for removal in of(RemoveGroup, mesh.stopped("low"))] == ["g1"]
    assert [made.shape.amounts for made in of(CreateGroup, mesh.send(events.GroupGone, group=GroupId("g1")))] == [cpus(2)]


def test_a_task_on_a_reserved_group_is_no_victim_for_room():
    mesh = Mesh()
    mesh.node("n1", cpus(2))
    mesh.pool(cpus(2), groups=GroupPoolSpec(reserved=(GroupShape((cpus(1),)),), max_dynamic=4))
    mesh.send(events.GroupReady, group=GroupId("g1"), nodes=(NodeName("n1"),))
    mesh.run("reserved", priority=8.0)
    mesh.run("dynamic", priority=1.0)
    assert of(StopTask, mesh.submit("wide", 2, priority=10.0)) == []


def test_a_more_urgent_task_takes_the_reserved_group_over():
    mesh = Mesh()
    mesh.node("n1", cpus(1))
    mesh.pool(cpus(1), groups=GroupPoolSpec(reserved=(GroupShape((cpus(1),)),), max_dynamic=4))
    mesh.send(events.GroupReady, group=GroupId("g1"), nodes=(NodeName("n1"),))
    mesh.run("urgent", priority=8.0)
    assert [stop.task for stop in of(StopTask, mesh.submit("more", priority=10.0))] == ["urgent"]
    assert starts(mesh.stopped("urgent")) == [("more", "RESERVED_LAYER")]


# -- the node that a task names ----------------------------------------------------------------------------------------


def test_s32_work_that_names_a_node_waits_for_it(mesh: Mesh):
    mesh.node("n2", cpus(4))
    mesh.pool(cpus(8))
    mesh.run("runs", 4, node=NodeName("n1"), policy="node_affinity", preemptible=False)
    assert starts(mesh.submit("named", node=NodeName("n1"), policy="node_affinity")) == []
    assert mesh.why("named") is Reason.NODES_BUSY


def test_s32_a_lost_named_node_fails_hard_and_moves_soft_work(mesh: Mesh):
    (end,) = of(EndTask, mesh.submit("hard", node=NodeName("gone"), policy="node_affinity"))
    assert end.reason is Reason.NAMED_NODE_GONE
    assert starts(mesh.submit("soft", node=NodeName("gone"), policy="node_affinity", soft=True)) == [("soft", "PLACED")]


def test_node_affinity_without_a_node_fails_with_its_reason(mesh: Mesh):
    mesh.pool(cpus(4), policy="node_affinity")
    (end,) = of(EndTask, mesh.submit("anywhere"))
    assert (end.reason, end.detail) == (
        Reason.REQUEST_INVALID,
        "policy node_affinity needs a node, but the task names none; set `node`",
    )


def test_s32_hard_work_fails_when_its_named_node_leaves(mesh: Mesh):
    mesh.node("n2", cpus(4))
    mesh.pool(cpus(8))
    mesh.run("runs", 4, node=NodeName("n1"), policy="node_affinity", max_restarts=0)
    mesh.submit("waits", node=NodeName("n1"), policy="node_affinity")
    left = mesh.send(events.NodeLeft, node=NodeName("n1"))
    assert {end.task: end.reason for end in of(EndTask, left)}["waits"] is Reason.NAMED_NODE_GONE


def test_s33_work_follows_its_arguments_without_a_policy(mesh: Mesh):
    mesh.node("n2", cpus(4))
    mesh.pool(cpus(8), policy="hybrid")
    near = {NodeName("n2"): 10**9}
    assert [start.node for start in of(StartTask, mesh.submit("near", local_bytes=near))] == ["n2"]
    assert [start.node for start in of(StartTask, mesh.submit("packed", local_bytes=near, policy="binpack", node=None))] != []


# -- gangs, order between tasks, calls on agents -----------------------------------------------------------------------


def test_s37_a_gang_is_admitted_whole_or_not_at_all(mesh: Mesh):
    mesh.run("runs", 1, preemptible=False)
    for index in range(2):
        assert starts(mesh.submit(f"a{index}", 2, gang="a", gang_size=2)) == []
    assert mesh.scheduler.state.pools.pool(POOL).free == cpus(3)
    assert starts(mesh.ended("runs")) == [("a0", "PLACED"), ("a1", "PLACED")]


@pytest.mark.parametrize("after", [(), ("nobody",)], ids=["both wait for room", "the first one waits for another task"])
def test_a_member_that_says_another_size_of_its_gang_is_refused(mesh: Mesh, after: tuple[str, ...]):
    mesh.submit("a0", gang="a", gang_size=2, after=after)
    (refused,) = [decision for decision in mesh.submit("a1", gang="a", gang_size=3) if isinstance(decision, EndTask)]
    assert (refused.task, refused.reason) == ("a1", Reason.REQUEST_INVALID)
    assert refused.detail.startswith("gang_size of a1 is 3, but 2 for a0 of the same gang a; give all members the same size")


def test_a_gang_waits_until_all_its_members_are_known(mesh: Mesh):
    mesh.submit("a0", gang="a", gang_size=2)
    assert mesh.why("a0") is Reason.WAITING_FOR_GANG


def test_a_member_that_fails_takes_its_gang_with_it(mesh: Mesh):
    mesh.submit("a0", gang="a", gang_size=2)
    mesh.submit("a1", gang="a", gang_size=2)
    mesh.started("a0")
    mesh.started("a1")
    assert [(stop.task, stop.reason) for stop in of(StopTask, mesh.ended("a0", "boom"))] == [("a1", Reason.GANG_BROKEN)]


def test_s29_a_task_waits_and_fails_with_its_dependencies(mesh: Mesh):
    mesh.run("one")
    mesh.submit("two", after=(TaskId("one"),))
    assert (mesh.state_of("two"), mesh.why("two")) == (TaskState.WAITING, Reason.WAITING_FOR_INPUTS)
    assert starts(mesh.ended("one")) == [("two", "PLACED")]
    mesh.submit("three", after=(TaskId("two"),))
    mesh.started("two")
    assert [(end.task, end.reason) for end in of(EndTask, mesh.ended("two", "boom"))] == [
        ("two", Reason.USER_ERROR),
        ("three", Reason.UPSTREAM_FAILED),
    ]


def test_s29_a_call_waits_for_its_agent_and_takes_no_room(mesh: Mesh):
    mesh.submit("actor", 4)
    mesh.submit("call", resources=cpus(0), agent="actor.1")
    assert mesh.state_of("call") is TaskState.WAITING_FOR_ACTOR_CREATION
    assert starts(mesh.started("actor")) == [("call", "PLACED")]


def test_s29_a_running_call_is_no_victim_after_a_change(mesh: Mesh):
    mesh.run("actor", 4)
    mesh.submit("call", resources=cpus(0), agent="actor.1")
    mesh.send(events.TaskStarted, task=TaskId("call"), attempt=1, agent="actor.1")
    mesh.send(events.SettingsChanged, settings={"aging_per_s": 0.5})  # `mesh` checks the count of running tasks.
    mesh.ended("call")


def test_s29_calls_end_with_their_agent_when_its_node_leaves(mesh: Mesh):
    mesh.run("actor", 4)
    mesh.submit("call", resources=cpus(0), agent="actor.1")
    left = mesh.send(events.NodeLeft, node=NodeName("n1"))
    assert ("call", Reason.AGENT_LOST) in {(end.task, end.reason) for end in of(EndTask, left)}


def test_s29_a_call_that_waited_for_inputs_ends_with_its_agent(mesh: Mesh):
    mesh.run("actor", 3)
    mesh.run("input", 1)
    mesh.submit("call", resources=cpus(0), agent="actor.1", after=(TaskId("input"),))
    assert starts(mesh.ended("input")) == [("call", "PLACED")]
    lost = mesh.send(events.AgentLost, task=TaskId("actor"), attempt=1, detail="killed")
    assert ("call", Reason.AGENT_LOST) in {(end.task, end.reason) for end in of(EndTask, lost)}


def test_s29_a_blocked_task_resumes_after_the_other_ends(mesh: Mesh):
    mesh.run("task")
    mesh.send(events.TaskBlocked, task=TaskId("task"), blocked=True)
    assert mesh.state_of("task") is TaskState.BLOCKED
    mesh.send(events.TaskBlocked, task=TaskId("task"), blocked=False)
    assert mesh.state_of("task") is TaskState.RUNNING


# -- losses ------------------------------------------------------------------------------------------------------------


def test_s20_a_lost_agent_is_started_again_as_often_as_it_may(mesh: Mesh):
    mesh.run("task", max_restarts=1)
    again = mesh.send(events.AgentLost, task=TaskId("task"), attempt=1, detail="killed")
    assert [(start.task, start.attempt) for start in of(StartTask, again)] == [("task", 2)]
    mesh.started("task")
    over = mesh.send(events.AgentLost, task=TaskId("task"), attempt=2, detail="killed again")
    assert [(end.reason, end.detail) for end in of(EndTask, over)] == [(Reason.AGENT_LOST, "killed again")]
    assert mesh.scheduler.state.pools.pool(POOL).is_empty


def test_s20_what_ran_on_a_node_that_left_starts_elsewhere(mesh: Mesh):
    mesh.run("task", max_restarts=-1)
    mesh.node("n2", cpus(4))
    assert [start.node for start in of(StartTask, mesh.send(events.NodeLeft, node=NodeName("n1")))] == ["n2"]


# -- slots and settings ------------------------------------------------------------------------------------------------


def test_s6_a_slot_is_reserved_committed_and_released(mesh: Mesh):
    pool = mesh.scheduler.state.pools.pool(POOL)
    assert mesh.send(events.SlotAsked, slot="s", pool=POOL, resources=cpus(3))[0].refused is None
    assert (pool.reserved, pool.used) == (cpus(3), cpus(0))
    mesh.send(events.SlotCommitted, slot="s")
    assert (pool.reserved, pool.used) == (cpus(0), cpus(3))
    assert mesh.send(events.SlotAsked, slot="t", pool=POOL, resources=cpus(2))[0].refused is Reason.POOL_BUSY
    assert mesh.send(events.SlotReleased, slot="s")[0].refused is None
    assert mesh.send(events.SlotReleased, slot="s")[0].refused is Reason.SLOT_UNKNOWN
    assert pool.is_empty


def test_s6_a_pool_for_four_agents_of_a_tenth_takes_four(mesh: Mesh):
    mesh.pool(cpus(0.4))
    answers = [mesh.send(events.SlotAsked, slot=f"s{index}", pool=POOL, resources=cpus(0.1))[0] for index in range(5)]
    assert [answer.refused for answer in answers if isinstance(answer, AnswerSlot)] == [None] * 4 + [Reason.POOL_BUSY]


def test_settings_change_while_tasks_wait(mesh: Mesh):
    mesh.run("runs", 4, priority=5)
    mesh.submit("waits", 4, priority=5.2)
    assert mesh.why("waits") is Reason.POOL_BUSY
    decisions = mesh.send(events.SettingsChanged, settings={"rules.threshold": 0.1, "weights.availability": 0.3})
    assert [stop.task for stop in of(StopTask, decisions)] == ["runs"]


def test_an_unknown_setting_names_those_that_there_are(mesh: Mesh):
    with pytest.raises(SettingError, match=r"weights has availability, fragmentation, locality, contention"):
        mesh.scheduler.handle(events.SettingsChanged(at_ms=9, settings={"weights.speed": 1.0}))


def test_a_deleted_pool_cancels_waiting_and_stops_running_tasks(mesh: Mesh):
    mesh.run("runs", 4)
    mesh.submit("waits", 4)
    decisions = mesh.send(events.PoolDeleted, pool=POOL)
    assert [end.task for end in of(EndTask, decisions)] == ["waits"]
    assert [stop.task for stop in of(StopTask, decisions)] == ["runs"]
    mesh.stopped("runs")
    assert of(EndTask, mesh.submit("late"))[0].reason is Reason.POOL_UNKNOWN


def test_queue_position_and_estimate_are_reported(mesh: Mesh):
    for index in range(3):
        mesh.run(f"t{index}", 1, preemptible=False)
    mesh.run("t3", 1, preemptible=False)
    mesh.submit("first", 1)
    mesh.submit("second", 1)
    explanation = explain_task(mesh.scheduler.state, TaskId("second"), mesh.now_ms)
    assert (explanation.position, explanation.reason) == (2, Reason.POOL_BUSY)
    assert explanation.estimate_ms is not None
    assert explanation.estimate_ms > 0


def test_an_overdue_estimate_is_not_reported(mesh: Mesh):
    for index in range(4):
        mesh.run(f"t{index}", 1, preemptible=False)
    mesh.submit("waits", 1)
    explanation = explain_task(mesh.scheduler.state, TaskId("waits"), mesh.now_ms)
    assert explanation.estimate_ms is not None
    later = explain_task(mesh.scheduler.state, TaskId("waits"), mesh.now_ms + explanation.estimate_ms + 1)
    assert (later.reason, later.estimate_ms) == (Reason.POOL_BUSY, None)


def test_an_estimate_needs_a_pace_of_starts(mesh: Mesh):
    for index in range(3):
        mesh.run(f"t{index}", 1)
    mesh.submit("alone", gang="g", gang_size=2)
    explanation = explain_task(mesh.scheduler.state, TaskId("alone"), mesh.now_ms)
    assert (explanation.reason, explanation.position, explanation.estimate_ms) == (Reason.WAITING_FOR_GANG, 1, None)


@pytest.mark.parametrize(
    ("amounts", "near"),
    [
        pytest.param({"cpus": 2}, "cpu", id="one letter too many"),
        pytest.param({"GPU": 1}, "gpu", id="capitals"),
        pytest.param({"acelerator": 1}, "accelerator", id="a resource of a node"),
        pytest.param({"npu": 1}, "", id="a resource of nodes that are still to come"),
        pytest.param({"gpu": 1, "memory": "1GiB"}, "", id="what every mesh knows"),
    ],
)
def test_a_misspelt_resource_is_reported(mesh: Mesh, amounts: dict[str, Any], near: str):
    mesh.node("n2", cpus(1, accelerator=1))
    problem = misspelt_resource(mesh.scheduler.state, ResourceSet.of(amounts))
    assert (f"did you mean {near}?" in problem) if near else not problem


@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        pytest.param({"cpus": 2}, "a resource 'cpus'; did you mean cpu?", id="one letter too many"),
        pytest.param({"cpu": 1, "mem": 2**20}, "a resource 'mem'; known: accelerator, cpu, gpu, lamp, memory", id="a short form"),
        pytest.param({"npu": 1}, "for another one, first give a pool capacity of it", id="one of one's own"),
        pytest.param({"cpu": 1, "gpu": 1, "memory": "1GiB"}, "", id="what every mesh knows"),
        pytest.param({"accelerator": 1}, "", id="what a node has"),
        pytest.param({"lamp": 1}, "", id="what a pool counts and nodes are to bring"),
    ],
)
def test_an_unknown_resource_is_reported_by_name(mesh: Mesh, amounts: dict[str, Any], words: str):
    mesh.node("n2", cpus(1, accelerator=1))
    mesh.pool(cpus(1, lamp=2), pool=PoolName("lit"))
    problem = unknown_resource(mesh.scheduler.state, ResourceSet.of(amounts))
    assert (words in problem) if words else not problem


# -- what a snapshot keeps, and what ends together ---------------------------------------------------------------------


def test_a_dependency_that_ended_before_a_snapshot_counts(mesh: Mesh):
    mesh.run("one")
    mesh.run("two")
    mesh.submit("last", after=(TaskId("one"), TaskId("two")))
    mesh.ended("one")
    mesh.scheduler.to_snapshot()
    assert starts(mesh.ended("two")) == [("last", "PLACED")]


def test_a_gang_with_a_waiting_member_is_not_whole_on_restore(mesh: Mesh):
    mesh.run("first")
    mesh.submit("g1", gang="g", gang_size=2)
    mesh.submit("g2", gang="g", gang_size=2, after=(TaskId("first"),))
    mesh.scheduler.to_snapshot()
    assert starts(mesh.send(events.Ticked)) == []
    assert starts(mesh.ended("first")) == [("g1", "PLACED"), ("g2", "PLACED")]


def test_a_member_restarts_alone_when_another_has_ended(mesh: Mesh):
    mesh.submit("g1", gang="g", gang_size=2, max_restarts=3)
    mesh.submit("g2", gang="g", gang_size=2)
    mesh.started("g1")
    mesh.started("g2")
    mesh.ended("g2")
    assert starts(mesh.send(events.AgentLost, task=TaskId("g1"), attempt=1, detail="killed")) == [("g1", "PLACED")]


def test_what_comes_after_a_failure_that_is_known_fails_at_once(mesh: Mesh):
    mesh.run("one")
    mesh.ended("one", "boom")
    assert of(EndTask, mesh.submit("two", after=(TaskId("one"),)))[0].reason is Reason.UPSTREAM_FAILED


def test_a_chain_longer_than_the_stack_ends_with_its_head(mesh: Mesh):
    mesh.run("t0")
    for index in range(1, 2_000):
        mesh.scheduler.handle(
            events.TaskSubmitted(
                at_ms=mesh.now_ms, request=TaskRequest(task=TaskId(f"t{index}"), pool=POOL, after=(TaskId(f"t{index - 1}"),))
            )
        )
    assert len(of(EndTask, mesh.ended("t0", "boom"))) == 2_000


def test_a_pool_whose_tasks_end_with_each_other_can_be_deleted(mesh: Mesh):
    mesh.run("runs", 4)
    mesh.submit("one", 4)
    mesh.submit("two", after=(TaskId("one"),))
    assert {end.task for end in of(EndTask, mesh.send(events.PoolDeleted, pool=POOL))} == {"one", "two"}


# -- groups that nobody wants any more ---------------------------------------------------------------------------------


def test_a_group_made_for_a_cancelled_task_is_removed():
    mesh = Mesh()
    mesh.node("n1", cpus(4))
    mesh.pool(cpus(4))
    mesh.submit("wide", bundles=(cpus(2), cpus(2)))
    mesh.send(events.TaskCancelled, task=TaskId("wide"))
    late = mesh.send(events.GroupReady, group=GroupId("g1"), nodes=(NodeName("n1"), NodeName("n1")))
    assert [order.group for order in of(RemoveGroup, late)] == ["g1"]


def test_a_group_that_arrives_during_pool_deletion_is_removed():
    mesh = Mesh()
    mesh.node("n1", cpus(4))
    mesh.pool(cpus(4), groups=GroupPoolSpec(reserved=(GroupShape((cpus(1),)),)))
    mesh.send(events.PoolDeleted, pool=POOL)
    mesh.send(events.GroupReady, group=GroupId("g1"), nodes=(NodeName("n1"),))
    mesh.send(events.GroupGone, group=GroupId("g1"))
    assert POOL not in mesh.scheduler.state.pools.pools


def test_a_refused_reserved_group_is_retried_after_a_pause():
    mesh = Mesh()
    mesh.node("n1", cpus(4))
    mesh.pool(cpus(4), groups=GroupPoolSpec(reserved=(GroupShape((cpus(1),)),)))
    assert of(CreateGroup, mesh.send(events.GroupFailed, group=GroupId("g1"), detail="no room")) == []
    mesh.now_ms += 1_000
    assert len(of(CreateGroup, mesh.send(events.Ticked))) == 1


def test_nobody_is_preempted_for_bundles_that_never_fit(mesh: Mesh):
    mesh.run("low", 4, priority=1)
    decisions = mesh.submit("wide", bundles=(cpus(3), cpus(3)), strategy="STRICT_PACK", priority=9)
    assert of(StopTask, decisions) == []


def test_slots_and_tasks_have_names_of_their_own(mesh: Mesh):
    mesh.run("x", 4)
    mesh.send(events.SlotReleased, slot="x")
    assert mesh.scheduler.state.pools.pool(POOL).used == cpus(4)
    mesh.ended("x")
    assert mesh.send(events.SlotAsked, slot="y", pool=POOL, resources=cpus(1))[0].refused is None
    assert mesh.send(events.SlotAsked, slot="y", pool=POOL, resources=cpus(1))[0].refused is None
    assert mesh.send(events.SlotAsked, slot="y", pool=POOL, resources=cpus(3))[0].refused is Reason.ID_IN_USE
    assert starts(mesh.submit("y")) == [("y", "PLACED")]


# -- settings that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"rules.cross_label": {}}, "at start only", id="a rule that is no number"),
        pytest.param({"grace_ms": "long"}, "must be finite", id="words for a number"),
        pytest.param({"rules.cross_label_weight": 2.0}, "at most 1", id="out of its bounds"),
        pytest.param({"grace_ms.x": 1}, "has no nested settings", id="a part of a number"),
    ],
)
def test_an_invalid_setting_is_refused_without_effect(mesh: Mesh, settings: dict[str, Any], words: str):
    before = mesh.scheduler.state.settings
    with pytest.raises(SettingError, match=words):
        mesh.scheduler.handle(events.SettingsChanged(at_ms=9, settings=settings))
    assert mesh.scheduler.state.settings == before


def test_a_limit_set_where_none_was_survives_a_snapshot(mesh: Mesh):
    mesh.send(events.SettingsChanged, settings={"rules.per_minute_max": 5.0})
    again = MeshScheduler.from_snapshot(json.loads(json_text(mesh.scheduler.to_snapshot())))
    assert again.state.settings == mesh.scheduler.state.settings
    assert again.state.settings.rules.per_minute_max == 5


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        pytest.param({"policy": "fastest"}, "fastest", id="a policy that is not there"),
        pytest.param({"weights": {"fragmentaton": 2.0}}, "fragmentation", id="a weight that is not there"),
        pytest.param({"weights": {"fragmentation": "much"}}, "must be finite", id="a weight in words"),
        pytest.param({"priority": "high"}, "must be finite", id="a priority in words"),
        pytest.param({"aging_per_s": -1.0}, "at least 0", id="waiting that lowers"),
    ],
)
def test_an_invalid_label_is_refused_without_effect(mesh: Mesh, rules: dict[str, Any], words: str):
    with pytest.raises(MeshError, match=words):
        mesh.scheduler.handle(events.LabelConfigured(at_ms=9, label=LabelName("tier:z"), **rules))
    assert mesh.scheduler.state.shapes.labels == {}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        pytest.param(GroupPoolSpec(reserved=(GroupShape((cpus(1),), "TIGHT"),)), "STRICT_PACK", id="a strategy that Ray does not know"),
        pytest.param(GroupPoolSpec(reserved=(GroupShape((cpus(9),)),)), "exceeds the pool's capacity", id="a reserve beyond the pool"),
        pytest.param(GroupPoolSpec(max_dynamic=-1), "at least 0", id="fewer than no groups"),
    ],
)
def test_groups_that_cannot_be_are_refused_with_the_pool(mesh: Mesh, groups: GroupPoolSpec, words: str):
    with pytest.raises(SettingError, match=words):
        mesh.scheduler.handle(
            events.PoolConfigured(at_ms=9, spec=PoolSpec(pool=PoolName("new"), capacity=cpus(4), groups=groups)),
        )
    assert PoolName("new") not in mesh.scheduler.state.pools.pools


def test_an_idle_group_is_removed_for_a_plain_task():
    mesh = Mesh()
    mesh.node("n1", cpus(1))
    mesh.pool(cpus(1), groups=GroupPoolSpec())
    mesh.pool(cpus(1), pool=PoolName("plain"))
    mesh.run("one")
    mesh.ended("one")
    assert [order.group for order in of(RemoveGroup, mesh.submit("two", pool=PoolName("plain")))] == ["g1"]
    assert starts(mesh.send(events.GroupGone, group=GroupId("g1"))) == [("two", "PLACED")]
