"""Graphs as Ray's users write them, over two real Ray clusters."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import operator
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from federation_bed import LIMIT_S, REPOSITORY, TENANT, eventually, submit
from ray.dag import InputNode, MultiOutputNode

import dag
from dag.errors import RunFailed
from dag.store.remote import Client
from serve_apps.standalone.stack import Stack

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

EAST, WEST = {"zone": "east"}, {"zone": "west"}
SCRIPT = """
import sys
import dag
from beside import triple  # noqa

client = dag.connect(sys.argv[1], sys.argv[2])
print(client.submit(dag.bind(triple, 14), tenant=sys.argv[3]).result(150))
"""


def split(path: str) -> tuple[bytes, list[str]]:
    return b"x" * 300_000, [path]


def size(data: Any) -> int:
    return len(data)


async def later(value: int) -> int:
    await asyncio.sleep(0)
    return value


def count(number: int) -> Iterator[int]:
    yield from range(number)


async def count_later(number: int) -> AsyncIterator[int]:
    for each in range(number):
        yield each


def gathered(*values: Any, **named: Any) -> Any:
    return [list(values), named]


def variable(name: str) -> str | None:
    return os.environ.get(name)


@ray.remote
def add(left: int, right: int = 1) -> int:
    return left + right


def result_of(client: Client, outputs: Any, **given: Any) -> Any:
    return client.submit(outputs, by_value=(sys.modules[__name__],), **given).result(LIMIT_S)


def test_outputs_go_to_different_meshes(client: Client) -> None:
    large, small = dag.task(split, labels=EAST, num_returns=2).bind("a")
    outputs = {"large": dag.task(size, labels=EAST).bind(large), "small": dag.task(size, labels=WEST).bind(small), "all": small}
    assert result_of(client, outputs) == {"large": 300_000, "small": 1, "all": ["a"]}


def test_kinds_of_functions_parts_and_parameters_meet(client: Client) -> None:
    numbers = dag.bind(count, dag.param("number"))
    again = dag.bind(count_later, dag.bind(later, dag.param("number")))
    graph = dag.bind(gathered, numbers[1], {"last": again[-1]}, whole=numbers, limit=dag.param("limit", default=None))
    assert result_of(client, graph, params={"number": 3}) == [[1, {"last": 2}], {"whole": [0, 1, 2], "limit": None}]


def test_a_graph_of_ray_runs_here(client: Client) -> None:
    with InputNode() as given:
        first = add.bind(given["start"])
        graph = MultiOutputNode([first, add.options(num_cpus=1).bind(first, right=given[0])])
    assert result_of(client, graph, params={"start": 1, "0": 40}) == {"0": 2, "1": 42}


def test_nodes_have_environments_of_their_own(client: Client) -> None:
    nodes = [dag.task(variable, runtime_env={"env_vars": {"KIND": kind}}).bind("KIND") for kind in ("a", "b")]
    assert result_of(client, dag.bind(gathered, *nodes, dag.bind(variable, "KIND"))) == [["a", "b", None], {}]


def test_one_graph_by_python_json_and_http(client: Client, stack: Stack) -> None:
    @dag.graph
    def graph(name: str = "mesh") -> Any:
        from examples.hello import hello

        return dag.bind(hello.join, dag.bind(hello.greet, name), dag.bind(hello.count, name))

    spec = dag.to_spec(graph, id="written-as-json", tenant=TENANT)
    said = "Hello, mesh! Your name has 4 letters."
    assert result_of(client, graph) == result_of(client, dag.from_spec(json.dumps(spec))) == said
    with httpx.Client(base_url=stack.address, headers={"Authorization": f"Bearer {stack.api_key}"}, timeout=LIMIT_S) as http:
        assert http.post("/v1/runs", json=spec).status_code == 202
        answer = eventually(lambda: _ended(http, "written-as-json"))
    assert answer["outputs"]["result"]["value"] == said


def _ended(http: httpx.Client, run: str) -> Any:
    answer = http.get(f"/v1/runs/{run}/result", params={"wait_s": 20})
    assert answer.status_code == 200
    return answer.json()


def test_a_module_beside_the_script_comes_along(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("FACTOR = 3\n\ndef triple(x):\n    return FACTOR * x\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), stack.address, stack.api_key, TENANT]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert (done.stdout.strip(), done.returncode) == ("42", 0), done.stderr


def test_a_missing_module_is_one_clear_failure(client: Client) -> None:
    code = b"cno_such_shop\nload\n."  # The pickle of a function of a module that no mesh has.
    sha256 = hashlib.sha256(code).hexdigest()
    spec = {
        "spec": "dag/1",
        "tenant": TENANT,
        "on_error": "continue",
        "nodes": {f"n{number}": {"function": {"$blob": sha256}, "args": [number]} for number in range(1000)},
        "outputs": {"first": {"$ref": "n0"}},
        "blobs": {sha256: base64.b64encode(code).decode()},
    }
    with pytest.raises(RunFailed) as failed:
        client.submit_spec(spec).result(LIMIT_S)
    words = str(failed.value)
    assert "no worker has the module no_such_shop; send it along, submit(…, by_value=[no_such_shop])" in words
    assert words.count("Traceback") <= 4  # One for each slot at most.
    assert "more nodes failed" in words
    assert len(failed.value.failures) == 1000


def noted(folder: str, name: str, value: Any) -> Any:
    (Path(folder) / f"{name}-{os.urandom(8).hex()}").touch()
    return value


def times(folder: Path) -> dict[str, int]:
    """Return how often each node has run."""
    names = [file.name.rpartition("-")[0] for file in folder.iterdir()]
    return {name: names.count(name) for name in sorted(set(names))}


def test_cached_values_serve_later_runs_on_any_mesh(client: Client, tmp_path: Path) -> None:
    cached, folder = dag.task(noted, cache=True), str(tmp_path)

    def graph(zone: dict[str, str]) -> dict[str, Any]:
        table = cached.options(labels=zone).bind(folder, "table", {"b": {2, 1}, "a": "x" * 200_000})
        return {"size": cached.options(labels=zone).bind(folder, "size", table["a"]), "last": dag.bind(noted, folder, "last", table)}

    first = submit(client, graph(EAST), tenant=TENANT).result(timeout=LIMIT_S)
    twins = [submit(client, graph(zone), tenant=TENANT) for zone in (WEST, EAST)]
    assert [run.result(timeout=LIMIT_S) for run in twins] == [first, first]
    assert times(tmp_path) == {"last": 3, "size": 1, "table": 1}
    shown = {node["node"]: (node["cache"], node["reason"]) for node in client.ask(f"{twins[0].path}/nodes")["nodes"]}
    assert shown == {"noted": ("HIT", "CACHE_HIT"), "noted-2": ("HIT", "CACHE_HIT"), "noted-3": (None, None)}
    outputs = client.ask(f"{twins[0].path}/result")["outputs"]
    assert {name: output["cached"] for name, output in outputs.items()} == {"size": True, "last": False}


def test_twins_in_flight_run_once_and_removed_values_run_again(client: Client, tmp_path: Path) -> None:
    cached, folder = dag.task(noted, cache="1h"), str(tmp_path)
    runs = [submit(client, cached.bind(folder, "one", [0]), tenant=TENANT) for _ in range(8)]
    assert [run.result(timeout=LIMIT_S) for run in runs] == [[0]] * 8
    assert times(tmp_path) == {"one": 1}
    (kept,) = [entry for entry in client.ask(f"/v1/cache?tenant={TENANT}")["entries"] if entry["run"] in {run.id for run in runs}]
    assert kept["hits"] == 7
    assert client.post("/v1/cache/drop", {"tenant": TENANT, "keys": [kept["key"]]}) == {"entries": 1}
    assert submit(client, cached.bind(folder, "one", [0]), tenant=TENANT).result(timeout=LIMIT_S) == [0]
    assert times(tmp_path) == {"one": 2}


def fibonacci(number: int) -> Any:
    return number if number < 2 else dag.bind(operator.add, dag.bind(fibonacci, number - 1), dag.bind(fibonacci, number - 2))


def square(number: int) -> int:
    return number * number


def squares(count: int, large: bytes = b"") -> Any:
    return dag.continuation({"count": count, "squares": dag.map(square, list(range(count))), "size": dag.bind(size, large)})


def nested(value: int) -> Any:
    return [value, dag.bind(square, value)]


def test_functions_return_nodes(client: Client) -> None:
    run = client.submit(dag.bind(operator.mul, dag.bind(fibonacci, 3), 2), by_value=(sys.modules[__name__],))
    assert run.result(LIMIT_S) == 4
    nodes = {node["node"]: node for node in client.ask(f"{run.path}/nodes", {"limit": 1000})["nodes"]}
    assert {"fibonacci~add", "fibonacci~fibonacci-2", "fibonacci~fibonacci~fibonacci"} <= nodes.keys()
    assert (nodes["fibonacci"]["control"], nodes["fibonacci"]["needs"], nodes["fibonacci"]["attempt"]) == ("grown", ["fibonacci~add"], 2)
    assert {node["state"] for node in nodes.values()} == {"SUCCEEDED"}


def test_returned_nodes_hold_arrays_and_large_arguments(client: Client) -> None:
    grown = dag.task(squares, labels=EAST).bind(4, b"x" * 100_000)
    assert result_of(client, dag.task(gathered, labels=WEST).bind(grown)) == [[{"count": 4, "squares": [0, 1, 4, 9], "size": 100_000}], {}]


def test_a_list_with_nodes_is_no_value(client: Client) -> None:
    with pytest.raises(RunFailed, match=r"the value of nested holds <node square>.*dag.continuation\(\[…\]\) for several"):
        result_of(client, dag.bind(nested, 2))
