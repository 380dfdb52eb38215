"""Interface for users: `task`, `bind` and options."""

import asyncio
import collections.abc
import contextlib
import copy
import inspect
import numbers
import operator
import os
import pickle
import re
import subprocess
import sys
from pydoc_data.topics import topics

import cloudpickle
import pytest

import dag
from dag.client.compiling import compile_graph
from dag.client.tasks import Node, Options, Task, gang, nodes_of_after, task
from dag.errors import GraphTypeError, SpecError


def add(a, b=0):
    return a + b


def test_a_task_still_is_a_function():
    plus = task(add)
    assert plus(1, b=2) == 3
    assert plus.__name__ == "add"


def test_the_decorator_takes_options_or_none():
    @task
    def plain():
        return 1

    @task(num_cpus=2, retries=3)
    def rich():
        return 2

    assert isinstance(plain, Task)
    assert (rich.settings.num_cpus, rich.settings.retries) == (2, 3)


def test_options_give_a_copy_and_change_nothing():
    plain = task(add)
    rich = plain.options(num_gpus=1).options(priority=5)
    assert (plain.settings.num_gpus, plain.settings.priority) == (0, 0)
    assert (rich.settings.num_gpus, rich.settings.priority) == (1, 5)
    node = plain.bind(1)
    assert node.options(name="other") is not node
    assert node.settings.name is None


def test_none_as_an_option_means_the_default():
    assert task(add, num_cpus=4).options(num_cpus=None).settings.num_cpus == Options().num_cpus


