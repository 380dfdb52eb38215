"""Forecasts of waiting and hypothetical stages on a ledger in memory."""

from dataclasses import replace

import pytest
from outlook_bed import BATCH, CPU, EAST, NO_AGES, ONE, ORDERS, RUN_MS, STD, TREE, VISION, WEST, forecasts, joined, pending, queued

from federation.dispatch import StageAges
from federation.estimates import CostRules, Pace
from federation.explaining.forecasts import Forecasts
from federation.manual_mesh import ManualMesh
from federation.mesh_conditions import MeshCondition
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import MeshId, PoolName, TenantPath
from mesh.core.reasons import Reason


def test_fitting_work_would_start_now_without_victims(store):
    joined(store, EAST)
    forecast = forecasts(store).would_be(pending())
    assert (forecast.reason, forecast.ahead, forecast.mesh_ahead, forecast.changes, forecast.victims) == (None, 0, 0, (), ())
    assert forecast.start_ms == store.snapshot().at_ms


def test_no_stage_would_start_while_the_ledger_recovers(store):
    joined(store, EAST)
    store.restart()
    forecast, snapshot = forecasts(store).would_be(pending()), store.snapshot()
    assert snapshot.recovery_ms > 0
    assert (forecast.reason, forecast.start_ms) == (Reason.LEDGER_RECOVERING, snapshot.at_ms + snapshot.recovery_ms)


def test_queued_stage_has_two_positions_and_its_meshs_reason(store):
    joined(store, EAST)
    about = forecasts(store, east=[queued("r.1", BATCH), queued("r.2", VISION), queued("r.3", VISION, reason=Reason.POOL_BUSY)])
    second, third = about.of("r.2"), about.of("r.3")
    assert (second.mesh_ahead, second.ahead, second.reason) == (1, 0, Reason.QUOTA_EXHAUSTED)
    assert (third.mesh_ahead, third.ahead, third.reason) == (2, 1, Reason.POOL_BUSY)


def test_quota_is_named_when_both_quota_and_capacity_lack(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    forecast = forecasts(store, east=[queued("r.1", VISION, reason=Reason.POOL_BUSY)]).of("r.1")
    assert forecast.reason is Reason.QUOTA_EXHAUSTED
    assert forecast.changes


def test_unmeasured_mesh_forecasts_only_immediate_starts(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 3)
    unmeasured = Forecasts(store.snapshot(), ORDERS, {}, CostRules(), NO_AGES)
    assert unmeasured.would_be(pending(cpus=1)).start_ms == store.snapshot().at_ms
    assert unmeasured.would_be(pending(cpus=2)).start_ms is None
    assert forecasts(store).would_be(pending(cpus=2)).start_ms == store.snapshot().at_ms + RUN_MS


def test_forecast_uses_running_work_and_the_mesh_queue(store):
    joined(store, EAST)
    joined(store, WEST).acquire(VISION, STD, CPU, 4)
    at_ms = store.snapshot().at_ms
    assert forecasts(store).would_be(pending(BATCH)).start_ms == at_ms + RUN_MS
    joined(store, MeshId("small"), cpus=1)
    rich = Tenant(path=TenantPath("rich"), parent=None, quotas={(STD, "cpu"): Quota(nominal=99 * ONE)})
    store.configure(TenantTree([*TREE.tenants.values(), rich]))
    forecast = forecasts(store, small=[queued("r.1", VISION)]).would_be(pending(TenantPath("rich"), mesh=MeshId("small")))
    assert (forecast.reason, forecast.start_ms) == (Reason.POOL_BUSY, at_ms + RUN_MS)


@pytest.mark.parametrize("lacks", ["quota", "room"])
def test_forecast_nears_while_work_runs_and_becomes_overdue(lacks):
    clock = ManualClock(1_700_000_000_000)
    store = MemoryStore(clock=clock, ttl_ms=30_000, grace_ms=10_000)
    store.configure(TREE)
    one_of_east = ManualMesh(store, MeshRecord(mesh=EAST, labels={}, pools=(full_pool(),), cluster="c"))
    if lacks == "quota":
        one_of_east.acquire(BATCH, STD, CPU, 4)
    else:
        one_of_east.acquire(BATCH, STD, CPU, 1)
    clock.advance(10_000)
    view = replace(store.snapshot().meshes[0], claimed=1, condition=MeshCondition(pace=Pace(run_ms=RUN_MS)))

    def start_of(age_ms, name="r.1"):
        snapshot = replace(store.snapshot(), meshes=(view,))
        ages = {EAST: StageAges(claimed_ms=age_ms, claimed_ms_min=age_ms)}
        queue = (queued("r.1", VISION, reason=Reason.POOL_BUSY), queued("r.2", VISION, reason=Reason.POOL_BUSY))
        found = Forecasts(snapshot, ORDERS, {EAST: queue}, CostRules(), ages).of(name)
        return None if found.start_ms is None else found.start_ms - snapshot.at_ms, found.overdue_ms

    assert [start_of(age_ms) for age_ms in (0, 1_000, 4_000)] == [(RUN_MS, 0), (3_000, 0), (0, 0)]
    assert [start_of(age_ms) for age_ms in (4_001, 8_000)] == [(0, 0), (0, 0)], "half of all stages run longer than the mean"
    assert [start_of(age_ms) for age_ms in (8_001, 9_000)] == [(None, 4_001), (None, 5_000)]
    assert [start_of(age_ms, "r.2") for age_ms in (1_000, 9_000)] == [(3_000 + RUN_MS, 0), (None, 5_000)]


def full_pool():
    return PoolRecord(pool=PoolName("p"), flavor=STD, capacity=CPU, used=CPU)


def test_nothing_is_overdue_before_any_stage_has_ended(store):
    ManualMesh(store, MeshRecord(mesh=EAST, labels={}, pools=(full_pool(),), cluster="c")).acquire(BATCH, STD, CPU, 4)
    ages = {EAST: StageAges(claimed_ms=90_000, claimed_ms_min=90_000)}
    forecast = Forecasts(store.snapshot(), ORDERS, {EAST: (queued("r.1", VISION),)}, CostRules(), ages).of("r.1")
    assert (forecast.start_ms, forecast.overdue_ms) == (None, 0)


def test_asking_changes_nothing(store):
    joined(store, EAST)
    joined(store, WEST).acquire(BATCH, STD, CPU, 4)
    about = forecasts(store, east=[queued("r.1", VISION, cpus=2), queued("r.2", BATCH)])
    first = (about.of("r.1"), about.of("r.2"), about.would_be(pending()))
    assert (about.of("r.1"), about.of("r.2"), about.would_be(pending())) == first
    assert about.of("nobody") is None


def test_a_stage_of_a_tenant_that_is_gone_has_no_outlook(store):
    joined(store, EAST)
    assert forecasts(store, east=[queued("r.1", TenantPath("gone"))]).of("r.1") is None
