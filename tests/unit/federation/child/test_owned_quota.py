"""Reclaim of owned quota with two children, planner and ledger, whatever else the owner waits for."""

from __future__ import annotations

import pytest
from two_children import AT_ONCE, GRACE_MS, HEARTBEAT_MS, PLAN_MS, TTL_MS, TwoChildren, stages

from federation.estimates import COST_RULES
from federation.explaining.forecasts import Forecasts
from federation.quota.policies import OnMaxWait, Policies, PreemptionMode, QueueSettings, Rules


@pytest.mark.parametrize("own", [20, 60])
def test_many_small_stages_of_an_owner_reclaim_in_one_round(own: int):
    world = TwoChildren(2 * own, {"own": own, "borrower": 0})
    world.submit("east", "borrower", stages("b", own))
    world.go(5_000)
    world.submit("west", "own", stages("o", own))
    world.go(2 * PLAN_MS + HEARTBEAT_MS)
    assert (len(world.west.runs("o")), len(world.east.runs("b"))) == (own, 0)


@pytest.mark.parametrize("own", [1, 20])
def test_owned_demands_are_met_within_two_ttls_and_the_grace(own: int):
    world = TwoChildren(own + 1, {"own": own, "borrower": 0})
    world.submit("east", "borrower", stages("b", own))
    world.go(5_000)
    world.submit("east", "own", stages("o", own))
    world.go(2 * (TTL_MS + GRACE_MS))
    assert (len(world.east.runs("o")), len(world.east.runs("b"))) == (own, 0)


@pytest.mark.parametrize("fair_sharing", [True, False])
@pytest.mark.parametrize("priority", [0, 1])
def test_stage_without_victims_hides_no_other(fair_sharing: bool, priority: int):
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


def test_explained_forecast_of_a_small_stage_comes_true():
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


def test_granted_quota_goes_to_the_most_urgent_first():
    world = TwoChildren(8, {"own": 4, "borrower": 0})
    world.submit("east", "borrower", stages("b", 4))
    world.go(3_000)
    world.submit("west", "own", stages("late", 4))
    world.submit("west", "own", stages("urgent", 2), priority=9)
    world.submit("west", "own", ["wide"], slot=2, priority=5)
    world.go(2 * HEARTBEAT_MS, plans=False)  # Until all of it is reported.
    world.go(5_000)
    assert world.west.runs() == {"urgent0", "urgent1", "wide"}


def test_reclaim_is_bounded_by_the_claimants_capacity():
    world = TwoChildren(8, {"own": 40, "borrower": 0})
    world.submit("east", "borrower", stages("b", 8))
    world.submit("west", "borrower", stages("c", 6))
    world.go(5_000)
    world.submit("west", "own", stages("a", 50))
    world.submit("west", "own", stages("o", 50), priority=1)
    world.go(20_000)
    assert len(world.west.runs("o")) == 8
    assert len(world.east.runs("b")) == 8


def test_demand_is_as_old_as_its_oldest_waiting_stage():
    first = QueueSettings(max_wait_ms=60_000, on_max_wait=OnMaxWait.FIRST)
    world = TwoChildren(8, {"own": 1}, AT_ONCE, {"own": first}, duration_ms=2_000)
    for number in range(60):
        world.submit("east", "own", [f"s{number}"])
        world.go(2_000)
    world.submit("east", "own", ["last"])
    world.go(HEARTBEAT_MS)
    assert all(demand.waiting_ms < 20_000 for demand in world.store.snapshot().demands)