def test_a_task_of_a_task_keeps_its_options():
    assert task(task(add, retries=2), priority=1).settings == Options().changed({"retries": 2, "priority": 1})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"num_gpu": 1}, "did you mean num_gpus", id="a misspelt option names the nearest"),
        pytest.param(
            {"frobnicate": 1}, "known are after, backoff, cache, cache_version, gang, isolation", id="an unlike one lists the known"
        ),
        pytest.param({"after": 3}, "after takes nodes", id="after takes nodes only"),
        pytest.param({"after": [1]}, "after takes nodes", id="after takes lists of nodes only"),
        pytest.param({"name": 3}, "name must be text", id="a name is text"),
        pytest.param({"runtime_env": "x"}, "runtime_env must be a dict", id="an environment is a dict"),
    ],
)
def test_options_of_the_wrong_kind_are_refused_at_once(options, words):
    with pytest.raises(TypeError, match=words):
        task(add, **options)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"num_cpus": -1}, id="CPUs below zero"),
        pytest.param({"num_cpus": 0.00001}, id="CPUs finer than the ledger"),
        pytest.param({"num_cpus": True}, id="CPUs that are a truth value"),
        pytest.param({"num_cpus": "2"}, id="CPUs as text"),
        pytest.param({"num_cpus": float("nan")}, id="CPUs that are no number"),
        pytest.param({"num_gpus": 1.5}, id="one and a half GPUs"),
        pytest.param({"resources": {"TPU": 1.5}}, id="one and a half TPUs"),
        pytest.param({"memory": "4 apples"}, id="memory in apples"),
        pytest.param({"memory": 1.5}, id="a fraction of a byte"),
        pytest.param({"resources": {"GPU": 1}}, id="GPUs in disguise"),
        pytest.param({"resources": {"cpus": 1}}, id="CPUs as a resource of one's own"),
        pytest.param({"resources": {"num_gpus": 1}}, id="an option as a resource"),
        pytest.param({"resources": {"tpu": -1}}, id="a custom resource below zero"),
        pytest.param({"retries": -1}, id="retries below zero"),
        pytest.param({"retries": 1.5}, id="half a retry"),
        pytest.param({"labels": {"zone": 1}}, id="a label that is no text"),
        pytest.param({"labels": {"zone": "!in(west"}}, id="a wish about a label that cannot be read"),
        pytest.param({"priority": "high"}, id="a priority in words"),
        pytest.param({"mesh": ""}, id="a mesh without a name"),
    ],
)
def test_values_that_are_not_of_their_kind_are_refused_at_once(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        task(add).options(**options)


def test_bind_refuses_arguments_that_the_function_lacks():
    with pytest.raises(TypeError, match=r"add\(\): missing a required argument: 'a'"):
        task(add).bind()
    with pytest.raises(TypeError, match=r"add\(\): got an unexpected keyword argument 'c'"):
        task(add).bind(1, c=2)


def test_bind_takes_plain_functions_tasks_and_builtins():
    assert dag.bind(add, 1).function is add
    assert dag.bind(task(add, retries=1), 1).settings.retries == 1
    assert dag.bind(max, 1, 2).function is max


class FakeRemote:
    """The part of Ray's RemoteFunction that is read."""

    def __init__(self, function, **options):
        self._function = function
        self._default_options = options


def test_a_remote_function_brings_its_own_options():
    remote = FakeRemote(add, num_cpus=4, num_gpus=None, memory=2**30, max_retries=1, label_selector={"arch": "arm"}, max_calls=1)
    settings = task(remote, num_cpus=2).settings
    assert task(remote).function is add
    assert (settings.num_cpus, settings.num_gpus, settings.memory) == (2, 0, 2**30)
    assert (settings.max_retries, settings.label_selector) == (1, {"arch": "arm"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(dict, r"is a class: make an actor of it, dag\.actor", id="a class"),
        pytest.param(type("Actor", (), {"__ray_metadata__": 1})(), "is a class: make an actor", id="an actor class of Ray"),
        pytest.param(3, "is not a function", id="a number"),
    ],
)
def test_what_cannot_be_a_task_is_refused(given, words):
    with pytest.raises(TypeError, match=words):
        task(given)


@pytest.mark.parametrize("write", [pickle.dumps, cloudpickle.dumps, copy.deepcopy], ids=["pickle", "cloudpickle", "a deep copy"])
def test_a_node_refuses_to_be_pickled_and_says_what_to_do(write):
    with pytest.raises(TypeError, match=r"<node add> cannot be pickled.*inside a list, tuple or dict"):
        write(task(add).bind(1))


def unpack(node):
    a, b = node
    return a, b


async def awaiting(node):
    return await node


def entering(node):
    with node:
        pass


@pytest.mark.parametrize(
    ("use", "remedy"),
    [
        pytest.param(list, "f.options(num_returns=2).bind(…)", id="gone through"),
        pytest.param(unpack, "f.options(num_returns=2).bind(…)", id="unpacked"),
        pytest.param(lambda node: max(*node), "f.options(num_returns=2).bind(…)", id="spread over arguments"),
        pytest.param(lambda node: node[0:2], "dag.bind(operator.getitem, node, …)", id="sliced"),
        pytest.param(lambda node: 1 in node, "like node[0]", id="searched"),
        pytest.param(len, "like node[0]", id="measured"),
        pytest.param(lambda node: 1 if node else 2, "decide inside a task", id="asked whether it is true"),
        pytest.param(lambda node: node + 1, "dag.bind(operator.add, node, 1)", id="computed with"),
        pytest.param(lambda node: 2 * node, "dag.bind(operator.add, node, 1)", id="computed with from the right"),
        pytest.param(lambda node: node < 3, "inside a task", id="compared"),
        pytest.param(int, "inside a task", id="converted"),
        pytest.param(lambda node: node(), "bind the function again", id="called"),
        pytest.param(task(add), "add() was called with <node add>, which has no value yet; bind it: add.bind", id="given to a call"),
        pytest.param(dag.bind, "is a node already", id="bound"),
        pytest.param(lambda node: asyncio.run(awaiting(node)), "await dag.submit(node)", id="awaited"),
        pytest.param(next, "like node[0]", id="asked for the next one"),
        pytest.param(lambda node: divmod(7, node), "dag.bind(operator.add, node, 1)", id="divided by"),
        pytest.param(lambda node: {} | node, "dag.bind(operator.add, node, 1)", id="merged"),
        pytest.param(lambda node: operator.iadd(node, 1), "dag.bind(operator.add, node, 1)", id="added to in place"),
        pytest.param(operator.invert, "dag.bind(operator.add, node, 1)", id="inverted"),
        pytest.param(abs, "dag.bind(operator.add, node, 1)", id="taken without its sign"),
        pytest.param(round, "inside a task", id="rounded"),
        pytest.param(open, "inside a task", id="opened as a path"),
        pytest.param(lambda node: node(rate=2), "bind the function again", id="called with a keyword"),
        pytest.param(lambda node: setattr(node, "rate", 2), "node.options(…)", id="given an attribute"),
        pytest.param(lambda node: delattr(node, "args"), "node.options(…)", id="robbed of an attribute"),
        pytest.param(lambda node: operator.setitem(node, 0, 1), "change them inside a task", id="given a part"),
        pytest.param(lambda node: operator.delitem(node, 0), "change them inside a task", id="robbed of a part"),
        pytest.param(lambda node: f"{node:.2f}", "show the node by {node!r}", id="formatted"),
        pytest.param(lambda node: f"s3://in/{node}", "show the node by {node!r}", id="written into a path"),
        pytest.param(entering, "cannot be entered by `with`", id="entered"),
        pytest.param(lambda node: isinstance(1, node), "is no class", id="taken for a class"),
    ],
)
def test_a_node_is_not_its_value(use, remedy):
    with pytest.raises(GraphTypeError) as raised:
        use(task(add).bind(1))
    assert "<node add>" in str(raised.value)
    assert remedy in str(raised.value)


#: Methods of every object, not operations of a value: creation, lookup, representation, introspection, class layout.
KEPT = frozenset(
    f"__{name}__"
    for name in (
        *("new", "init", "del", "repr", "str", "hash", "eq", "ne", "dir", "getattr", "getattribute", "replace", "release_buffer"),
        *("getitem", "iter"),  # With their own tests: a node has parts, and outputs if it says how many.
        *("get", "set", "delete", "set_name", "init_subclass", "class_getitem", "missing"),
    )
)


def special_methods():
    """Return all methods that the language reference describes, and those of its abstract classes."""
    documented = set(re.findall(r"\bobject\.(__\w+__)\(", "".join(topics.values())))
    kinds = [kind for module in (collections.abc, contextlib, numbers, os) for kind in vars(module).values() if isinstance(kind, type)]
    asked = {name for kind in kinds for name in getattr(kind, "__abstractmethods__", ())}
    made = {name for name, member in vars(contextlib.AbstractAsyncContextManager).items() if inspect.isfunction(member)}
    return documented | {name for name in asked | made if name.startswith("__")}


def test_no_special_method_of_python_is_forgotten():
    node = task(add).bind(1)
    assert {"__matmul__", "__rdivmod__", "__imul__", "__aenter__", "__fspath__", "__anext__"} <= special_methods()
    for name in sorted(special_methods() - KEPT):
        with pytest.raises(GraphTypeError, match=r"^<node add> stands for a value that is not there before the run: it .*; "):
            getattr(type(node), name)(node, *["a"] * 3)


def test_a_node_can_be_shown():
    node = task(add).bind(1)
    assert str(node) == repr(node) == f"{node!r}" == "<node add>"
    assert {node: 1}[node] == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        pytest.param(lambda: dag.Options(num_gpu=1), r"^Options\(\) has no parameter 'num_gpu'; did you mean num_gpus", id="a near miss"),
        pytest.param(lambda: dag.Options(queue="a"), r"has no parameter 'queue'; there are num_cpus, num_gpus", id="nothing near"),
        pytest.param(lambda: dag.Options(2), r"num_cpus has to be given by name, like num_cpus=2$", id="by its place"),
        pytest.param(lambda: dag.submit(1, prams={}), r"^submit\(\) has no parameter 'prams'; did you mean params", id="of a submission"),
        pytest.param(dag.submit, r"^submit\(\): missing a required argument: 'outputs'", id="nothing to submit"),
        pytest.param(lambda: dag.submit(1, retries=2), r"an option of a task: dag\.task\(f\)\.options\(retries=2\)$", id="of a task"),
        pytest.param(lambda: dag.get_run("r", clent=1), r"get_run\(\) has no parameter 'clent'; did you mean client\?$", id="of a run"),
    ],
)
def test_a_call_that_does_not_fit_names_the_parameter(call, words):
    with pytest.raises(GraphTypeError, match=words):
        call()


