"""Preview of the planner's preemption victims."""

from dataclasses import replace

from outlook_bed import ACME, BATCH, CPU, EAST, ORDERS, STD, VISION, WEST, begun, forecasts, joined, pending, queued

from federation.quota.tenant_policies import TenantStop
from mesh.core.reasons import Reason


def test_preview_names_borrowers_for_the_owners_stage_only(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    (gives,) = forecasts(store, east=[queued("r.1", VISION, cpus=2)]).of("r.1").victims
    assert (gives.mesh, gives.tenant, gives.amounts, gives.reason) == (WEST, BATCH, CPU.times(2), Reason.QUOTA_RECLAIMED)


def test_preview_tells_which_stages_give_slots_back(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    running = (replace(begun("r.9", tenant=BATCH, mesh=WEST), slots=3), begun("r.8", tenant=BATCH, mesh=WEST))
    (gives,) = forecasts(store, running=running, east=[queued("r.1", VISION, cpus=3)]).of("r.1").victims
    assert (gives.amounts, gives.stages, gives.shrinking) == (CPU.times(3), ("r.8",), ("r.9",))


def test_tenant_on_hold_is_shown_so_and_has_no_victims(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    forecast = forecasts(store, replace(ORDERS, stops={ACME: TenantStop()})).would_be(pending(cpus=2))
    assert (forecast.reason, forecast.gate.node, forecast.start_ms, forecast.victims) == (Reason.TENANT_SUSPENDED, ACME, None, ())
