"""Nodes that functions return: what is sent, what is refused, and the graph that they become part of."""

from __future__ import annotations

import operator

import msgpack
import pytest
from graphs_of_calls import growth, message_of, spec_of

import dag
from dag.errors import CycleError, GraphTypeError, NotSerializable, SpecError
from dag.run.runs import RunRecord, graph_of
from dag.run.states import RunState
from dag.spec.control import GROWN, Grown, control_of
from dag.spec.growth import Growth, GrowthLimits, child_name, depth_of, graph_returned, grown
from dag.spec.plans import blobs_named_in, controls_of, plans_of
from dag.spec.spec import kept_form
from mesh.core.functions import SELECTED, returned_graph


def rows_of(spec):
    """Return function, arguments, inputs and order of each node, in topological order."""
    return {node: (plan.task.function, plan.task.args, plan.task.after) for node, plan in plans_of(spec).items()}


def returned(value, node="f", attempt=1):
    return graph_returned(b"%s %d\n%s" % (node.encode(), attempt, returned_graph(value)), node, attempt)


def double(number):
    return 2 * number


# -- what a function returns


@pytest.mark.parametrize("value", [None, 1, "a", [1], {"a": 1}, object(), double, dag.bind], ids=lambda value: type(value).__name__)
def test_a_value_is_no_graph(value):
    assert returned_graph(value) is None


def test_a_node_is_a_graph():
    spec = returned(dag.bind(double, dag.bind(double, 1)))
    assert list(spec.nodes) == ["double", "double-2"]
    assert [output.node for output in spec.outputs.values()] == ["double-2"]


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (lambda node: node["a"], {"$ref": "double", "path": ["a"]}),
        (lambda node: dag.continuation([node, 1]), [{"$ref": "double"}, 1]),
        (lambda node: dag.continuation({"a": node[0]}), {"a": {"$ref": "double", "path": [0]}}),
    ],
    ids=["a part", "a list", "a part in a dict"],
)
def test_a_value_with_nodes_is_a_node_that_collects(value, form):
    spec = returned(value(dag.bind(double, 1)))
    call = spec.calls.call(spec.calls.place_of["value"])
    assert (call.function, call.args) == (SELECTED, (form,))


def test_parameters_have_their_defaults():
    child = returned(dag.bind(double, dag.param("number", default=4)))
    spec = grown(spec_of("f"), [Growth(node="f", depth=1, nodes=1, size_bytes=1, columns=kept_form(child))])
    assert plans_of(spec)["f~double"].task.args == (4,)
    with pytest.raises(SpecError, match="number"):
        returned(dag.bind(double, dag.param("number")))


def test_an_environment_stays_with_its_nodes():
    spec = returned(dag.task(double, runtime_env={"env_vars": {"A": "1"}}).bind(1))
    assert spec.code.runtime_env == {}
    assert [options.runtime_env for options in spec.options] == [{"env_vars": {"A": "1"}}]


def test_functions_may_be_named():
    spec = returned(dag.continuation(dag.bind(operator.neg, 1), by_name=True))
    assert spec.calls.functions == ("call:_operator:neg",)


@pytest.mark.parametrize("value", [1, [1], "a", double, dag.task(double)], ids=lambda value: type(value).__name__)
def test_a_continuation_has_a_node(value):
    with pytest.raises(GraphTypeError, match=r"continuation\(\) takes a node, or a list, tuple or dict with nodes"):
        dag.continuation(value)


def test_what_cannot_be_sent_is_named():
    with pytest.raises(NotSerializable, match="argument number of double"):
        returned(dag.bind(double, (each for each in [1])))


# -- what the root refuses


def test_bytes_of_another_attempt_are_refused():
    message = b"f 1\n" + message_of("a")
    with pytest.raises(SpecError, match="not those of attempt 2 of node f"):
        graph_returned(message, "f", 2)
    with pytest.raises(SpecError, match="not those of attempt 1 of node g"):
        graph_returned(message, "g", 1)


def test_a_graph_has_one_whole_output():
    with pytest.raises(SpecError, match="/outputs: the value is that of one node"):
        graph_returned(b"f 1\n" + message_of("a", "b", outputs=("a", "b")), "f", 1)
    body = msgpack.unpackb(message_of("a"))
    body["graph"] = b'{"spec":"dag/1","outputs":{"result":{"$ref":"a","path":[0]}}}'
    with pytest.raises(SpecError, match="/outputs: the value is that of one node"):
        graph_returned(b"f 1\n" + msgpack.packb(body), "f", 1)


@pytest.mark.parametrize(
    ("nodes", "given", "error", "words"),
    [
        (("a: b", "b: a"), {}, CycleError, "circle"),
        (("a~b",), {}, SpecError, "/nodes/a~0b: .*not a name|/nodes/a~0b"),
        (("a",), {"a": {"call": GROWN}}, SpecError, "'control:grown' is no function"),
        (("a",), {"a": {"num_cpus": -1}}, SpecError, "/nodes/a/options/num_cpus"),
    ],
    ids=["a circle", "a name of a returned node", "a function of the root", "an option"],
)
def test_returned_nodes_are_checked_as_submissions(nodes, given, error, words):
    with pytest.raises(error, match=words):
        graph_returned(b"f 1\n" + message_of(*nodes, **given), "f", 1)


