"""Actor groups as users write them, as forms of a graph, and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
import ray

import dag
from dag.client.compiling import compile_graph
from dag.errors import CycleError, GraphTypeError, SpecError
from dag.spec.plans import refused_functions, small_gangs, uncacheable
from dag.spec.spec import digest, parse
from mesh import PerRank
from mesh.actors.dispatching import DISPATCHERS, Split
from mesh.core.functions import GroupArgument
from mesh.stages.arguments import resolve


class Scorer:
    """A class of a user."""

    def __init__(self, path: str = "") -> None:
        self.path = path

    def score(self, values: list[int]) -> list[int]:
        return values

    def ready(self) -> bool:
        return True


class Async:
    """A class whose calls Ray would run at once."""

    async def wait(self) -> None: ...


def group(**options: Any) -> Any:
    return dag.actor_group(Scorer, **{"size": 4, **options}).bind("m")


def calls() -> dict[str, Any]:
    made = group(shape={"data": 2, "tensor": 2}, retries=1)
    return {
        "all": made.all().ready.bind(),
        "shard": made.shard(dispatch_fn="tensor", collect_fn="sum").score.bind(dag.bind(sorted, [1, 2])),
        "choose": made.choose("round_robin").score.bind([3]),
    }


def test_a_group_is_one_gang_node_and_its_calls_select():
    nodes = compile_graph(calls(), by_name=True)["nodes"]
    assert list(nodes) == ["sorted", "Scorer", "Scorer.ready", "Scorer.score", "Scorer.score-2"]
    assert nodes["Scorer"]["args"] == [
        "m",
        {
            "$group": {
                "shape": {"data": 2, "tensor": 2},
                "calls": [
                    {"all": "ready"},
                    {"shard": "score", "dispatch_fn": "tensor", "collect_fn": "sum", "args": [{"$ref": "sorted"}]},
                    {"choose": "score", "strategy": "round_robin", "args": [[3]]},
                ],
            }
        },
    ]
    assert nodes["Scorer"]["options"] == {"retries": 1, "gang": {"size": 4, "strategy": "PACK"}}
    assert nodes["Scorer.score-2"]["args"] == [{"$ref": "Scorer", "path": [2]}]


def test_without_retries_a_lost_member_fails_the_group():
    assert compile_graph(group().all().ready.bind())["nodes"]["Scorer"]["options"]["never_on"] == ["WORKER_LOST"]


def test_a_group_goes_through_json_and_back():
    spec = dag.to_spec(calls(), id="group")
    again = dag.to_spec(dag.from_spec(json.dumps(spec)), id="group")
    assert digest(parse(json.dumps(spec).encode())) == digest(parse(json.dumps(again).encode()))


def test_own_functions_and_arguments_by_rank_are_pickled():
    made = dag.actor_group(Scorer, size=2).bind(PerRank(["a", "b"]))
    graph = compile_graph(made.shard(dispatch_fn=Split(skip_empty=True), collect_fn=max).score.bind([1]))
    path, form = graph["nodes"]["Scorer"]["args"]
    assert set(path) == {"$blob"}
    assert all(set(form["$group"]["calls"][0][name]) == {"$blob"} for name in ("dispatch_fn", "collect_fn"))


def test_a_worker_gets_the_calls_with_their_arguments():
    form = dag.to_spec(calls(), id="group")["nodes"]["Scorer"]["args"][1]
    found = resolve(form, value_of={"sorted": [1, 2]}.__getitem__, blob_of=str)
    assert isinstance(found, GroupArgument)
    assert found.described["calls"][1]["args"] == [[1, 2]]


def test_a_list_of_functions_names_the_methods():
    spec = parse(json.dumps(dag.to_spec(calls(), id="group")).encode())
    names = ["builtins:sorted", *(f"{__name__}:{name}" for name in ("Scorer", "Scorer.ready", "Scorer.score"))]
    assert refused_functions(spec, tuple(names), False) == ()
    for name in names:
        rest = tuple(each for each in names if each != name)
        assert [words.partition(" ")[0] for _, words in refused_functions(spec, rest, False)] == [name]


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        pytest.param(None, "with a member in each bundle of its gang", id="no gang"),
        pytest.param({"size": 3}, "needs 4 members, got 3", id="another size than the shape's"),
    ],
)
def test_a_group_needs_a_gang_of_its_shape(gang: Any, words: str):
    spec = dag.to_spec(calls(), id="group")
    spec["nodes"]["Scorer"]["options"]["gang"] = gang
    [(place, said)] = small_gangs(parse(json.dumps(spec).encode()))
    assert place == "/nodes/Scorer/options/gang"
    assert words in said


def test_a_group_cannot_be_cached():
    spec = dag.to_spec(calls(), id="group")
    spec["nodes"]["Scorer"]["options"]["cache"] = True
    assert ["actor group" in words for _, words in uncacheable(parse(json.dumps(spec).encode()))] == [True]


@pytest.mark.parametrize(
    ("described", "words"),
    [
        pytest.param({"calls": []}, "a list of 1 to 10000 calls", id="no calls"),
        pytest.param({"calls": [{"all": "f"}], "size": 3}, "unknown key 'size'", id="an unknown key"),
        pytest.param({"calls": [{"all": "f"}], "shape": {"x": "2"}}, "whole numbers", id="a wrong shape"),
        pytest.param({"calls": [{"f": []}]}, "has one of `all`, `shard` and `choose`", id="no mode"),
        pytest.param({"calls": [{"all": "f", "shard": "f"}]}, "has one of", id="two modes"),
        pytest.param({"calls": [{"all": "_f"}]}, "does not begin with `_`", id="a private method"),
        pytest.param({"calls": [{"all": "f", "strategy": "random"}]}, "unknown key 'strategy' beside `all`", id="a foreign key"),
        pytest.param({"calls": [{"all": "f", "args": 3}]}, "args: must be a list", id="no list"),
        pytest.param({"calls": [{"all": "f", "kwargs": {"$x": 3}}]}, "kwargs: must be", id="no arguments"),
        pytest.param({"calls": [{"shard": "f", "dispatch_fn": "half"}]}, "there is no dispatch_fn 'half'", id="an unknown dispatch"),
        pytest.param({"calls": [{"shard": "f", "dispatch_fn": "reshard"}]}, "needs agents of a local mesh", id="a reshard"),
        pytest.param({"calls": [{"shard": "f", "collect_fn": 3}]}, "must be a name, or a `$blob`", id="no function"),
        pytest.param({"calls": [{"choose": "f", "strategy": "best"}]}, "there is no strategy 'best'", id="an unknown strategy"),
    ],
)
def test_a_wrong_group_in_json_is_refused(described: dict[str, Any], words: str):
    node = {"call": "shop:Scorer", "args": [{"$group": described}], "options": {"gang": {"size": 2}}}
    with pytest.raises(SpecError) as refused:
        parse(json.dumps({"spec": "dag/1", "nodes": {"a": node}, "outputs": {"a": {"$ref": "a"}}}).encode())
    assert any(place.startswith("/nodes/a/args/0/$group") and words in said for place, said in refused.value.problems), refused.value


@pytest.mark.parametrize("name", DISPATCHERS)
def test_dispatch_functions_of_local_groups_are_known(name: str):
    group().shard(dispatch_fn=name).score.bind([1])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        pytest.param(lambda: dag.actor_group(Scorer, size=3, shape={"a": 2}), GraphTypeError, "needs 2 members", id="another shape"),
        pytest.param(lambda: dag.actor_group(print, size=3), GraphTypeError, "is not a class", id="no class"),
        pytest.param(lambda: dag.actor_group(Async, size=3), GraphTypeError, "is async", id="an async method"),
        pytest.param(lambda: group(cache=True), GraphTypeError, "the option cache=True is not supported", id="a cache"),
        pytest.param(lambda: group(max_concurrency=2), GraphTypeError, "max_concurrency=2 is not supported", id="an option of order"),
        pytest.param(lambda: group(size=0), SpecError, "size", id="no members"),
        pytest.param(lambda: dag.actor_group(Scorer, size=2).bind(1, 2), GraphTypeError, "Scorer", id="wrong arguments"),
        pytest.param(lambda: group().all().ready.bind(3), GraphTypeError, "Scorer.ready", id="wrong arguments of a call"),
        pytest.param(lambda: group().all().read, AttributeError, "has no method 'read'", id="an unknown method"),
        pytest.param(lambda: group().where(data=0), AttributeError, "make a group of its own for a part", id="a part"),
        pytest.param(lambda: group().all().ready.remote, AttributeError, "bind it", id="a call of Ray's"),
        pytest.param(lambda: group().all().ready(), GraphTypeError, "bind it", id="a call"),
        pytest.param(lambda: group().shard(dispatch_fn="reshard"), GraphTypeError, "local mesh", id="a reshard"),
        pytest.param(lambda: group().choose("best"), GraphTypeError, "no strategy 'best'", id="an unknown strategy"),
        pytest.param(lambda: dag.bind(group().all().ready), GraphTypeError, "a method of an actor group", id="a method as a function"),
    ],
)
def test_what_a_group_cannot_be_is_refused(make: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        make()


def test_a_class_of_ray_keeps_its_options():
    of_ray = ray.remote(num_cpus=2)(Scorer)
    made = dag.actor_group(of_ray, size=2).bind()
    assert compile_graph(made.all().ready.bind())["nodes"]["Scorer"]["options"]["num_cpus"] == 2


def test_a_call_that_needs_an_earlier_call_is_refused():
    made = group()
    first = made.all().ready.bind()
    with pytest.raises(CycleError, match="needs a node that needs an earlier call"):
        compile_graph(made.choose().score.bind(dag.bind(sorted, first)))
