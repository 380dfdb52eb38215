"""Arrays in a graph: how they are written, planned, and shown."""

from __future__ import annotations

import json

import pytest

import dag
from dag.client.compiling import compile_columns
from dag.errors import GraphTypeError, SpecError
from dag.run.array_states import ArrayElements, arrays_in, shown_counts, shown_rows
from dag.run.node_table import NodeTable
from dag.run.states import NodeState
from dag.spec.arrays import expanded_size
from dag.spec.plans import plans_of
from dag.spec.spec import digest, filled_calls, kept_form, load, parse, parse_columns
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason
from mesh.stages.messages import FailedElement, Failure


def double(x):
    return 2 * x


def add(x, y):
    return x + y


def total(values):
    return sum(values)


def spec_of(outputs):
    return parse_columns(compile_columns(outputs).packed())


def parts_in(plans):
    return [node for node in plans if "@" in node]


def test_an_array_is_one_node_of_the_spec():
    spec = spec_of(dag.map(double, range(100_000)))
    assert list(spec.nodes) == ["double"]
    assert len(kept_form(spec)) < 200_000


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(dag.map(double, [1, 2, 3]), id="a short list"),
        pytest.param(dag.map(double, [(1, 2), None]), id="items that JSON cannot carry"),
        pytest.param(dag.map(add, range(10), 3, parts=4), id="a further argument"),
        pytest.param(dag.starmap(add, [[1, 2], [3, 4]]), id="pairs"),
        pytest.param(dag.reduce(total, dag.map(double, dag.bind(double, 3)), arity=3), id="a list known at run time"),
        pytest.param(dag.map(double, [dag.bind(double, 1), dag.bind(double, 2)]), id="a list of nodes"),
        pytest.param(dag.map(double, dag.bind(double, 3)["items"]), id="a part of a value"),
        pytest.param(dag.map(double, dag.param("items", default=[1, 2])), id="a parameter"),
    ],
)
def test_both_forms_of_an_array_are_the_same_graph(graph):
    columns = compile_columns(graph)
    spec = parse_columns(columns.packed())
    again = parse(json.dumps(columns.as_json()).encode())
    assert digest(again) == digest(spec)
    assert list(plans_of(load(kept_form(again)))) == list(plans_of(spec))


def test_a_map_over_a_map_reads_part_by_part():
    plans = plans_of(spec_of(dag.map(double, dag.map(double, range(1_000), parts=3))))
    assert [plans[node].task.inputs for node in ("double-2@0", "double-2@1", "double-2@2")] == [("double@0",), ("double@1",), ("double@2",)]
    assert plans["double"].task.inputs == ()  # Nobody reads the list.
    assert plans["double-2"].task.inputs == ("double-2@0", "double-2@1", "double-2@2")


def test_a_reader_of_the_whole_array_gets_a_list():
    array = dag.map(double, range(10), parts=2)
    plans = plans_of(spec_of([dag.map(double, array), dag.bind(total, array)]))
    assert plans["double"].task.inputs == ("double@0", "double@1")
    assert plans["total"].task.inputs == ("double",)


def test_a_reduction_is_a_tree():
    plans = plans_of(spec_of(dag.reduce(total, dag.map(double, range(100), parts=5), arity=2)))
    steps = [node for node in plans if node.startswith("total")]
    assert len(steps) == 5 + 3 + 2 + 1
    assert all(len(plans[node].task.inputs) <= 2 for node in steps)


def test_the_last_node_of_an_array_needs_little():
    work = dag.task(double, num_gpus=1, num_cpus=4, retries=3, labels={"zone": "eu"})
    plans = plans_of(spec_of(dag.map(work, range(10))))
    part, last = plans["double@0"], plans["double"]
    assert (part.task.resources["gpu"], part.retries) == (10_000, 3)
    assert (last.task.resources["gpu"], last.task.resources["cpu"], last.retries, last.labels) == (0, 10_000, 0, {"zone": "eu"})


