"""Graphs written with `ray.dag`, and functions that build graphs, without a running Ray."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import ray
from ray.dag import InputNode, MultiOutputNode

import dag
from dag.client.compiling import compile_graph
from dag.errors import GraphTypeError, SpecError
from dag.spec.plans import plans_of
from dag.spec.spec import parse
from mesh.core.resources import ResourceSet


@ray.remote
def load(path):
    return path


@ray.remote(num_cpus=2, max_retries=3, retry_exceptions=[OSError])
def join(*parts, **named):
    return parts, named


@ray.remote
class Keeper:
    """Actor of Ray."""

    def keep(self, value):
        return value


def nodes_of(graph: Any, **given: Any) -> dict[str, Any]:
    return compile_graph(graph, **given)["nodes"]


# -- ray.dag -----------------------------------------------------------------------------------------------------------


def test_a_graph_of_ray_is_a_graph_here():
    with InputNode() as given:
        left, right = load.bind(given["path"]), load.bind(given.other)
        graph = MultiOutputNode([join.bind(left, [right, {"again": left}], limit=given[0]), right])
    spec = compile_graph(graph, params={"path": "a", "other": "b", "0": 3})
    assert list(spec["nodes"]) == ["load", "load-2", "join"]
    assert spec["nodes"]["join"]["args"] == [{"$ref": "load"}, [{"$ref": "load-2"}, {"again": {"$ref": "load"}}]]
    assert spec["nodes"]["join"]["kwargs"] == {"limit": {"$param": "0"}}
    assert spec["nodes"]["load"]["args"] == [{"$param": "path"}]
    assert spec["outputs"] == {"0": {"$ref": "join"}, "1": {"$ref": "load-2"}}
    assert not ray.is_initialized()


def test_the_options_of_ray_come_along():
    plan = plans_of(parse(json.dumps(compile_graph(join.options(num_cpus=3).bind(1))).encode()))["join"]
    assert (plan.task.resources, plan.retries, plan.retry_exceptions) == (ResourceSet.of({"cpu": 3}), 3, {"builtins.OSError"})


def test_the_whole_input_is_one_parameter():
    with InputNode() as given:
        graph = load.bind(given)
    assert nodes_of(graph, params={"input": [1]})["load"]["args"] == [{"$param": "input"}]
    with pytest.raises(SpecError, match="/params/input: has no value"):
        compile_graph(graph)


def test_a_shared_node_of_ray_runs_once():
    shared = load.bind("a")
    assert list(nodes_of({"one": join.bind(shared, shared), "two": join.bind(shared)})) == ["load", "join", "join-2"]


def test_a_ladder_of_ray_has_no_limit_of_recursion():
    node = load.bind("a")
    for _ in range(250):  # Ray itself pickles the arguments at each bind, and fails on longer chains.
        node = join.bind(node, node)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(220)
    try:
        assert len(nodes_of(node)) == 251
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        pytest.param(lambda: dag.bind(join, Keeper.bind().keep.bind(1)), "is a ClassMethodNode of Ray's own graphs", id="an actor"),
        pytest.param(lambda: InputNode().__enter__(), "<param input>, an input of the graph, is no output", id="an input as output"),
        pytest.param(lambda: load.options(scheduling_strategy="SPREAD").bind(1), "Ray's option scheduling_strategy=", id="an option"),
        pytest.param(lambda: dag.bind(join, load.bind(1)), "wrap the function first", id="a node of Ray in a node of ours"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(graph, words):
    with pytest.raises((GraphTypeError, SpecError), match=words):
        compile_graph(graph())


# -- functions that build graphs ---------------------------------------------------------------------------------------


@dag.graph
def nightly(day, /, limit=100, *, tag="x"):
    return {"all": dag.bind(join, dag.bind(load, day), limit, tag=tag)}


def test_parameters_of_a_graph_function_are_the_graphs():
    spec = compile_graph(nightly, params={"day": "friday", "tag": None})
    assert spec["params"] == {"day": "friday", "limit": 100, "tag": None}
    assert spec["nodes"]["join"]["args"] == [{"$ref": "load"}, {"$param": "limit"}]
    with pytest.raises(SpecError, match="/params/day: has no value"):
        compile_graph(nightly)


def test_a_call_of_a_graph_function_returns_its_outputs():
    assert nodes_of(nightly("friday", limit=1))["join"]["args"] == [{"$ref": "load"}, 1]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: load.remote("a"), id="a task"),
        pytest.param(lambda: Keeper.options(num_cpus=0).remote(), id="an actor"),
        pytest.param(lambda: ray.put(1), id="an object"),
        pytest.param(lambda: ray.get([]), id="a wait"),
    ],
)
def test_a_graph_function_starts_no_ray(call):
    with pytest.raises(GraphTypeError, match=r"f\.remote\(\), in the graph function <lambda> .*: write f\.bind"):
        dag.graph(call)()
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param(lambda: dag.graph(load), "is not a plain function", id="a remote function"),
        pytest.param(
            lambda: compile_graph(dag.graph(lambda *days: load.bind(days))), "takes .days: a graph has parameters", id="any number"
        ),
        pytest.param(lambda: compile_graph(dag.graph(lambda: 3)), "3 is not a node", id="no node"),
        pytest.param(lambda: nightly.bind("a"), "a graph function has no 'bind': call it", id="bound"),
    ],
)
def test_a_wrong_graph_function_is_refused(wrong, words):
    with pytest.raises((GraphTypeError, AttributeError), match=words):
        wrong()
