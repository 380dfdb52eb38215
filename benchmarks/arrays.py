"""Arrays of elements that do nothing: one node for the mesh, as many tasks as elements for plain Ray."""

from __future__ import annotations

import time

import ray

import dag
from benchmarks.bed import Bed
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.work import one

ELEMENTS, MANY = 10_000, 1_000_000
MESH, MESH_OF_MANY, PLAIN = f"ScheduleMesh, {ELEMENTS:,}", f"ScheduleMesh, {MANY:,}", f"plain Ray, {ELEMENTS:,}"


def measure(bed: Bed, turns: int) -> Result:
    """Measure both lengths on the mesh, and the shorter one in plain Ray, in turns."""
    element = bed.plain(one)

    def plain() -> Sample:
        begun = time.perf_counter()
        _check(ray.get([element.remote(number) for number in range(ELEMENTS)]), ELEMENTS)
        return {WALL: (time.perf_counter() - begun) * 1000}

    sides = {MESH: lambda: _on_the_mesh(bed, ELEMENTS), MESH_OF_MANY: lambda: _on_the_mesh(bed, MANY), PLAIN: plain}
    about = (
        f"an array of {ELEMENTS:,} and of {MANY:,} elements that do nothing, from Python until the list is there, {bed.cpus} CPUs per side"
    )
    return result_of("array", about, in_turns(sides, warm_ups=1, turns=turns), base=PLAIN)


def _on_the_mesh(bed: Bed, elements: int) -> Sample:
    begun = time.perf_counter()
    run = bed.client.submit(dag.map(one, list(range(elements))))
    submitted = time.perf_counter()
    _check(run.result(), elements)
    ended = time.perf_counter()
    return {WALL: (ended - begun) * 1000, "client: submit": (submitted - begun) * 1000, "client: wait": (ended - submitted) * 1000}


def _check(values: list[int], elements: int) -> None:
    if len(values) != elements or sum(values) != elements:
        raise AssertionError(f"{len(values)} values instead of {elements}")