def test_a_part_of_a_value_is_taken_as_the_remedy_says():
    node = task(add).bind([1], [2])
    assert list(compile_graph(dag.bind(operator.getitem, node, 0))["nodes"]) == ["add", "getitem"]


def test_a_task_has_no_remote_and_says_what_to_write():
    with pytest.raises(AttributeError, match=r"add: a task of a graph has no \.remote\(\): write \.bind"):
        task(add).remote(1)
    assert not hasattr(task(add), "nothing")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        pytest.param("result", "dag.submit(node).result()", id="its result"),
        pytest.param("remote", "a call already", id="a remote call"),
        pytest.param("columns", "dag.bind(getattr, node, 'columns')", id="an attribute of its value"),
    ],
)
def test_a_missing_attribute_is_reported_with_its_remedy(name, remedy):
    with pytest.raises(AttributeError) as raised:
        getattr(task(add).bind(1), name)
    assert remedy in str(raised.value)


def test_an_option_among_arguments_is_reported_with_its_place():
    with pytest.raises(GraphTypeError, match=r"an option is given by dag\.task\(f\)\.options\(num_cpus=2\)"):
        dag.bind(add, 1, num_cpus=2)


def test_nothing_at_all_is_no_function():
    with pytest.raises(GraphTypeError, match="None is not a function"):
        dag.bind(None)


