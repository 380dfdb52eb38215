"""The trace of a run, read back from its file."""

import json
from pathlib import Path

import pytest

from dag.run.node_facts import PastAttempt
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, StageRecord
from dag.run.states import NodeState, RunState, StageState
from mesh.core.ids import MeshId, NodeId, RunId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.stages.messages import Failure
from serve_apps.telemetry.traces import NODES_MAX, SHORT_MS, SHORT_NODES_MAX, Telemetry

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
    exported = traced(tmp_path, a_record())
    spans = {span["name"]: span for span in exported if span["name"] != "ray task"}
    assert set(spans) == {"run", "stage", "load", "train"}
    assert spans["run"]["parent_id"] is None
    assert spans["stage"]["parent_id"] == spans["run"]["context"]["span_id"]
    assert spans["load"]["parent_id"] == spans["train"]["parent_id"] == spans["stage"]["context"]["span_id"]
    assert len({span["context"]["trace_id"] for span in exported}) == 1
    assert (spans["run"]["start_time"], spans["run"]["end_time"]) == ("2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:21.000000Z")
    assert (spans["load"]["start_time"], spans["load"]["end_time"]) == ("2023-11-14T22:13:20.010000Z", "2023-11-14T22:13:20.100000Z")
    task = next(span for span in exported if span["name"] == "ray task" and span["parent_id"] == spans["load"]["context"]["span_id"])
    assert (task["start_time"], task["end_time"]) == ("2023-11-14T22:13:20.030000Z", "2023-11-14T22:13:20.100000Z")


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


def test_run_of_a_caller_is_a_span_below_that_of_the_caller(tmp_path):
    record = a_record()
    record.traceparent = f"00-{'a' * 32}-{'b' * 16}-01"
    spans = traced(tmp_path, record)
    assert {span["context"]["trace_id"] for span in spans} == {"0x" + "a" * 32}
    assert [span["parent_id"] for span in spans if span["name"] == "run"] == ["0x" + "b" * 16]


def test_caller_that_records_nothing_gets_no_span(tmp_path):
    unrecorded = a_record()
    unrecorded.traceparent = f"00-{'a' * 32}-{'b' * 16}-00"
    spans = traced(tmp_path, unrecorded, a_record())
    assert {span["context"]["trace_id"] for span in spans} == {f"0x{a_record().trace.trace_id}"}


def test_past_attempt_is_a_span_of_its_own(tmp_path):
    record = a_record()
    past = PastAttempt(
        attempt=1,
        mesh=MeshId("west"),
        started_ms=START_MS + 40,
        ended_ms=START_MS + 60,
        reason=Reason.USER_ERROR,
        type_name="E",
        detail="d",
    )
    record.nodes[NodeId("train")].past = (past,)
    attempts = {span["attributes"]["schedulemesh.attempt"]: span for span in traced(tmp_path, record) if span["name"] == "train"}
    assert attempts[1]["status"] == {"status_code": "ERROR", "description": "E: d"}
    assert attempts[1]["attributes"]["schedulemesh.mesh"] == "west"
    assert attempts[1]["context"]["span_id"] != attempts[2]["context"]["span_id"]


def test_resumed_run_has_another_span_without_what_ended_before(tmp_path):
    record = a_record()
    record.resumed_ms = START_MS + 2_000
    record.ended_ms = START_MS + 3_000
    first, second = traced(tmp_path, a_record()), traced(tmp_path, record)[-1:]
    assert [span["name"] for span in second] == ["run"]
    assert second[0]["context"]["trace_id"] == first[0]["context"]["trace_id"]
    assert second[0]["context"]["span_id"] != first[0]["context"]["span_id"]


def test_of_many_nodes_the_failed_and_the_longest_have_spans(tmp_path):
    names = tuple(NodeId(f"n{number}") for number in range(NODES_MAX + 10))
    record = a_record()
    record.nodes = NodeTable(names)
    for number, node in enumerate(record.nodes.values()):
        node.stage, node.mesh, node.state = StageId("night.1"), MeshId("east"), NodeState.SUCCEEDED
        node.started_ms, node.finished_ms = START_MS, START_MS + SHORT_MS + number
    record.nodes[NodeId("n3")].state = NodeState.FAILED
    spans = traced(tmp_path, record)
    shown = {span["name"] for span in spans if span["name"].startswith("n")}
    assert set(names) - shown == {f"n{number}" for number in range(11) if number != 3}
    assert next(span for span in spans if span["name"] == "run")["attributes"]["schedulemesh.nodes_without_span"] == 10


def test_few_of_many_short_nodes_have_spans(tmp_path):
    names = tuple(NodeId(f"n{number}") for number in range(SHORT_NODES_MAX + 10))
    record = a_record()
    record.nodes = NodeTable(names)
    for node in record.nodes.values():
        node.state, node.started_ms, node.finished_ms = NodeState.SUCCEEDED, START_MS, START_MS + SHORT_MS - 1
    record.nodes[NodeId("n0")].finished_ms = START_MS + SHORT_MS
    spans = traced(tmp_path, record)
    shown = {span["name"] for span in spans if span["name"].startswith("n")}
    assert (len(shown), "n0" in shown) == (SHORT_NODES_MAX + 1, True)
    assert next(span for span in spans if span["name"] == "run")["attributes"]["schedulemesh.nodes_without_span"] == 9


def test_part_of_an_array_names_the_array(tmp_path):
    record = a_record()
    record.nodes = NodeTable(map(NodeId, ("squares@0", "squares")))
    part = record.nodes[NodeId("squares@0")]
    part.started_ms, part.finished_ms, part.state = START_MS + 30, START_MS + 40, NodeState.SUCCEEDED
    (span,) = [span for span in traced(tmp_path, record) if span["name"] == "squares@0"]
    assert span["attributes"]["schedulemesh.array"] == "squares"


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
    assert len(spans) == 6
    assert all(span["start_time"] <= span["end_time"] for span in spans)
