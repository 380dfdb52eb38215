"""Observations of stages from the steps of a run."""

from __future__ import annotations

import pytest
from machine_bed import NOW_MS, Driven

from dag.stage_timing import StageTiming
from federation.stage_metrics import TenantMetrics
from mesh.core.reasons import Reason
from mesh.stages.messages import StageWaiting


class Observed:
    """A run of one stage and its observations."""

    def __init__(self, since_ms=0, **fields):
        self.run = Driven("a", **fields)
        self.timing = StageTiming(since_ms)
        self.run.place(a="east")

    def take(self, message, after_ms):
        change = self.run.take(message, after_ms=after_ms)
        self.timing.note(self.run.record, self.run.machine.plans, change)

    def waiting(self, after_ms, reason=Reason.POOL_BUSY):
        self.take(StageWaiting(stage=self.run.stage("a").stage, reason=reason, detail=""), after_ms)

    def metrics(self, after_ms=0):
        (found,) = self.timing.metrics(NOW_MS + after_ms, at_ms=0).tenants
        return found


def test_a_start_is_an_answer_and_ends_the_wait():
    run = Observed()
    run.take(run.run.started("a"), 300)
    found = run.metrics(300)
    assert (found.tenant, found.tier, found.started) == ("acme", "standard", 1)
    assert (found.schedule_latency_p95_ms, found.queue_wait_time_p99_ms) == (300, 300)


def test_a_stage_that_knows_why_it_waits_has_its_answer():
    run = Observed()
    run.waiting(20)
    run.waiting(4_000, Reason.QUOTA_EXHAUSTED)
    run.take(run.run.started("a"), 9_000)
    found = run.metrics(9_000)
    assert (found.schedule_latency_p95_ms, found.queue_wait_time_p99_ms) == (20, 9_000)


def test_a_new_coordinator_does_not_count_answers_before_it():
    run = Observed(since_ms=NOW_MS + 1)
    run.waiting(5_000)
    run.take(run.run.started("a"), 9_000)
    found = run.metrics(9_000)
    assert (found.schedule_latency_p95_ms, found.queue_wait_time_p99_ms) == (None, 9_000)


def test_an_urgent_node_makes_its_stage_one_of_the_high_tier():
    run = Observed(a={"priority": 9})
    run.take(run.run.started("a"), 0)
    assert run.metrics().tier == "high"


def test_a_stage_lost_before_its_start_is_a_failed_start():
    run = Observed()
    run.take(run.run.lost("a", Reason.START_FAILED), 0)
    assert run.metrics() == TenantMetrics(tenant="acme", tier="standard", failed_starts=1)


@pytest.mark.parametrize(
    ("reason", "count"),
    [(Reason.QUOTA_RECLAIMED, 1), (Reason.PREEMPTED_WITHIN_TENANT, 1), (Reason.MESH_LEFT, 0), (Reason.LEASE_EXPIRED, 0)],
)
def test_only_preemptions_count_as_such(reason, count):
    run = Observed()
    run.take(run.run.started("a"), 0)
    run.take(run.run.lost("a", reason), 100)
    assert run.metrics(100).preempted == count


def test_a_run_time_is_from_start_to_end():
    run = Observed()
    run.take(run.run.started("a"), 100)
    run.run.take(run.run.begun("a"), run.run.done("a"))
    run.take(run.run.ended("a"), 2_100)
    assert run.metrics(2_100).stage_run_time_p95_ms == 2_000
