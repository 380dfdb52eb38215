"""Replays of workflows: the graph of a trace, run node by node here, accounts for every task and file."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from workflow_files import diamond, tasks_of

from dag.spec.plans import plans_of
from dag.spec.spec import parse
from dag.workflows.trace_graph import ACCOUNT, TraceScale, expected_account, trace_spec
from dag.workflows.wfformat import Workflow, read_workflow
from serve_apps.cli.trace_task import replay_task

SHARED = Path(__file__).parents[5] / "shared" / "workflows"
SCALE = TraceScale(time=0, bytes=0.5)


def workflow_of(written: dict[str, Any]) -> Workflow:
    return read_workflow(json.dumps(written).encode())


def spec_of(workflow: Workflow, scale: TraceScale = SCALE) -> dict[str, Any]:
    return trace_spec(workflow, scale, b"pickled", run_id="r", tenant="acme")


def values_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the nodes of a spec in order."""
    values: dict[str, Any] = {}
    for node in plans_of(parse(json.dumps(spec).encode())):
        work, *inputs = spec["nodes"][node]["args"]
        values[node] = replay_task(work, *(values[form["$ref"]] for form in inputs))
    return values


def account_of(spec: dict[str, Any]) -> dict[str, int]:
    account: dict[str, int] = values_of(spec)[spec["outputs"][ACCOUNT]["$ref"]][1]
    return account


def test_a_replay_accounts_for_each_task_and_file_once():
    workflow = workflow_of(diamond())
    expected = asdict(expected_account(workflow, SCALE))
    assert account_of(spec_of(workflow)) == expected
    assert {name: expected[name] for name in ("tasks", "files_read", "bytes_read", "files_written")} == {
        "tasks": 4,
        "files_read": 4,
        "bytes_read": 20,
        "files_written": 4,
    }


def test_a_lost_task_shows_in_the_account():
    workflow = workflow_of(diamond())
    spec = spec_of(workflow)
    spec["nodes"]["d"]["args"][0]["accounts"] = [False, False]
    assert account_of(spec)["tasks"] < expected_account(workflow, SCALE).tasks


def test_a_file_with_other_bytes_fails_its_reader():
    spec = spec_of(workflow_of(diamond()))
    values = values_of(spec)
    name, size, data = values["a"][0][0]
    with pytest.raises(ValueError, match="its length is 4 of 5"):
        replay_task(spec["nodes"]["b"]["args"][0], [[[name, size, data[:-1]]], values["a"][1]])


def test_inputs_that_no_task_writes_are_made_by_their_reader():
    written = diamond()
    written["workflow"]["specification"]["files"].append({"id": "outside", "sizeInBytes": 8})
    tasks_of(written)[0]["inputFiles"] = ["outside"]
    account = account_of(spec_of(workflow_of(written)))
    assert (account["files_made"], account["bytes_made"]) == (1, 4)


def test_an_edge_without_a_file_keeps_its_order():
    written = diamond()
    tasks_of(written)[3]["inputFiles"] = ["b.out"]
    workflow = workflow_of(written)
    assert spec_of(workflow)["nodes"]["d"]["after"] == ["c"]
    assert account_of(spec_of(workflow)) == asdict(expected_account(workflow, SCALE))


def test_ids_that_a_graph_cannot_have_get_a_name():
    written = json.loads(json.dumps(diamond()).replace('"a"', '"a task/1"'))
    assert "t0_a-task-1" in spec_of(workflow_of(written))["nodes"]


def test_many_ends_are_added_up_in_steps():
    written = diamond()
    tasks_of(written)[:] = [{"id": f"t{number}", "name": "t", "children": []} for number in range(200)]
    written["workflow"]["execution"]["tasks"] = [{"id": f"t{number}", "runtimeInSeconds": 0} for number in range(200)]
    spec = spec_of(workflow_of(written))
    assert max(len(node["args"]) for node in spec["nodes"].values()) == 65
    assert account_of(spec)["tasks"] == 200


def test_labels_and_cpus_become_options():
    written = diamond()
    tasks_of(written)[0]["labels"] = {"zone": "eu"}
    nodes = spec_of(workflow_of(written), TraceScale(num_cpus=0.5))["nodes"]
    assert nodes["a"]["options"] == {"num_cpus": 0.5, "labels": {"zone": "eu"}}
    assert nodes["b"]["options"] == {"num_cpus": 0.5}


def test_the_function_travels_with_the_graph():
    (blob,) = spec_of(workflow_of(diamond()))["blobs"].values()
    assert base64.b64decode(blob) == b"pickled"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of workflows is not here")
@pytest.mark.parametrize("name", ["blast-chameleon-small-001", "rnaseq-dirt02-001"])
def test_a_collected_workflow_replays_completely(name: str):
    workflow = read_workflow((SHARED / f"{name}.json.gz").read_bytes())
    scale = TraceScale(time=0, bytes=0.0001)
    assert account_of(spec_of(workflow, scale)) == asdict(expected_account(workflow, scale))
