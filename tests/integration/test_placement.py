"""Placement groups on a real cluster of two CPUs."""

from __future__ import annotations

import json
import signal
import sys

import cloudpickle
import pytest
import ray
from patience import eventually
from ray.util.placement_group import placement_group_table
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.core.resources import NOTHING, ResourceSet
from mesh.ray.placement import IDLE_S, PlacementPool
from mesh.ray.user_code.ray_tables import demands, resources_waited_for
from mesh.stages.messages import NodeSucceeded

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

HALF = ResourceSet.of({"cpu": 0.5})
WHOLE = ResourceSet.of({"cpu": 1})


@pytest.fixture
def pool(ray_driver):
    pool = PlacementPool({"zone": "east"})
    yield pool
    pool.close()


def state_of(group):
    return placement_group_table(group)["state"]


def pause():
    signal.pause()


def test_a_released_group_is_reused_for_the_same_shape(pool):
    first = pool.take(HALF, 2)
    pool.give_back(first)
    assert pool.take(HALF, 2).id == first.id


def test_another_shape_gets_another_group(pool):
    first = pool.take(HALF, 2)
    pool.give_back(first)
    assert pool.take(HALF, 1).id != first.id


def test_a_group_in_use_is_not_shared(pool):
    assert pool.take(HALF, 1).id != pool.take(HALF, 1).id


def test_kept_groups_make_room_for_a_new_one(pool):
    first = pool.take(ResourceSet.of({"lamp": 1}), 1)
    eventually(lambda: state_of(first) == "CREATED")  # Ray may leak what it prepares for a group that is removed meanwhile.
    pool.give_back(first)
    second = pool.take(ResourceSet.of({"lamp": 1, "cpu": 0.5}), 1)
    assert state_of(first) == "REMOVED"
    eventually(lambda: state_of(second) == "CREATED")


def test_kept_groups_make_room_for_plain_ray(pool):
    """A lamp lights one of two: the group that is kept for later, or a task that knows of no group."""
    kept = pool.take(ResourceSet.of({"lamp": 1}), 1)
    eventually(lambda: state_of(kept) == "CREATED")
    pool.give_back(kept)
    pool.release(resources_waited_for())
    assert state_of(kept) == "CREATED"
    plain = ray.remote(num_cpus=0, resources={"lamp": 1})(lambda: "lit").remote()
    eventually(lambda: pool.release(resources_waited_for()) or state_of(kept) == "REMOVED", IDLE_S - 1)
    assert ray.get(plain) == "lit"


def test_work_that_waits_for_other_nodes_is_no_rival(pool):
    here, there = {"zone": "here"}, {"zone": "there"}
    waiting = ray.remote(num_cpus=0.5, label_selector=there)(pause).remote()
    eventually(lambda: resources_waited_for() == frozenset({"CPU"}))
    assert resources_waited_for(here) == frozenset()
    assert resources_waited_for(there) == frozenset({"CPU"})
    ray.cancel(waiting, force=True)


def test_work_that_waits_in_its_own_group_is_no_rival(pool):
    group = pool.take(ResourceSet.of({"lamp": 1}), 1)
    tasks = [
        ray.remote(num_cpus=0, resources={"lamp": 1})(pause).options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
        for _ in range(3)
    ]
    eventually(lambda: state_of(group) == "CREATED")
    eventually(lambda: any("_group_" in name for names in demands() for name in names))
    assert resources_waited_for() == frozenset()
    for task in tasks:
        ray.cancel(task, force=True)


def test_a_group_that_is_not_to_be_reused_is_removed(pool):
    first = pool.take(HALF, 1)
    pool.give_back(first, reuse=False)
    assert state_of(first) == "REMOVED"


def test_closing_removes_all_groups_and_the_pool_is_reusable(pool):
    taken, kept = pool.take(HALF, 1), pool.take(HALF, 2)
    pool.give_back(kept)
    pool.close()
    assert (state_of(taken), state_of(kept)) == ("REMOVED", "REMOVED")
    again = pool.take(HALF, 1)
    eventually(lambda: state_of(again) == "CREATED")


def where_am_i():
    group = ray.util.get_current_placement_group()
    return group.id.hex() if group else None


def test_tasks_of_a_stage_run_inside_its_group(pool, runner_log, task):
    group = pool.take(WHOLE, 1)
    stage = runner_log.start(task("a", runner_log.function(where_am_i), export=True), run="inside", group=group)
    ended = runner_log.end(stage)["a"]
    assert json.loads(runner_log.blobs[ended.stored.sha256]) == group.id.hex()


def test_tasks_that_ask_for_nothing_run_in_a_group_of_nothing(pool, runner_log, task):
    group = pool.take(NOTHING, 1)
    stage = runner_log.start(*(task(f"n{n}", "call:builtins:int", n, resources=NOTHING) for n in range(20)), run="nothing", group=group)
    assert all(isinstance(message, NodeSucceeded) for message in runner_log.end(stage).values())


def test_a_task_that_no_slot_could_hold_fails_with_words(pool, runner_log, task):
    group = pool.take(HALF, 1)
    stage = runner_log.start(task("a", "call:builtins:int", 1, resources=WHOLE, ray_options={"max_calls": 1}), run="too-large", group=group)
    assert "cannot fit into any bundles" in runner_log.end(stage)["a"].failure.message
