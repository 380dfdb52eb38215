"""What belongs to a tenant comes back from who has borrowed it, whatever else the tenant waits for: two children, planner and ledger."""

from __future__ import annotations

import pytest
from two_children import AT_ONCE, GRACE_MS, HEARTBEAT_MS, PLAN_MS, TTL_MS, TwoChildren, stages

from federation.estimates import COST_RULES
from federation.explaining.forecasts import Forecasts
from federation.quota.policies import OnMaxWait, Policies, PreemptionMode, QueueSettings, Rules


@pytest.mark.parametrize("own", [20, 60])
def test_many_small_stages_of_an_owner_come_back_at_once_and_not_one_in_each_round(own: int):
    world = TwoChildren(2 * own, {"own": own, "borrower": 0})
    world.submit("east", "borrower", stages("b", own))
    world.go(5_000)
    world.submit("west", "own", stages("o", own))
    world.go(2 * PLAN_MS + HEARTBEAT_MS)
    assert (len(world.west.runs("o")), len(world.east.runs("b"))) == (own, 0)


@pytest.mark.parametrize("own", [1, 20])
def test_owned_wants_are_met_within_twice_the_time_to_live_and_the_grace_on_a_mesh_that_is_full(own: int):
    world = TwoChildren(own + 1, {"own": own, "borrower": 0})
    world.submit("east", "borrower", stages("b", own))
    world.go(5_000)
    world.submit("east", "own", stages("o", own))
    world.go(2 * (TTL_MS + GRACE_MS))
    assert (len(world.east.runs("o")), len(world.east.runs("b"))) == (own, 0)


@pytest.mark.parametrize("fair_sharing", [True, False])
@pytest.mark.parametrize("priority", [0, 1])
def test_a_stage_that_nobody_gives_way_to_hides_no_other(fair_sharing: bool, priority: int):
    world = TwoChildren(8, {"own": 2, "borrower": 2}, Rules(min_run_ms=0, fair_sharing=fair_sharing))
    world.submit("east", "borrower", stages("b", 4))
    world.go(3_000)
    world.submit("west", "own", ["big"], slot=3, priority=priority)
    world.go(5_000)
    world.submit("west", "own", stages("small", 2))
    world.go(5_000)
    assert world.west.runs() == {"small0", "small1"}
    assert len(world.east.runs("b")) == 2
    assert world.demands() == [("acme/own", 3, 1, priority)]


def test_what_explain_promises_a_small_stage_beside_a_hopeless_one_comes_true():
    world = TwoChildren(8, {"own": 2, "borrower": 2})
    world.submit("east", "borrower", stages("b", 4))
    world.go(3_000)
    world.submit("west", "own", ["big"], slot=3, priority=1)
    world.go(4_000)
    world.submit("west", "own", ["small"])
    world.west.work()
    queues = {mesh: world.store.heads_of(mesh, world.store.queued(mesh)) for mesh in ("east", "west")}
    forecast = Forecasts(world.store.snapshot(), world.tenant_policies.in_force(), queues, COST_RULES, {}).of("small")
    assert [(one.tenant, one.amounts["cpu"]) for one in forecast.victims] == [("acme/borrower", 10_000)]
    world.go(4_000)
    assert world.west.runs() == {"small"}


def test_what_is_granted_is_spent_on_the_most_urgent_first():
    world = TwoChildren(8, {"own": 4, "borrower": 0})
    world.submit("east", "borrower", stages("b", 4))
    world.go(3_000)
    world.submit("west", "own", stages("late", 4))
    world.submit("west", "own", stages("urgent", 2), priority=9)
    world.submit("west", "own", ["wide"], slot=2, priority=5)
    world.go(2 * HEARTBEAT_MS, plans=False)  # Until all of it is told.
    world.go(5_000)
    assert world.west.runs() == {"urgent0", "urgent1", "wide"}


def test_nobody_stops_for_more_slots_than_the_claimant_has_room_for():
    world = TwoChildren(8, {"own": 40, "borrower": 0})
    world.submit("east", "borrower", stages("b", 8))
    world.submit("west", "borrower", stages("c", 6))
    world.go(5_000)
    world.submit("west", "own", stages("a", 50))
    world.submit("west", "own", stages("o", 50), priority=1)
    world.go(20_000)
    assert len(world.west.runs("o")) == 8
    assert len(world.east.runs("b")) == 8


def test_a_want_is_as_old_as_the_oldest_stage_that_waits_however_long_others_have_waited_before():
    first = QueueSettings(max_wait_ms=60_000, on_max_wait=OnMaxWait.FIRST)
    world = TwoChildren(8, {"own": 1}, AT_ONCE, {"own": first}, duration_ms=2_000)
    for number in range(60):
        world.submit("east", "own", [f"s{number}"])
        world.go(2_000)
    world.submit("east", "own", ["last"])
    world.go(HEARTBEAT_MS)
    assert all(demand.waiting_ms < 20_000 for demand in world.store.snapshot().demands)


@pytest.mark.parametrize(("before", "now", "runs"), [(9, 0, {"o"}), (0, 9, set())], ids=["less urgent work follows", "more urgent does"])
def test_who_gives_way_to_more_urgent_work_goes_by_what_runs_now_and_not_by_what_the_lease_was_granted_for(before, now, runs):
    below = QueueSettings(policies=Policies(reclaim=PreemptionMode.LOWER_PRIORITY, within_queue=PreemptionMode.LOWER_PRIORITY))
    world = TwoChildren(8, {"own": 1, "borrower": 0}, AT_ONCE, {"own": below}, duration_ms=6_000)
    world.submit("east", "borrower", ["first"], priority=before)
    world.go(1_000)
    world.submit("east", "borrower", ["second"], priority=now)
    world.go(6_500)
    assert world.east.runs() == {"second"}
    world.submit("west", "own", ["o"], priority=5)
    world.go(2_000)
    assert world.west.runs() == runs


def test_nobody_stops_for_what_was_granted_since_the_mesh_told_its_wants():
    world = TwoChildren(80, {"own": 40, "borrower": 0})
    world.submit("east", "borrower", stages("b", 40))
    world.go(5_000)
    world.submit("west", "own", stages("o", 15))
    world.submit("west", "own", stages("p", 5), priority=1)
    world.go(10_000)
    assert (len(world.west.runs()), len(world.east.runs())) == (20, 20)
    assert world.demands() == []