def test_parts_wait_for_what_the_array_is_after():
    first = dag.bind(double, 1)
    plans = plans_of(spec_of(dag.map(dag.task(double, after=[first]), [1, 2])))
    assert [plans[node].task.after for node in parts_in(plans)] == [("double",), ("double",)]


def test_parameters_may_be_the_items():
    document = {
        "spec": "dag/1",
        "params": {"days": [1, 2, 3]},
        "nodes": {"n": {"call": "a:b", "args": [{"$each": {"$param": "days"}}]}},
        "outputs": {"r": {"$ref": "n"}},
    }
    plans = plans_of(parse(json.dumps(document).encode()))
    assert [plans[node].task.args[0]["$each"] for node in parts_in(plans)] == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        pytest.param({"$each": 5}, "takes a list, or a node", id="a number"),
        pytest.param({"$each": {"a": 1}}, "takes a list, or a node", id="an object"),
        pytest.param({"$each": [1], "prats": 3}, "unknown key 'prats' beside `\\$each`; known are parts, star", id="a misspelt key"),
        pytest.param({"$each": [1], "parts": 0}, "`parts` must be a whole number from 1", id="no parts"),
        pytest.param({"$reduce": [1], "arity": 1}, "`arity` must be a whole number from 2", id="steps of one value"),
        pytest.param({"$each": [1], "star": 1}, "`star` must be true or false", id="a star that is a number"),
        pytest.param({"$each": {"$each": [1]}}, "takes no other array", id="an array in an array"),
        pytest.param([{"$each": [1]}], "stands for a whole argument only", id="an array inside a list"),
        pytest.param({"$each": [[{"$ref": "other"}]]}, "holds a node", id="a node among the items"),
        pytest.param({"$each": {"$slices": [], "of": 3}}, "takes 1 to", id="no pieces"),
        pytest.param({"$each": {"$slices": [[1]], "of": -3}}, "`of` must be", id="pieces of less than nothing"),
        pytest.param({"$item": True}, "the argument .* stands for each", id="the word of other systems"),
    ],
)
def test_a_wrong_array_is_refused_by_name(argument, words):
    nodes = {"other": {"call": "a:b"}, "n": {"call": "a:b", "args": [argument, {"$ref": "other"}]}}
    document = {"spec": "dag/1", "nodes": nodes, "outputs": {"r": {"$ref": "n"}}}
    with pytest.raises(SpecError, match=words) as wrong:
        parse(json.dumps(document).encode())
    assert all(place.startswith("/nodes/n/args/0") for place, _ in wrong.value.problems)


def test_a_call_has_one_array():
    nodes = {"n": {"call": "a:b", "args": [{"$each": [1]}], "kwargs": {"x": {"$each": [2]}}}}
    with pytest.raises(SpecError, match="a call has one argument that is an array, the calls of an actor"):
        parse(json.dumps({"spec": "dag/1", "nodes": nodes, "outputs": {"r": {"$ref": "n"}}}).encode())


@pytest.mark.parametrize(
    ("write", "words"),
    [
        pytest.param(lambda: dag.map(double, 5), "takes a list, not a int", id="a number"),
        pytest.param(lambda: dag.map(double, "abc"), "takes a list, not a str", id="a text"),
        pytest.param(lambda: dag.map([1, 2], double), "is a function; the items of an array come second", id="the wrong way round"),
        pytest.param(lambda: dag.map(double, [1], parts=0), "parts must be a whole number", id="no parts"),
        pytest.param(lambda: dag.reduce(total, [1], arity=1), "arity of 2 or more", id="steps of one value"),
        pytest.param(lambda: dag.map(dag.task(double, num_returns=2), [1]), "no num_returns", id="several outputs"),
        pytest.param(lambda: dag.gather(1), "gather takes nodes", id="a value to gather"),
        pytest.param(lambda: dag.map(double, [dag.bind(double, 1), 2]), "holds a node beside other values", id="nodes and values"),
    ],
)
def test_python_refuses_a_wrong_array_at_once(write, words):
    with pytest.raises(GraphTypeError, match=words):
        write()


