"""An important task that arrives at a full pool, beside `ray.kill` of one's own actor and a new actor in its room.

Each side is measured from the user's call until the first method of the new object has answered. Before each turn every CPU of the
side is held by an idle object that is past its protection from preemption. The mesh does more in that time: it chooses the victim,
asks it to stop, saves its state, hands over its placement group and its process, and queues it again.
"""

from __future__ import annotations

import time
from typing import Any

import ray

from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.mesh_bed import MeshBed, await_that
from benchmarks.work import Replier
from mesh.core.task_spec import TaskState

POOL = "full"
LOW, HIGH = 1.0, 7.0  #: Below the threshold of the reserved layer: there is none here.
WARM_UPS = 3
#: A victim is protected for a second after its start.
PROTECTED_S = 1.1
PREEMPTING, PLAIN = "preempting, victim saved", "ray.kill and a new actor"


def measure(bed: MeshBed, turns: int) -> Result:
    """Measure both sides in turns; the pool and the plain node are filled again before each."""
    about = "from the call to the first reply, where idle objects of lower priority hold every CPU"
    bed.mesh.create_pool(POOL, capacity={"cpu": bed.cpus})
    bed.mesh.configure_pool(POOL, max_dynamic_pgs=bed.cpus)
    victims = [bed.mesh.submit_task(Replier, pool=POOL, resources={"cpu": 1}, priority=LOW) for _ in range(bed.cpus)]
    for victim in victims:
        victim.call("reply")
    actors = [bed.plain_actor() for _ in range(bed.cpus)]
    ray.get([actor.reply.remote() for actor in actors])
    await_that(lambda: _is_full(bed), PROTECTED_S)
    try:
        found = in_turns({PREEMPTING: lambda: _preempting(bed), PLAIN: lambda: _plain(bed, actors)}, warm_ups=WARM_UPS, turns=turns)
    finally:
        bed.mesh.delete_pool(POOL)
        for actor in actors:
            ray.kill(actor)
    return result_of("preempting_start", about, found, base=PLAIN)


def _preempting(bed: MeshBed) -> Sample:
    begun = time.perf_counter()
    handle = bed.mesh.submit_task(Replier, pool=POOL, resources={"cpu": 1}, priority=HIGH)
    submitted = time.perf_counter()
    handle.wait_started()
    started = time.perf_counter()
    handle.call("reply")
    replied = time.perf_counter()
    handle.finish()
    handle.wait()
    await_that(lambda: _is_full(bed), PROTECTED_S)  # The victim runs again where it was.
    return {
        WALL: (replied - begun) * 1000,
        "submit_task": (submitted - begun) * 1000,
        "wait_started": (started - submitted) * 1000,
        "the first reply": (replied - started) * 1000,
    }


def _plain(bed: MeshBed, actors: list[Any]) -> Sample:
    begun = time.perf_counter()
    ray.kill(actors.pop(0))
    actors.append(bed.plain_actor())
    ray.get(actors[-1].reply.remote())
    replied = time.perf_counter()
    await_that(lambda: bed.plain_cpus_free() == 0, PROTECTED_S)
    return {WALL: (replied - begun) * 1000}


def _is_full(bed: MeshBed) -> bool:
    return len(bed.mesh.list_tasks(pool=POOL, state=TaskState.RUNNING)) == bed.cpus
