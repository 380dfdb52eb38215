"""Arrays of elements that do nothing: one node for the mesh, as many tasks as elements for plain Ray."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import ray

import dag
from benchmarks.bed import Bed
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.work import one

ELEMENTS, MANY = 10_000, 1_000_000
#: Least growth of memory that is shown, in MiB.
SHOWN_MIB = 0.5
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


def measure_memory(bed: Bed, turns: int) -> Result:
    """Measure how much more memory each process has while an array of a million elements runs than after an array of one."""
    samples = []
    for _ in range(turns):
        _on_the_mesh(bed, 1)
        with _growth_mib() as growth:
            _on_the_mesh(bed, MANY)
        samples.append(growth)
    names = sorted({name for growth in samples for name, mib in growth.items() if mib >= SHOWN_MIB})
    found = [{WALL: sum(growth.values()), **{name: growth.get(name, 0.0) for name in names}} for growth in samples]
    about = (
        f"an array of {MANY:,} elements that do nothing: resident memory of each process at its highest, beyond that before;"
        " target: 300 MiB for client and server"
    )
    return result_of("array_memory", about, {MESH_OF_MANY: found}, unit="MiB")


@contextmanager
def _growth_mib() -> Iterator[dict[str, float]]:
    """While the block runs, look at this process and all below it; the dict gets the growth of each kind of process."""
    growth: dict[str, float] = {}
    before = dict(_resident())
    highest: dict[int, tuple[str, int]] = dict(before)
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.1):
            for pid, (name, size) in _resident():
                if size > highest.get(pid, ("", 0))[1]:
                    highest[pid] = name, size

    looks = threading.Thread(target=look)
    looks.start()
    try:
        yield growth
    finally:
        is_over.set()
        looks.join()
    for pid, (name, size) in highest.items():
        growth[name] = growth.get(name, 0.0) + (size - before.get(pid, ("", 0))[1]) / 2**20


def _resident() -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield each process of the bed: its kind and resident memory without what it shares with others, in bytes."""
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        try:
            memory, words = process.memory_info(), process.cmdline()
        except psutil.Error:
            continue
        name = "client" if process.pid == os.getpid() else " ".join(words[:1]).rpartition("/")[2].rpartition(":")[2]
        yield process.pid, (name, memory.rss - memory.shared)


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