def test_too_many_parts_are_refused():
    arrays = [dag.map(double, range(20_000), parts=10_000) for _ in range(11)]
    with pytest.raises(SpecError, match="its arrays have 110,000 parts together"):
        spec_of(arrays)


def test_parts_that_follow_another_array_count_too():
    source = dag.map(double, dag.bind(double, 1), parts=10_000)
    followers = [dag.map(double, source) for _ in range(10)]
    with pytest.raises(SpecError, match="its arrays have 110,000 parts together"):
        spec_of(followers)


def test_steps_of_a_reduction_count_too():
    for arity in (2, 3, 16, 100):
        spec = spec_of(dag.reduce(total, dag.map(double, range(100), parts=20), arity=arity))
        size = expanded_size(filled_calls(spec))
        assert size.parts == len(plans_of(spec)) - 1  # The node that ends the array over which the values are reduced.


@pytest.mark.parametrize("config", [{"k": "x" * 200_000}, "x" * 200_000], ids=["a list", "a plain value"])
def test_large_data_beside_an_array_is_refused_by_name(config):
    with pytest.raises(SpecError, match=r"/nodes/add: the arguments beside arrays take 49 MiB in all parts .* let a node return"):
        spec_of(dag.map(add, range(5_000), config))
    spec_of(dag.map(add, range(5_000), dag.bind(double, config)))


# -- as they are shown -------------------------------------------------------------------------------------------------


@pytest.fixture
def spec():
    return spec_of(dag.map(double, range(10), parts=5))


@pytest.fixture
def nodes(spec):
    table = NodeTable(map(NodeId, spec.nodes))
    table.add(plans_of(spec))
    return table


def test_an_array_counts_as_one_node(nodes):
    nodes["double@1"].state = NodeState.RUNNING
    assert shown_counts(nodes) == {NodeState.RUNNING: 1}
    assert [(nodes.names[row], state) for row, state in shown_rows(nodes)] == [("double", NodeState.RUNNING)]


def test_an_array_with_a_failed_part_has_failed(spec, nodes):
    error = FailedElement(index=3, attempt=2, type_name="ValueError", message="bad")
    failure = Failure(reason=Reason.USER_ERROR, type_name="builtins.ValueError", message="element 3 of 10", elements=(error,), of=10)
    nodes["double@0"].state = NodeState.SUCCEEDED
    nodes["double@1"].state, nodes["double@1"].failure, nodes["double@1"].attempt = NodeState.FAILED, failure, 2
    nodes["double@2"].state, nodes["double@2"].progress = NodeState.RUNNING, 0.5
    nodes["double"].state = NodeState.SKIPPED
    assert shown_counts(nodes) == {NodeState.FAILED: 1}
    elements = ArrayElements(nodes, spec, NodeId("double"))
    found = elements.counts()
    assert (found.elements, found.failed) == (10, "3")
    assert found.counts == {NodeState.SUCCEEDED: 4, NodeState.FAILED: 1, NodeState.RUNNING: 1, NodeState.WAITING: 4}
    (one,) = elements.page(NodeState.FAILED, -1, 100)
    assert (one.index, one.attempt, one.type_name, one.message) == (3, 2, "ValueError", "bad")
    assert [each.index for each in elements.page(None, 4, 3)] == [5, 6, 7]


def test_the_length_of_an_array_may_be_known_later(nodes):
    spec = spec_of(dag.map(double, dag.bind(double, 1), parts=5))
    table = NodeTable(plans_of(spec))
    array = NodeId("double-2")
    assert arrays_in(table, spec) == [array]
    assert ArrayElements(table, spec, array).counts().elements is None
    table[array].elements = 7
    assert ArrayElements(table, spec, array).counts().counts == {NodeState.WAITING: 7}
