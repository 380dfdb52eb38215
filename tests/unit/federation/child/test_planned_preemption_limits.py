"""Limits of a mesh on preemption, with two children, planner and ledger: what a plan may stop all the same."""

from __future__ import annotations

import pytest
from two_children import AT_ONCE, TwoChildren, stages

from federation.quota.policies import Policies, PreemptionMode, QueueSettings
from mesh.preemption.stage_preemption import NO_LIMITS, PreemptionLimits
from mesh.stages.stage_settings import MICROS

LOWER = {"own": QueueSettings(policies=Policies(within_queue=PreemptionMode.LOWER_PRIORITY, reclaim=PreemptionMode.ANY))}
SPARED = PreemptionLimits(threshold=9 * MICROS)
PROTECTED = PreemptionLimits(protected_pools=("g",))


def world(cpus, quotas, limits):
    return TwoChildren(cpus, quotas, AT_ONCE, LOWER, limits=limits)


@pytest.mark.parametrize(("limits", "runs"), [pytest.param(NO_LIMITS, {"urgent"}, id="open"), pytest.param(SPARED, set(), id="limited")])
def test_a_plan_lifts_no_limit_of_a_full_mesh(limits, runs):
    """The planner helps on a mesh without room when the mesh has not preempted for a while."""
    full = world(2, {"own": 4}, limits)
    full.submit("east", "own", stages("low", 2))
    full.go(5_000)
    full.submit("east", "own", ["urgent"], priority=5)
    full.go(20_000)
    assert full.east.runs("urgent") == runs
    assert len(full.east.runs()) == 2


@pytest.mark.parametrize(
    ("limits", "count"),
    [pytest.param(NO_LIMITS, 1, id="open"), pytest.param(PROTECTED, 2, id="protected"), pytest.param(SPARED, 1, id="limited")],
)
def test_protected_stages_outlast_their_tenants_need_elsewhere(limits, count):
    short = world(4, {"own": 2}, limits)
    short.submit("east", "own", stages("low", 2))
    short.go(5_000)
    short.submit("west", "own", ["urgent"], priority=5)
    short.go(20_000)
    assert (len(short.east.runs("low")), len(short.west.runs("urgent"))) == (count, 2 - count)


def test_stages_on_one_protected_mesh_preempt_each_other():
    short = world(4, {"own": 2}, PROTECTED)
    short.submit("east", "own", stages("low", 2))
    short.go(5_000)
    short.submit("east", "own", ["urgent"], priority=5)
    short.go(20_000)
    assert "urgent" in short.east.runs()


@pytest.mark.parametrize("limits", [PROTECTED, SPARED], ids=["protected", "limited"])
def test_owned_quota_comes_back_from_any_mesh(limits):
    lent = world(4, {"own": 2, "borrower": 0}, limits)
    lent.submit("east", "borrower", stages("b", 2))
    lent.go(5_000)
    lent.submit("west", "own", stages("o", 2))
    lent.go(20_000)
    assert (len(lent.west.runs("o")), len(lent.east.runs("b"))) == (2, 0)
