"""Keys of cached nodes: what counts and what does not, in one process and between two."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

import dag
from dag.client.compiling import compile_columns, compile_graph
from dag.client.fingerprints import digest_of, digest_of_function
from dag.errors import SpecError
from dag.spec.cache_keys import CacheRule, key_of
from dag.spec.plans import cached_in, plans_of, uncacheable
from dag.spec.spec import parse, parse_columns

ROOT = Path(__file__).parents[3]


def double(value: int, times: int = 2) -> int:
    return value * times


def keys_of(outputs, *, values=None, env=None, by_name=False):
    """Return the keys of the cached nodes of a graph, by id; nodes that are read have the values given."""
    spec = parse_columns(compile_columns(outputs, by_name=by_name).packed())
    plans, env = plans_of(spec), env or spec.code.runtime_env
    found = {}
    for node, rule in cached_in(plans).items():
        task = plans[node].task
        known = values or {need: f"value of {need}" for need in task.inputs}
        found[node] = key_of(task, rule, values=known, digests=plans.digests, runtime_env=env)
    return found


def key_of_call(function, *args, **kwargs):
    (key,) = keys_of(dag.task(function, cache=True).bind(*args, **kwargs)).values()
    return key


def made(source: str, **world):
    """Return the function `f` of a script."""
    module = types.ModuleType("__main__")
    module.__dict__.update(world)
    exec(source, module.__dict__)  # noqa: S102  a test writes scripts
    return module.f


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {2, 3, 1}),
        ({(1, "x"): [{"b", "a"}], None: 1}, {None: 1, (1, "x"): [{"a", "b"}]}),
        (float("nan"), float("nan")),
        ([{"deep": {"b": 1, "a": {1, 2}}}], [{"deep": {"a": {2, 1}, "b": 1}}]),
    ],
    ids=["dicts", "sets", "both, deep", "NaN", "nested"],
)
def test_equal_arguments_have_one_key(one, other):
    assert key_of_call(double, one) == key_of_call(double, other)


def test_different_arguments_have_different_keys():
    given = [
        1,
        1.0,
        True,
        "1",
        None,
        [1],
        (1,),
        {1},
        {1: 1},
        {"1": 1},
        [],
        (),
        {},
        b"1",
        0,
        False,
        "",
        -0.0,
        0.0,
        float("nan"),
        [[1]],
        {1.0},
        2**70,
    ]
    assert len({key_of_call(double, value) for value in given}) == len(given)


def test_names_of_arguments_do_not_count():
    assert key_of_call(double, 1, times=3) == key_of_call(double, value=1, times=3) == key_of_call(double, 1, 3)
    assert key_of_call(double, 1, times=3) != key_of_call(double, 3, times=1)


def test_an_input_counts_by_its_value_and_not_by_its_node():
    load = dag.task(double)
    one = dag.task(double, cache=True).bind(load.bind(1))
    other = dag.task(double, cache=True, name="other").bind(load.options(name="x").bind(2))
    same = {"double": "v", "x": "v"}
    assert list(keys_of(one, values=same).values()) == list(keys_of(other, values=same).values())
    assert keys_of(one, values={"double": "v"}) != keys_of(one, values={"double": "w"})


def test_a_part_of_an_input_counts():
    node, cached = dag.bind(double, 1), dag.task(double, cache=True)
    assert (
        len({*keys_of(cached.bind(node["a"])).values(), *keys_of(cached.bind(node["b"])).values(), *keys_of(cached.bind(node)).values()})
        == 3
    )


def test_version_environment_and_outputs_count():
    plain = dag.task(double, cache=True)
    others = [plain.options(cache_version="2"), plain.options(num_returns=2), plain.options(runtime_env={"env_vars": {"A": "1"}})]
    keys = [next(iter(keys_of(each.bind(1)).values())) for each in (plain, *others)]
    assert len({*keys, *keys_of(plain.bind(1), env={"pip": ["x"]}).values()}) == 5


def test_resources_labels_and_time_to_live_do_not_count():
    plain = dag.task(double, cache=True)
    other = plain.options(num_cpus=4, labels={"zone": "eu"}, retries=3, cache="7d", priority=5, name="elsewhere", memory="1GiB")
    assert set(keys_of(plain.bind(1)).values()) == set(keys_of(other.bind(1)).values())


def test_parameters_count_by_their_values():
    node = dag.task(double, cache=True).bind(dag.param("n"))
    specs = [plans_of(parse_columns(compile_columns(node, params={"n": n}).packed())) for n in (1, 1, 2)]
    keys = [key_of(plans["double"].task, CacheRule(), values={}, digests=plans.digests) for plans in specs]
    assert keys[0] == keys[1] != keys[2]


# -- functions


BASE = "K = 2\ndef helper(x):\n    return x + K\ndef f(x, y=1):\n    # adds\n    return helper(x) * y\n"


@pytest.mark.parametrize(
    "source",
    [
        BASE.replace("x + K", "x - K"),
        BASE.replace("K = 2", "K = 3"),
        BASE.replace("y=1", "y=2"),
        BASE.replace("* y", "* y + 0"),
        BASE.replace("helper(x) * y", "(lambda z: z * y)(helper(x))"),
    ],
    ids=["a helper", "a global", "a default", "its code", "an inner function"],
)
def test_a_change_of_the_code_counts(source):
    assert digest_of_function(made(BASE)) != digest_of_function(made(source))


def test_comments_lines_and_unused_globals_do_not_count():
    other = "\n\nUNUSED = 7\n" + BASE.replace("# adds", "# adds up")
    assert digest_of_function(made(BASE)) == digest_of_function(made(other))


def test_a_closure_counts():
    def closed(over):
        return lambda value: value + over

    assert digest_of_function(closed(1)) == digest_of_function(closed(1)) != digest_of_function(closed(2))


def test_functions_that_call_each_other_have_a_digest():
    source = "def g(n):\n    return n and f(n - 1)\ndef f(n):\n    return n and g(n - 1)\n"
    assert digest_of_function(made(source)) == digest_of_function(made(source))
    assert digest_of_function(made(source)) != digest_of_function(made(source.replace("n and f", "n or f")))


def test_a_ladder_of_shared_values_is_read_once():
    value: list = [1]
    for _ in range(60):
        value = [value, value]
    assert len(digest_of(value)) == 64


def test_classes_and_dataclasses_count_by_what_they_say():
    def kind(body):
        head = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n"
        return made(f"{head}    def area(self):\n        return {body}\ndef f():\n    return P\n")()

    assert digest_of(kind("self.x")) == digest_of(kind("self.x")) != digest_of(kind("self.x * 2"))
    assert digest_of(Point(1, {2, 1})) == digest_of(Point(1, {1, 2})) != digest_of(Point(2, {1, 2}))


@dataclass
class Point:
    x: int
    tags: set


def test_digests_are_the_same_in_another_process():
    script = (
        "import json, sys\nfrom dag.client.fingerprints import digest_of, digest_of_function\n"
        "def f(x, names={'a', 'bc', 'def', 'ghij'}):\n    return x in {'u', 'v', 'w'} or sorted(names)\n"
        "class Kind:\n    tags = frozenset(map(str, range(20)))\n    def g(self):\n        return Kind.tags\n"
        "print(json.dumps([digest_of_function(f), digest_of(Kind), digest_of({str(n): {n, str(n)} for n in range(9)})]))\n"
    )
    answers = []
    for hash_seed in ("1", "2"):
        command, world = [sys.executable, "-c", script], {"PYTHONHASHSEED": hash_seed, "PATH": ""}
        answers.append(subprocess.run(command, capture_output=True, check=True, env=world, cwd=ROOT).stdout)
    assert json.loads(answers[0]) == json.loads(answers[1])


def test_a_named_function_counts_by_its_code_too():
    named = compile_graph(dag.task(double, cache=True).bind(1), by_name=True)["digests"]
    assert named == {f"call:{__name__}:double": digest_of_function(double)}


def test_a_named_function_without_a_digest_counts_by_its_name():
    def key(**changes):
        node = {"call": "shop:load", "args": [1], "options": {"cache": True}, **changes}
        plans = plans_of(parse(json.dumps({"spec": "dag/1", "nodes": {"a": node}, "outputs": {"a": {"$ref": "a"}}}).encode()))
        return key_of(plans["a"].task, plans["a"].cache, values={}, digests=plans.digests)

    assert key() == key() != key(call="shop:store")
    assert len({key(), key(args=[1.0]), key(args=[True]), key(kwargs={"b": {"x": 1, "y": 2}}), key(kwargs={"b": {"x": 1}})}) == 5
    assert key(kwargs={"b": {"x": 1, "y": 2}}) == key(kwargs={"b": {"y": 2, "x": 1}})


def test_nodes_without_the_option_send_no_digests():
    assert "digests" not in compile_graph(dag.bind(double, {1, 2}))


# -- the option


def spec_of(nodes, **head):
    return parse(json.dumps({"spec": "dag/1", "nodes": nodes, "outputs": {"a": {"$ref": "a"}}, **head}).encode())


@pytest.mark.parametrize(
    ("given", "ttl_ms"), [(True, 30 * 86_400_000), ("7d", 7 * 86_400_000), ("90s", 90_000), (False, None)], ids=["true", "days", "s", "off"]
)
def test_the_option_is_true_or_a_time(given, ttl_ms):
    plan = plans_of(spec_of({"a": {"call": "m:f", "options": {"cache": given}}}))["a"]
    assert (plan.cache.ttl_ms if plan.cache else None) == ttl_ms


@pytest.mark.parametrize("given", ["7", "soon", "0s", "400d", 7, 1.5])
def test_another_option_is_refused_with_its_place(given):
    with pytest.raises(SpecError, match=r"/nodes/a/options/cache.*(must be true, false or a time like 7d|must be a time)"):
        spec_of({"a": {"call": "m:f", "options": {"cache": given}}})


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({"call": "m:f", "args": [{"$each": [1, 2]}]}, "is an array"),
        ({"program": {"command": "ls"}}, "is a program"),
        ({"call": "m:f", "after": ["b"], "options": {"when": "always"}}, "runs after failures"),
    ],
    ids=["array", "program", "cleanup"],
)
def test_a_node_without_a_value_to_keep_is_refused(node, words):
    cached = {**node, "options": {**node.get("options", {}), "cache": True}}
    ((place, problem),) = uncacheable(spec_of({"a": cached, "b": {"call": "m:f"}}))
    assert (place, words in problem) == ("/nodes/a/options/cache", True)


def test_control_flow_is_refused_the_option():
    with pytest.raises(SpecError, match="/nodes/a/options/cache: means nothing here"):
        spec_of({"a": {"sleep": 1, "options": {"cache": True}}})


def test_a_default_means_the_nodes_that_can_be_cached():
    nodes = {
        "a": {"call": "m:f", "args": [{"$each": [1, 2]}]},
        "b": {"call": "m:f"},
        "c": {"sleep": 1},
        "d": {"call": "m:f", "options": {"cache": False}},
    }
    spec = spec_of(nodes, defaults={"cache": "1h"})
    assert (list(cached_in(plans_of(spec))), uncacheable(spec)) == (["b"], ())
