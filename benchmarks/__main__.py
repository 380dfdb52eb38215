"""`python -m benchmarks [NAME…] [--json] [--turns N] [--cpus N]`: measure, and print what was found."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

import ray
from rich.console import Console

from benchmarks import (
    acquire_granted,
    after_pause,
    choose,
    collective,
    core_decisions,
    demo,
    fan_out,
    fragmentation,
    one_node,
    preempting_start,
    queue_memory,
    report,
    routing,
    urgent_start,
)
from benchmarks.bed import Bed, let_sigterm_interrupt, open_bed
from benchmarks.measuring import Result, result_of
from benchmarks.mesh_bed import MeshBed, open_mesh_bed

#: Benchmarks on the bed, with their usual number of turns.
ON_THE_BED: dict[str, tuple[Callable[[Bed, int], Result], int]] = {
    "fan_out": (fan_out.measure, 9),
    "one_node": (one_node.measure, 100),
    "after_pause": (after_pause.measure, 7),
    "acquire_granted": (acquire_granted.measure_direct, 300),
    "acquire_granted_http": (acquire_granted.measure_http, 300),
    "choose": (choose.measure_waiting, 100),
    "choose_burst": (choose.measure_burst, 60),
    "all": (collective.measure_all, 200),
    "shard": (collective.measure_shard, 200),
    "broadcast": (collective.measure_broadcast, 15),
}
#: Benchmarks on a mesh without a federation, likewise.
ON_THE_MESH_BED: dict[str, tuple[Callable[[MeshBed, int], Result], int]] = {
    "urgent_start": (urgent_start.measure, 30),
    "preempting_start": (preempting_start.measure, 30),
}
DEMO_TURNS = 5
STARTUP, DEMO = "startup", "demo"
FRAGMENTATION, FRAGMENTATION_TURNS = "fragmentation", 3
QUEUE_MEMORY = "queue_memory"
CORE_DECISIONS = "core_decisions"
ROUTING = "routing"
NAMES = (STARTUP, *ON_THE_BED, *ON_THE_MESH_BED, DEMO, FRAGMENTATION, QUEUE_MEMORY, CORE_DECISIONS, ROUTING)


def main() -> None:
    """The command line."""
    asked = _arguments()
    console = Console(stderr=asked.json, highlight=False)
    machine = _machine(asked.cpus)
    console.print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items()), "\n")
    names = [name for name in NAMES if name in (asked.names or NAMES)]
    results: list[Result] = []
    let_sigterm_interrupt()
    if any(name in (STARTUP, *ON_THE_BED) for name in names):
        results += _on_the_bed(names, asked, console)
    if any(name in ON_THE_MESH_BED for name in names):
        results += _on_the_mesh_bed(names, asked, console)
    if DEMO in names:
        results.append(_told(demo.measure(asked.turns or DEMO_TURNS), console))
    replays = fragmentation.measure(asked.turns or FRAGMENTATION_TURNS) if FRAGMENTATION in names else []
    if replays:
        console.print(fragmentation.table(replays), "")
    queued = queue_memory.measure() if QUEUE_MEMORY in names else []
    if queued:
        console.print(queue_memory.table(queued), "")
    decided = core_decisions.measure(asked.turns or core_decisions.TURNS) if CORE_DECISIONS in names else []
    if decided:
        console.print(core_decisions.table(decided), "")
    routed = routing.measure(asked.turns or routing.TURNS) if ROUTING in names else []
    if routed:
        console.print(routing.table(routed), "")
    machine["load_at_end"] = round(os.getloadavg()[0], 2)
    if asked.json:
        found = report.as_json(machine, results)
        found["benchmarks"] += [fragmentation.as_json(replays)] if replays else []
        found["benchmarks"] += [queue_memory.as_json(queued)] if queued else []
        found["benchmarks"] += [core_decisions.as_json(decided)] if decided else []
        found["benchmarks"] += [routing.as_json(routed)] if routed else []
        print(json.dumps(found, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure ScheduleMesh beside plain Ray.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(NAMES)}; all, when none is given")
    parser.add_argument("--json", action="store_true", help="print JSON with all samples; tables go to stderr")
    parser.add_argument("--turns", type=int, help="how often each side is measured, instead of the benchmark's own number")
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1, help="CPUs of each side; all of the machine's when left out")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - set(NAMES))
    if unknown or (asked.turns or 1) < 1 or asked.cpus < 1:
        parser.error(f"there is no {', '.join(unknown)}; known are {', '.join(NAMES)}" if unknown else "turns and CPUs are at least 1")
    return asked


def _machine(cpus: int) -> dict[str, Any]:
    """What the figures depend on. A load above a few tenths says that others were measured too."""
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
                results.append(_told(measure(bed, asked.turns or turns), console))
    if STARTUP in names:
        about = "one start of the bed until its API answers, from the words of each step to those of the next; the stop comes on top"
        results.append(_told(result_of(STARTUP, about, {"one federation": [bed.startup]}), console))
    return results


def _on_the_mesh_bed(names: list[str], asked: argparse.Namespace, console: Console) -> list[Result]:
    with open_mesh_bed() as bed:
        return [_told(measure(bed, asked.turns or turns), console) for name, (measure, turns) in ON_THE_MESH_BED.items() if name in names]


def _told(result: Result, console: Console) -> Result:
    """The result, printed as soon as it is there."""
    console.print(report.tables([result]))
    return result


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped before its end; nothing is left running")
