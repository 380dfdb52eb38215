"""Jobs as users write them, as forms of a graph, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import ray

import dag
from dag.client.compiling import compile_graph
from dag.client.jobs import JOB_OPTIONS
from dag.errors import GraphTypeError, SpecError
from dag.spec.plans import refused_functions, small_gangs, uncacheable
from dag.spec.spec import digest, parse
from examples.jobs import graph as example
from mesh.core.functions import JobArgument
from mesh.errors import JobSpecError
from mesh.stages.arguments import resolve

SPEC: dict[str, Any] = {"leader": {"resources": {"cpu": 1}}, "workerSets": [{"name": "actors", "counts": 2, "resources": {"cpu": 0.5}}]}
YAML = """
name: pong
leader: {resources: {cpu: 1}}
worker_sets:
  - {name: actors, counts: 2, resources: {cpu: 0.5}}
"""


class Leader:
    """A class of a user."""

    def __init__(self, rows: Any = 0, rate: float = 1.0) -> None:
        self.rows, self.rate = rows, rate

    def run(self) -> int:
        return 1


class Worker:
    """A class without a method to run."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed


def lead(rows: int) -> int:
    return rows


def work() -> None: ...


@ray.remote(num_cpus=2)
class OfRay(Leader):
    """An actor class of Ray with amounts."""


def node(spec: Any = SPEC, **given: Any) -> dag.Node:
    return dag.job(spec, **{"leader": Leader, "workers": {"actors": Worker}, **given})


def test_a_job_is_one_node_with_a_gang():
    rows = dag.bind(abs, -3)
    made = node(args={"leader": (rows,), "actors": (rows,)}, kwargs={"leader": {"rate": 0.5}}, environment={"LEVEL": "3"}, priority=2)
    nodes = compile_graph(made, by_name=True)["nodes"]
    assert list(nodes) == ["abs", "Leader"]
    workers = {**SPEC["workerSets"][0], "call": f"{__name__}:Worker", "args": [{"$ref": "abs"}]}
    assert nodes["Leader"] == {
        "call": f"{__name__}:Leader",
        "args": [{"$ref": "abs"}, {"$job": {**SPEC, "workerSets": [workers], "method": "run", "environment": {"LEVEL": "3"}}}],
        "kwargs": {"rate": 0.5},
        "options": {"gang": {"size": 2, "strategy": "PACK"}, "priority": 2},
    }


def test_a_job_may_be_text_or_a_file(tmp_path: Path):
    path = tmp_path / "pong.yaml"
    path.write_text(YAML)
    of_text, of_file = (compile_graph(node(spec))["nodes"] for spec in (YAML, path))
    assert of_text == of_file
    assert of_text["pong"]["args"] == compile_graph(node())["nodes"]["Leader"]["args"]


def test_members_may_be_functions():
    made = dag.job(SPEC, leader=lead, workers={"actors": work}, args={"leader": (3,)}, name="led")
    form = compile_graph(made)["nodes"]["led"]["args"][1]
    assert "method" not in form["$job"]


def test_a_job_goes_through_json_and_back():
    spec = dag.to_spec(example.graph(), id="bandit")
    again = dag.to_spec(dag.from_spec(json.dumps(spec)), id="bandit")
    assert again == spec
    assert digest(parse(json.dumps(spec).encode())) == digest(parse(json.dumps(again).encode()))


def test_json_without_a_gang_gets_that_of_the_members():
    spec = dag.to_spec(node(), id="job")
    expected = digest(parse(json.dumps(spec).encode()))
    del spec["nodes"]["Leader"]["options"]
    parsed = parse(json.dumps(spec).encode())
    assert digest(parsed) == expected
    assert parsed.nodes["Leader"].options.as_gang().size == 2


def test_json_with_a_gang_that_is_too_small_is_refused():
    spec = dag.to_spec(node(), id="job")
    spec["nodes"]["Leader"]["options"]["gang"]["size"] = 1
    [(place, words)] = small_gangs(parse(json.dumps(spec).encode()))
    assert place == "/nodes/Leader/options/gang"
    assert "need 2 bundles" in words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"pool": "train"}, "pool: is not supported in a graph", id="a key of a local mesh"),
        pytest.param({"leader": {"resources": {"cpu": -1}}}, "leader.resources", id="a wrong amount"),
        pytest.param({"workerSets": [{"name": "actors", "counts": 2}]}, "has `call`, module:qualname, or `function`", id="no code"),
        pytest.param({"workerSets": [{"name": "a", "call": "nonsense"}]}, "'nonsense' is not a function", id="no name of a function"),
        pytest.param({"workerSets": [{"name": "a", "call": "m:f", "args": 3}]}, "args: must be a list", id="no list of arguments"),
        pytest.param({"workerSets": [{"name": "a", "call": "m:f", "kwargs": {"$x": 3}}]}, "kwargs: must be an object", id="no arguments"),
        pytest.param({"workerSets": [{"name": "a", "function": "m:f"}]}, "function: must be", id="a function that is no blob"),
        pytest.param({"method": "__init__"}, "is no method that a job runs", id="a method that is not public"),
        pytest.param({"environment": {"A=B": "c"}}, "is no environment variable", id="no variable"),
        pytest.param({"environment": ["a"]}, "must be an object of text", id="no variables"),
    ],
)
def test_a_wrong_job_is_refused_with_its_place(change: dict[str, Any], words: str):
    spec = dag.to_spec(node(), id="job")
    spec["nodes"]["Leader"]["args"][0]["$job"].update(change)
    with pytest.raises(SpecError) as refused:
        parse(json.dumps(spec).encode())
    assert any(place.startswith("/nodes/Leader/args/0/$job") and words in said for place, said in refused.value.problems), refused.value


