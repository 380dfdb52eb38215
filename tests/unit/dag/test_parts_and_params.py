"""Parts and outputs of nodes, and parameters, in Python and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dag
from dag.client.compiling import compile_columns, compile_graph
from dag.errors import GraphTypeError, SpecError
from dag.spec.plans import plans_of, refused_functions
from dag.spec.spec import digest, parse, parse_columns
from mesh.core.functions import SELECTED
from mesh.core.resources import ResourceSet


@dag.task
def split(path):
    return path, path


@dag.task
def train(*args, **kwargs):
    return args, kwargs


def yields():
    yield 1


two = split.options(num_returns=2)


def sent_args(node: Any, of: str = "train", **given: Any) -> list[Any]:
    """Return the arguments of a node as JSON; both forms of the graph have them."""
    spec = compile_graph(node, **given)
    both = parse(json.dumps(spec).encode()), parse_columns(compile_columns(node, **given).packed())
    assert digest(both[0]) == digest(both[1])
    return spec["nodes"][of]["args"]


# -- parts and outputs -------------------------------------------------------------------------------------------------


def test_a_part_of_a_node_is_read_by_its_path():
    whole = split.bind("a")
    assert sent_args(train.bind(whole["w"][0], [whole[-1]])) == [{"$ref": "split", "path": ["w", 0]}, [{"$ref": "split", "path": [-1]}]]


def test_a_part_may_be_an_output_of_the_graph():
    assert compile_graph({"w": split.bind("a")["w"]})["outputs"] == {"w": {"$ref": "split", "path": ["w"]}}


def test_a_node_waits_for_the_node_of_a_part():
    assert compile_graph(train.options(after=split.bind("a")[0]).bind())["nodes"]["train"]["after"] == ["split"]


def test_outputs_are_nodes_named_after_theirs():
    left, right = two.bind("a")
    other = two.bind("b")
    spec = compile_graph([train.bind(left, right), train.bind(other[-1], left)])
    assert list(spec["nodes"]) == ["split", "split[0]", "split[1]", "train", "split-2", "split-2[1]", "train-2"]
    assert spec["nodes"]["split"]["options"] == {"num_returns": 2}
    assert spec["nodes"]["split-2[1]"] == {"call": SELECTED.removeprefix("call:"), "args": [{"$ref": "split-2", "path": [1]}]}
    assert spec["nodes"]["train-2"]["args"] == [{"$ref": "split-2[1]"}, {"$ref": "split[0]"}]


def test_an_output_is_the_same_node_each_time():
    node = two.bind("a")
    assert node[0] is next(iter(node)) is node[-2]
    assert two.bind("a")[0] is not node[0]


def test_an_output_takes_room_beside_its_node_but_no_device():
    node = split.options(num_returns=2, num_cpus=2, num_gpus=1, retries=3, mesh="west", priority=4, name="cut").bind("a")
    plans = plans_of(parse_columns(compile_columns([node[0]]).packed()))
    taken, output = plans["cut"], plans["cut[0]"]
    assert (taken.task.num_returns, output.task.num_returns) == (2, 1)
    assert output.task.resources == ResourceSet.of({"cpu": 2})
    assert (output.mesh, output.priority, output.retries) == ("west", 4, 0)


def test_every_tenant_may_select_an_output():
    spec = {
        "spec": "dag/1",
        "nodes": {
            "split": {"call": "ads.etl:split", "options": {"num_returns": 2}},
            "left": {"call": SELECTED.removeprefix("call:"), "args": [{"$ref": "split", "path": [0]}]},
        },
        "outputs": {"left": {"$ref": "left"}},
    }
    assert refused_functions(parse(json.dumps(spec).encode()), ("ads.etl:*",), False) == ()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param(lambda: two.bind("a")[2], r"<node split> has 2 outputs \(num_returns\), from 0 to 1; there is no 2", id="too far"),
        pytest.param(lambda: two.bind("a")["left"], "there is no 'left'", id="by a key"),
        pytest.param(lambda: split.bind("a")[1.5], r"named by text or a whole number.*operator\.getitem", id="a fraction"),
        pytest.param(lambda: split.bind("a")[True], "named by text or a whole number", id="a boolean"),
        pytest.param(lambda: split.options(num_returns=0), "leave the option out; the value of the node is then None", id="no output"),
        pytest.param(lambda: split.options(num_returns="streaming"), "is for generators, which split is not", id="a stream of a function"),
        pytest.param(lambda: list(split.bind("a")["w"]), "has no known number of parts", id="a loop over a part"),
        pytest.param(lambda: split.bind("a")["w"] + 1, r"<part <node split>\['w'\]> stands for a value", id="a sum with a part"),
        pytest.param(lambda: split(split.bind("a")[0]), "has no value yet; bind it", id="a call with a part"),
    ],
)
def test_a_wrong_use_of_parts_is_refused_by_name(wrong, words):
    with pytest.raises(GraphTypeError, match=words):
        wrong()


def test_a_number_of_outputs_that_is_none_is_refused():
    for number in (-1, 1.5, True, 10_000):
        with pytest.raises(SpecError, match="num_returns"):
            split.options(num_returns=number)
    assert split.options(num_returns=1).settings == split.settings


def test_generators_may_say_that_they_stream():
    assert dag.task(yields, num_returns="streaming").settings.num_returns is None
    assert dag.task(yields, num_returns=3).settings.num_returns == 3


def test_a_part_hidden_in_an_object_is_refused():
    hidden = type("Box", (), {})()
    hidden.part = split.bind("a")["w"]
    with pytest.raises(SpecError, match=r"/nodes/train/args/0: argument args\[0\] of train .* cannot be pickled: <part .* not there yet"):
        compile_graph(train.bind(hidden))


# -- parameters --------------------------------------------------------------------------------------------------------


def test_parameters_take_the_values_of_the_submission():
    node = train.bind(dag.param("day"), [dag.param("limit", default=100), 1])
    assert sent_args(node, params={"day": None}) == [{"$param": "day"}, [{"$param": "limit"}, 1]]
    assert compile_graph(node, params={"day": None})["params"] == {"day": None, "limit": 100}
    plans = plans_of(parse_columns(compile_columns(node, params={"day": {"$x": 1}, "limit": 0}).packed()))
    assert plans["train"].task.args == ({"$$x": 1}, [0, 1])


def test_a_parameter_of_one_name_is_one_parameter():
    node = train.bind(dag.param("day"), dag.param("day", default=0))
    assert compile_graph(node)["params"] == {"day": 0}


@pytest.mark.parametrize(
    ("node", "given", "words"),
    [
        pytest.param(train.bind(dag.param("day")), {}, r"/params/day: has no value: submit the graph with params={'day': …}", id="missing"),
        pytest.param(
            train.bind(dag.param("day", default=1)),
            {"dya": 2},
            r"/params/dya: no node takes this parameter; did you mean day\?",
            id="unknown",
        ),
        pytest.param(train.bind(1), {"day": 2}, "/params/day: no node takes this parameter", id="unknown where there is none"),
        pytest.param(
            train.bind(dag.param("n", default=1), dag.param("n", default=True)),
            {},
            "/params/n: has two defaults, 1 and True",
            id="two defaults",
        ),
        pytest.param(train.bind(dag.param("n", default={1})), {}, "/params/n: is not plain JSON data", id="a default that is no JSON"),
    ],
)
def test_a_wrong_parameter_is_named(node, given, words):
    with pytest.raises(SpecError, match=words):
        compile_graph(node, params=given)


def test_all_wrong_parameters_are_named_at_once():
    with pytest.raises(SpecError) as wrong:
        compile_graph(train.bind(dag.param("a"), dag.param("b")), params={"c": 1})
    assert [place for place, _ in wrong.value.problems] == ["/params/a", "/params/b", "/params/c"]


def test_json_has_the_same_rule_for_parameters():
    node = {"call": "ads.etl:split", "args": [{"$param": "day"}]}
    spec = {"spec": "dag/1", "params": {"dya": 1}, "nodes": {"split": node}, "outputs": {"out": {"$ref": "split"}}}
    with pytest.raises(SpecError) as wrong:
        parse(json.dumps(spec).encode())
    assert dict(wrong.value.problems) == {
        "/nodes/split/args/0": "there is no parameter day; did you mean dya?",
        "/params/dya": "no node takes this parameter; did you mean day?",
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        pytest.param(lambda: dag.param("a b"), "'a b' is not a name of a parameter", id="a name with a space"),
        pytest.param(lambda: dag.param("a") + 1, "<param a> stands for a value", id="a sum"),
        pytest.param(lambda: dag.param("a")[0], "give each part as a parameter of its own", id="a part"),
        pytest.param(lambda: split(dag.param("a")), "has no value yet", id="a call"),
        pytest.param(lambda: compile_graph(dag.param("a")), "is not a node", id="an output"),
    ],
)
def test_a_parameter_is_not_its_value(wrong, words):
    with pytest.raises(GraphTypeError, match=words):
        wrong()
