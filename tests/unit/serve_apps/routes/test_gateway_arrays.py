"""Arrays over HTTP: one node, and its elements in pages."""

from __future__ import annotations

import pytest

import dag
from dag.errors import UnknownArray
from dag.run.runs import RunChange
from dag.run.states import NodeState, RunState
from dag.spec.plans import plans_of
from dag.spec.spec import load
from mesh.core.reasons import Reason
from mesh.stages.messages import FailedElement, Failure
from serve_apps.gateway_fixtures import GatewayWorld


def double(number):
    return 2 * number


@pytest.fixture
def world():
    return GatewayWorld()


@pytest.fixture
def client(world):
    return world.client()


@pytest.fixture
def run(world, client):
    """A run that failed at the fourth of ten elements, in five parts."""
    submitted = client.submit(dag.map(double, range(10), parts=5), on_error="continue")
    record = world.record(submitted.id)
    record.nodes.add(plans_of(load(record.spec)))
    assert world.runs.commit(record, RunChange(nodes=record.nodes.take_changes()))
    error = FailedElement(index=3, attempt=1, type_name="ValueError", message="3 is odd")
    failure = Failure(
        reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="element 3 of 10: 3 is odd", elements=(error,), of=10
    )
    nodes = {f"double@{part}": {"state": NodeState.SUCCEEDED} for part in range(5)}
    nodes["double@1"] = {"state": NodeState.FAILED, "failure": failure}
    nodes["double"] = {"state": NodeState.SKIPPED, "roots": ("double@1",)}
    world.move(submitted.id, RunState.FAILED, nodes=nodes)
    return submitted


def test_a_run_shows_an_array_as_one_node(client, run):
    view = client.ask(run.path)
    assert view["counts"] == {"FAILED": 1}
    assert view["skipped"] == []
    assert [failure["node"] for failure in view["failures"]] == ["double"]
    (array,) = view["arrays"]
    assert array == {
        "node": "double",
        "state": "FAILED",
        "elements": 10,
        "parts": 5,
        "counts": {"SUCCEEDED": 9, "FAILED": 1},
        "failed": "3",
    }
    assert client.ask(f"{run.path}/summary")["counts"] == {"FAILED": 1}


def test_the_list_of_nodes_has_an_array_once(client, run):
    (node,) = client.ask(f"{run.path}/nodes")["nodes"]
    assert (node["node"], node["state"], node["roots"]) == ("double", "FAILED", [])
    assert node["failure"]["message"] == "element 3 of 10: 3 is odd"
    assert client.ask(f"{run.path}/nodes", {"state": "SKIPPED"})["nodes"] == []


def test_elements_come_in_pages(client, run):
    path = f"{run.path}/nodes/double/elements"
    first = client.ask(path, {"limit": 4})
    assert [one["index"] for one in first["elements"]] == [0, 1, 2, 3]
    second = client.ask(path, {"limit": 100, "after": first["next"]})
    assert [one["index"] for one in second["elements"]] == list(range(4, 10))
    assert second["next"] is None


def test_failed_elements_have_their_errors(run):
    (failed,) = run.elements("double", state="FAILED")
    assert (failed.index, failed.type_name, failed.message) == (3, "ValueError", "3 is odd")


def test_a_node_that_is_no_array_has_no_elements(run):
    with pytest.raises(UnknownArray, match="has no array nobody; its arrays: double"):
        list(run.elements("nobody"))
