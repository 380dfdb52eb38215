"""Quota that is reclaimed from wide stages comes back slot by slot: planner, ledger and two children."""

from __future__ import annotations

import pytest
from two_children import AT_ONCE, HEARTBEAT_MS, PLAN_MS, TwoChildren, stages

from federation.quota.policies import Rules
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang

CPU = 10_000


def world_with_wide_borrower(own=4, cpus=4, slots=4, rules=AT_ONCE, **about):
    """Return two meshes; a borrower's one stage uses so many slots of `east`."""
    world = TwoChildren(cpus, {"own": own, "borrower": 0, "other": 0}, rules)
    world.submit("east", "borrower", ["wide"], width=slots, tasks=slots, **about)
    world.go(5_000)
    assert slots_of(world, "wide") == slots
    return world


def slots_of(world, stage):
    """Return the slots of a running stage as the ledger knows them; 0: it does not run."""
    return next((row.slots for row in world.store.snapshot().running if row.stage == stage), 0)


def settle(world):
    world.go(2 * PLAN_MS + 2 * HEARTBEAT_MS)


def held(world, tenant):
    return sum(lease.amounts["cpu"] for lease in world.store.snapshot().leases if lease.tenant == f"acme/{tenant}") // CPU


@pytest.mark.parametrize("mesh", ["west", "east"], ids=["for another mesh", "for room of the same mesh"])
def test_reclaim_takes_slots_and_leaves_the_stage(mesh):
    world = world_with_wide_borrower()
    world.submit(mesh, "own", ["claim"])
    settle(world)
    assert (slots_of(world, "claim"), slots_of(world, "wide")) == (1, 3)
    assert (held(world, "own"), held(world, "borrower")) == (1, 3)


def test_reclaim_of_all_slots_stops_the_stage():
    world = world_with_wide_borrower()
    world.submit("west", "own", stages("claim", 4))
    settle(world)
    assert (len(world.west.runs("claim")), slots_of(world, "wide")) == (4, 0)


def test_further_claims_take_further_slots():
    world = world_with_wide_borrower()
    for number in range(1, 4):
        world.submit("west", "own", [f"claim{number}"])
        settle(world)
        assert (len(world.west.runs("claim")), slots_of(world, "wide")) == (number, 4 - number)


def test_a_gang_gives_back_whole_gangs():
    gang = Gang(size=2, bundle=ResourceSet.of({"cpu": 1}))
    world = world_with_wide_borrower(own=8, cpus=8, slots=4, slot=2, gang=gang)
    world.submit("west", "own", ["claim"])
    settle(world)
    assert (slots_of(world, "claim"), slots_of(world, "wide")) == (1, 3)


def test_a_stage_of_one_slot_stops_whole():
    world = world_with_wide_borrower(slots=1, slot=4)
    world.submit("west", "own", ["claim"])
    settle(world)
    assert (slots_of(world, "claim"), slots_of(world, "wide")) == (1, 0)


def test_a_claim_waits_while_the_stage_is_young():
    world = world_with_wide_borrower(rules=Rules(min_run_ms=60_000))
    world.submit("west", "own", ["claim"])
    settle(world)
    assert (slots_of(world, "claim"), slots_of(world, "wide")) == (0, 4)
    world.go(60_000)
    assert (slots_of(world, "claim"), slots_of(world, "wide")) == (1, 3)


def test_borrowers_share_slot_by_slot():
    world = world_with_wide_borrower()
    world.submit("west", "other", stages("o", 4))
    world.go(20_000)
    assert (held(world, "other"), held(world, "borrower"), slots_of(world, "wide")) == (2, 2, 2)


def test_a_wide_stage_gives_back_in_parts():
    world = world_with_wide_borrower(own=130, cpus=130, slots=130)
    world.submit("west", "own", ["claim"])
    settle(world)
    assert slots_of(world, "claim") == 1
    assert 126 <= slots_of(world, "wide") <= 129
