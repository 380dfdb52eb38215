"""Many concurrent graphs with failures and cancellations, through to the end: row 52 of the fault plan, on real Ray."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from faults.running_federation import TENANT, Federation
from faults.table import Row
from patience import eventually

import dag
from dag.run.run_events import RunEvent
from dag.run.states import NodeState, RunState
from dag.store.remote import Run
from mesh.core.reasons import Reason
from mesh.ray.cluster.node_logs import SESSION

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 300.0
#: Nodes of a graph side by side, and one after another, between source and sink.
SHAPES = ((598, 1), (80, 10), (24, 40), (16, 48))
GRAPHS = 24
CANCELLED, FAILING = range(3, GRAPHS, 8), range(6, GRAPHS, 8)
SIDES = ({"zone": "east"}, {"zone": "west"})
#: Ray's message about an aborted process.
ABORTED = ("SIGABRT", "Check failed")
#: An actor of which the placement group is removed while it starts: Ray closes its connection, and its process aborts. So a stage that
#: ends leaves a worker that it no longer needs; plain Ray does the same in one of five such removals.
ENDED_WHILE_IT_STARTED = "ActorCreationTaskDone"
POOLS = "pools: {general: {flavor: standard, capacity: {cpu: 3}}}"
CONFIG = f"""
federation: {{name: crowd, lease_ttl: 60s, heartbeat: 1s, lease_grace: 3s}}
root: {{cluster: only, port: 18850}}
import_paths: ["{REPOSITORY}"]
clusters:
  only:
    shared: true
    object_store: 200MiB
    nodes: [{{cpu: 3, labels: {{zone: west}}}}, {{cpu: 3, labels: {{zone: east}}}}]
flavors: {{standard: {{}}}}
meshes:
  east: {{cluster: only, node_labels: {{zone: east}}, labels: {{zone: east}}, {POOLS}}}
  west: {{cluster: only, node_labels: {{zone: west}}, labels: {{zone: west}}, {POOLS}}}
tenants:
  {TENANT}: {{quotas: {{standard: {{cpu: {{nominal: 6}}}}}}, pickled_code: true}}
"""


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    federation = Federation(tmp_path / "state", CONFIG)
    yield federation
    federation.close()


def note(folder: str, graph: str, node: str) -> None:
    """Log each execution."""
    with Path(folder, f"{os.getpid()}.executions").open("a") as file:
        file.write(f"{graph} {node}\n")


def add(folder: str, graph: str, node: str, *values: int) -> int:
    note(folder, graph, node)
    return sum(values) % 1_000_003 + 1


def fail(folder: str, graph: str, node: str) -> int:
    note(folder, graph, node)
    raise ValueError(graph)


def wait_to_be_cancelled(folder: str, graph: str, node: str, _source: int) -> int:
    note(folder, graph, node)
    Path(folder, f"{graph}.holds").touch()
    while True:
        time.sleep(0.02)


@dataclass(frozen=True)
class Graph:
    """Graph with a source, columns of nodes that each use two of the layer before, and a sink; columns swap sides half way.

    Args:
        is_cancelled: It has one more node, which waits until the run is cancelled.
        fails: Its source fails.
    """

    number: int
    is_cancelled: bool
    fails: bool

    @property
    def name(self) -> str:
        return f"graph-{self.number}"

    @property
    def shape(self) -> tuple[int, int]:
        return SHAPES[self.number % len(SHAPES)]

    @property
    def nodes(self) -> set[str]:
        width, depth = self.shape
        return {"source", "sink"} | {f"n{layer}-{column}" for layer in range(depth) for column in range(width)}

    @property
    def end(self) -> RunState:
        return RunState.CANCELLED if self.is_cancelled else RunState.FAILED if self.fails else RunState.SUCCEEDED

    def sink(self, folder: Path) -> Any:
        """Return the submitted node."""

        def node(function: Any, name: str, side: int, *values: Any) -> Any:
            return dag.task(function, labels=SIDES[side], name=name).bind(str(folder), self.name, name, *values)

        width, depth = self.shape
        source = node(fail if self.fails else add, "source", self.number % 2)
        layer = [source] * width
        for at in range(depth):
            layer = [
                node(add, f"n{at}-{column}", (column + 2 * at // depth) % 2, layer[column], layer[(column + 2) % width])
                for column in range(width)
            ]
        held = [node(wait_to_be_cancelled, "holds", self.number // 8 % 2, source)] if self.is_cancelled else []
        return node(add, "sink", self.number % 2, *layer, *held)

    def result(self) -> int:
        """Return the sink's expected result."""

        def value(*values: int) -> int:
            return sum(values) % 1_000_003 + 1

        width, depth = self.shape
        layer = [value()] * width
        for _ in range(depth):
            layer = [value(layer[column], layer[(column + 2) % width]) for column in range(width)]
        return value(*layer)


