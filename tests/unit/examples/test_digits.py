"""The examples compute what they say, without Ray, and their two forms are the same graph."""

from __future__ import annotations

import base64
import importlib
import json
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from dag.client.compiling import compile_graph
from dag.spec.plans import refused_functions
from dag.spec.spec import parse
from federation.config.loading import tenants_of
from serve_apps.configuration.config_file import read_config

EXAMPLES = Path(__file__).parents[3] / "examples"


def spec(name: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    return parsed


def references(form: Any) -> set[str]:
    """The nodes that an argument form reads."""
    if isinstance(form, dict):
        return {form["$ref"]} if "$ref" in form else set().union(*map(references, form.values()))
    return set().union(*map(references, form)) if isinstance(form, list) else set()


def inputs(node: dict[str, Any]) -> set[str]:
    return references([node.get("args", []), node.get("kwargs", {})])


def sent_from_python(module: str) -> dict[str, Any]:
    """The nodes of `graph()` as `dag.submit` sends them, their pickled functions named as in a JSON spec."""
    sent = compile_graph(importlib.import_module(module).graph())
    functions = {blob: cloudpickle.loads(base64.b64decode(data)) for blob, data in sent["blobs"].items()}
    for node in sent["nodes"].values():
        function = functions[node.pop("function")["$blob"]]
        node["call"] = f"{function.__module__}:{function.__qualname__}"
    return {"nodes": sent["nodes"], "outputs": sent["outputs"]}


def run_in_process(graph: dict[str, Any]) -> dict[str, Any]:
    """Every node once, in topological order; the outputs by name."""
    values: dict[str, Any] = {}

    def filled(form: Any) -> Any:
        if isinstance(form, dict):
            if "$ref" in form:
                return values[form["$ref"]]
            return graph["params"][form["$param"]] if "$param" in form else {key: filled(part) for key, part in form.items()}
        return [filled(part) for part in form] if isinstance(form, list) else form

    nodes = graph["nodes"]
    for name in TopologicalSorter({name: inputs(node) for name, node in nodes.items()}).static_order():
        module, _, function = nodes[name]["call"].partition(":")
        call = getattr(importlib.import_module(module), function)
        values[name] = call(*filled(nodes[name].get("args", [])), **filled(nodes[name].get("kwargs", {})))
    return {name: filled(form) for name, form in graph["outputs"].items()}


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    result: dict[str, Any] = run_in_process(spec("digits/digits.json"))["report"]
    return result


def test_the_best_model_reads_95_percent_of_unseen_digits(report: dict[str, Any]):
    assert report["accuracy"] > 0.95
    assert report["best"] == report["table"][0]["model"]


def test_all_twelve_models_are_ranked(report: dict[str, Any]):
    accuracies = [row["accuracy"] for row in report["table"]]
    assert len({row["model"] for row in report["table"]}) == 12
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[-1] > 0.5  # every one has learned something; by chance it would be a tenth


def test_the_confusion_matrix_agrees_with_the_accuracy(report: dict[str, Any]):
    counts = report["confusion"]
    assert sum(map(sum, counts)) == report["sizes"]["test"] == 719
    assert sum(counts[digit][digit] for digit in range(10)) / 719 == pytest.approx(report["accuracy"])


def test_the_picture_is_a_png_of_some_size(report: dict[str, Any]):
    png = report["picture_png"]
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(png[16:20], "big") > 1_000  # pixels across, from the PNG's header
    assert len(png) > 20_000


def test_models_are_evaluated_where_they_were_trained():
    nodes = spec("digits/digits.json")["nodes"]
    zones = {name: node.get("options", {}).get("labels", {}).get("zone") for name, node in nodes.items()}
    trained = {name.removeprefix("train-"): zone for name, zone in zones.items() if name.startswith("train-")}
    assert sorted(map(str, trained.values())) == ["None"] * 6 + ["west"] * 6
    assert all(zones[f"evaluate-{name}"] == zone for name, zone in trained.items())


EXAMPLE_FILES = [
    pytest.param("examples.digits.workflow", "digits/digits.json", id="digits"),
    pytest.param("examples.etl.etl", "etl/etl.json", id="etl"),
    pytest.param("examples.hello.hello", "hello/hello.json", id="hello"),
]


@pytest.mark.parametrize(("module", "file"), EXAMPLE_FILES)
def test_python_and_json_tell_the_same_graph(module: str, file: str):
    compiled = spec(file)
    nodes = {name: json.loads(json.dumps(node).replace('{"$param": "name"}', '"mesh"')) for name, node in compiled["nodes"].items()}
    assert sent_from_python(module) == {"nodes": nodes, "outputs": compiled["outputs"]}
    assert compiled.get("params", {"name": "mesh"}) == {"name": "mesh"}


@pytest.mark.parametrize(("module", "file"), EXAMPLE_FILES)
def test_quickstart_tenants_may_call_the_json_graph(module: str, file: str):
    graph = parse((EXAMPLES / file).read_bytes())
    assert len(graph.nodes) == len(spec(file)["nodes"])
    allowed = {tenant.functions for tenant in tenants_of(read_config(EXAMPLES.parent / "configs" / "quickstart.yaml"))}
    assert allowed == {("examples.*:*",)}
    assert refused_functions(graph, *allowed, pickled_code=False) == ()


def test_hello_says_hello():
    assert run_in_process(spec("hello/hello.json")) == {"sentence": "Hello, mesh! Your name has 4 letters."}
