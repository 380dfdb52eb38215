"""An urgent task on a reserved placement group with a warm agent, beside plain Ray making a group and an actor in it.

Each side is measured from the user's call until the first method of a new object has answered. The mesh's side is the whole way
through its client: the task is journaled, queued, placed and hosted. The mesh is faster because a process waits in the group; the
price is that the group is held all the time.
"""

from __future__ import annotations

import time

import ray

from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from benchmarks.mesh_bed import MeshBed, await_that, remove_group
from benchmarks.work import Replier

POOL = "urgent"
PRIORITY = 9.0  #: Above the threshold of the reserved layer, which is 8.
WARM_UPS = 3
RESERVED, PLAIN = "reserved group, warm agent", "plain Ray"


def measure(bed: MeshBed, turns: int) -> Result:
    """Measure both sides in turns; each frees its room before the other begins."""
    about = f"from the call to the first reply: a task of priority {PRIORITY:g} on the mesh, a placement group and an actor of plain Ray"
    bed.mesh.create_pool(POOL, capacity={"cpu": 1})
    bed.mesh.configure_pool(POOL, high_priority_pg_specs=[{"cpu": 1}], max_dynamic_pgs=1)
    await_that(lambda: bed.is_waiting(POOL, agents=1))
    try:
        found = in_turns({RESERVED: lambda: _reserved(bed), PLAIN: lambda: _plain(bed)}, warm_ups=WARM_UPS, turns=turns)
    finally:
        bed.mesh.delete_pool(POOL)
    return result_of("urgent_start", about, found, base=PLAIN)


def _reserved(bed: MeshBed) -> Sample:
    begun = time.perf_counter()
    handle = bed.mesh.submit_task(Replier, pool=POOL, resources={"cpu": 1}, priority=PRIORITY)
    submitted = time.perf_counter()
    status = handle.wait_started()
    started = time.perf_counter()
    handle.call("reply")
    replied = time.perf_counter()
    assert status.group is not None, status
    handle.finish()
    handle.wait()
    await_that(lambda: bed.is_waiting(POOL, agents=1))
    return {
        WALL: (replied - begun) * 1000,
        "submit_task": (submitted - begun) * 1000,
        "wait_started": (started - submitted) * 1000,
        "the first reply": (replied - started) * 1000,
    }


def _plain(bed: MeshBed) -> Sample:
    begun = time.perf_counter()
    group = bed.plain_group()
    actor = bed.plain_actor(group)
    ray.get(actor.reply.remote())
    replied = time.perf_counter()
    ray.kill(actor)
    remove_group(group)
    await_that(lambda: bed.plain_cpus_free() == bed.cpus)
    return {WALL: (replied - begun) * 1000}
