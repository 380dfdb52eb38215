"""A wide graph and a long one of tasks that do nothing: the cost of a task itself, and of a step from a task to the next."""

from __future__ import annotations

import time

import ray

import dag
from benchmarks.bed import Bed
from benchmarks.journey import Stamps, journey_of, now_ms
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.work import nothing, one, total
from dag.client.compiling import compile_graph

NODES = 1_000
WIDTH = NODES - 2
LENGTH = 300
MESH, PLAIN = "ScheduleMesh", "plain Ray"


def measure(bed: Bed, turns: int) -> Result:
    """Measure both sides in turns."""
    source, fan, reduce = bed.plain(nothing), bed.plain(one), bed.plain(total)

    def plain() -> Sample:
        begun = time.perf_counter()
        first = source.remote()
        last = reduce.remote(*[fan.remote(first) for _ in range(WIDTH)])
        submitted = time.perf_counter()
        _check(ray.get(last))
        ended = time.perf_counter()
        return {WALL: (ended - begun) * 1000, "driver: submit": (submitted - begun) * 1000, "driver: wait": (ended - submitted) * 1000}

    about = f"{NODES:,} tasks that do nothing: {WIDTH} in parallel, and one that reduces them; from Python, {bed.cpus} CPUs per side"
    found = in_turns({MESH: lambda: _on_the_mesh(bed), PLAIN: plain}, warm_ups=2, turns=turns)
    return result_of("fan_out", about, found, base=PLAIN)


def measure_chain(bed: Bed, turns: int) -> Result:
    """Measure both sides of the chain in turns."""
    source, step = bed.plain(nothing), bed.plain(one)

    def plain() -> Sample:
        begun = time.perf_counter()
        last = source.remote()
        for _ in range(LENGTH - 1):
            last = step.remote(last)
        _check(ray.get(last), 1)
        return {WALL: (time.perf_counter() - begun) * 1000}

    about = f"{LENGTH} tasks that do nothing, each with the value of the one before; from Python"
    found = in_turns({MESH: lambda: _chain_on_the_mesh(bed), PLAIN: plain}, warm_ups=2, turns=turns)
    return result_of("chain", about, found, base=PLAIN)


def _chain_on_the_mesh(bed: Bed) -> Sample:
    begun = now_ms()
    last, step = dag.bind(nothing), dag.task(one)
    for _ in range(LENGTH - 1):
        last = step.bind(last)
    spec = compile_graph(last, tenant=bed.client.access.tenant)
    compiled = now_ms()
    run = bed.client.submit_spec(spec)
    _check(run.result(), 1)
    return journey_of(bed.client, run.id, Stamps(begun=begun, compiled=compiled, ended=now_ms()))


def _on_the_mesh(bed: Bed) -> Sample:
    begun = now_ms()
    first = dag.bind(nothing)
    spread = dag.task(one)
    last = dag.bind(total, *[spread.bind(first) for _ in range(WIDTH)])
    spec = compile_graph(last, tenant=bed.client.access.tenant)
    compiled = now_ms()
    run = bed.client.submit_spec(spec)
    _check(run.result())
    return journey_of(bed.client, run.id, Stamps(begun=begun, compiled=compiled, ended=now_ms()))


def _check(value: object, expected: int = WIDTH) -> None:
    if value != expected:
        raise AssertionError(f"the last task gave {value!r} instead of {expected}")