def test_a_job_stands_alone_and_whole():
    job = dag.to_spec(node(), id="job")["nodes"]["Leader"]["args"][0]
    for args, words in (([[job]], "whole argument only"), ([{**job, "x": 1}], "has to be alone"), ([job, job], "one argument that is")):
        spec = {"spec": "dag/1", "nodes": {"a": {"call": "m:Leader", "args": args}}, "outputs": {"a": {"$ref": "a"}}}
        with pytest.raises(SpecError, match=words):
            parse(json.dumps(spec).encode())


def test_a_list_of_functions_names_members_and_methods():
    spec = parse(json.dumps(dag.to_spec(node(), id="job")).encode())
    names = [f"{__name__}:{name}" for name in ("Leader", "Worker", "Leader.run", "Worker.run")]
    assert refused_functions(spec, tuple(names), False) == ()
    for name in names:
        [(_, words)] = refused_functions(spec, tuple(each for each in names if each != name), False)
        assert words.startswith(f"{name} is not on the tenant's list")


def test_a_job_cannot_be_cached():
    spec = dag.to_spec(node(), id="job")
    spec["nodes"]["Leader"]["options"]["cache"] = True
    assert [words for _, words in uncacheable(parse(json.dumps(spec).encode()))] == [
        "the node is a job, whose effects are not its value; cache the functions around it"
    ]


def test_a_worker_gets_the_job_with_its_arguments():
    form = dag.to_spec(node(args={"actors": (dag.bind(abs, -3),)}), id="job")["nodes"]["Leader"]["args"][0]
    found = resolve(form, value_of={"abs": 3}.__getitem__, blob_of=str)
    assert isinstance(found, JobArgument)
    assert found.described["workerSets"][0]["args"] == [3]


@pytest.mark.parametrize("name", JOB_OPTIONS)
def test_an_option_that_a_job_cannot_have_is_refused(name: str):
    with pytest.raises(GraphTypeError, match=rf"job Leader: the option {name}=2 is not supported: "):
        node(**{name: 2})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"workers": {}}, "'actors' has no code", id="no code"),
        pytest.param({"workers": {"actors": Worker, "other": Worker}}, "'other' is not a role", id="an unknown role"),
        pytest.param({"args": {"other": ()}}, "'other' is not a role", id="arguments of an unknown role"),
        pytest.param({"args": {"leader": "ab"}}, "must be a tuple of arguments", id="arguments that are text"),
        pytest.param({"args": {"leader": (1, 2, 3)}}, "Leader", id="too many arguments"),
        pytest.param({"kwargs": {"actors": {"sed": 3}}}, "seed", id="a misspelt argument"),
        pytest.param({"method": None}, "method=None is not supported", id="no method"),
        pytest.param({"method": "go"}, "has no method 'go'", id="an unknown method"),
        pytest.param({"method": "_run"}, "must not begin with `_`", id="a private method"),
        pytest.param({"workers": {"actors": work}}, "all roles classes, or all functions", id="classes and functions"),
        pytest.param({"leader": OfRay}, "the option num_cpus=2 is not supported", id="amounts of Ray"),
        pytest.param({"leader": 3}, "is no class and no function", id="no class"),
        pytest.param({"environment": {"A": 1}}, "environment takes text", id="a variable that is no text"),
        pytest.param({"strategy": "ANY"}, "strategy must be one of", id="an unknown strategy"),
        pytest.param({"prioritty": 2}, "unknown option 'prioritty'; did you mean priority", id="an unknown option"),
    ],
)
def test_a_job_that_cannot_be_is_refused(given: dict[str, Any], words: str):
    with pytest.raises(GraphTypeError, match=words):
        node(**given)


@pytest.mark.parametrize("spec", [3, "pong.yaml", Path("/no/such/file"), {**SPEC, "workerSets": [], "worker_sets": []}])
def test_what_is_no_job_is_refused(spec: Any):
    with pytest.raises(JobSpecError):
        node(spec)
