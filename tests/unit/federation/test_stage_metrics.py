"""Scheduling metrics of stages, by tenant and tier."""

from __future__ import annotations

import pytest

from federation.stage_metrics import GROUPS_MAX, StageMetrics, StageObservations, TenantMetrics, tier_of

NOW_MS = 1_000_000
MINUTE_MS = 60_000


@pytest.fixture
def seen():
    return StageObservations()


def only(seen, after_ms=0):
    (found,) = seen.metrics(NOW_MS + after_ms, at_ms=0).tenants
    return found


def test_waits_and_run_times_are_percentiles_of_the_last_minute(seen):
    for wait_ms in range(1, 101):
        seen.answer("acme", "high", NOW_MS, wait_ms)
        seen.start("acme", "high", NOW_MS, 10 * wait_ms)
        seen.end("acme", "high", NOW_MS, 100 * wait_ms)
    assert only(seen) == TenantMetrics(
        tenant="acme",
        tier="high",
        schedule_latency_p95_ms=95,
        queue_wait_time_p99_ms=990,
        stage_run_time_p95_ms=9_500,
        started=100,
    )


def test_the_success_rate_is_that_of_all_starts_tried(seen):
    for _ in range(3):
        seen.start("acme", "standard", NOW_MS, 1)
    seen.fail_start("acme", "standard", NOW_MS)
    assert only(seen).placement_success_rate == 0.75
    assert TenantMetrics(tenant="acme", tier="standard").placement_success_rate is None


def test_tenants_and_tiers_are_kept_apart(seen):
    seen.start("acme", "high", NOW_MS, 1)
    seen.start("acme", "standard", NOW_MS, 2)
    seen.preempt("rival", "standard", NOW_MS)
    found = {(one.tenant, one.tier): (one.queue_wait_time_p99_ms, one.preempted) for one in seen.metrics(NOW_MS, at_ms=0).tenants}
    assert found == {("acme", "high"): (1, 0), ("acme", "standard"): (2, 0), ("rival", "standard"): (None, 1)}


def test_what_is_older_than_a_minute_is_forgotten(seen):
    seen.start("acme", "high", NOW_MS, 1)
    seen.preempt("acme", "high", NOW_MS)
    assert only(seen, after_ms=MINUTE_MS - 1_000).started == 1
    assert seen.metrics(NOW_MS + MINUTE_MS + 1_000, at_ms=0) == StageMetrics()


def test_the_busiest_tenants_are_reported(seen):
    for number in range(GROUPS_MAX + 1):
        for _ in range(1 if number == 7 else 2):
            seen.start(f"t{number:04}", "standard", NOW_MS, 1)
    tenants = [one.tenant for one in seen.metrics(NOW_MS, at_ms=0).tenants]
    assert (len(tenants), "t0007" in tenants, tenants == sorted(tenants)) == (GROUPS_MAX, False, True)


@pytest.mark.parametrize(("priority", "tier"), [(-3, "standard"), (7, "standard"), (8, "high"), (1_000, "high")])
def test_priority_eight_begins_the_high_tier(priority, tier):
    assert tier_of(priority) == tier


def test_metrics_that_nobody_renews_are_not_recent():
    assert StageMetrics(at_ms=NOW_MS).is_recent(NOW_MS + MINUTE_MS - 1)
    assert not StageMetrics(at_ms=NOW_MS).is_recent(NOW_MS + MINUTE_MS)
