"""The trace of a run, read back from its file."""

import json
from pathlib import Path

import pytest

from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, StageRecord
from dag.run.states import NodeState, RunState, StageState
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.stages.messages import Failure
from serve_apps.telemetry.traces import Telemetry

START_MS = 1_700_000_000_000


def a_record() -> RunRecord:
    """Return a run of two nodes: `load` succeeded, `train` failed; `report` never started."""
    stage = StageRecord(
        stage=StageId("night.1"),
        mesh=MeshId("east"),
        level=0,
        nodes=(NodeId("load"), NodeId("train")),
        state=StageState.ENDED,
        cluster="c1",
        sent_ms=START_MS + 10,
        started_ms=START_MS + 20,
        ended_ms=START_MS + 900,
    )
    failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="bad lr")
    nodes = NodeTable(map(NodeId, ("load", "train", "report")))
    for node in (nodes["load"], nodes["train"]):
        node.stage, node.mesh = stage.stage, stage.mesh
    load, train, report = nodes.values()
    load.state, load.started_ms, load.finished_ms = NodeState.SUCCEEDED, START_MS + 30, START_MS + 100
    train.state, train.started_ms, train.finished_ms = NodeState.FAILED, START_MS + 120, START_MS + 880
    train.attempt, train.failure = 2, failure
    report.state = NodeState.SKIPPED
    return RunRecord(
        run=RunId("night"),
        tenant=TenantPath("acme"),
        digest="d",
        spec=b"{}",
        state=RunState.FAILED,
        created_ms=START_MS,
        ended_ms=START_MS + 1_000,
        reason=Reason.USER_ERROR,
        detail="train: bad lr",
        nodes=nodes,
        stages={stage.stage: stage},
    )


def traced(folder: Path, *records: RunRecord) -> list[dict]:
    telemetry = Telemetry(traces_file=str(folder / "traces.jsonl"))
    for record in records:
        telemetry.trace_run(record)
    telemetry.close()
    return [json.loads(line) for line in (folder / "traces.jsonl").read_text().splitlines()]


def test_spans_nest_as_run_stage_node_with_recorded_times(tmp_path):
    spans = {span["name"]: span for span in traced(tmp_path, a_record())}
    assert set(spans) == {"run", "stage", "load", "train"}
    assert spans["run"]["parent_id"] is None
    assert spans["stage"]["parent_id"] == spans["run"]["context"]["span_id"]
    assert spans["load"]["parent_id"] == spans["train"]["parent_id"] == spans["stage"]["context"]["span_id"]
    assert len({span["context"]["trace_id"] for span in spans.values()}) == 1
    assert (spans["run"]["start_time"], spans["run"]["end_time"]) == ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:21.000000Z")
    assert (spans["load"]["start_time"], spans["load"]["end_time"]) == ("2023-11-14T22:13:20.030000Z", "2023-11-14T22:13:20.100000Z")


def test_a_failure_marks_its_node_and_its_run(tmp_path):
    spans = {span["name"]: span for span in traced(tmp_path, a_record())}
    assert spans["train"]["status"] == {"status_code": "ERROR", "description": "builtins.ValueError: bad lr"}
    assert spans["run"]["status"] == {"status_code": "ERROR", "description": "train: bad lr"}
    assert spans["load"]["status"]["status_code"] == "UNSET"


def test_attributes_hold_tenant_mesh_cluster_attempt_and_state(tmp_path):
    train = next(span for span in traced(tmp_path, a_record()) if span["name"] == "train")
    attributes = {name.removeprefix("schedulemesh."): value for name, value in train["attributes"].items()}
    assert (
        attributes.items() >= {"tenant": "acme", "mesh": "east", "cluster": "c1", "attempt": 2, "state": "FAILED", "run": "night"}.items()
    )


def test_repeated_run_is_the_same_trace(tmp_path):
    spans = traced(tmp_path, a_record(), a_record())
    first, second = spans[: len(spans) // 2], spans[len(spans) // 2 :]
    assert [span["context"] for span in first] == [span["context"] for span in second]


def test_two_runs_are_two_traces(tmp_path):
    other = a_record()
    other.run = RunId("day")
    assert len({span["context"]["trace_id"] for span in traced(tmp_path, a_record(), other)}) == 2


def test_a_folder_that_is_gone_costs_the_trace_and_nothing_else(tmp_path):
    telemetry = Telemetry(traces_file=str(tmp_path / "gone" / "traces.jsonl"))
    telemetry.trace_run(a_record())
    telemetry.close()
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    ("state", "ended_ms"), [(RunState.CANCELLED, START_MS), (RunState.SUCCEEDED, 0)], ids=["cancelled at once", "an unrecorded end"]
)
def test_no_span_ends_before_it_begins(tmp_path, state, ended_ms):
    record = a_record()
    record.state, record.ended_ms = state, ended_ms
    record.stages[StageId("night.1")].ended_ms = 0
    record.nodes[NodeId("train")].finished_ms = 0
    spans = traced(tmp_path, record)
    assert len(spans) == 4
    assert all(span["start_time"] <= span["end_time"] for span in spans)
