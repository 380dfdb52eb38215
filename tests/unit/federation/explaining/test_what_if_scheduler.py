"""What-if answers of the quota tree for waiting and hypothetical work."""

from dataclasses import replace

import pytest
from outlook_bed import (
    ACME,
    BATCH,
    CPU,
    EAST,
    IN_ORDER,
    ONE,
    ORDERS,
    RUN_MS,
    STD,
    TREE,
    VISION,
    WEST,
    begun,
    forecasts,
    joined,
    pending,
    queued,
)

from federation.quota.explain import Lever
from federation.quota.policies import Policies, PreemptionMode, QueueSettings, Rules
from federation.quota.tenant_policies import PoliciesInForce
from federation.tenants import Tenant, TenantTree
from mesh.core.reasons import Reason


def test_reclaiming_stage_waits_for_its_victims(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    reclaims = QueueSettings(policies=Policies(reclaim=PreemptionMode.ANY))
    tenant_policies = PoliciesInForce(filed=replace(ORDERS.filed, settings={VISION: reclaims}))
    forecast = forecasts(store, tenant_policies).would_be(pending(cpus=3))
    assert forecast.reason is Reason.WAITING_FOR_VICTIMS
    assert [(change.lever, change.tenant, change.units) for change in forecast.changes] == [(Lever.FREE, ACME, 3 * ONE)]
    assert [(gives.tenant, gives.amounts) for gives in forecast.victims] == [(BATCH, CPU.times(3))]


@pytest.mark.parametrize(
    ("priority", "reason", "victims"),
    [
        pytest.param(5, Reason.WAITING_FOR_VICTIMS, [(BATCH, CPU)], id="the more urgent"),
        pytest.param(0, Reason.QUOTA_EXHAUSTED, [], id="and no other"),
    ],
)
def test_borrower_sees_victims_without_fair_sharing(store, priority, reason, victims):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    takes = QueueSettings(policies=Policies(reclaim=PreemptionMode.ANY, borrow=PreemptionMode.LOWER_PRIORITY))
    rules = Rules(min_run_ms=0, fair_sharing=False)
    tenant_policies = PoliciesInForce(filed=replace(ORDERS.filed, rules=rules, settings={ACME: takes}))
    running = [begun(f"s{number}", tenant=BATCH, mesh=WEST) for number in range(4)]
    forecast = forecasts(store, tenant_policies, running=running).would_be(pending(ACME, priority=priority))
    assert forecast.reason is reason
    assert [(gives.tenant, gives.amounts) for gives in forecast.victims] == victims


def test_equal_priority_is_never_a_victim(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 4)
    newer_ones = QueueSettings(policies=Policies(within_queue=PreemptionMode.LOWER_OR_NEWER))
    tenant_policies = PoliciesInForce(filed=replace(ORDERS.filed, settings={VISION: newer_ones}))
    running = [begun(f"s{number}", mesh=WEST) for number in range(4)]
    forecast = forecasts(store, tenant_policies, running=running).would_be(pending())
    assert (forecast.reason, forecast.victims) == (Reason.QUOTA_EXHAUSTED, ())


def test_stage_of_a_closed_flavor_waits_for_no_victims(store):
    joined(store, EAST)
    store.configure(TenantTree([Tenant(path=ACME, parent=None), TREE.tenant(VISION), TREE.tenant(BATCH)]))
    about = forecasts(store, east=[queued("r.1", BATCH, reason=Reason.WAITING_IN_QUEUE)]).of("r.1")
    assert (about.reason, about.changes, about.victims, about.start_ms) == (Reason.FLAVOR_CLOSED, (), (), None)


def test_unsatisfiable_demand_names_the_limit_that_is_too_low(store):
    joined(store, EAST)
    forecast = forecasts(store).would_be(pending(cpus=6))
    assert (forecast.reason, forecast.start_ms) == (Reason.QUOTA_TOO_SMALL, None)
    (change,) = forecast.changes
    assert (change.lever, change.tenant, change.units) == (Lever.NOMINAL, ACME, 2 * ONE)


def test_stage_behind_its_tenants_head_waits_for_it(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 3)
    fresh = Reason.WAITING_IN_QUEUE
    east = [queued("r.1", VISION, cpus=2, reason=fresh), queued("r.2", VISION, reason=fresh), queued("r.3", VISION, cpus=9, reason=fresh)]
    about = forecasts(store, IN_ORDER, east=east)
    explanations = [about.of(stage) for stage in ("r.1", "r.2", "r.3")]
    assert [one.reason for one in explanations] == [Reason.QUOTA_EXHAUSTED, Reason.BEHIND_HEAD, Reason.BEHIND_HEAD]
    assert [bool(one.changes) for one in explanations] == [True, False, False]
    assert [one.reason for one in map(forecasts(store, east=east).of, ("r.1", "r.2"))] == [Reason.QUOTA_EXHAUSTED, fresh]


def test_strict_fifo_stage_starts_no_earlier_than_its_head(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 3)
    at_ms = store.snapshot().at_ms
    about = forecasts(store, IN_ORDER, east=[queued("r.1", VISION, cpus=2), queued("r.2", VISION)])
    assert [about.of(stage).start_ms for stage in ("r.1", "r.2")] == [at_ms + RUN_MS] * 2
    about = forecasts(store, IN_ORDER, east=[queued("r.1", VISION, cpus=9), queued("r.2", VISION)])
    assert [about.of(stage).start_ms for stage in ("r.1", "r.2")] == [None, None]
    assert forecasts(store, east=[queued("r.1", VISION, cpus=9), queued("r.2", VISION)]).of("r.2").start_ms is not None
