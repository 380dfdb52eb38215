"""Graph, timeline and single nodes of a run over HTTP."""

import pytest

from dag.run.node_facts import PastAttempt
from dag.run.states import NodeState, RunState
from mesh.core.reasons import Reason
from serve_apps.gateway_fixtures import EAST, NOW_MS, RIVAL, GatewayWorld, spec_of


@pytest.fixture
def world():
    """A run of three nodes, of which the second runs in its second attempt."""
    built = GatewayWorld()
    built.client().submit_spec(spec_of("fetch", "train", "send", id="nightly"))
    built.start("nightly", "fetch", "train")
    past = PastAttempt(attempt=1, mesh=EAST, started_ms=NOW_MS, ended_ms=NOW_MS + 40, reason=Reason.USER_ERROR, type_name="E", detail="")
    nodes = {"fetch": {"state": NodeState.SUCCEEDED, "finished_ms": NOW_MS + 30}, "train": {"attempt": 2, "past": (past,)}}
    built.move("nightly", RunState.RUNNING, nodes=nodes)
    return built


def get(world, path, **kwargs):
    answer = world.http().get(f"/v1/runs/nightly/{path}", **kwargs)
    assert answer.status_code == 200, answer.text
    return answer.json()


def named(names, places):
    return [names[place] if place >= 0 else None for place in places]


def test_graph_has_edges_states_and_places(world):
    graph = get(world, "graph")
    assert graph["nodes"] == ["fetch", "train", "send"]
    assert list(zip(named(graph["nodes"], graph["edges_from"]), named(graph["nodes"], graph["edges_to"]), strict=True)) == [
        ("fetch", "train"),
        ("train", "send"),
    ]
    assert named(graph["states"], graph["node_state"]) == ["SUCCEEDED", "RUNNING", "WAITING"]
    assert named(graph["meshes"], graph["node_mesh"]) == ["east", "east", None]
    assert named(graph["stages"], graph["node_stage"]) == ["nightly.1", "nightly.1", None]
    assert graph["attempt"] == [1, 2, 1]


def test_events_go_on_where_the_graph_ends(world):
    seq = get(world, "graph")["seq"]
    events = get(world, "events", params={"after": seq}, headers={"Accept": "application/json"})
    assert events["events"] == []
    assert seq == world.record("nightly").seq


def test_timeline_has_a_bar_for_each_attempt(world):
    line = get(world, "timeline")
    bars = list(
        zip(
            named(line["nodes"], line["node"]),
            line["attempt"],
            named(line["states"], line["bar_state"]),
            named(line["reasons"], line["reason"]),
            line["to_ms"],
            strict=True,
        )
    )
    assert sorted(bars) == [
        ("fetch", 1, "SUCCEEDED", None, 30),
        ("train", 1, "FAILED", "USER_ERROR", 40),
        ("train", 2, "RUNNING", None, -1),
    ]


def test_one_node_is_shown_as_in_the_list(world):
    (listed,) = [node for node in get(world, "nodes")["nodes"] if node["node"] == "train"]
    assert get(world, "nodes/train") == listed


def test_unknown_node_is_refused_with_a_likely_one(world):
    answer = world.http().get("/v1/runs/nightly/nodes/trian")
    assert answer.status_code == 404
    assert "unknown_node" in answer.text
    assert "train" in answer.text


@pytest.mark.parametrize("path", ["graph", "timeline", "nodes/train"])
def test_run_out_of_reach_looks_missing(world, path):
    assert world.http(RIVAL).get(f"/v1/runs/nightly/{path}").status_code == 404