def submit(federation: Federation, outputs: Any, name: str) -> Run:
    return federation.client.submit(outputs, id=name, by_value=(sys.modules[__name__],))


def executions(folder: Path) -> Counter[tuple[str, str]]:
    """Return the executions of each node of each graph."""
    lines = [line for file in folder.glob("*.executions") for line in file.read_text().splitlines()]
    return Counter((graph, node) for graph, node in map(str.split, lines))


def aborts(federation: Federation) -> list[str]:
    """Return runners reported dead by their meshes, and processes that Ray has aborted."""
    logs = [child.log for child in federation.stack.children.values()]
    died = [line for log in logs for line in log.read_text().splitlines() if "a runner died" in line]
    for cluster in federation.stack.clusters.values():
        for log in (cluster.folder / SESSION / "logs").glob("*worker-*"):
            aborted = [line for line in log.read_text(errors="replace").splitlines() if any(word in line for word in ABORTED)]
            died += [line for line in aborted if ENDED_WHILE_IT_STARTED not in line]
    return died


def test_fault_52_many_graphs_at_once_some_cancelled(federation: Federation, tmp_path: Path, row: Row) -> None:
    graphs = [Graph(number, number in CANCELLED, number in FAILING) for number in range(GRAPHS)]

    def start(graph: Graph) -> Run:
        """Submit it, and cancel it if wanted."""
        run = submit(federation, graph.sink(tmp_path), graph.name)
        if graph.is_cancelled:
            eventually((tmp_path / f"{graph.name}.holds").exists, LIMIT_S)
            run.cancel()
        return run

    with ThreadPoolExecutor(GRAPHS) as pool:
        runs = dict(zip(graphs, pool.map(start, graphs), strict=True))
    ended = {graph: runs[graph].wait(LIMIT_S) for graph in graphs}
    assert {graph: state for graph, state in ended.items() if state is not graph.end} == {}

    events_of: dict[Graph, list[RunEvent]] = {graph: list(run.events()) for graph, run in runs.items()}
    assert [event for events in events_of.values() for event in events if event.reason is Reason.WORKER_LOST] == []
    assert aborts(federation) == []
    seen = executions(tmp_path)
    assert {name: times for name, times in seen.items() if times > 1} == {}
    whole = [graph for graph in graphs if ended[graph] is RunState.SUCCEEDED]
    for graph in whole:
        assert {node for name, node in seen if name == graph.name} == graph.nodes
        succeeded = Counter(event.node for event in events_of[graph] if event.kind == "node" and event.after == NodeState.SUCCEEDED.value)
        assert succeeded == Counter(graph.nodes)
        assert runs[graph].result(LIMIT_S) == graph.result()

    last = {
        zone: dag.task(add, labels={"zone": zone}, num_cpus=3, name=zone).bind(str(tmp_path), "last", zone) for zone in ("east", "west")
    }
    assert submit(federation, last, "last").result(LIMIT_S) == {"east": 1, "west": 1}  # Each needs all slots of its mesh.
    nodes = sum(len(graph.nodes) for graph in whole)
    row.held(f"{nodes:,} nodes of {len(whole)} graphs ran once each, no runner died, all slots were free again")