def test_too_many_bytes_are_refused():
    with pytest.raises(SpecError, match="the nodes have 2 bytes, 1 at most: pass large arguments as values of nodes"):
        GrowthLimits(bytes_max=1).check_size(2)


# -- the whole graph


def test_the_parent_has_the_value_of_the_output():
    spec = grown(spec_of("a", "f: a", "b: f a"), [growth("f", "c", "d: c")])
    assert rows_of(spec) == {
        "a": ("call:work:do", (), ()),
        "f~c": ("call:work:do", (), ()),
        "f~d": ("call:work:do", ({"$ref": "f~c"},), ()),
        "f": (GROWN, ({"$ref": "f~d"},), ()),
        "b": ("call:work:do", ({"$ref": "f"}, {"$ref": "a"}), ()),
    }
    assert controls_of(plans_of(spec)) == {"f": Grown("f~d")}
    assert control_of(GROWN, ({"$ref": "f~d"},)) == Grown("f~d")


def test_values_and_inputs_of_others_stay():
    options = {name: {"args": [1, {"$ref": need}, name]} for name, need in (("f", "a"), ("g", "a"), ("h", "f"))}
    spec = spec_of("a", "f", "g", "h", a={"args": [0]}, outputs=("g", "h"), **options)
    first = growth("f", "c", c={"args": ["x", 7]})
    second = growth("g", "c", "d: c", before=[first])
    rows = rows_of(grown(spec, [first, second]))
    assert rows["h"][1] == (1, {"$ref": "f"}, "h")
    assert rows["a"][1] == (0,)
    assert (rows["f"][:2], rows["g"][:2]) == ((GROWN, ({"$ref": "f~c"},)), (GROWN, ({"$ref": "g~d"},)))
    assert rows["f~c"][1] == ("x", 7)


def test_returned_nodes_have_the_options_that_they_were_given():
    spec = grown(spec_of("f", "b: f", b={"num_cpus": 2}), [growth("f", "c", "d: c", c={"num_cpus": 2}, d={"num_gpus": 1})])
    asked = {node: dict(plan.task.resources) for node, plan in plans_of(spec).items()}
    assert asked["f~c"] == asked["b"]
    assert asked["f~d"]["gpu"] == 10_000
    assert len(spec.options) == 3  # Equal options have one entry.


def test_an_array_that_was_returned_has_parts():
    spec = grown(spec_of("f", "b: f"), [growth("f", "c", c={"args": [{"$each": [1, 2]}]})])
    assert [node for node in plans_of(spec) if node.startswith("f~c@")] == ["f~c@0", "f~c@1"]


def test_order_after_the_parent_stays():
    rows = rows_of(grown(spec_of("a", "f: ~a", "b: ~f", outputs=("b",)), [growth("f", "c")]))
    assert (rows["f"][2], rows["b"][2], rows["f~c"][2]) == ((), ("f",), ())


def test_nodes_of_cleanup_return_cleanup():
    spec = spec_of("a", "f: ~a", "g: f", f={"when": "failure"}, outputs=("a", "g"))
    whole = grown(spec, [growth("f", "c", "d: c"), growth("g", "e")])
    plans = plans_of(whole)
    assert (plans["f~c"].when, plans["f~c"].task.after, plans["f"].when) == ("failure", ("a",), "success")
    assert (plans["g~e"].when, plans["g~e"].task.after) == ("success", ("f",))


def test_a_deep_name_is_short():
    name = "f"
    seen = []
    for depth in range(1, 60):
        seen.append(growth(name, "factorial", before=seen))
        assert seen[-1].depth == depth == depth_of(child_name(name, "x"), seen)
        name = child_name(name, "factorial")
    assert max(len(each.node) for each in seen) < 100
    assert len({each.node for each in seen}) == len(seen)
    assert len(grown(spec_of("f"), seen).calls) == 60


def test_a_stored_growth_is_the_same():
    one = growth("f", "c", "d: c")
    assert Growth.unpacked(one.packed()) == one
    assert (one.nodes, one.names(), one.value_of()) == (2, ("f~c", "f~d"), "f~d")


def test_the_graph_of_a_record_has_its_growths():
    spec = spec_of("f", "b: f")
    record = RunRecord(run="r", tenant="acme", digest="", spec=kept_form(spec), state=RunState.RUNNING, growths=(growth("f", "c"),))
    assert list(graph_of(record).calls.ids) == ["f", "b", "f~c"]


def test_code_of_returned_nodes_is_named():
    child = returned(dag.bind(double, 1))
    blobs = blobs_named_in(plans_of(grown(spec_of("f"), [Growth(node="f", depth=1, nodes=1, size_bytes=1, columns=kept_form(child))])))
    assert blobs == child.columns.blobs.keys()
