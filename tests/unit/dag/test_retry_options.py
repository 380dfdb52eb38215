"""Options of retries and time limits: how they are written, refused, and read by the root."""

from __future__ import annotations

import json

import pytest

import dag
from dag.client.compiling import compile_columns, compile_graph
from dag.errors import GraphTypeError, SpecError
from dag.spec.plans import growth_of_nothing, plans_of, timed_in
from dag.spec.retry_options import Backoff, NodeTimeouts
from dag.spec.spec import parse, parse_columns
from mesh.core.resources import ResourceSet
from mesh.stages.spec import StageTasks


class Unlucky(Exception):
    """Error of the user's own."""


def work(*_):
    return 1


def graph(**head):
    nodes = {"a": {"call": "m:f", "options": head.pop("options", {})}}
    return {"spec": "dag/1", "nodes": nodes, "outputs": {"a": {"$ref": "a"}}, **head}


def spec_of(**head):
    return parse(json.dumps(graph(**head)).encode())


ALL = {
    "retries": 3,
    "retry_on": [ConnectionError, Unlucky, "requests.exceptions.Timeout", "OUT_OF_MEMORY"],
    "never_on": "KeyError",
    "backoff": {"initial_s": 0.5, "factor": 3, "max_s": 10, "jitter": 0},
    "memory": "1GiB",
    "memory_growth": 1.5,
    "schedule_to_start_s": 60,
    "start_to_close_s": 2.5,
    "schedule_to_close_s": 600,
}


@pytest.mark.parametrize("form", ["json", "columns"])
def test_options_of_python_mean_the_same_in_both_forms(form):
    node = dag.task(work).options(**ALL).bind()
    spec = parse(json.dumps(compile_graph(node)).encode()) if form == "json" else parse_columns(compile_columns(node).packed())
    (plan,) = plans_of(spec).values()
    named = {"builtins.ConnectionError", f"{__name__}.Unlucky", "requests.exceptions.Timeout", "OUT_OF_MEMORY"}
    assert (plan.retries, plan.retry_exceptions, plan.never_on) == (3, named, {"builtins.KeyError"})
    assert plan.backoff == Backoff(initial_ms=500, factor=3, max_ms=10_000, jitter=0)
    assert plan.timeouts == NodeTimeouts(schedule_to_start_ms=60_000, schedule_to_close_ms=600_000)
    assert (plan.task.start_to_close_ms, plan.memory_growth) == (2_500, 1.5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param({"retry_on": ["ConectionError"]}, "did you mean ConnectionError?", id="a misspelt class"),
        pytest.param({"never_on": ["OUT_OF_MEMORI"]}, "did you mean OUT_OF_MEMORY?", id="a misspelt reason"),
        pytest.param({"retry_on": ["print"]}, "write module.Class", id="no class"),
        pytest.param({"retry_on": ["OSError"], "retry_exceptions": ["builtins.OSError"]}, "are one option", id="both names of one"),
        pytest.param({"backoff": {"initial": 1}}, "did you mean initial_s?", id="a misspelt key of the backoff"),
        pytest.param({"backoff": {"factor": 0.5}}, "greater than or equal to 1", id="a wait that shrinks"),
        pytest.param({"start_to_close_s": 0}, "greater than 0", id="no time"),
        pytest.param({"start_to_close": 5}, "did you mean start_to_close_s?", id="a time without its unit"),
        pytest.param({"memory_growth": 0.5}, "greater than or equal to 1", id="memory that shrinks"),
    ],
)
def test_wrong_options_are_refused_with_their_place(options, problem):
    with pytest.raises(SpecError) as refused:
        spec_of(options=options)
    assert [words for place, words in refused.value.problems if place.startswith("/nodes/a/options") and problem in words]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"retry_on": [3]}, "retry_on takes exception classes", id="no classes"),
        pytest.param({"never_on": [KeyboardInterrupt]}, "never_on takes exception classes", id="no exception"),
        pytest.param({"retry_on": [OSError], "retry_exceptions": [OSError]}, "are one option", id="both names of one"),
    ],
)
def test_wrong_options_in_python_are_refused_at_once(options, words):
    with pytest.raises(GraphTypeError, match=words):
        dag.task(work).options(**options)


def test_the_newer_of_two_names_of_an_option_counts():
    ours = dag.task(retries=1, retry_exceptions=[OSError])(work).options(retry_on=[KeyError])
    rays = dag.task(retries=1, retry_on=[OSError])(work).options(retry_exceptions=[KeyError])
    for task in (ours, rays):
        (plan,) = plans_of(parse(json.dumps(compile_graph(task.bind())).encode())).values()
        assert plan.retry_exceptions == {"builtins.KeyError"}
    spec = spec_of(defaults={"retry_exceptions": ["builtins.OSError"], "retries": 1}, options={"retry_on": ["KeyError"]})
    assert plans_of(spec)["a"].retry_exceptions == {"builtins.KeyError"}


def test_growth_without_memory_is_refused():
    assert growth_of_nothing(spec_of(options={"memory_growth": 2}))[0][0] == "/nodes/a/options/memory_growth"
    assert growth_of_nothing(spec_of(options={"memory_growth": 2}, defaults={"memory": "1GiB"})) == ()


def test_a_node_of_a_graph_asks_for_more_memory_alone():
    body = {"spec": "dag/1", "defaults": {"memory": "1GiB"}, "outputs": {"a": {"$ref": "a"}}}
    body["nodes"] = {name: {"call": "m:f"} for name in "abc"}
    plans = plans_of(parse(json.dumps(body).encode()))
    plans.set_memory("b", 3 * 2**30)
    amounts = {name: plans[name].task.resources["memory"] // 2**30 for name in "abc"}
    assert amounts == {"a": 1, "b": 3, "c": 1}
    assert plans.slot_of(["a", "b"]) == ResourceSet.of({"cpu": 1, "memory": "3GiB"})
    tasks = StageTasks.of_text(plans.tasks_of(("a", "b"), attempts={}, exported=(), checkpoints={}).as_text())
    assert [task.resources["memory"] // 2**30 for task in tasks] == [1, 3]


def test_only_nodes_with_limits_of_the_root_are_timed():
    assert timed_in(plans_of(spec_of(options={"start_to_close_s": 1}))) == {}
    assert timed_in(plans_of(spec_of(defaults={"schedule_to_start_s": 1}))) == {"a": NodeTimeouts(schedule_to_start_ms=1_000)}


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        pytest.param({"te am": "x"}, "is not the name of a label", id="a space in a name"),
        pytest.param({"a=b": "x"}, "is not the name of a label", id="an equals sign in a name"),
        pytest.param({"team": ""}, "1 to 200 characters", id="an empty value"),
        pytest.param({"team": "a\nb"}, "label team", id="a line break"),
        pytest.param({f"l{number}": "x" for number in range(33)}, "32 labels at most", id="too many"),
    ],
)
def test_wrong_labels_of_a_run_are_refused(labels, problem):
    with pytest.raises(SpecError, match=problem):
        spec_of(labels=labels)


def test_labels_are_no_part_of_the_identity():
    from dag.spec.spec import digest

    assert digest(spec_of(labels={"team": "ads"})) == digest(spec_of())
    assert digest(spec_of(deadline_s=5)) != digest(spec_of())