def test_a_node_does_not_change():
    node = task(add).bind(1)
    with pytest.raises(GraphTypeError, match="cannot be changed"):
        node.args = ()
    assert node != task(add).bind(1)


def test_a_task_that_calls_itself_can_be_pickled():
    @task
    def countdown(n):
        return n if n == 0 else countdown(n - 1)

    assert pickle.loads(cloudpickle.dumps(countdown))(3) == 0  # noqa: S301  our own bytes
    assert pickle.loads(cloudpickle.dumps(countdown.function))(3) == 0  # noqa: S301  the same


def test_after_takes_one_node_or_several():
    first, second = task(add).bind(1), task(add).bind(2)
    assert task(add, after=first).settings.after == (first,)
    assert task(add, after=[first, second]).settings.after == (first, second)
    assert nodes_of_after(first) == (first,)


def test_nothing_of_ray_is_imported_with_dag():
    code = "import sys, dag; assert 'ray' not in sys.modules, [name for name in sys.modules if name.startswith('ray')][:5]"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=60).returncode == 0


def test_public_names_are_sorted_and_there():
    assert sorted(dag.__all__) == dag.__all__
    assert all(hasattr(dag, name) for name in dag.__all__)
    assert isinstance(dag.task(add).bind(1), Node)


def test_a_gang_is_written_with_the_amounts_of_each_bundle():
    node = gang(size=4, num_cpus=2, retries=1)(add).options(size=3, strategy="SPREAD").bind(1, 2)
    assert node.settings.on_the_wire() == {"num_cpus": 2, "retries": 1, "gang": {"size": 3, "strategy": "SPREAD"}}


def test_only_gangs_have_a_size_and_known_strategies():
    with pytest.raises(GraphTypeError, match=r"task add: size=2 is an option of a gang; make one: dag.gang\(add, size=…\)"):
        task(add, size=2)
    with pytest.raises(SpecError, match=r"strategy must be one of .*, not 'spred'; did you mean SPREAD"):
        gang(add, size=2, strategy="spred")
