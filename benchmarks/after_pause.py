"""Work after a pause: whether warm processes stay warm. As many tasks as CPUs, so that all workers are needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray

import dag
from benchmarks.bed import Bed
from benchmarks.journey import Stamps, journey_of, now_ms
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.work import nothing
from dag.client.compiling import compile_graph

MESH, PLAIN = "ScheduleMesh", "plain Ray"
#: Longer than Ray keeps an idle worker process.
PAUSE_S = 3


def measure(bed: Bed, turns: int) -> Result:
    """Measure both sides in turns, each after its own pause."""

    task = bed.plain(nothing)

    def rested(once: Callable[[], Sample]) -> Sample:
        time.sleep(PAUSE_S)
        return once()

    about = f"{bed.cpus} tasks that do nothing, one for each CPU, after {PAUSE_S} s in which nothing ran"
    found = in_turns(
        {MESH: lambda: rested(lambda: _on_the_mesh(bed)), PLAIN: lambda: rested(lambda: _by_ray(task, bed.cpus))}, warm_ups=2, turns=turns
    )
    return result_of("after_pause", about, found, base=PLAIN)


def _on_the_mesh(bed: Bed) -> Sample:
    begun = now_ms()
    spec = compile_graph([dag.bind(nothing) for _ in range(bed.cpus)], tenant=bed.client.access.tenant)
    compiled = now_ms()
    run = bed.client.submit_spec(spec)
    run.result()
    return journey_of(bed.client, run.id, Stamps(begun=begun, compiled=compiled, ended=now_ms()))


def _by_ray(task: Any, count: int) -> Sample:
    begun = time.perf_counter()
    ray.get([task.remote() for _ in range(count)])
    return {WALL: (time.perf_counter() - begun) * 1000}