@pytest.mark.parametrize(
    ("before", "now", "runs"), [(9, 0, {"o"}), (0, 9, set())], ids=["less urgent work follows", "more urgent work follows"]
)
def test_victims_are_chosen_by_running_work_not_by_lease(before, now, runs):
    below = QueueSettings(policies=Policies(reclaim=PreemptionMode.LOWER_PRIORITY, within_queue=PreemptionMode.LOWER_PRIORITY))
    world = TwoChildren(8, {"own": 1, "borrower": 0}, AT_ONCE, {"own": below, "borrower": QueueSettings()}, duration_ms=6_000)
    world.submit("east", "borrower", ["first"], priority=before)
    world.go(1_000)
    world.submit("east", "borrower", ["second"], priority=now)
    world.go(6_500)
    assert world.east.runs() == {"second"}
    world.submit("west", "own", ["o"], priority=5)
    world.go(2_000)
    assert world.west.runs() == runs


def test_grants_since_the_last_report_preempt_no_stage():
    world = TwoChildren(80, {"own": 40, "borrower": 0})
    world.submit("east", "borrower", stages("b", 40))
    world.go(5_000)
    world.submit("west", "own", stages("o", 15))
    world.submit("west", "own", stages("p", 5), priority=1)
    world.go(10_000)
    assert (len(world.west.runs()), len(world.east.runs())) == (20, 20)
    assert world.demands() == []


@pytest.mark.parametrize("after_ms", range(0, HEARTBEAT_MS, 400))
def test_stage_that_started_small_preempts_no_stage(after_ms: int):
    world = TwoChildren(4, {"train": 2, "night": 0})
    world.submit("east", "night", stages("n", 1))
    world.go(5_000 + after_ms)
    world.submit("west", "train", ["t"], width=2)
    world.go(100)
    assert (world.west.runs(), world.demands()) == ({"t"}, [])
    world.go(2 * PLAN_MS + HEARTBEAT_MS)
    assert world.east.runs() == {"n0"}


def test_stage_cancelled_in_its_queue_preempts_no_stage():
    world = TwoChildren(4, {"train": 2, "night": 0})
    world.submit("east", "night", stages("n", 2))
    world.go(5_000)
    world.submit("west", "train", ["t"])
    world.go(100, plans=False)
    assert world.demands() == [("acme/train", 1, 1, 0)]
    world.store.cancel("t")
    assert world.demands() == []
    world.go(2 * PLAN_MS + HEARTBEAT_MS)
    assert world.east.runs() == {"n0", "n1"}


LOWER = QueueSettings(policies=Policies(reclaim=PreemptionMode.LOWER_PRIORITY, within_queue=PreemptionMode.LOWER_PRIORITY))


def test_one_urgent_stage_shields_no_cheap_one():
    world = TwoChildren(8, {"own": 4, "borrower": 0}, AT_ONCE, {"own": LOWER, "borrower": QueueSettings()})
    world.submit("east", "borrower", stages("cheap", 3))
    world.submit("east", "borrower", ["urgent"], priority=9)
    world.go(3_000)
    assert len(world.east.runs()) == 4
    world.submit("west", "own", stages("o", 3), priority=5)
    world.go(5_000)
    assert (world.east.runs(), len(world.west.runs())) == ({"urgent"}, 3)


@pytest.mark.parametrize("mesh", ["east", "west"])
def test_cheaper_work_of_the_tenant_pays_for_missing_quota(mesh):
    world = TwoChildren(8, {"own": 4}, AT_ONCE, {"own": LOWER})
    world.submit("east", "own", stages("cheap", 4))
    world.go(3_000)
    world.submit(mesh, "own", ["urgent"], slot=3, priority=5)
    world.submit(mesh, "own", ["small"], priority=1)
    world.go(8_000)
    assert world.east.runs() | world.west.runs() == {"urgent", "small"}


def test_foreign_loans_return_before_own_work_stops():
    world = TwoChildren(8, {"own": 4, "borrower": 0}, AT_ONCE, {"own": LOWER, "borrower": QueueSettings()})
    world.submit("east", "own", stages("cheap", 2), priority=1)
    world.submit("east", "borrower", stages("loan", 2))
    world.go(3_000)
    world.submit("east", "own", ["urgent"], slot=2, priority=5)
    world.go(5_000)
    assert world.east.runs() == {"cheap0", "cheap1", "urgent"}
