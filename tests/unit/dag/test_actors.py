"""Actors as users write them, as forms of a graph, and as JSON."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import pytest
import ray
from ray.dag import InputNode, MultiOutputNode

import dag
from dag.client.compiling import compile_graph
from dag.client.from_ray import ACTOR_OPTIONS
from dag.errors import CycleError, GraphTypeError, NotSerializable, SpecError
from dag.spec.plans import refused_functions
from dag.spec.spec import digest, parse
from mesh.core.functions import ActorCalls
from mesh.ray.worker.plain_calls import make_calls

MODULE = """
import dag, ray

class Plain:
    def f(self, *args, **named):
        return args

@dag.actor
class Ours(Plain): ...

@ray.remote
class Rays(Plain): ...

def g(x):
    return x
"""


class Counter:
    """A class of a user."""

    limit = 3

    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, value: int, by: int = 1) -> int:
        self.total += value * by
        return self.total

    def pair(self) -> tuple[int, int]:
        return self.total, -self.total

    @staticmethod
    def twice(value: int) -> int:
        return 2 * value

    @classmethod
    def of(cls, value: int) -> int:
        return value

    async def _private(self) -> None: ...


class Async:
    """A class whose calls Ray would run at once."""

    async def wait(self) -> None: ...


@ray.remote(num_cpus=2, max_restarts=0, name="keeper")
class Keeper:
    """An actor class of Ray."""

    def __init__(self, first: Any) -> None:
        self.kept = [first]

    def keep(self, value: Any) -> int:
        self.kept.append(value)
        return len(self.kept)

    def all(self) -> list[Any]:
        return self.kept


def load(path: Any) -> Any:
    return path


def nodes_of(graph: Any) -> dict[str, Any]:
    return compile_graph(graph)["nodes"]


def test_an_actor_is_a_node_and_its_calls_select():
    counter = dag.actor(Counter, num_cpus=2, retries=1).bind(dag.bind(load, 1))
    counter.add.bind(3)
    nodes = nodes_of({"last": counter.add.bind([dag.bind(load, 4)], by=2), "pair": counter.pair.bind()})
    assert nodes["Counter"]["args"] == [
        {"$ref": "load"},
        {"$calls": [["add", [3], {}], ["add", [[{"$ref": "load-2"}]], {"by": 2}], ["pair", [], {}]]},
    ]
    assert nodes["Counter"]["options"] == {"num_cpus": 2, "retries": 1, "isolation": "task", "max_calls": 1}
    assert (nodes["Counter.add"]["args"], nodes["Counter.pair"]["args"]) == (
        [{"$ref": "Counter", "path": [1]}],
        [{"$ref": "Counter", "path": [2]}],
    )


def test_a_dead_actor_is_made_anew_only_with_retries():
    for actor, refused in ((dag.actor(Counter), ["WORKER_LOST"]), (dag.actor(Counter).options(retries=2), None)):
        assert nodes_of(actor.bind().pair.bind())["Counter"]["options"].get("never_on") == refused


def test_a_function_may_return_a_call_of_an_actor():
    assert b"$calls" in dag.continuation([dag.actor(Counter).bind().add.bind(1)]).__graph__()


def test_an_actor_class_stays_a_class():
    @dag.actor(num_cpus=2)
    class Local(Counter):
        """A class with a decorator."""

    assert (Local(1).add(1), Local.__name__, Local.__doc__) == (2, "Local", "A class with a decorator.")
    assert nodes_of(dag.actor(Local, name="own").bind().twice.bind(2)).keys() == {"own", "own.twice"}


def test_a_call_may_have_several_outputs_and_a_name():
    left, right = dag.actor(Counter).bind().pair.options(num_returns=2, name="both").bind()
    assert nodes_of([left, right]).keys() == {"Counter", "both", "both[0]", "both[1]"}


@pytest.mark.parametrize(
    ("write", "words"),
    [
        pytest.param(lambda: dag.actor(load), "is not a class; dag.actor takes one, dag.task a function", id="a function"),
        pytest.param(lambda: dag.actor(Async), "its method wait is async", id="async methods"),
        pytest.param(lambda: dag.actor(Counter).bind(1, 2), r"Counter\(\)", id="arguments of the class"),
        pytest.param(dag.actor(Counter).bind().add.bind, r"Counter.add\(\)", id="arguments of a method"),
        pytest.param(lambda: dag.actor(Counter).bind().add.bind(1, bye=2), "bye", id="a wrong name"),
        pytest.param(lambda: dag.actor(Counter).bind().twice.bind(1, 2), r"Counter.twice\(\)", id="of a static method"),
        pytest.param(dag.actor(Counter).bind().of.bind, r"Counter.of\(\)", id="of a class method"),
        pytest.param(lambda: dag.map(dag.actor(Counter).bind().add, [1]), "arrays and other tasks cannot call it", id="in a map"),
        pytest.param(lambda: dag.bind(dag.actor(Counter).bind()), "no function and no value: bind a method", id="as a function"),
        pytest.param(lambda: dag.actor(Counter).bind().add(1), "a method of an actor: bind it", id="called"),
        pytest.param(
            lambda: dag.actor(Counter).bind().add.options(num_cpus=1), r"give it to the actor, dag\.actor", id="an option of a call"
        ),
        pytest.param(lambda: dag.actor(Counter).bind().pair.bind().options(retries=1), r"give it to the actor, dag\.actor", id="of a node"),
        pytest.param(
            lambda: dag.after(dag.actor(Counter).bind().pair.bind(), dag.bind(load, 1)),
            "waits for the nodes among its arguments",
            id="after",
        ),
        pytest.param(lambda: compile_graph(dag.actor(Counter).bind()), "is not a node", id="as an output"),
        pytest.param(lambda: dag.actor(Counter, num_cpu=1), "did you mean num_cpus", id="an unknown option"),
    ],
)
def test_what_an_actor_cannot_be_is_refused(write, words):
    with pytest.raises(GraphTypeError, match=words):
        write()


@pytest.mark.parametrize("name", sorted(ACTOR_OPTIONS))
def test_an_option_without_meaning_for_actors_is_refused(name):
    with pytest.raises(
        GraphTypeError, match=f"actor Counter: the option {name}='it' is not supported: {ACTOR_OPTIONS[name].refused_because[:20]}"
    ):
        dag.actor(Counter, **{name: "it"})
    assert dag.actor(Counter, **dict.fromkeys([name], ACTOR_OPTIONS[name].harmless[-1])).bind()


@pytest.mark.parametrize("name", ["missing", "limit", "_hidden", "__init__x", "remote", "bind"])
def test_an_actor_has_the_methods_of_its_class_only(name):
    with pytest.raises(AttributeError, match=r"bind a method|no method"):
        getattr(dag.actor(Counter).bind(), name)


def test_an_actor_cannot_be_an_argument():
    for value in (counter := dag.actor(Counter).bind(), counter.add):
        with pytest.raises(NotSerializable, match=r"cannot be sent: it is .*bind"):
            compile_graph(dag.bind(load, [value]))


def test_a_call_that_needs_an_earlier_one_is_refused():
    counter = dag.actor(Counter).bind()
    first = counter.add.bind(1)
    counter.add.bind(dag.bind(load, first))
    with pytest.raises(CycleError, match="a call of the actor <node Counter> needs a node that needs an earlier call of it"):
        compile_graph(first)


def test_an_actor_of_ray_keeps_its_options():
    for given in (Keeper, Keeper.options(num_gpus=1)):
        nodes = nodes_of(dag.actor(given, retries=1).bind(1).keep.bind(2))
        assert nodes["keeper"]["options"]["num_cpus"] == 2
    with pytest.raises(GraphTypeError, match="actor Keeper: the option max_concurrency=4"):
        dag.actor(Keeper.options(max_concurrency=4))


def test_a_graph_of_ray_keeps_the_order_of_its_calls():
    with InputNode() as given:
        keeper, other = Keeper.bind(given["first"]), Keeper.options(name="other").bind(0)
        keeper.keep.bind("a")
        kept = keeper.keep.bind(other.keep.bind("b"))
        keeper.keep.bind("not reached")
        graph = MultiOutputNode([kept, other.all.bind()])
    nodes = compile_graph(graph, params={"first": 1})["nodes"]
    assert nodes["keeper"]["args"] == [{"$param": "first"}, {"$calls": [["keep", ["a"], {}], ["keep", [{"$ref": "other.keep"}], {}]]}]
    assert nodes["other"]["args"] == [0, {"$calls": [["keep", ["b"], {}], ["all", [], {}]]}]


@pytest.fixture
def shop():
    module = ModuleType("shop_of_actors")
    exec(MODULE, module.__dict__)  # noqa: S102  it has no file
    sys.modules[module.__name__] = module
    yield module
    sys.modules.pop(module.__name__, None)


def test_actors_go_to_json_and_back(shop):
    outputs = {}
    for kind in (shop.Plain, shop.Ours, shop.Rays):
        actor = dag.actor(kind, memory="1GiB").bind()
        actor.f.bind(dag.bind(shop.g, dag.param("x", default=1)), [dag.bind(shop.g, 2)], key={"$a": 1})
        outputs[f"of-{len(outputs)}"] = actor.f.bind()
    spec = dag.to_spec(outputs)
    assert {node["call"] for node in spec["nodes"].values() if node["call"].startswith("shop")} == {
        "shop_of_actors:Plain", "shop_of_actors:Ours", "shop_of_actors:Rays", "shop_of_actors:g"}  # fmt: skip
    again = dag.to_spec(dag.from_spec(json.dumps(spec)))
    assert digest(parse(json.dumps(again).encode())) == digest(parse(json.dumps(spec).encode()))
    assert digest(parse(json.dumps(spec).encode())) == digest(parse(json.dumps(dag.to_spec(outputs)).encode()))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param([{"$calls": []}], "must be a list of 1 to 10000 calls", id="no calls"),
        pytest.param([{"$calls": [["add", 3, {}]]}], r"must be \[method, \[arguments\]", id="no list"),
        pytest.param([{"$calls": [["_add", [], {}]]}], "a name that does not begin with `_`", id="a private method"),
        pytest.param([{"$calls": [["add", [], {"$x": 1}]]}], "must be", id="a name of an argument"),
        pytest.param([{"$calls": [["add", [], {}]], "x": 1}], "has to be alone in its object", id="beside another key"),
        pytest.param([{"$calls": [["add", [{"$each": [1]}], {}]]}], "stands for a whole argument only", id="an array in a call"),
        pytest.param([{"x": {"$calls": [["add", [], {}]]}}], "stands for a whole argument only", id="within another argument"),
        pytest.param([{"$each": [1]}, {"$calls": [["add", [], {}]]}], "one argument that is an array, the calls", id="beside an array"),
        pytest.param([{"$calls": [["add", [{"$ref": "b"}], {}]]}], "b", id="an unknown node"),
    ],
)
def test_wrong_calls_in_json_are_refused(args, words):
    spec = {"spec": "dag/1", "nodes": {"a": {"call": "shop:Counter", "args": args}}, "outputs": {"a": {"$ref": "a"}}}
    with pytest.raises(SpecError, match=words):
        parse(json.dumps(spec).encode())


@pytest.mark.parametrize(
    ("function", "patterns", "is_allowed"),
    [
        pytest.param("shop:Counter", ("shop:*",), False, id="a list of functions"),
        pytest.param("shop:Counter", ("shop:*", "shop:Counter.add"), True, id="a list with the method"),
        pytest.param("shop:Counter", ("shop:*", "shop:*.pair"), False, id="a list with another method"),
        pytest.param("mesh.core.functions:selected", ("shop:*", "shop:*.*"), False, id="a method of a value"),
    ],
)
def test_a_list_of_functions_names_the_methods_too(function, patterns, is_allowed):
    nodes = {"a": {"call": function, "args": [1, {"$calls": [["add", [1], {}]]}]}}
    spec = parse(json.dumps({"spec": "dag/1", "nodes": nodes, "outputs": {"a": {"$ref": "a"}}}).encode())
    problems = refused_functions(spec, patterns, pickled_code=False)
    assert [place for place, _ in problems] == ([] if is_allowed else ["/nodes/a/args"])
    assert refused_functions(spec, ("*",), pickled_code=True) == ()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_an_error_names_its_call():
    with pytest.raises(TypeError) as failed:
        make_calls(Counter, [1, ActorCalls((("add", [1], {}), ("add", [None], {})))], {}, lambda *_: None)
    assert failed.value.__notes__ == ["in call 2 of 2 of the actor: add"]


def test_the_calls_may_stand_among_the_arguments_by_name():
    calls = ActorCalls((("add", [1], {"by": 2}), ("pair", [], {})))
    assert make_calls(Counter, [], {"start": 1, "do": calls}, lambda *_: None) == [3, (3, -3)]


class Keeps:
    """Changes and returns what it keeps."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def take(self, given: list[Any]) -> list[Any]:
        given.append(len(self.kept))
        self.kept.append(list(given))
        return self.kept


def test_a_later_call_changes_no_earlier_value_or_argument():
    shared: list[Any] = ["a"]
    calls = ActorCalls((("take", [shared], {}), ("take", [], {"given": shared}), ("take", [["b"]], {})))
    first, second, _ = make_calls(Keeps, [calls], {}, lambda *_: None)
    assert first == [["a", 0]]
    assert second == [["a", 0], ["a", 0, 1]]


def test_an_actor_is_made_of_a_class_only():
    with pytest.raises(TypeError, match="load is not a class"):
        make_calls(load, [1, ActorCalls((("add", [1], {}),))], {}, lambda *_: None)
