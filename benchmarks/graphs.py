"""Graphs of tasks that do nothing, from Python until the values are there: the cost of a task, and of a step from a task to the next.

Chains, a fan and layers are made here. Recorded workflows of WfCommons come from a folder `shared/workflows` beside the project's, if there
is one: their tasks and edges, without files and run times.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray

import dag
from benchmarks.bed import Bed, open_stack
from benchmarks.journey import PLAN, QUEUE, SUBMIT, Stamps, journey_of, now_ms
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.work import layered, nothing, one, sleep_for, total
from dag.store.client_access import Access
from dag.store.remote import Client
from dag.workflows.wfformat import read_workflow

MESH, PLAIN = "ScheduleMesh", "plain Ray"
CHAIN, FAN, LAYERS, WIDTH, PARENTS = 200, 1_000, 20, 50, 3
MANY = 10_000
_WORKFLOWS = Path(__file__).resolve().parents[2] / "shared" / "workflows"
#: Nodes of the mixed graph that take long, and how long, in seconds.
LONG_NODES, LONG_S = 20, 0.5
#: The fan over two meshes: nodes, and how long each takes, in seconds.
SHARED_NODES, SHARED_S = 1_000, 0.02
_TWO_MESHES, _TWO_MESHES_SLOTS = Path(__file__).with_name("two_meshes.yaml"), 4


@dataclass(frozen=True, slots=True)
class Step:
    """Node of a graph: its function, and the positions of the nodes that it reads."""

    function: Callable[..., Any]
    reads: tuple[int, ...] = ()


def chain(length: int) -> list[Step]:
    """Return a chain."""
    return [Step(nothing), *[Step(one, (at,)) for at in range(length - 1)]]


def fan(nodes: int) -> list[Step]:
    """Return a source, a fan that reads it, and a node that reads the fan."""
    return [Step(nothing), *[Step(one, (0,))] * (nodes - 2), Step(total, tuple(range(1, nodes - 1)))]


def layers() -> list[Step]:
    """Return layers of which each node reads three of the layer before."""
    steps = [Step(nothing)] * WIDTH
    for layer in range(1, LAYERS):
        first = (layer - 1) * WIDTH
        steps += [Step(layered, tuple(first + (at * 7 + more * 11) % WIDTH for more in range(PARENTS))) for at in range(WIDTH)]
    return steps


def recorded(name: str) -> list[Step]:
    """Return the tasks of a recorded workflow; each reads those that it needs."""
    workflow = read_workflow((_WORKFLOWS / f"{name}.json.gz").read_bytes())
    place_of = {number: place for place, number in enumerate(workflow.order)}
    needs = [tuple(place_of[need] for need in workflow.tasks[number].needs) for number in workflow.order]
    return [Step(layered if reads else nothing, reads) for reads in needs]


def ends_of(steps: Sequence[Step]) -> list[int]:
    """Return the nodes that no other one reads."""
    read = {at for step in steps for at in step.reads}
    return [at for at in range(len(steps)) if at not in read]


def bound(steps: Iterable[Step]) -> list[Any]:
    """Return the nodes of a graph."""
    tasks = {function: dag.task(function) for function in (nothing, one, total, layered)}
    nodes: list[Any] = []
    for step in steps:
        nodes.append(tasks[step.function].bind(*[nodes[at] for at in step.reads]))
    return nodes


#: The graphs by name; those of a folder that is not there are left out.
GRAPHS: dict[str, Callable[[], list[Step]]] = {
    "chain": partial(chain, CHAIN),
    "fan": partial(fan, FAN),
    "layers": layers,
}
_RECORDED = {
    "epigenomics": "epigenomics-chameleon-ilmn-2seq-50k-001",
    "montage": "montage-chameleon-2mass-02d-001",
    "seismology": "seismology-chameleon-1000p-001",
}
GRAPHS |= {name: partial(recorded, file) for name, file in _RECORDED.items() if (_WORKFLOWS / f"{file}.json.gz").is_file()}


def on_plain_ray(remote: dict[Callable[..., Any], Any], steps: Sequence[Step]) -> Sample:
    """Run a graph with references, until its last values are there."""
    ends = ends_of(steps)
    begun = time.perf_counter()
    references: list[Any] = []
    for step in steps:
        references.append(remote[step.function].remote(*[references[at] for at in step.reads]))
    submitted = time.perf_counter()
    ray.get([references[at] for at in ends])
    ended = time.perf_counter()
    return {WALL: (ended - begun) * 1000, "driver: submit": (submitted - begun) * 1000, "driver: wait": (ended - submitted) * 1000}


def measure(graph: str, bed: Bed, turns: int) -> Result:
    """Measure both sides of one graph in turns."""
    steps = GRAPHS[graph]()
    remote = {function: bed.plain(function) for function in (nothing, one, total, layered)}
    sides = {MESH: partial(_on_the_mesh, bed, steps), PLAIN: partial(on_plain_ray, remote, steps)}
    about = f"{graph}, {len(steps):,} tasks that do nothing, from Python until the last values are there; {bed.cpus} CPUs per side"
    return result_of(f"graph_{graph}", about, in_turns(sides, warm_ups=3, turns=turns), base=PLAIN)


def _on_the_mesh(bed: Bed, steps: Sequence[Step]) -> Sample:
    ends = ends_of(steps)
    begun = now_ms()
    nodes = bound(steps)
    outputs = [nodes[at] for at in ends]
    made = now_ms()
    run = bed.client.submit(outputs)
    run.result()  # It raises an error if a task has not succeeded.
    ended = now_ms()
    return journey_of(bed.client, run.id, Stamps(begun=begun, compiled=made, ended=ended))


def measure_first_task(bed: Bed, turns: int) -> Result:
    """Measure the time from the submission of a large graph until its first task begins."""
    steps = fan(MANY)

    def first() -> Sample:
        parts = _on_the_mesh(bed, steps)
        own = {name: parts[name] for name in (SUBMIT, PLAN, QUEUE)}
        return {WALL: sum(own.values()), **own}

    about = f"{MANY:,} tasks that do nothing, from the submission until the first begins; the graph is made before; target: 200 ms"
    return result_of("first_task", about, {MESH: [first() for _ in range(turns + 1)][1:]})


def measure_mixed(bed: Bed, turns: int) -> Result:
    """Measure a fan in which some nodes of the same function take long, against the time that these need."""
    ideal_ms = max(LONG_S, LONG_NODES * LONG_S / bed.cpus) * 1000
    long = set(random.Random(7).sample(range(FAN), LONG_NODES))  # noqa: S311  no secret
    task = dag.task(sleep_for)

    def once() -> Sample:
        begun = time.perf_counter()
        bed.client.submit([task.bind(LONG_S if at in long else 0) for at in range(FAN)]).result()
        wall_ms = (time.perf_counter() - begun) * 1000
        return {WALL: wall_ms, "more than the critical path": wall_ms - ideal_ms}

    about = (
        f"{FAN:,} tasks of one function, of which {LONG_NODES} sleep {LONG_S * 1000:g} ms, {bed.cpus} slots;"
        f" critical path {ideal_ms:g} ms, target: 1.1 times as long"
    )
    return result_of("graph_mixed", about, {MESH: [once() for _ in range(turns + 1)][1:]})


def measure_two_meshes(turns: int) -> Result:
    """Measure a fan that two meshes share, against the time that its tasks need."""
    ideal_ms = SHARED_NODES * SHARED_S / _TWO_MESHES_SLOTS * 1000
    task = dag.task(sleep_for)

    def once(client: Client) -> Sample:
        begun = time.perf_counter()
        run = client.submit([task.bind(SHARED_S) for _ in range(SHARED_NODES)], tenant="lab/owner")
        run.result()
        wall_ms = (time.perf_counter() - begun) * 1000
        return {WALL: wall_ms, "more than the ideal": wall_ms - ideal_ms}

    with ExitStack() as opened:
        stack = opened.enter_context(open_stack(_TWO_MESHES, cpus=_TWO_MESHES_SLOTS))
        client = opened.enter_context(Client(Access(address=stack.address, api_key=stack.api_key, tenant=stack.default_tenant)))
        samples = [once(client) for _ in range(turns + 1)][1:]
    about = (
        f"{SHARED_NODES:,} tasks that sleep {SHARED_S * 1000:g} ms, on two meshes of two slots; ideal {ideal_ms:g} ms,"
        " target: 1.1 times as long"
    )
    return result_of("two_meshes", about, {MESH: samples})
