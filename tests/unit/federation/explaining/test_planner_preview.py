"""Whom the planner would ask to give way."""

from dataclasses import replace

from outlook_bed import ACME, BATCH, CPU, EAST, ORDERS, STD, VISION, WEST, forecasts, joined, pending, queued

from federation.tenant_policies import TenantStop
from mesh.core.reasons import Reason


def test_whoever_borrows_is_asked_for_the_stage_of_the_owner_and_for_no_more(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    (gives,) = forecasts(store, east=[queued("r.1", VISION, cpus=2)]).of("r.1").victims
    assert (gives.mesh, gives.tenant, gives.amounts, gives.reason) == (WEST, BATCH, CPU.times(2), Reason.QUOTA_RECLAIMED)


def test_a_tenant_on_hold_is_told_as_such_and_asks_nobody_to_give_way(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    reported = forecasts(store, replace(ORDERS, stops={ACME: TenantStop()})).would_be(pending(cpus=2))
    assert (reported.reason, reported.gate.node, reported.start_ms, reported.victims) == (Reason.TENANT_SUSPENDED, ACME, None, ())
