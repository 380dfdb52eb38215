"""Graphs of importable functions as JSON, and back; the view for networkx."""

from __future__ import annotations

import json
import operator
import sys
from types import ModuleType
from typing import Any

import pytest

import dag
from dag.client.compiling import compile_graph
from dag.errors import GraphTypeError, NotSerializable, SpecError
from dag.spec.spec import digest, parse

MODULE = """
import dag, ray

@dag.task(num_cpus=2, retries=2, retry_exceptions=[OSError])
def load(path, *rest, **more):
    return path

@ray.remote(num_cpus=1)
def join(*parts, **named):
    return parts, named

def split(path):
    return path, path
"""


@pytest.fixture(scope="module")
def shop():
    """Return a module of tasks, as a user has it."""
    module = ModuleType("shop_of_a_user")
    exec(MODULE, module.__dict__)  # noqa: S102  it has no file
    sys.modules[module.__name__] = module
    yield module
    sys.modules.pop(module.__name__, None)


def digest_of(spec: Any) -> str:
    return digest(parse(json.dumps(spec).encode()))


def graph_of(shop: ModuleType) -> dict[str, Any]:
    left, right = dag.bind(shop.split, dag.param("path", default="a")).options(
        num_returns=2, name="cut", runtime_env={"env_vars": {"A": "1"}}
    )
    table = shop.load.bind((left, "$x"), {"$y": [right, None, 1.5], "z": ""}, limit=dag.param("limit"))
    whole = dag.bind(shop.join, table["w"][0], table, name=[]).options(after=[left], priority=3)
    gang = dag.gang(shop.split, size=2, strategy="SPREAD", name="gang").bind(whole)
    patient = dag.task(shop.split, retries=3, retry_on=[OSError, "KeyError"], backoff={"initial_s": 2}, start_to_close_s=60).bind(gang)
    return {"all": whole, "part": table[1], "patient": patient}


def test_a_graph_goes_to_json_and_back(shop):
    spec = dag.to_spec(graph_of(shop), params={"limit": 3})
    assert "blobs" not in spec
    assert {node["call"] for node in spec["nodes"].values()} == {
        "shop_of_a_user:split",
        "shop_of_a_user:load",
        "shop_of_a_user:join",
        "mesh.core.functions:selected",
    }
    for given in (spec, json.dumps(spec), json.dumps(spec).encode()):
        assert digest_of(dag.to_spec(dag.from_spec(given))) == digest_of(spec)


def test_order_of_arguments_and_names_survives(shop):
    spec = dag.to_spec(dag.bind(shop.join, 3, 1, 2, z=1, a=2))
    again = dag.from_spec(json.dumps(spec))["result"]
    assert (again.args, list(again.kwargs.items())) == ((3, 1, 2), [("z", 1), ("a", 2)])


def test_parameters_of_a_spec_become_defaults(shop):
    spec = dag.to_spec(graph_of(shop), params={"limit": 3})
    assert dag.to_spec(dag.from_spec(spec), params={"limit": 4})["params"] == {"path": "a", "limit": 4}


def test_a_task_imported_by_name_is_its_plain_function(shop):
    assert dag.from_spec(dag.to_spec(shop.load.bind(1)))["result"].function is shop.load.function


def test_arrays_go_to_json_and_back(shop):
    loaded = dag.map(shop.load, dag.param("paths"), limit=3)
    pairs = dag.starmap(shop.join, [[1, {"$x": 2}], [3, None]], parts=2)
    spec = dag.to_spec([dag.reduce(shop.split, loaded, arity=4), dag.gather(pairs, loaded)], params={"paths": ["a", "b"]})
    assert digest_of(dag.to_spec(dag.from_spec(spec))) == digest_of(spec)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param(lambda x: x, r"the function lambda cannot be named: it is no name of the module", id="a lambda"),
        pytest.param(operator.itemgetter(1), "the function itemgetter cannot be named", id="an object"),
    ],
)
def test_a_function_without_a_name_is_refused(function, words):
    with pytest.raises(NotSerializable, match=words):
        dag.to_spec(dag.bind(function, 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"call": "shop_of_a_user:lost"}, r"/nodes/load: shop_of_a_user:lost cannot be imported here", id="a missing name"),
        pytest.param({"call": "no_such_shop:load"}, r"/nodes/load: no_such_shop:load cannot be imported here", id="a missing module"),
        pytest.param({"call": "builtins:dict"}, r"/nodes/load/call: builtins:dict is not a function", id="a class"),
        pytest.param({"call": "a b"}, "is not a function; write module:qualname", id="no name"),
        pytest.param({"options": {"retry_exceptions": ["builtins.Lost"]}}, "builtins:Lost cannot be imported", id="a missing error"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused(shop, change, words):
    spec = dag.to_spec(shop.load.bind(1))
    spec["nodes"]["load"] |= change
    with pytest.raises((SpecError, GraphTypeError), match=words):
        dag.from_spec(spec)


def test_a_node_that_no_output_needs_is_named(shop):
    spec = dag.to_spec({"a": shop.load.bind(1), "b": shop.load.bind(2)})
    del spec["outputs"]["b"]
    with pytest.raises(SpecError, match="/nodes/load-2: no output needs this node"):
        dag.from_spec(spec)


def test_pickles_are_not_read_back(shop):
    with pytest.raises(SpecError, match="/blobs: pickles are not read"):
        dag.from_spec(compile_graph(shop.load.bind(1)))


def test_networkx_sees_nodes_edges_and_options(shop):
    view = dag.to_networkx(graph_of(shop), params={"limit": 3})
    assert set(view.edges) == {
        ("cut", "cut[0]"),
        ("cut", "cut[1]"),
        ("cut[0]", "load"),
        ("cut[1]", "load"),
        ("load", "join"),
        ("cut[0]", "join"),
        ("join", "gang"),
        ("gang", "split"),
    }
    assert view.nodes["load"]["options"]["num_cpus"] == 2
    assert view.nodes["cut[0]"]["function"] == "call:mesh.core.functions:selected"
    assert view.graph["outputs"]["part"] == {"$ref": "load", "path": [1]}
