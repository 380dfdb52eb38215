"""Arguments of a stage, as its tasks request them."""

from __future__ import annotations

import pytest

from mesh.core.ids import NodeId, NodeName, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import Gang
from mesh.ray.placement import SlotGroup
from mesh.ray.stage_runner.open_stage import BLOB_INLINE_BYTES_MAX, Missing, OpenStage
from mesh.stages.arrays import Span
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


def streaming(slots: int = 1, **options: object) -> OpenStage:
    """Return a stage that runs a generator, whose elements are those of an array with four parts."""
    made = NodeId("made")
    tasks = [TaskSpec(node=made, attempt=2, function="call:m:g", resources=NOTHING, ray_options=options)]
    for number in range(4):
        form = {"$each": {"$ref": made}, "share": [number, 4], "stream": True}
        tasks.append(TaskSpec(node=NodeId(f"a@{number}"), attempt=1, function="call:m:f", args=(form,), inputs=(made,), resources=NOTHING))
    spec = StageSpec(stage=StageId("r.1"), run=RunId("r"), tenant=TenantPath("t"), tasks=tuple(tasks), slot=NOTHING, width=4)
    stage = OpenStage(spec=spec, machine=StageMachine(spec), blobs={})
    stage.add_groups([SlotGroup(None, slots, is_placed=True)])
    stage.machine.begin(())
    stage.machine.submit(made)
    return stage


MADE, FIRST, SECOND = NodeId("made"), NodeId("a@0"), NodeId("a@1")


def test_elements_are_handed_out_to_the_part_that_reads_them():
    stage = streaming()
    made = stage.machine.task(MADE)
    assert [span.part for span in stage.spans_of(made)] == ["a@0", "a@1", "a@2"]
    assert not stage.shares_worker(made)
    assert stage.shares_worker(stage.machine.task(FIRST))
    assert stage.hand_out(MADE, 2, FIRST, b"digest", "elements")
    assert (stage.block_of(FIRST, MADE), stage.block_of(SECOND, MADE)) == ("elements", None)
    assert [span.part for span in stage.spans_of(made)] == ["a@1", "a@2"]


@pytest.mark.parametrize(
    ("source", "attempt", "part"),
    [
        pytest.param(MADE, 1, FIRST, id="of an earlier attempt"),
        pytest.param(MADE, 2, NodeId("a@3"), id="for the last part, which reads the whole list"),
        pytest.param(FIRST, 1, SECOND, id="of a task that makes no list"),
        pytest.param(NodeId("nobody"), 1, FIRST, id="of no task of the stage"),
    ],
)
def test_other_elements_are_not_taken(source: NodeId, attempt: int, part: NodeId):
    stage = streaming()
    assert not stage.hand_out(source, attempt, part, None, "elements")
    assert stage.blocks == {}


def test_no_more_elements_are_wanted_than_slots_will_read_soon(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mesh.ray.stage_runner.open_stage.UNREAD_PER_SLOT", 2)
    stage = streaming()
    assert not stage.has_enough()
    for part in (FIRST, SECOND):
        stage.hand_out(MADE, 2, part, None, "elements")
    assert stage.has_enough()
    stage.machine.submit(FIRST)
    assert not stage.has_enough()


def test_what_was_read_has_to_be_made_again():
    stage = streaming()
    for part, digest in ((FIRST, b"0"), (SECOND, b"1"), (NodeId("a@2"), None)):
        stage.hand_out(MADE, 2, part, digest, "elements")
        stage.machine.submit(part)
    stage.machine.succeed(FIRST)
    assert list(stage.drop_read()) == [(MADE, Span(FIRST, 0, 1), b"0")]
    stage.machine.fail(MADE)
    assert list(stage.drop_read(failed=MADE)) == [(MADE, Span(SECOND, 1, 2), b"1")]  # It still runs.
    stage.machine.fail(SECOND)
    assert list(stage.drop_read()) == []


def test_a_task_that_ray_retries_hands_out_nothing():
    stage = streaming(max_retries=3)
    assert stage.spans_of(stage.machine.task(MADE)) == ()
