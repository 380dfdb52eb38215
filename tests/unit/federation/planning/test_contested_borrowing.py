"""Contested borrowing: the ledger refuses, the planner decides by shares or priority, and the winner's mesh gets it at once."""

from __future__ import annotations

import pytest

from federation.leases import CONTESTED_MS, Granted, QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.planning.planner_loop import PlannerLoop, TickTimes
from federation.quota.policies import Rules, Stop, TenantPolicies
from federation.quota.tenant_policies import TenantStop
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.memory.policies import MemoryTenantPolicies
from federation.store.memory.store import MemoryStore
from federation.tenants import Quota, Tenant, TenantTree
from mesh.core.clock import ManualClock
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet

A100, GPU = FlavorName("a100"), ResourceSet.of({"gpu": 1})
LAB, SHOP, BATCH = TenantPath("lab"), TenantPath("lab/shop"), TenantPath("lab/batch")
TREE = TenantTree(
    [
        Tenant(path=LAB, parent=None, quotas={(A100, "gpu"): Quota(nominal=4 * GPU["gpu"])}),
        Tenant(path=SHOP, parent=LAB),
        Tenant(path=BATCH, parent=LAB),
    ]
)


class Bed:
    """Two meshes, a ledger and a planner; no time passes."""

    def __init__(self, *, fair: bool = True, used: int = 0) -> None:
        self.store = MemoryStore(clock=ManualClock(1_700_000_000_000), ttl_ms=30_000, grace_ms=10_000)
        self.store.configure(TREE)
        self.policies = MemoryTenantPolicies()
        self.policies.publish(TenantPolicies(rules=Rules(min_run_ms=0, fair_sharing=fair)))
        self.planner = PlannerLoop(self.store, "root", leader_ttl_ms=5_000, tenant_policies=self.policies)
        self.west, self.east = self.mesh("west"), self.mesh("east", used)

    def mesh(self, name: str, used: int = 0) -> ManualMesh:
        pool = PoolRecord(pool=PoolName("p"), flavor=A100, capacity=GPU.times(8), used=GPU.times(used) if used else NOTHING)
        return ManualMesh(self.store, MeshRecord(mesh=MeshId(name), labels={}, pools=(pool,), cluster="c"))

    def borrow(self, mesh: ManualMesh, tenant: TenantPath, slots: int) -> None:
        assert mesh.acquire(tenant, A100, GPU, slots) == Granted(slots=slots)

    def contend(self, priority: int = 0) -> None:
        """Let one slot be free, the batch team wait for it on the east, and the shop, which holds two, ask for it on the west."""
        self.borrow(self.west, SHOP, 2)
        self.borrow(self.west, LAB, 1)
        self.east.heartbeat(demands=(QuotaDemand(tenant=BATCH, flavor=A100, slot=GPU, priority=priority),))
        assert self.west.acquire(SHOP, A100, GPU, 1, 3).reason is Reason.QUOTA_CONTESTED

    def plan(self) -> dict[TenantPath, int]:
        """Plan once, let every lease grow, and return the held slots."""
        self.planner.tick()
        for mesh in (self.west, self.east):
            mesh.heartbeat()
        leases = self.store.snapshot().leases
        return {lease.tenant: lease.amounts["gpu"] // GPU["gpu"] for lease in leases if lease.amounts and lease.tenant != LAB}


def test_contested_slot_goes_to_the_least_share():
    bed = Bed()
    bed.contend(priority=3)
    assert bed.plan() == {SHOP: 2, BATCH: 1}


def test_contested_slot_goes_to_the_highest_priority():
    bed = Bed(fair=False)
    bed.contend(priority=2)
    assert bed.plan() == {SHOP: 3}


def test_loser_is_refused_for_want_of_quota():
    bed = Bed()
    bed.contend(priority=3)
    bed.plan()
    bed.west.heartbeat()
    assert bed.west.acquire(SHOP, A100, GPU).reason is Reason.QUOTA_EXHAUSTED


def test_winner_gets_its_promise_by_asking_again():
    bed = Bed(fair=False)
    bed.contend(priority=2)
    bed.planner.tick()
    bed.west.acquire(SHOP, A100, GPU, 1, 3)  # Its version of the lease is old.
    assert bed.west.acquire(SHOP, A100, GPU, 1, 3) == Granted(slots=1)


def test_contested_quota_for_all_goes_to_all():
    bed = Bed()
    bed.east.heartbeat(demands=(QuotaDemand(tenant=BATCH, flavor=A100, slot=GPU),))
    assert bed.west.acquire(SHOP, A100, GPU, 3).reason is Reason.QUOTA_CONTESTED
    assert bed.plan() == {SHOP: 3, BATCH: 1}
    assert bed.store.snapshot().demands == ()


def test_rival_on_a_full_mesh_blocks_nobody():
    bed = Bed(used=8)
    bed.contend(priority=9)
    assert bed.plan() == {SHOP: 3}


@pytest.mark.parametrize("stop", [Stop.HOLD, Stop.DRAIN])
def test_suspended_rival_blocks_nobody(stop):
    bed = Bed()
    bed.policies.stop(BATCH, TenantStop(stop=stop))
    bed.contend(priority=9)
    assert bed.plan() == {SHOP: 3}


def test_rival_that_wants_too_much_blocks_nobody():
    bed = Bed()
    bed.borrow(bed.west, LAB, 2)
    bed.east.heartbeat(demands=(QuotaDemand(tenant=BATCH, flavor=A100, slot=GPU.times(3), priority=9),))
    assert bed.west.acquire(SHOP, A100, GPU).reason is Reason.QUOTA_CONTESTED
    assert bed.plan() == {SHOP: 1}


# ---- when a root plans


def test_ticks_are_regular_without_a_contest():
    times = TickTimes(1_000)
    assert times.is_regular(5_000)
    times.end(5_000, 5_300)
    assert (times.due_ms(), times.is_regular(6_299), times.is_regular(6_300)) == (6_300, False, True)


def test_demand_is_collected_before_a_plan():
    times = TickTimes(1_000)
    times.end(5_000, 5_010)
    times.note_contest(5_100)
    times.note_contest(5_150)
    assert times.due_ms() == 5_100 + CONTESTED_MS
    times.begin()
    times.end(5_200, 5_240)
    assert times.due_ms() == 6_010


def test_plans_for_a_contest_take_half_of_the_time_at_most():
    times = TickTimes(1_000)
    times.end(5_000, 5_010)
    times.begin()
    times.end(5_200, 5_500)
    times.note_contest(5_500)
    assert times.due_ms() == 5_800


def test_a_contest_delays_no_regular_tick():
    times = TickTimes(1_000)
    times.end(5_000, 5_000)
    times.note_contest(5_990)
    assert times.due_ms() == 6_000
