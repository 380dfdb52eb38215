"""Laws of fair shares with history, through the planner loop over hours: heavy users wait until others have caught up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.manual_mesh import ManualMesh
from federation.planning.planner_loop import PlannerLoop
from federation.quota.policies import Rules, TenantPolicies
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.resources import ResourceSet

RED = FlavorName("red")
GPU = ResourceSet.of({"gpu": 1})
LONG_MS, MINUTE_MS, HOUR_MIN = 10**9, 60_000, 60
ACME, HOG, CALM = TenantPath("acme"), TenantPath("acme/hog"), TenantPath("acme/calm")


class Hours:
    """Two tenants without nominal quota that request all of their parent's; what runs ends with every minute."""

    def __init__(self, slots: int, rules: Rules) -> None:
        self.slots, self.clock = slots, ManualClock(LONG_MS)
        self.store = MemoryStore(clock=self.clock, ttl_ms=LONG_MS, grace_ms=LONG_MS)
        own = Tenant(path=ACME, parent=None, quotas={(RED, "gpu"): Quota(nominal=slots * GPU["gpu"])})
        self.store.configure(TenantTree([own, *(Tenant(path=path, parent=ACME) for path in (HOG, CALM))]))
        orders = MemoryTenantPolicies()
        orders.publish(TenantPolicies(rules=rules))
        self.planner_loop = PlannerLoop(self.store, "planner", leader_ttl_ms=LONG_MS, tenant_policies=orders)
        pool = PoolRecord(pool=PoolName("p"), flavor=RED, capacity=GPU.times(slots))
        self.mesh = ManualMesh(self.store, MeshRecord(mesh=MeshId("east"), labels={}, pools=(pool,), cluster="c"))

    def held(self, tenant: TenantPath) -> int:
        return self.mesh.lease(tenant, RED).held["gpu"] // GPU["gpu"]

    def minute(self, *tenants: TenantPath) -> None:
        """Let these wait for everything, the first the longest; end what runs, and ask the planner for the next."""
        for tenant in tenants:
            self.mesh.acquire(tenant, RED, GPU, self.slots)
        self.clock.advance(MINUTE_MS)
        self.planner_loop.tick()
        for tenant in tenants:
            self.mesh.release(tenant, RED)
        self.planner_loop.tick()
        self.mesh.heartbeat()

    def minutes(self, count: int, *tenants: TenantPath) -> dict[TenantPath, int]:
        """Return the slot minutes of each tenant."""
        had = dict.fromkeys(tenants, 0)
        for _ in range(count):
            self.minute(*tenants)
            for tenant in tenants:
                had[tenant] += self.held(tenant)
        return had


def rules(half_life_min: int, *, fair_sharing: bool) -> Rules:
    return Rules(min_run_ms=0, fair_sharing=fair_sharing, history_half_life_ms=half_life_min * MINUTE_MS)


@given(slots=st.integers(1, 4), half_life_min=st.integers(5, 40), fair_sharing=st.booleans())
@settings(max_examples=12)
def test_a_past_hog_is_behind_at_first_and_even_within_hours(slots: int, half_life_min: int, fair_sharing: bool):
    hours = Hours(slots, rules(half_life_min, fair_sharing=fair_sharing))
    hours.minutes(HOUR_MIN, HOG)
    had = hours.minutes(2 * HOUR_MIN - 10, HOG, CALM)
    assert had[CALM] >= had[HOG] - slots
    last = hours.minutes(10, HOG, CALM)
    assert abs(last[HOG] - last[CALM]) <= slots


@pytest.mark.parametrize(
    ("slots", "fair_sharing"),
    [pytest.param(1, True, id="by shares, where one slot makes them unequal"), pytest.param(4, False, id="without shares, however many")],
)
def test_the_calm_catches_up_within_an_hour_then_alternates(slots: int, fair_sharing: bool):
    hours = Hours(slots, rules(30, fair_sharing=fair_sharing))
    hours.minutes(HOUR_MIN, HOG)
    tens = [hours.minutes(10, HOG, CALM) for _ in range(6)]
    assert [had[HOG] // slots for had in tens] == [0, 0, 3, 5, 5, 5]  # Equal when 7/4 · 2 ^ (-t / 30) = 1, after 24 minutes.
    assert [had[CALM] // slots for had in tens] == [10, 10, 7, 5, 5, 5]
