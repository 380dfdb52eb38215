"""Preemption of running stages when the ledger reclaims their lease."""

from __future__ import annotations

import pytest
from child_bed import CPU, HEARTBEAT_MS, TTL_MS, Federation

from federation.child.child_mesh import HEARTBEATS_PER_COMPARISON, IDLE_HEARTBEATS
from federation.child.running_stage import RunningStage, StageNote, beyond_limit
from federation.dispatch import Claim
from federation.leases import TargetUpdate
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import PreemptionPolicy


def test_work_continues_when_the_store_lost_an_obeyed_plan():
    federation = Federation()
    federation.heartbeat()
    federation.submit("s", priority=1)
    federation.submit("t")
    federation.heartbeat(2)
    before = federation.store.copied()
    target_update = TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=CPU)
    federation.store.plan_apply(federation.store.elect("p", 60_000), federation.store.snapshot().version, (target_update,))
    federation.heartbeat()  # `t` is asked to stop.
    federation.clock.advance(0)
    federation.host.advance()
    while federation.reports:
        federation.child.take_report(federation.reports.pop(0))
    assert federation.running() == {"s"}
    federation.store.lose_writes(before)
    federation.heartbeat(2 * HEARTBEATS_PER_COMPARISON)
    assert (federation.running(), federation.host.stopping) == ({"s"}, set())


def test_stage_of_a_revoked_lease_stops_and_waits_again(busy):
    busy.store.revoke(tenant="acme")
    busy.heartbeat()
    assert busy.held() == 1  # Still charged: it is being stopped.
    busy.work()
    assert busy.kinds()[-1] == ("s", "stage_lost")
    assert busy.messages[-1].reason is Reason.QUOTA_RECLAIMED
    assert not [message for message in busy.messages if message.kind == "node_failed"]
    busy.heartbeat(2)
    assert (busy.running(), busy.held(), busy.store.audit()) == (set(), 0, ())


def test_least_urgent_latest_stages_are_preempted_minimally():
    federation = Federation()
    federation.heartbeat()
    for name, priority in (("early", 0), ("late", 0), ("urgent", 5)):
        federation.submit(name, priority=priority)
        federation.notifications()
    planner = federation.store.elect("me", 60_000)
    target_update = TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=ResourceSet.of({"cpu": 2}))
    federation.store.plan_apply(planner, federation.store.snapshot().version, (target_update,))
    federation.heartbeat()
    federation.work(0)
    assert federation.running() == {"early", "urgent"}
    federation.heartbeat()
    assert federation.held() == 2


MIN_RUN_MS = 10 * TTL_MS
AGED = PreemptionPolicy(min_run_ms=MIN_RUN_MS)


def taken_by_plan(federation, left, *victims, wait_ms=MIN_RUN_MS):
    """Apply a plan that leaves the lease this many CPUs and names victims, and notify the child."""
    snapshot = federation.store.snapshot()
    tokens = tuple(row.token for row in snapshot.running if row.stage in victims)
    target_update = TargetUpdate(
        mesh="east", tenant="acme", flavor="standard", target=ResourceSet.of({"cpu": left}), wait_ms=wait_ms, victims=tokens
    )
    federation.store.plan_apply(federation.store.elect("me", 10**9), snapshot.version, (target_update,))
    federation.notifications()
    federation.heartbeat()


def pass_by(federation, span_ms):
    """Let time pass with due heartbeats."""
    until_ms = federation.clock.monotonic_ms() + span_ms
    while (left_ms := until_ms - federation.clock.monotonic_ms()) > 0:
        federation.clock.advance(min(left_ms, federation.child.due_in_ms()))
        if federation.child.due_in_ms() == 0:
            federation.child.heartbeat()


def stopping(federation):
    return set(federation.host.stopping)


@pytest.fixture
def aged(joined):
    """`old` has run its minimum, `young` has just begun under the same lease, `next` waits."""
    joined.submit("old", preemption=AGED, priority=5)
    joined.notifications()
    pass_by(joined, MIN_RUN_MS)
    joined.submit("young", preemption=AGED)
    joined.notifications()
    assert joined.running() == {"old", "young"}
    return joined


def test_stage_past_its_minimum_run_time_is_preempted_first(aged):
    taken_by_plan(aged, 1)
    assert stopping(aged) == {"old"}


def test_young_stage_runs_its_minimum_and_nothing_follows(aged):
    taken_by_plan(aged, 0)
    aged.submit("next", preemption=AGED)
    pass_by(aged, MIN_RUN_MS - HEARTBEAT_MS)
    assert (stopping(aged), aged.running()) == ({"old"}, {"old", "young"})
    pass_by(aged, HEARTBEAT_MS)
    assert stopping(aged) == {"old", "young"}
    aged.work(0)
    assert aged.running() == set()


def test_quota_freed_before_the_deadline_is_returned_before_it(aged):
    taken_by_plan(aged, 0)
    aged.work(0)
    assert aged.running() == {"young"}
    aged.heartbeat(IDLE_HEARTBEATS + 1)
    assert (aged.held(), aged.running(), stopping(aged)) == (1, {"young"}, set())


def test_stage_ending_before_its_minimum_is_not_preempted(aged):
    taken_by_plan(aged, 0)
    aged.work()
    aged.heartbeat()
    assert ("young", "stage_ended") in aged.kinds()
    assert aged.held() == 0


