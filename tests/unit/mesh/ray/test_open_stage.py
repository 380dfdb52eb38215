"""Arguments of a stage, as its tasks request them."""

from __future__ import annotations

import pytest

from mesh.core.ids import NodeId, NodeName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import Gang
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.open_stage import BLOB_INLINE_BYTES_MAX, Missing, OpenStage
from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_machine import StageMachine

TASK = TaskSpec(node=NodeId("a"), attempt=1, function="blob:code", args=({"$blob": "small"}, {"$blob": "large"}), resources=NOTHING)
BLOBS = {"code": b"def", "small": b"x" * BLOB_INLINE_BYTES_MAX, "large": b"x" * (BLOB_INLINE_BYTES_MAX + 1)}


def opened(**blobs: bytes) -> OpenStage:
    spec = StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=TenantPath("t"), tasks=(TASK,), slot=NOTHING, width=1)
    return OpenStage(spec=spec, machine=StageMachine(spec), blobs=blobs)


def test_a_large_argument_becomes_a_reference_once():
    stage = opened(**BLOBS)
    stage.put_blobs["large"] = "a reference"
    assert stage.arguments_of(TASK.node, TASK.args) == ({"small": BLOBS["small"]}, ["large"], ["a reference"])
    assert stage.code_of(TASK.node, TASK.function) == b"def"


@pytest.mark.parametrize(
    ("absent", "reason"),
    [pytest.param("code", Reason.CODE_UNAVAILABLE, id="its code"), pytest.param("small", Reason.VALUE_LOST, id="an argument")],
)
def test_what_did_not_come_with_the_stage_is_named(absent: str, reason: Reason):
    stage = opened(**{name: blob for name, blob in BLOBS.items() if name != absent})
    stage.put_blobs["large"] = "a reference"
    with pytest.raises(Missing, match="of a did not come") as missing:
        stage.code_of(TASK.node, TASK.function) if absent == "code" else stage.arguments_of(TASK.node, TASK.args)
    assert missing.value.reason is reason


def test_each_gang_runs_one_task_at_a_time():
    gang = Gang(size=2, bundle=ResourceSet.of({"cpu": 1}))
    tasks = tuple(TaskSpec(node=NodeId(name), attempt=1, function="call:m:f", resources=gang.slot, gang=gang) for name in "abc")
    spec = StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=TenantPath("t"), tasks=tasks, slot=gang.slot, width=3)
    stage = OpenStage(spec=spec, machine=StageMachine(spec), blobs={})
    stage.machine.begin(())
    stage.add_groups([SlotGroup(None, 1, is_placed=True, bundle_nodes=(NodeName("n1"), NodeName("n2")))])
    assert [stage.place(task, 0.0) is not None for task in tasks] == [True, False, False]
    stage.window.remove(NodeId("a"))
    assert stage.place(tasks[1], 0.0) is not None


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        pytest.param({}, True, id="by itself"),
        pytest.param({"num_returns": 3}, True, id="with outputs"),
        pytest.param({"is_isolated": True}, False, id="isolated"),
        pytest.param({"ray_options": {"runtime_env": {"env_vars": {"A": "1"}}}}, False, id="with an environment of its own"),
    ],
)
def test_only_usual_tasks_share_a_worker(options: dict[str, object], shares: bool):
    task = TaskSpec(node=NodeId("a"), attempt=1, function="call:m:f", **options)
    assert opened().shares_worker(task) is shares
