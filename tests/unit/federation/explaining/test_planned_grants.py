"""Planned grants to a waiting stage, and their victims."""

from dataclasses import replace

import pytest
from outlook_bed import ACME, BATCH, CPU, EAST, NO_AGES, ORDERS, RUN_MS, STD, VISION, WEST, forecasts, joined, queued

from federation.estimates import CostRules
from federation.explaining.forecasts import Forecasts
from federation.leases import TargetUpdate
from federation.quota.policies import Rules
from federation.quota.tenant_policies import PoliciesInForce, TenantStop
from mesh.core.reasons import Reason

MIN_RUN_MS = 1_500
YOUNG = PoliciesInForce(filed=replace(ORDERS.filed, rules=Rules(min_run_ms=MIN_RUN_MS)))


def target_update(mesh, tenant, cpus):
    return TargetUpdate(mesh=mesh, tenant=tenant, flavor=STD, target=CPU.times(cpus))


def decided(store, *, where, cpus=1):
    """Apply a plan that moves this many of `batch`'s four borrowed CPUs on that mesh to `vision` on the east, not yet obeyed.

    If the mesh is the east, it is full.
    """
    east = joined(store, EAST, cpus=4 if where == EAST else 8)
    mesh = east if where == EAST else joined(store, WEST)
    mesh.acquire(BATCH, STD, CPU, 4)
    mesh.record = replace(mesh.record, pools=(replace(mesh.record.pools[0], used=CPU.times(4)),))
    mesh.heartbeat()
    store.plan_apply(
        store.elect("planner", 10_000), store.snapshot().version, (target_update(where, BATCH, 4 - cpus), target_update(EAST, VISION, cpus))
    )
    return mesh


def victims_of(one):
    return [(victim.mesh, victim.tenant, victim.flavor, victim.amounts, victim.reason) for victim in one.victims]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        pytest.param(EAST, Reason.POOL_BUSY, id="room on its full mesh"),
        pytest.param(EAST, Reason.PREEMPTION_LIMIT, id="room that its mesh may not free yet"),
        pytest.param(WEST, Reason.QUOTA_EXHAUSTED, id="quota on another mesh"),
        pytest.param(WEST, Reason.WAITING_IN_QUEUE, id="quota before its mesh has tried"),
    ],
)
def test_planned_victims_are_shown_until_quota_is_returned(store, where, said):
    decided(store, where=where)
    about = forecasts(store, YOUNG, east=[queued("r.1", VISION, reason=said)])
    for asks_planner in (True, False):
        one = about.of("r.1", asks_planner=asks_planner)
        assert one.reason is Reason.WAITING_FOR_VICTIMS
        assert victims_of(one) == [(where, BATCH, STD, CPU, Reason.QUOTA_RECLAIMED)]
        assert (one.changes, one.overdue_ms) == ((), 0), "nothing else has to change"
        assert one.start_ms == store.snapshot().at_ms + MIN_RUN_MS < store.snapshot().at_ms + RUN_MS
    why = about.why("r.1")
    assert (why.reason, why.changes) == (Reason.WAITING_FOR_VICTIMS, ())


def test_limit_of_preemptions_stays_the_reason_without_a_grant(store):
    joined(store, EAST, cpus=4).acquire(VISION, STD, CPU, 4)
    about = forecasts(store, east=[queued("r.1", VISION, reason=Reason.PREEMPTION_LIMIT)])
    assert about.of("r.1").reason is about.why("r.1").reason is Reason.PREEMPTION_LIMIT
    assert about.why("r.1").changes == ()


def test_planned_grant_gives_a_forecast_without_measurements(store):
    decided(store, where=EAST)
    snapshot = store.snapshot()
    unmeasured = Forecasts(snapshot, YOUNG, {EAST: (queued("r.1", VISION, reason=Reason.POOL_BUSY),)}, CostRules(), NO_AGES)
    assert unmeasured.of("r.1").start_ms == snapshot.at_ms + MIN_RUN_MS


def test_returned_quota_has_no_victims(store):
    mesh = decided(store, where=EAST)
    mesh.heartbeat()
    mesh.obey(BATCH, STD)
    assert forecasts(store, east=[queued("r.1", VISION, reason=Reason.POOL_BUSY)]).why("r.1").reason is not Reason.WAITING_FOR_VICTIMS


def test_most_urgent_stages_are_shown_as_recipients(store):
    decided(store, where=EAST, cpus=2)
    said = Reason.POOL_BUSY
    stages = [queued("r.3", VISION, priority=1, reason=said), queued("r.1", VISION, reason=said), queued("r.2", VISION, reason=said)]
    stages.append(queued("b.1", BATCH, reason=said))
    reasons = {stage.stage: forecasts(store, east=stages).why(stage.stage).reason for stage in stages}
    assert [name for name, reason in reasons.items() if reason is Reason.WAITING_FOR_VICTIMS] == ["r.3", "r.1"]
    wide = [replace(stages[1], width=2), stages[2]]
    reasons = {stage.stage: forecasts(store, east=wide).why(stage.stage).reason for stage in wide}
    assert [name for name, reason in reasons.items() if reason is Reason.WAITING_FOR_VICTIMS] == ["r.1"]


def test_victims_elsewhere_free_no_capacity_on_a_full_mesh(store):
    decided(store, where=WEST)
    full = joined(store, EAST)
    full.record = replace(full.record, pools=(replace(full.record.pools[0], used=CPU.times(8)),))
    full.heartbeat()
    store.plan_apply(store.elect("planner", 10_000), store.snapshot().version, (target_update(EAST, VISION, 1),))
    one = forecasts(store, east=[queued("r.1", VISION, reason=Reason.POOL_BUSY)]).of("r.1")
    assert (one.reason, victims_of(one)) == (Reason.QUOTA_EXHAUSTED, [])


@pytest.mark.parametrize("case", ["its mesh knows better", "its tenant is held", "what is too large for it"])
def test_a_promise_is_not_the_reason_of(store, case):
    decided(store, where=EAST)
    stage = queued("r.1", VISION, cpus=2 if case.startswith("what") else 1, reason=Reason.POOL_BUSY)
    if case.startswith("its mesh"):
        stage = replace(stage, reason=Reason.CAPACITY_RESERVED)
    tenant_policies = replace(ORDERS, stops={ACME: TenantStop()}) if case.startswith("its tenant") else ORDERS
    about = forecasts(store, tenant_policies, east=[stage])
    assert about.of("r.1").reason is about.why("r.1").reason is not Reason.WAITING_FOR_VICTIMS
