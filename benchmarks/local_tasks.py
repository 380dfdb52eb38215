"""Many tasks that do nothing on a local mesh, beside plain Ray: milliseconds a task, from the first submission to the last value.

Two run at a time on each side. Tasks of one program share the processes of the mesh; a process for each task is measured beside
them, on fewer tasks, and so is a plain actor for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ray

from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.mesh_bed import MeshBed
from benchmarks.work import Replier, nothing
from mesh import TaskHandle

POOL = "tasks"
AT_ONCE = 2  #: Tasks that run at a time.
TASKS, NEW_PROCESSES = 500, 6  #: Tasks in shared processes; tasks with a process each.
WARM_UPS = 1
SHARED, OWN, PLAIN, ACTORS, NEW_ACTORS = (
    "submit_task",
    "submit_task, own_process",
    "plain Ray tasks",
    "two plain actors",
    "a plain actor each",
)


def measure(bed: MeshBed, turns: int) -> Result:
    """Measure all sides in turns. The two plain actors hold half of the plain node, so plain tasks run two at a time as well."""
    assert bed.cpus == 2 * AT_ONCE, bed.cpus
    about = f"milliseconds a task of {TASKS} that do nothing, {AT_ONCE} at a time; of {NEW_PROCESSES} where each has a process of its own"
    bed.mesh.create_pool(POOL, capacity={"cpu": AT_ONCE})
    task = ray.remote(num_cpus=1)(nothing).options(label_selector={"side": "plain"})
    actors = [bed.plain_actor() for _ in range(AT_ONCE)]
    sides: dict[str, Callable[[], Sample]] = {
        SHARED: lambda: _by_mesh(bed, TASKS, own_process=False),
        OWN: lambda: _by_mesh(bed, NEW_PROCESSES, own_process=True),
        PLAIN: lambda: _timed(TASKS, lambda: ray.get([task.remote() for _ in range(TASKS)])),
        ACTORS: lambda: _timed(TASKS, lambda: ray.get([actors[number % AT_ONCE].reply.remote() for number in range(TASKS)])),
        NEW_ACTORS: lambda: _timed(NEW_PROCESSES, lambda: _new_actors(bed)),
    }
    try:
        found = in_turns(sides, warm_ups=WARM_UPS, turns=turns)
    finally:
        bed.mesh.delete_pool(POOL)
        for actor in actors:
            ray.kill(actor)
    return result_of("local_tasks", about, found, base=PLAIN)


def _timed(count: int, work: Callable[[], Any]) -> Sample:
    begun = time.perf_counter()
    work()
    return {WALL: (time.perf_counter() - begun) * 1000 / count}


def _by_mesh(bed: MeshBed, count: int, *, own_process: bool) -> Sample:
    def submit() -> TaskHandle:
        return bed.mesh.submit_task(Replier, pool=POOL, resources={"cpu": 1}, method="reply", own_process=own_process)

    begun = time.perf_counter()
    handles = [submit() for _ in range(count)]
    submitted = time.perf_counter()
    for handle in handles:
        handle.result()
    ended = time.perf_counter()
    return {
        WALL: (ended - begun) * 1000 / count,
        "submit_task": (submitted - begun) * 1000 / count,
        "results after that": (ended - submitted) * 1000 / count,
    }


def _new_actors(bed: MeshBed) -> None:
    for _ in range(NEW_PROCESSES // AT_ONCE):
        actors = [bed.plain_actor() for _ in range(AT_ONCE)]
        ray.get([actor.reply.remote() for actor in actors])
        for actor in actors:
            ray.kill(actor)