def test_work_waits_no_longer_than_the_ledger_does(aged):
    taken_by_plan(aged, 0, wait_ms=TTL_MS)
    assert stopping(aged) == {"old"}
    pass_by(aged, 2 * TTL_MS)
    assert stopping(aged) == {"old", "young"}


def test_revoked_stage_is_preempted_however_young(aged):
    taken_by_plan(aged, 1)
    aged.store.revoke(tenant="acme")
    aged.heartbeat()
    assert stopping(aged) == {"old", "young"}


# ---- victims that a plan names


def reasons_of_losses(federation):
    federation.kinds()
    return {message.reason for message in federation.messages if message.kind == "stage_lost"}


@pytest.fixture
def full(joined):
    """A lease of 4 CPUs pays for four stages of one CPU, each more urgent than the one before."""
    for name, priority in (("one", 1), ("two", 2), ("three", 3), ("four", 4)):
        joined.submit(name, priority=priority, preemption=PreemptionPolicy(min_run_ms=0))
        joined.notifications()
    joined.kinds()
    return joined


def test_named_victims_stop_before_less_urgent_stages(full):
    taken_by_plan(full, 2, "two", "four")
    assert stopping(full) == {"two", "four"}
    full.work(0)
    assert reasons_of_losses(full) == {Reason.QUOTA_RECLAIMED}
    full.heartbeat()
    assert (full.held(), full.running()) == (2, {"one", "three"})


def test_no_more_named_victims_stop_than_the_reduction_needs(full):
    taken_by_plan(full, 3, "two", "four")
    assert stopping(full) == {"two"}


def test_other_stages_stop_if_the_named_are_too_few_or_gone(full):
    full.store.cancel("three")
    full.notifications()
    full.work(0)
    taken_by_plan(full, 1, "three", "four")
    assert stopping(full) == {"four", "one"}


def test_named_victim_of_a_later_plan_stops_too(full):
    taken_by_plan(full, 3, "three")
    taken_by_plan(full, 2, "two")
    assert stopping(full) == {"three", "two"}


def test_young_victims_stop_after_old_stages(aged):
    aged.submit("younger", preemption=AGED, priority=9)
    aged.notifications()
    taken_by_plan(aged, 1, "younger")
    assert stopping(aged) == {"old"}
    pass_by(aged, MIN_RUN_MS)
    assert stopping(aged) == {"old", "younger"}


def test_victims_are_preempted_within_the_tenant(full):
    full.submit("waits", priority=9, preemption=PreemptionPolicy())
    full.notifications()
    taken_by_plan(full, 4, "two", "four")
    assert stopping(full) == {"two", "four"}
    full.work(0)
    assert reasons_of_losses(full) == {Reason.PREEMPTED_WITHIN_TENANT}


def test_victims_run_on_if_nobody_waits_for_their_quota(full):
    taken_by_plan(full, 4, "two", "four")
    assert stopping(full) == set()


def test_young_victim_within_the_tenant_runs_its_minimum(aged):
    aged.submit("waits", priority=9, preemption=PreemptionPolicy())
    aged.notifications()
    taken_by_plan(aged, 2, "young")
    assert stopping(aged) == set()
    pass_by(aged, MIN_RUN_MS)
    assert stopping(aged) == {"young"}


def test_named_victim_that_has_ended_is_no_other(full):
    tokens = {row.stage: row.token for row in full.store.snapshot().running}
    full.work()
    taken_by_plan(full, 4, *tokens)
    full.submit("next")
    full.notifications()
    full.heartbeat(2)
    assert stopping(full) == set()


def paying(name, slots, slot, priority):
    """Return a running stage under the lease."""
    note = StageNote(claim=1, pool="p", flavor="standard", slots=slots, token=1, tenant="acme", slot=ResourceSet.of(slot))
    return RunningStage(claim=Claim(stage=name, mesh="east", incarnation=1, token=1), run="r", note=note, priority=priority)


def test_a_stage_that_uses_nothing_beyond_a_limit_is_spared():
    stages = {"cpus": paying("cpus", 8, {"cpu": 1}, priority=0), "gpus": paying("gpus", 2, {"gpu": 1}, priority=5)}
    spent = {name: stage.note.amounts for name, stage in stages.items()}
    found = beyond_limit(ResourceSet.of({"cpu": 8, "gpu": 1}), spent, stages)
    assert [(stage.claim.stage, kept) for stage, kept in found] == [("gpus", 1)]


# ---- what the ledger hears


def test_planned_reclaim_is_acknowledged_once_work_stopped(busy):
    busy.notifications()
    planner = busy.store.elect("me", 60_000)
    target_update = TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=ResourceSet())
    busy.store.plan_apply(planner, busy.store.snapshot().version, (target_update,))
    before_ms = busy.clock.monotonic_ms()
    busy.notifications()
    busy.heartbeat()
    busy.work(0)
    busy.heartbeat()
    assert (busy.held(), busy.clock.monotonic_ms() - before_ms) == (0, 0)


def test_user_cancel_of_a_preempted_stage_prevents_its_rerun(busy):
    busy.store.revoke(tenant="acme")
    busy.heartbeat()
    busy.store.cancel("s")
    busy.notifications()
    busy.work()
    assert busy.kinds()[-1] == ("s", "stage_ended")
