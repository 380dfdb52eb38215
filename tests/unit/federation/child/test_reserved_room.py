"""Room of reserved groups and of preemptors, as the planner counts it, with two children and a ledger."""

from __future__ import annotations

import pytest
from two_children import HEARTBEAT_MS, PLAN_MS, TwoChildren, stages

from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang, GroupPoolSpec, GroupShape

ONE = ResourceSet.of({"cpu": 1})
#: One group of one CPU, which urgent slots of one bundle take.
GROUPS = GroupPoolSpec(reserved=(GroupShape((ONE,)),), reserved_priority=8)


@pytest.fixture
def world():
    """Two meshes of four CPUs, one of them in a reserved group; a borrower uses the other three of `east`."""
    world = TwoChildren(4, {"own": 4, "borrower": 0}, groups=GROUPS)
    world.submit("east", "borrower", stages("b", 3))
    world.go(5_000)
    assert len(world.east.runs("b")) == 3
    return world


def settled(world):
    """Return how many borrowing stages are left, and what else runs."""
    world.go(2 * PLAN_MS + 2 * HEARTBEAT_MS)
    return len(world.east.runs("b")), world.east.runs() - world.east.runs("b")


def test_an_urgent_gang_reclaims_room_that_it_may_use(world):
    world.submit("east", "own", ["gang"], priority=9, gang=Gang(size=2, bundle=ResourceSet.of({"cpu": 0.5})))
    assert settled(world) == (2, {"gang"})


def test_an_urgent_slot_that_no_group_covers_reclaims_room(world):
    world.submit("east", "own", ["wide"], slot=2, priority=9)
    assert settled(world) == (1, {"wide"})


def test_an_urgent_slot_in_a_reserved_group_reclaims_nothing(world):
    world.submit("east", "own", ["urgent"], priority=9)
    assert settled(world) == (3, {"urgent"})


def test_work_that_finds_only_reserved_room_reclaims_other_room(world):
    world.submit("east", "own", ["plain"])
    assert settled(world) == (2, {"plain"})


def test_a_gang_and_a_plain_slot_of_one_size_are_two_demands(world):
    gang = Gang(size=2, bundle=ResourceSet.of({"cpu": 0.5}))
    world.submit("east", "own", ["gang"], gang=gang)
    world.submit("east", "own", ["plain"])
    world.go(HEARTBEAT_MS, plans=False)
    rows = [(one.slot, one.slots, one.gang_size) for one in world.store.snapshot().demands]
    assert sorted(rows, key=lambda row: row[2]) == [(ONE, 1, 0), (ONE, 1, 2)]
