"""GPUs by instance in the scheduler: no task is placed on two halves, and its wait is explained."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scheduled_mesh import RULES, Mesh, cpus, of, starts

from mesh.core.ids import NodeName, TaskId
from mesh.core.json_codec import json_text
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec
from mesh.core.task_spec import TaskState
from mesh.tasks import events
from mesh.tasks.decisions import EndTask, StopTask
from mesh.tasks.explaining import explain_task
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings


def gpus(count: float) -> ResourceSet:
    return ResourceSet.of({"gpu": count})


def mesh_of(*gpus_of_nodes: int, settings: SchedulerSettings | None = None, **pool: Any) -> Mesh:
    mesh = Mesh(settings or SchedulerSettings(rules=RULES))
    for number, count in enumerate(gpus_of_nodes):
        mesh.node(f"n{number}", cpus(8, gpu=count))
    mesh.pool(cpus(64, gpu=64), **pool)
    return mesh


def halved(mesh: Mesh, **request: Any) -> Mesh:
    """Use half of each of the node's two GPUs: the first and the third half fill different ones."""
    for name in ("a", "gone", "b"):
        mesh.run(name, resources=gpus(0.5), **request)
    mesh.ended("gone")
    return mesh


def instances(mesh: Mesh, node: str = "n0") -> dict[str, dict[int, float]]:
    table = mesh.scheduler.state.table
    return {each.holder: {number: units / 10_000 for _, number, units in each.parts} for each in table.holdings(table.row(NodeName(node)))}


def test_s26_two_half_used_gpus_hold_no_task_of_one():
    mesh = halved(mesh_of(2))
    assert starts(mesh.submit("whole", resources=gpus(1))) == []
    explained = explain_task(mesh.scheduler.state, TaskId("whole"), mesh.now_ms)
    assert (explained.reason, explained.detail) == (
        Reason.INSTANCES_FRAGMENTED,
        "2 GPUs are partly used; a whole one is free on no node",
    )
    assert starts(mesh.ended("a")) == [("whole", "PLACED")]
    assert instances(mesh) == {"b": {1: 0.5}, "whole": {0: 1.0}}


def test_s26_a_part_is_not_glued_from_two_rests_either():
    mesh = mesh_of(2)
    mesh.run("a", resources=gpus(0.6))
    mesh.run("b", resources=gpus(0.6))
    mesh.submit("c", resources=gpus(0.5))
    explained = explain_task(mesh.scheduler.state, TaskId("c"), mesh.now_ms)
    assert explained.detail == "2 GPUs are partly used; 0.5 of one is free on no node"
    assert starts(mesh.submit("d", resources=gpus(0.4))) == [("d", "PLACED")]
    assert instances(mesh)["d"] == {0: 0.4}


def test_a_node_with_a_whole_gpu_is_found_beside_halves():
    mesh = halved(mesh_of(2))
    mesh.node("n1", cpus(8, gpu=1))
    assert starts(mesh.submit("whole", resources=gpus(1))) == [("whole", "PLACED")]
    assert mesh.scheduler.state.records[TaskId("whole")].node == "n1"


def test_use_by_others_leaves_whole_gpus_as_ray_does():
    mesh = mesh_of(2)
    mesh.send(events.NodeUseSeen, node=NodeName("n0"), foreign=gpus(0.5))
    assert starts(mesh.submit("whole", resources=gpus(1))) == [("whole", "PLACED")]
    assert starts(mesh.submit("second", resources=gpus(1))) == []
    assert mesh.why("second") is Reason.NODES_BUSY


def test_only_one_of_two_halves_is_preempted_for_a_whole_gpu():
    mesh = halved(mesh_of(2))
    stops = of(StopTask, mesh.submit("urgent", resources=gpus(1), priority=9.0))
    assert len(stops) == 1
    assert starts(mesh.stopped(stops[0].task))[0] == ("urgent", "PLACED")


def test_no_victim_stops_where_no_gpu_would_become_whole():
    mesh = halved(mesh_of(2), preemptible=False)
    for name in ("x", "y"):
        mesh.run(name, resources=gpus(0.25))
    assert of(StopTask, mesh.submit("urgent", resources=gpus(1), priority=9.0)) == []
    assert mesh.state_of("urgent") is TaskState.PLACEABLE


def test_freed_halves_are_reserved_until_a_gpu_is_whole():
    mesh = halved(mesh_of(2, settings=SchedulerSettings(rules=RULES, reserve_after_ms=1)), preemptible=False)
    mesh.submit("whole", resources=gpus(1))
    mesh.now_ms += 10
    mesh.send(events.Ticked)
    assert mesh.why("whole") is Reason.ACCUMULATING_RESERVATION
    mesh.submit("half", resources=gpus(0.5))
    assert mesh.why("half") is Reason.CAPACITY_RESERVED
    assert starts(mesh.ended("a"))[0] == ("whole", "PLACED")


def test_a_gang_of_whole_gpus_waits_for_whole_ones():
    mesh = halved(mesh_of(2), preemptible=False)
    mesh.node("n1", cpus(8, gpu=1))
    gang = {"gang": "g", "gang_size": 2, "resources": gpus(1)}
    mesh.submit("g1", **gang)
    assert starts(mesh.submit("g2", **gang)) == []
    assert len(starts(mesh.ended("a"))) == 2


def test_a_group_keeps_its_gpu_until_it_is_removed():
    mesh = mesh_of(1, groups=GroupPoolSpec(max_dynamic=4))
    mesh.run("a", resources=gpus(0.5))
    assert list(instances(mesh).values()) == [{0: 0.5}]
    mesh.ended("a")
    assert list(instances(mesh).values()) == [{0: 0.5}]


def test_a_restored_scheduler_knows_which_gpu_each_task_has():
    mesh = halved(mesh_of(2))
    before, kept = instances(mesh), json_text(mesh.scheduler.to_snapshot())
    mesh.scheduler = MeshScheduler.from_snapshot(json.loads(kept))
    assert instances(mesh) == before == {"a": {0: 0.5}, "b": {1: 0.5}}
    assert json_text(mesh.scheduler.to_snapshot()) == kept
    assert starts(mesh.submit("whole", resources=gpus(1))) == []


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        pytest.param(gpus(1.5), "1.5 gpu requested; request a whole number, or less than 1 to share one", id="a gpu and a half"),
        pytest.param(ResourceSet.of({"TPU": 2.5}), "2.5 TPU requested; request a whole number, or less than 1 to share one", id="tpus"),
    ],
)
def test_more_than_one_gpu_must_be_a_whole_number(resources, words):
    (end,) = of(EndTask, mesh_of(4).submit("odd", resources=resources))
    assert (end.reason, end.detail) == (Reason.REQUEST_INVALID, words)


def test_s28_a_node_that_joins_gets_what_fitted_nowhere():
    mesh = mesh_of(0)
    mesh.submit("first", resources=gpus(1))
    mesh.submit("second", resources=gpus(1))
    assert mesh.state_of("first") is TaskState.INFEASIBLE
    assert starts(mesh.node("new", gpus(1))) == [("first", "PLACED")]
    assert mesh.state_of("second") is TaskState.PLACEABLE
