"""Compilation of nodes to a spec, and of a spec to plans."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

import dag
from dag.client.compiling import compile_columns, compile_graph
from dag.client.writing import BLOB_BYTES_MAX
from dag.errors import CycleError, GraphTypeError, NotSerializable, SpecError
from dag.spec.plans import plans_of, refused_functions, refused_priorities
from dag.spec.spec import PROBLEMS_MAX, DagSpec, parse, parse_columns
from dag.store.client_access import Access
from dag.store.remote import Client
from mesh.core.resources import ResourceSet
from mesh.stages.arguments import resolve

#: Its capabilities, without a request to the root.
CLIENT = Client(Access(address="http://127.0.0.1:1", api_key="none", tenant=None))


@dag.task
def double(x):
    return x * 2


@dag.task
def add(a, b=0, *rest, **more):
    return (a, b, rest, more)


def sent(outputs: Any, **options: Any) -> DagSpec:
    """Return the spec as the root reads it."""
    return parse_columns(compile_columns(outputs, **options).packed())


def run(spec: DagSpec) -> dict[str, Any]:
    """Compute the values of all nodes here, from functions and arguments as a worker reads them."""
    blobs = {sha256: pickle.loads(data) for sha256, data in spec.blob_bytes().items()}  # noqa: S301  our own bytes
    values: dict[str, Any] = {}
    for node, plan in plans_of(spec).items():
        args = [resolve(form, value_of=values.__getitem__, blob_of=blobs.__getitem__) for form in plan.task.args]
        kwargs = {name: resolve(form, value_of=values.__getitem__, blob_of=blobs.__getitem__) for name, form in plan.task.kwargs.items()}
        values[node] = blobs[plan.task.function.removeprefix("blob:")](*args, **kwargs)
    return values


# -- client ------------------------------------------------------------------------------------------------------------


def test_a_graph_gives_what_plain_calls_give():
    two = double.bind(1)
    spec = sent(add.bind(two, [two, {"k": (two, 5)}], 7, key=two))
    assert run(spec)["add"] == (2, [2, {"k": (2, 5)}], (7,), {"key": 2})


def test_a_node_that_is_used_twice_runs_once():
    once = double.bind(3)
    spec = sent(add.bind(once, once))
    assert list(spec.nodes) == ["double", "add"]
    assert run(spec)["add"] == (6, 6, (), {})


def test_ids_follow_names_in_the_order_in_which_nodes_can_run():
    first, named = double.bind(1), double.options(name="the first").bind(2)
    graph = add.bind(first, double.bind(named), double.options(name="double-2").bind(0))
    assert list(compile_graph(graph)["nodes"]) == ["double", "the-first", "double-2", "double-2-2", "add"]
    assert compile_graph(graph)["nodes"] == compile_graph(graph)["nodes"]


def test_a_lambda_and_a_name_without_any_letter_get_ids():
    assert list(compile_graph([dag.bind(lambda: 1), dag.task(lambda: 2, name="!!").bind()])["nodes"]) == ["lambda", "node"]


def test_outputs_are_one_node_several_or_named():
    one, two = double.bind(1), double.bind(2)
    assert compile_graph(one)["outputs"] == {"result": {"$ref": "double"}}
    assert compile_graph([one, two, one])["outputs"] == {"0": {"$ref": "double"}, "1": {"$ref": "double-2"}, "2": {"$ref": "double"}}
    assert compile_graph({"x": two})["outputs"] == {"x": {"$ref": "double"}}


@pytest.mark.parametrize("outputs", [[1], {"a": double}, 3, "node"], ids=["a number", "a task that was not bound", "no container", "text"])
def test_outputs_that_are_no_nodes_are_refused(outputs):
    with pytest.raises(TypeError, match="node"):
        compile_graph(outputs)


def test_unbound_outputs_are_reported_with_the_remedy():
    for outputs in (double, [double]):
        with pytest.raises(GraphTypeError, match=r"not bound: give f\.bind"):
            compile_graph(outputs)
    with pytest.raises(GraphTypeError, match="a function: give what it returns"):
        compile_graph(lambda: double.bind(1))


def test_parameters_that_are_no_dict_are_refused():
    for write in (compile_graph, CLIENT.spec_of):
        with pytest.raises(GraphTypeError, match="params takes a dict"):
            write(double.bind(1), params=[1])


def test_no_outputs_at_all_are_refused():
    with pytest.raises(SpecError, match="name at least one node"):
        compile_graph([])


def test_a_function_is_sent_once():
    spec = compile_graph([double.bind(number) for number in range(5)])
    assert len({fields["function"]["$blob"] for fields in spec["nodes"].values()}) == len(spec["blobs"]) == 1


class Point:
    """Value that JSON does not know."""

    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Point) and self.x == other.x

    __hash__ = None


class Text(str):
    __slots__ = ()


EXACT = [None, True, 0, -1, 2**62, 0.1, -0.0, "", "é\n", [], {}, [1, [2, {"$ref": "x", "$$": 3, "$": 4, "a": None}]], "x" * 1000]
PICKLED = [
    (),
    (1, 2),
    {1: 2},
    {"a": (1,)},
    b"x",
    2**63,
    float("inf"),
    "\ud800",
    {"\ud800": 1},
    Point(1),
    Text("x"),
    {1, 2},
    range(3),
    "x" * 300_000,
]


@pytest.mark.parametrize("value", EXACT, ids=lambda value: repr(value)[:30])
def test_what_json_gives_back_exactly_travels_as_json(value):
    spec = compile_graph(double.bind(value))
    assert len(spec["blobs"]) == 1  # the function alone
    (plan,) = plans_of(parse(json.dumps(spec).encode())).values()
    back = resolve(plan.task.args[0], value_of={}.__getitem__, blob_of={}.__getitem__)
    assert (back, type(back), repr(back)) == (value, type(value), repr(value))


@pytest.mark.parametrize("value", PICKLED, ids=lambda value: ascii(value)[:30])
def test_everything_else_is_pickled_and_arrives_as_it_was(value):
    spec = sent(dag.bind(lambda x: x, value))
    assert [set(form) for form in spec.nodes["lambda"].args] == [{"$blob"}]
    (back,) = run(spec).values()
    assert (back, type(back)) == (value, type(value))


def test_a_nan_arrives_as_a_nan():
    (back,) = run(sent(dag.bind(lambda x: x, float("nan")))).values()
    assert back != back  # noqa: PLR0124  only a NaN differs from itself


def test_large_data_beside_a_node_is_sent_too():
    node = double.bind(1)
    texts = ["x" * 100_000 + str(number) for number in range(5)]
    assert run(sent(add.bind([node, *texts])))["add"][0] == [2, *texts]


def test_an_object_that_many_nodes_take_is_pickled_once():
    class Counting:
        pickles = 0

        def __reduce__(self):
            type(self).pickles += 1
            return (int, (7,))

    shared = Counting()
    spec = sent([double.bind(shared) for _ in range(10)])
    assert Counting.pickles == 1
    assert set(run(spec).values()) == {14}


@pytest.mark.parametrize(
    ("hide", "argument"),
    [
        pytest.param(lambda node: {node}, "b", id="in a set"),
        pytest.param(Point, "b", id="in an object"),
        pytest.param(lambda node: [1, (2, Point(node))], "b", id="in an object in a tuple"),
        pytest.param(lambda node: {1: node}, "b", id="in a dict whose keys are numbers"),
    ],
)
def test_a_hidden_node_is_refused_with_both_names(hide, argument):
    hidden = double.options(name="hidden").bind(1)
    with pytest.raises(NotSerializable) as wrong:
        compile_graph(add.options(name="reader").bind(1, hide(hidden)))
    ((place, words),) = wrong.value.problems
    assert place == "/nodes/reader/args/1"
    assert words.startswith(f"argument {argument} of reader")
    assert "node" in words


def test_a_node_in_a_closure_is_refused():
    hidden = double.bind(1)
    with pytest.raises(NotSerializable, match=r"uses hidden .*<node double> cannot be pickled"):
        compile_graph(dag.bind(lambda: hidden))


def test_every_argument_that_cannot_be_sent_is_named():
    lock = threading.Lock()
    with pytest.raises(NotSerializable) as wrong:
        compile_graph([add.bind(1, 2, 3, threading.Lock()), double.bind(x=threading.Lock()), dag.bind(max, 1, threading.Lock())])
    assert [(place, words.partition(" (")[0]) for place, words in wrong.value.problems] == [
        ("/nodes/add/args/3", "argument rest[1] of add"),
        ("/nodes/double/kwargs/x", "argument x of double"),
        ("/nodes/max/args/1", "argument 1 of max"),
    ]
    with pytest.raises(NotSerializable, match=r"the function lambda cannot be pickled, because it uses lock"):
        compile_graph(dag.bind(lambda: lock))


def test_too_much_pickled_data_names_the_largest():
    half = BLOB_BYTES_MAX // 2
    with pytest.raises(SpecError, match=r"the largest: argument a of add 6\.\d MiB, argument x of double 5\.0 MiB.*Load large data inside"):
        compile_graph([double.bind(b"1" * (5 * 2**20)), add.bind(b"2" * (half + 1000))])


def test_a_list_that_holds_itself_is_an_argument_like_any_other():
    ring: list[Any] = [1]
    ring.append(ring)
    (back,) = run(sent(dag.bind(lambda x: x, ring))).values()
    assert back[1] is back


def test_lists_that_share_each_other_are_read_in_linear_time():
    node = double.bind(1)
    knot: list[Any] = [node]
    for _ in range(30):
        knot = [knot, knot]
    with pytest.raises(SpecError, match="unfolds to more than"):
        compile_graph(add.bind(knot))


def test_a_circle_through_a_changed_list_is_found():
    trap: list[Any] = []
    node = double.bind(trap)
    trap.append(add.bind(node))
    with pytest.raises(CycleError, match="<node double> -> <node add> -> <node double>"):
        compile_graph(node)


def test_options_reach_the_plan():
    first = double.bind(1)
    node = add.options(
        num_cpus=0.5, num_gpus=2, memory="1GiB", resources={"tpu": 1}, labels={"zone": "!eu"}, mesh="east", retries=2, priority=7,
        after=[first], max_retries=0, label_selector={"arch": "arm"}, name="sum",
    ).bind(2)  # fmt: skip
    plan = plans_of(sent(node))["sum"]
    assert plan.task.resources == ResourceSet.of({"cpu": 0.5, "gpu": 2, "memory": "1GiB", "tpu": 1})
    assert (plan.labels, plan.mesh, plan.retries, plan.priority) == ({"zone": "!eu"}, "east", 2, 7)
    assert plan.task.ray_options == {"max_retries": 0, "label_selector": {"arch": "arm"}}
    assert (plan.task.after, plan.task.inputs, plan.is_output) == (("double",), (), True)


def test_an_environment_of_all_nodes_is_that_of_the_run():
    one = double.options(runtime_env={"env_vars": {"A": "1"}})
    left, _ = one.options(num_returns=2).bind(3)
    spec = sent([one.bind(1), one.bind(2), left])
    assert spec.code.runtime_env == {"env_vars": {"A": "1"}}
    assert all(options.runtime_env is None for options in spec.options)


def test_different_environments_are_those_of_nodes():
    one = double.options(runtime_env={"env_vars": {"A": "1"}})
    spec = sent([one.bind(1), double.bind(2)])
    assert spec.code.runtime_env == {}
    plans = plans_of(spec)
    assert [plans[node].task.ray_options for node in plans] == [{"runtime_env": {"env_vars": {"A": "1"}}}, {}]


def test_a_parameter_that_is_no_plain_data_is_refused():
    with pytest.raises(SpecError, match="/params/day: is not plain JSON data"):
        compile_graph(double.bind(dag.param("day")), params={"day": {1, 2}})


@pytest.fixture
def unknown_module():
    """Return a module that no worker can import."""
    module = ModuleType("not_on_any_worker")
    exec("def triple(x):\n    return 3 * x\n", module.__dict__)  # noqa: S102  it has no file
    sys.modules[module.__name__] = module
    yield module
    sys.modules.pop(module.__name__, None)


def test_a_module_can_be_sent_along(unknown_module):
    spec = sent(dag.bind(unknown_module.triple, 5), by_value=[unknown_module])
    named = compile_graph(dag.bind(unknown_module.triple, 5))["blobs"]
    del sys.modules[unknown_module.__name__]
    assert list(run(spec).values()) == [15]
    assert all(b"not_on_any_worker" in base64.b64decode(text) for text in named.values())


class Meets:
    """Value that announces its pickling, and is pickled after the other event."""

    def __init__(self, own: threading.Event, other: threading.Event) -> None:
        self._own, self._other = own, other

    def __reduce__(self):
        self._own.set()
        assert self._other.wait(60)
        return int, (0,)


def test_two_threads_send_a_module_along_at_once(unknown_module):
    first_is_inside, second_begins, first_is_done, second_is_inside = (threading.Event() for _ in range(4))

    def modules():
        assert first_is_inside.wait(60)
        second_begins.set()
        yield unknown_module

    def written(meets: Meets, modules) -> dict[str, Any]:
        return compile_graph([double.bind(meets), dag.bind(unknown_module.triple, 5)], by_value=modules)

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(written, Meets(second_is_inside, first_is_done), modules())
        try:
            written(Meets(first_is_inside, second_begins), [unknown_module])
        finally:
            first_is_done.set()
        spec = parse(json.dumps(second.result(60)).encode())
    del sys.modules[unknown_module.__name__]
    assert 15 in run(spec).values()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(
            ["shop"], r"by_value takes modules, not 'shop'; import it and give the module: import shop, then by_value=\[shop\]", id="a name"
        ),
        pytest.param("shop", "a list of modules, not 'shop' alone; import it", id="a name alone"),
        pytest.param(json, r"alone; write by_value=\[json\]", id="a module alone"),
        pytest.param([add], r"give the module that it is in: by_value=\[sys\.modules\[", id="a function"),
        pytest.param([3], "by_value takes modules, not 3", id="a number"),
    ],
)
def test_what_is_sent_by_value_are_modules(given, words):
    for write in (compile_graph, CLIENT.spec_of):
        with pytest.raises(GraphTypeError, match=words):
            write(double.bind(1), by_value=given)


def chain(nodes: int) -> Any:
    end = double.bind(1)
    for _ in range(nodes - 1):
        end = double.bind(end)
    return end


def chain_of_parts(nodes: int) -> Any:
    end = double.bind(1)
    for _ in range(nodes - 1):
        end = double.bind(end["w"][0])
    return end


def ladder(nodes: int) -> Any:
    end = double.bind(1)
    for _ in range((nodes - 1) // 2):
        end = add.bind(end, double.bind(end))
    return end


def fan(nodes: int) -> Any:
    return add.bind([double.bind(number) for number in range(nodes - 1)])


def fan_of_outputs(nodes: int) -> Any:
    two = double.options(num_returns=2)
    return add.bind([part for number in range((nodes - 1) // 3) for part in two.bind(number)])


def grid(nodes: int) -> Any:
    row: list[Any] = [chain(1)]
    width = int(nodes**0.5)
    for _ in range(width - 1):
        row.append(double.bind(row[-1]))
    for _ in range(width - 1):
        row[0] = double.bind(row[0])
        for place in range(1, width):
            row[place] = add.bind(row[place], row[place - 1])
    return row[-1]


@pytest.mark.parametrize(
    ("build", "nodes"),
    [
        pytest.param(chain, 10_000, id="a chain of ten thousand"),
        pytest.param(chain_of_parts, 10_000, id="a chain of ten thousand parts"),
        pytest.param(ladder, 2_001, id="a ladder of a thousand rungs"),
        pytest.param(fan, 5_001, id="a fan-in of five thousand"),
        pytest.param(fan_of_outputs, 1_501, id="a thousand outputs"),
        pytest.param(grid, 10_000, id="a grid of a hundred by a hundred"),
    ],
)
def test_large_shapes_need_no_recursion(build, nodes):
    plans = plans_of(sent(build(nodes)))
    assert len(plans) == nodes
    assert plans[next(reversed(plans))].is_output


# -- root --------------------------------------------------------------------------------------------------------------


def parsed(**parts: Any) -> DagSpec:
    return parse(json.dumps({"spec": "dag/1", "outputs": {"r": {"$ref": "a"}}, **parts}).encode())


def test_plans_are_in_topological_order():
    spec = parsed(nodes={"c": {"call": "m:f", "args": [{"$ref": "b"}]}, "b": {"call": "m:f", "after": ["a"]}, "a": {"call": "m:f"}})
    assert list(plans_of(spec)) == ["a", "b", "c"]
    assert [plan.is_output for plan in plans_of(spec).values()] == [True, False, False]


def test_parameters_are_filled_in_as_plain_data():
    spec = parsed(
        params={"day": {"$ref": "no node"}, "n": 3},
        nodes={"a": {"call": "m:f", "args": [[{"$param": "day"}, {"$tuple": [{"$param": "n"}]}]], "kwargs": {"k": {"$param": "n"}}}},
    )
    plan = plans_of(spec)["a"]
    assert (plan.task.args, plan.task.kwargs, plan.task.inputs) == (([{"$$ref": "no node"}, {"$tuple": [3]}],), {"k": 3}, ())
    assert resolve(plan.task.args[0], value_of={}.__getitem__, blob_of={}.__getitem__) == [{"$ref": "no node"}, (3,)]


def test_a_nodes_option_replaces_the_default_whole():
    spec = parsed(
        defaults={"retries": 3, "labels": {"zone": "eu", "disk": "ssd"}, "num_cpus": 2},
        nodes={"a": {"call": "m:f", "options": {"labels": {"zone": "us"}, "retries": 0}}, "b": {"call": "m:f"}},
    )
    plans = plans_of(spec)
    assert (plans["a"].labels, plans["a"].retries, plans["a"].task.resources) == ({"zone": "us"}, 0, ResourceSet.of({"cpu": 2}))
    assert (plans["b"].labels, plans["b"].retries) == ({"zone": "eu", "disk": "ssd"}, 3)


def test_a_task_requests_one_cpu_by_default():
    spec = parsed(nodes={"a": {"call": "m:f"}, "b": {"call": "m:f", "options": {"num_cpus": 0, "num_gpus": 1}}})
    assert [plan.task.resources for plan in plans_of(spec).values()] == [ResourceSet.of({"cpu": 1}), ResourceSet.of({"gpu": 1})]


@pytest.mark.parametrize(
    ("pattern", "call", "allowed"),
    [
        pytest.param("ads.*:*", "ads.ml:train", True, id="a star covers modules below"),
        pytest.param("ads.*:*", "ads.ml.deep:train", True, id="and deeper ones"),
        pytest.param("ads.*:*", "ads:train", False, id="and not the package itself"),
        pytest.param("ads.*:*", "ads.ml:os.system", False, id="and not what a module has imported"),
        pytest.param("ads.ml:*.score", "ads.ml:Model.score", True, id="a method, when it is asked for"),
        pytest.param("ads.ml:train", "ads.ml:train", True, id="a function by name"),
        pytest.param("ads.ml:train", "ads.ml:Train", False, id="case counts"),
        pytest.param("*", "os:system", True, id="a star alone is everything"),
    ],
)
def test_patterns_allow_modules_and_names_apart(pattern, call, allowed):
    spec = parsed(nodes={"a": {"call": call}})
    assert (refused_functions(spec, (pattern,), False) == ()) is allowed


def test_an_empty_list_allows_nothing_and_says_so():
    assert refused_functions(parsed(nodes={"a": {"call": "m:f"}}), (), True) == (
        ("/nodes/a/call", "m:f is not on the tenant's list of functions; it is empty"),
    )


@pytest.mark.parametrize(
    ("options", "defaults", "bound", "places"),
    [
        pytest.param({"priority": 9}, {}, None, [], id="no bound"),
        pytest.param({"priority": 5}, {"priority": 5}, 5, [], id="the bound itself"),
        pytest.param({"priority": 6}, {}, 5, ["/nodes/a/options/priority"], id="a node above it"),
        pytest.param({"priority": 1}, {"priority": 6}, 5, ["/defaults/priority"], id="defaults above it"),
        pytest.param({}, {}, -1, ["/nodes/a/options"], id="a bound below the priority of a node without one"),
        pytest.param({}, {"priority": -2}, -1, [], id="defaults below it"),
    ],
)
def test_priorities_above_a_tenants_bound_are_refused(options, defaults, bound, places):
    spec = parsed(nodes={"a": {"call": "m:f", "options": options}}, defaults=defaults)
    assert [place for place, _ in refused_priorities(spec, "acme", bound)] == places


def test_the_problems_with_functions_are_few_and_short():
    nodes = {f"n{number}": {"call": f"m:{'f' * 900}"} for number in range(PROBLEMS_MAX + 1)}
    problems = refused_functions(parsed(nodes=nodes, outputs={"r": {"$ref": "n0"}}), (), True)
    assert (len(problems), max(len(words) for _, words in problems) < 300) == (PROBLEMS_MAX, True)


def test_a_function_with_a_very_long_name_is_refused():
    with pytest.raises(SpecError, match="has 1,002 characters; the name of a function has 1000 at most"):
        parsed(nodes={"a": {"call": f"m:{'f' * 1000}"}})


def test_pickled_code_needs_the_right_wherever_it_hides():
    spec = sent(double.options(runtime_env={"working_dir": "s3://x/y.zip"}).bind((1, 2)))
    assert refused_functions(spec, (), True) == ()
    assert [place for place, _ in refused_functions(spec, ("*",), False)] == [
        "/nodes/double/function",
        "/nodes/double",
        "/code/runtime_env",
    ]


def test_environments_of_nodes_need_the_right_as_well():
    env = {"runtime_env": {"env_vars": {"A": "1"}}}
    spec = parsed(nodes={"a": {"call": "m:f", "options": env}, "b": {"call": "m:f"}}, defaults=env)
    assert [place for place, _ in refused_functions(spec, ("*",), False)] == ["/defaults/runtime_env", "/nodes/a/options/runtime_env"]
    assert refused_functions(spec, ("*",), True) == ()
