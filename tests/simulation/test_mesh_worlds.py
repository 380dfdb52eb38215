"""Simulation of one mesh under faults, for fixed seeds: all work ends, nothing runs twice, nothing is left."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mesh.core.ids import LabelName, NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.core.task_spec import TaskRequest
from mesh.preemption.rules import PreemptionRules
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings
from simulator.mesh_world import Arrival, MeshFaults, MeshWorld, SimulatedNode

SETTINGS = SchedulerSettings(rules=PreemptionRules.of("high"), start_tries=50)
FAULTS = MeshFaults(refuse_start=0.05, fail_group=0.1, lose_agent=0.1, lose_node=0.03, answer_twice=0.05)


def cpus(count: float) -> ResourceSet:
    return ResourceSet.of({"cpu": count})


def world_of(seed: int, faults: MeshFaults) -> MeshWorld:
    nodes = [SimulatedNode(node=NodeName(f"n{index}"), total=cpus(8), labels={"zone": "ab"[index % 2]}) for index in range(4)]
    groups = GroupPoolSpec(reserved=(GroupShape((cpus(2),)),), max_dynamic=8, idle_ms=5_000)
    pools = [PoolSpec(pool=PoolName("groups"), capacity=cpus(16), groups=groups), PoolSpec(pool=PoolName("plain"), capacity=cpus(16))]
    return MeshWorld(MeshScheduler(SETTINGS, seed=seed), nodes, pools, seed=seed, faults=faults)


def arrivals_of(seed: int, count: int) -> list[Arrival]:
    random_stream = random.Random(seed)
    return [
        Arrival(
            at_ms=random_stream.randint(0, 60_000),
            work_ms=random_stream.choice([100, 2_000, 15_000]),
            keeps_every_ms=1_000,
            request=TaskRequest(
                task=TaskId(f"t{index}"),
                pool=PoolName(random_stream.choice(["groups", "plain"])),
                resources=cpus(random_stream.choice([0.5, 1, 2, 4])),
                label=LabelName(random_stream.choice(["", "tier:gold"])),
                priority=random_stream.choice([1.0, 5.0, 9.0]),
                selector={"zone": "a"} if random_stream.random() < 0.2 else {},
                max_restarts=-1,
            ),
        )
        for index in range(count)
    ]


def gangs_of(seed: int, count: int) -> list[Arrival]:
    """Return urgent gangs of three, and tasks of two bundles, among small ones."""
    random_stream = random.Random(seed)
    arrivals = []
    for index in range(count):
        at_ms, wide = random_stream.randint(0, 60_000), random_stream.random() < 0.5
        arrivals += [
            Arrival(
                at_ms=at_ms,
                work_ms=2_000,
                keeps_every_ms=1_000,
                request=TaskRequest(
                    task=TaskId(f"gang{index}.{member}"),
                    pool=PoolName("plain"),
                    resources=cpus(2),
                    bundles=(cpus(2), cpus(1)) if wide else (),
                    strategy=random_stream.choice(["SPREAD", "STRICT_PACK", "STRICT_SPREAD"]),
                    priority=9.0,
                    max_restarts=-1,
                    gang="" if wide else f"gang{index}",
                    gang_size=0 if wide else 3,
                ),
            )
            for member in range(1 if wide else 3)
        ]
    return arrivals


@pytest.mark.seeds(6)
def test_gangs_and_small_work_end_under_faults_and_free_all(seed: int):
    # Nodes stay: the world ends a task only with the node of its first bundle.
    world = world_of(seed, replace(FAULTS, lose_node=0.0))
    arrivals = [*arrivals_of(seed, 80), *gangs_of(seed, 8)]
    world.run(arrivals, until_ms=3_600_000)
    assert {arrival.request.task for arrival in arrivals} - set(world.ends) == set(), f"seed {seed}"
    assert set(world.ends.values()) == {Reason.FINISHED}, f"seed {seed}"
    state = world.scheduler.state
    assert not state.evictions, f"seed {seed}"
    assert not state.reservations, f"seed {seed}"
    held = {holder for pool in state.pools.pools.values() for holder in (*pool.reservations, *pool.uses)}
    assert held <= {f"group:{group}" for group in state.groups.records}, f"seed {seed}"


def test_an_urgent_gang_gets_all_its_places_by_preemption():
    world = world_of(5, MeshFaults())
    low = [
        Arrival(
            at_ms=0,
            work_ms=60_000,
            request=TaskRequest(task=TaskId(f"low{index}"), pool=PoolName("plain"), resources=cpus(4), priority=1.0, max_restarts=-1),
        )
        for index in range(4)
    ]
    gang = [
        Arrival(
            at_ms=10_000,
            work_ms=1_000,
            request=TaskRequest(
                task=TaskId(f"g{index}"), pool=PoolName("plain"), resources=cpus(4), priority=9.0, gang="g", gang_size=3, max_restarts=-1
            ),
        )
        for index in range(3)
    ]
    world.run([*low, *gang], until_ms=3_600_000)
    assert world.preemptions == 3
    assert {world.first_bound_ms[member.request.task] for member in gang} == {world.first_bound_ms[gang[0].request.task]}
    assert world.first_bound_ms[gang[0].request.task] - 10_000 <= SETTINGS.grace_ms


@pytest.mark.seeds(11)
def test_everything_that_arrives_ends_and_nothing_is_held_then(seed: int):
    world = world_of(seed, FAULTS)
    arrivals = arrivals_of(seed, 120)
    world.run(arrivals, until_ms=3_600_000)
    assert {arrival.request.task for arrival in arrivals} - set(world.ends) == set(), f"seed {seed}"
    assert set(world.ends.values()) == {Reason.FINISHED}, f"seed {seed}"
    assert all(world.done_ms[arrival.request.task] >= arrival.work_ms for arrival in arrivals), f"seed {seed}"
    state = world.scheduler.state
    held = {holder for pool in state.pools.pools.values() for holder in (*pool.reservations, *pool.uses)}
    assert held <= {f"group:{group}" for group in state.groups.records}, f"seed {seed}"


def test_a_world_is_the_same_again_from_its_seed():
    ends = []
    for _ in range(2):
        world = world_of(3, FAULTS)
        world.run(arrivals_of(3, 60), until_ms=3_600_000)
        ends.append((world.first_bound_ms, world.lost_ms, world.preemptions, world.now_ms))
    assert ends[0] == ends[1]


def test_urgent_work_preempts_and_saved_work_is_not_repeated():
    world = world_of(5, MeshFaults())
    low = [
        Arrival(
            at_ms=0,
            work_ms=60_000,
            request=TaskRequest(task=TaskId(f"low{index}"), pool=PoolName("plain"), resources=cpus(4), priority=1.0, max_restarts=-1),
        )
        for index in range(4)
    ]
    urgent = Arrival(
        at_ms=10_000, work_ms=1_000, request=TaskRequest(task=TaskId("u"), pool=PoolName("plain"), resources=cpus(4), priority=9.0)
    )
    world.run([*low, urgent], until_ms=3_600_000)
    assert world.preemptions == 1
    assert world.first_bound_ms[TaskId("u")] - urgent.at_ms <= SETTINGS.grace_ms
    assert world.lost_ms == 0
