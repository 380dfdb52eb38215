"""Planner inputs derived from the demands of meshes."""

from __future__ import annotations

from federation.planning.planner_inputs import demands_of
from federation.snapshot import DemandView, FederationSnapshot, LeaseView, MeshRecord, MeshView, PoolRecord
from federation.tenants import Tenant, TenantTree
from mesh.core.resources import NOTHING, ResourceSet

HERE, LAB = "west", "lab"


def cpu(count):
    return ResourceSet.of({"cpu": count})


def demand(slots=1, slot=1, priority=0, waiting_ms=0, tenant=LAB, beyond=0):
    about = {"slots": slots, "priority": priority, "waiting_ms": waiting_ms, "beyond": beyond}
    return DemandView(mesh=HERE, tenant=tenant, flavor="red", slot=cpu(slot), **about)


def lease(held, target, tenant=LAB, mesh=HERE):
    return LeaseView(lease="x", tenant=tenant, mesh=mesh, flavor="red", amounts=cpu(held), target=cpu(target), token=1)


def parts(*demands, leases=(), pools=((64, 0),), cluster_answers=True):
    """Return the parts for pools of (capacity, used)."""
    records = tuple(PoolRecord(pool=f"p{at}", flavor="red", capacity=cpu(has), used=cpu(used)) for at, (has, used) in enumerate(pools))
    record = MeshRecord(mesh=HERE, labels={}, pools=records, cluster="c", cluster_answers=cluster_answers)
    snapshot = FederationSnapshot(
        at_ms=100_000,
        tree=TenantTree([Tenant(path=LAB, parent=None), Tenant(path="shop", parent=None)]),
        meshes=(MeshView(record=record, incarnation=1, alive=True, heartbeat_age_ms=0),),
        leases=leases,
        demands=demands,
    )
    return demands_of(snapshot)


def read(*demands, **about):
    """Return (CPUs of a slot, slots, priority, has capacity, CPUs free)."""
    found = parts(*demands, **about)
    return [(one.slot["cpu"] // 10_000, one.slots, one.priority, not one.is_crowded, one.free.get("cpu", 0) // 10_000) for one in found]


def test_granted_increase_reduces_the_most_urgent_demand():
    assert read(demand(5, priority=1), demand(5, priority=9), leases=(lease(2, 9),)) == [(1, 3, 1, True, 0)]


def test_insufficient_increase_goes_to_the_next_demand():
    assert read(demand(1, slot=4, priority=9), demand(5), leases=(lease(0, 3),)) == [(4, 1, 9, True, 0), (1, 2, 0, True, 0)]


def test_oldest_of_equally_urgent_demands_comes_first():
    demands = demand(1, slot=2, waiting_ms=5), demand(1, slot=3, waiting_ms=7)
    assert read(*demands, leases=(lease(0, 3),)) == [(2, 1, 0, True, 0)]


def test_crowded_part_is_a_demand_that_knows_the_free_capacity():
    assert read(demand(20), pools=((24, 16),)) == [(1, 8, 0, True, 0), (1, 12, 0, False, 8)]


def test_free_capacity_is_counted_once_per_tenant():
    found = read(demand(6, priority=1), demand(6, priority=9), pools=((8, 0),))
    assert found == [(1, 6, 9, True, 0), (1, 2, 1, True, 0), (1, 4, 1, False, 8)]
    rivals = parts(demand(6, priority=1), demand(6, priority=9, tenant="shop"), pools=((8, 0),), leases=(lease(0, 1, tenant="other"),))
    assert [(one.tenant, one.slots, one.room) for one in rivals] == [("shop", 6, {"cpu": 70_000}), (LAB, 6, {"cpu": 70_000})]


def test_room_that_is_promised_to_others_is_none():
    assert read(demand(6), leases=(lease(0, 5, tenant="shop"),), pools=((8, 0),)) == [(1, 3, 0, True, 0), (1, 3, 0, False, 3)]


def test_a_slot_has_to_fit_into_one_pool():
    assert read(demand(3, slot=3), pools=((4, 0), (8, 4))) == [(3, 2, 0, True, 0), (3, 1, 0, False, 4)]


def test_stages_beyond_are_reported_with_one_part_only():
    assert [one.beyond for one in parts(demand(20, beyond=7), pools=((24, 16),))] == [0, 7]
    assert [one.beyond for one in parts(demand(8, beyond=7), pools=((24, 16),))] == [7]


def test_unheld_target_is_no_pending_increase():
    assert read(demand(2), leases=(LeaseView(lease="x", tenant=LAB, mesh=HERE, flavor="red", amounts=NOTHING, token=1),)) == [
        (1, 2, 0, True, 0)
    ]


def test_demand_of_a_mesh_that_cannot_start_has_no_victims():
    assert read(demand(), cluster_answers=True) == [(1, 1, 0, True, 0)]
    assert read(demand(), cluster_answers=False) == []
