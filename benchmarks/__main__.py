"""`python -m benchmarks [NAME…] [--json] [--turns N] [--cpus N]`: run benchmarks and print the results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean
from typing import Any

import ray
from rich.console import Console, RenderableType

from benchmarks import (
    acquire_granted,
    arrays,
    compiling,
    control_path,
    core_decisions,
    demo,
    fragmentation,
    graphs,
    group_calls,
    lease_ledger,
    local_tasks,
    one_node,
    page,
    planner_round,
    planner_tick,
    preempting_start,
    queue_memory,
    reclaiming,
    report,
    routing,
    stage_graphs,
    stage_placement,
    urgent_start,
)
from benchmarks.bed import Bed, let_sigterm_interrupt, open_bed
from benchmarks.measuring import Result, result_of
from benchmarks.mesh_bed import MeshBed, open_mesh_bed

#: Benchmarks on the federation bed, with their default number of turns.
ON_THE_BED: dict[str, tuple[Callable[[Bed, int], Result], int]] = {
    **{f"graph_{graph}": (partial(graphs.measure, graph), 9) for graph in graphs.GRAPHS},
    "graph_mixed": (graphs.measure_mixed, 3),
    "first_task": (graphs.measure_first_task, 5),
    "array": (arrays.measure, 5),
    "array_memory": (arrays.measure_memory, 1),
    "one_node": (one_node.measure, 100),
    "one_node_clients": (one_node.measure_clients, 9),
    "after_pause": (one_node.measure_after_pause, 7),
    "acquire_granted": (acquire_granted.measure_direct, 300),
    "acquire_granted_http": (acquire_granted.measure_http, 300),
    "choose": (group_calls.measure_waiting, 100),
    "choose_burst": (group_calls.measure_burst, 60),
    "all": (group_calls.measure_all, 200),
    "shard": (group_calls.measure_shard, 200),
    "broadcast": (group_calls.measure_broadcast, 15),
}
#: Benchmarks on a mesh without a federation, with their default number of turns.
ON_THE_MESH_BED: dict[str, tuple[Callable[[MeshBed, int], Result], int]] = {
    "urgent_start": (urgent_start.measure, 30),
    "preempting_start": (preempting_start.measure, 30),
    "local_tasks": (local_tasks.measure, 7),
    **{f"stage_{graph}": (partial(stage_graphs.measure, graph), 15) for graph in graphs.GRAPHS},
}
DEMO_TURNS = 5
STARTUP, DEMO, RECLAIMING, TWO_MESHES = "startup", "demo", "reclaiming", "two_meshes"
#: Names that stand for several benchmarks.
GROUPS = {
    "graphs": tuple(f"graph_{graph}" for graph in graphs.GRAPHS),
    "stages": tuple(f"stage_{graph}" for graph in graphs.GRAPHS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnItsOwn:
    """Benchmark without a bed, with its own form of results."""

    measure: Callable[[int], list[Any]]  #: Called with the number of turns.
    turns: int  #: Default number of turns; 0: the benchmark chooses.
    table: Callable[[list[Any]], RenderableType]
    as_json: Callable[[list[Any]], dict[str, Any]]


ON_THEIR_OWN: dict[str, OnItsOwn] = {
    "fragmentation": OnItsOwn(measure=fragmentation.measure, turns=3, table=fragmentation.table, as_json=fragmentation.as_json),
    "queue_memory": OnItsOwn(measure=lambda _: queue_memory.measure(), turns=0, table=queue_memory.table, as_json=queue_memory.as_json),
    "core_decisions": OnItsOwn(
        measure=core_decisions.measure, turns=core_decisions.TURNS, table=core_decisions.table, as_json=core_decisions.as_json
    ),
    "control_path": OnItsOwn(
        measure=control_path.measure, turns=control_path.TURNS, table=control_path.table, as_json=control_path.as_json
    ),
    "stage_placement": OnItsOwn(
        measure=stage_placement.measure, turns=stage_placement.TURNS, table=stage_placement.table, as_json=stage_placement.as_json
    ),
    "compile": OnItsOwn(measure=compiling.measure, turns=compiling.TURNS, table=compiling.table, as_json=compiling.as_json),
    "routing": OnItsOwn(measure=routing.measure, turns=routing.TURNS, table=routing.table, as_json=routing.as_json),
    "lease_ledger": OnItsOwn(
        measure=lease_ledger.measure, turns=lease_ledger.TURNS, table=lease_ledger.table, as_json=lease_ledger.as_json
    ),
    "planner_round": OnItsOwn(
        measure=planner_round.measure, turns=planner_round.TURNS, table=planner_round.table, as_json=planner_round.as_json
    ),
    "planner_tick": OnItsOwn(
        measure=planner_tick.measure, turns=planner_tick.TURNS, table=planner_tick.table, as_json=planner_tick.as_json
    ),
    "page": OnItsOwn(measure=page.measure, turns=page.TURNS, table=page.table, as_json=page.as_json),
}
NAMES = (STARTUP, *ON_THE_BED, *ON_THE_MESH_BED, DEMO, RECLAIMING, TWO_MESHES, *ON_THEIR_OWN)


def main() -> None:
    """Run the command line."""
    asked = _arguments()
    console = Console(stderr=asked.json, highlight=False)
    machine = _machine(asked.cpus)
    console.print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items()), "\n")
    wanted = [each for name in asked.names for each in GROUPS.get(name, (name,))]
    names = [name for name in NAMES if name in (wanted or NAMES)]
    results: list[Result] = []
    let_sigterm_interrupt()
    if any(name in (STARTUP, *ON_THE_BED) for name in names):
        results += _on_the_bed(names, asked, console)
    if any(name in ON_THE_MESH_BED for name in names):
        results += _on_the_mesh_bed(names, asked, console)
    if DEMO in names:
        results.append(_described(demo.measure(asked.turns or DEMO_TURNS), console))
    if RECLAIMING in names:
        results.append(_described(reclaiming.measure(asked.turns or reclaiming.TURNS), console))
    if TWO_MESHES in names:
        results.append(_described(graphs.measure_two_meshes(asked.turns or 3), console))
    for group, members in GROUPS.items():
        faster = [1 / result.sides[0].ratio_to(result.sides[1]) for result in results if result.name in members]
        if len(faster) > 1:
            console.print(f"{group}: {geometric_mean(faster):.1f} x faster, the geometric mean of {len(faster)}", "")
    on_their_own: list[dict[str, Any]] = []
    for benchmark in (ON_THEIR_OWN[name] for name in names if name in ON_THEIR_OWN):
        sides = benchmark.measure(asked.turns or benchmark.turns)
        console.print(benchmark.table(sides), "")
        on_their_own.append(benchmark.as_json(sides))
    machine["load_at_end"] = round(os.getloadavg()[0], 2)
    if asked.json:
        found = report.as_json(machine, results)
        found["benchmarks"] += on_their_own
        print(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure ScheduleMesh beside plain Ray.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benchmarks to run: {', '.join((*GROUPS, *NAMES))}; default: all")
    parser.add_argument("--json", action="store_true", help="print JSON with all samples; tables go to stderr")
    parser.add_argument("--turns", type=int, help="number of turns per side, instead of the benchmark's default")
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1, help="CPUs per side; default: all CPUs of the machine")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - {*NAMES, *GROUPS})
    if unknown or (asked.turns or 1) < 1 or asked.cpus < 1:
        parser.error(
            f"unknown benchmark {', '.join(unknown)}; choose from {', '.join((*GROUPS, *NAMES))}"
            if unknown
            else "--turns and --cpus must be at least 1"
        )
    return asked


def _machine(cpus: int) -> dict[str, Any]:
    """Return the machine's properties that affect the results. A load above a few tenths means that other programs ran too."""
    return {
        "python": platform.python_version(),
        "ray": ray.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "cpus_a_side": cpus,
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def _on_the_bed(names: list[str], asked: argparse.Namespace, console: Console) -> list[Result]:
    results: list[Result] = []
    with open_bed(asked.cpus) as bed:
        for name, (measure, turns) in ON_THE_BED.items():
            if name in names:
                results.append(_described(measure(bed, asked.turns or turns), console))
    if STARTUP in names:
        about = "one start of the bed until its API answers, by step, each from its message to the next one's; plus the stop"
        results.append(_described(result_of(STARTUP, about, {"one federation": [bed.startup]}), console))
    return results


def _on_the_mesh_bed(names: list[str], asked: argparse.Namespace, console: Console) -> list[Result]:
    with open_mesh_bed() as bed:
        return [
            _described(measure(bed, asked.turns or turns), console) for name, (measure, turns) in ON_THE_MESH_BED.items() if name in names
        ]


def _described(result: Result, console: Console) -> Result:
    """Print the result at once and return it."""
    console.print(report.tables([result]))
    return result


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; all processes have stopped")
