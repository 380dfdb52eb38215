from __future__ import annotations

import pytest
from child_bed import Federation, nodes, pool

from federation.child import quota_demand
from federation.child.lease_accounting import LeaseAccounting
from federation.child.quota_demand import wanted
from federation.leases import Lease, LedgerResponse, TargetUpdate
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import Gang
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease
from mesh.stages.admission_events import LeaseRefused, NodesSeen, WorkloadFound, WorkloadOffered


def cpu(count):
    return ResourceSet.of({"cpu": count})


def demands(*stages, cpus=4, reason=Reason.QUOTA_EXHAUSTED, rules=NEVER_PREEMPTS, accounting=None, tenant="acme"):
    """Return the demands of refused stages (name, cpus, priority), created a second apart."""
    scheduler = StageAdmission((PoolSpec(pool="general", flavor="standard", capacity=cpu(cpus)),))
    for place, (name, slot, priority) in enumerate(stages):
        own = tenant if isinstance(tenant, str) else tenant(place)
        about = {"width": 1, "priority": priority, "preemption": rules, "since_ms": 1_000 * place}
        pending = scheduler.handle(WorkloadOffered(workload=name, tenant=own, slot=cpu(slot), **about))
        for decision in pending:
            if isinstance(decision, AcquireLease):
                pending.extend(scheduler.handle(LeaseRefused(workload=decision.workload, reason=reason, detail="in words")))
    return wanted(scheduler, accounting or LeaseAccounting())


def waiting(*stages, **about):
    return [(one.demand.slot, one.demand.slots, one.demand.priority) for one in demands(*stages, **about)]


def test_equal_stages_are_one_demand_as_old_as_the_oldest():
    found = demands(("a", 1, 0), ("b", 1, 0), ("c", 1, 0))
    assert [(one.demand.slots, one.since_ms, one.as_row(5_000).waited_ms) for one in found] == [(3, 0, 5_000)]


def test_different_stages_are_demands_by_urgency():
    assert waiting(("big", 4, 0), ("urgent", 1, 9), ("late", 2, 9), ("more", 1, 9)) == [(cpu(1), 2, 9), (cpu(2), 1, 9), (cpu(4), 1, 0)]


def test_a_stage_without_room_on_the_mesh_hides_no_other():
    assert waiting(("big", 4, 0), ("huge", 4, 9), cpus=4) == [(cpu(4), 1, 9), (cpu(4), 1, 0)]


def test_demand_is_capped_at_the_mesh_and_the_rest_counted():
    (found,) = demands(*((f"s{number}", 1, 0) for number in range(9)), cpus=4)
    assert (found.demand.slots, found.beyond, found.as_row(0).beyond) == (4, 5, 5)
    assert found == demands(*((f"s{number}", 1, 0) for number in range(8)), cpus=4)[0]


@pytest.mark.parametrize("reason", [Reason.QUOTA_EXHAUSTED, Reason.QUOTA_CONTESTED])
def test_idle_part_of_the_first_slot_is_not_demanded(reason):
    accounting, idle = LeaseAccounting(), ResourceSet.of({"cpu": 0.5})
    accounting.apply(LedgerResponse(leases=(Lease(tenant="acme", mesh="east", flavor="standard", held=idle, target=idle, version=1),)))
    assert waiting(("a", 1, 0), ("b", 1, 0), accounting=accounting, reason=reason) == [(cpu(0.5), 1, 0), (cpu(1), 1, 0)]


def test_each_lease_reports_its_most_urgent_demand_first(monkeypatch):
    monkeypatch.setattr(quota_demand, "ROWS_SENT_MAX", 3)
    one_tenant = [("a1", 1, 9), ("a2", 2, 8), ("a3", 3, 7)]
    found = demands(*one_tenant, ("b", 1, 0), tenant=lambda place: "acme/b" if place == len(one_tenant) else "acme/a")
    assert [(one.demand.tenant, one.demand.priority) for one in found] == [("acme/a", 9), ("acme/a", 8), ("acme/b", 0)]


def test_stage_that_quota_cannot_help_demands_nothing():
    assert waiting(("s", 1, 0), reason=Reason.LEDGER_UNREACHABLE) == []
    assert waiting(("huge", 5, 0)) == []


def test_strict_fifo_demands_only_for_the_head():
    assert waiting(("never", 5, 9), ("small", 1, 0)) == [(cpu(1), 1, 0)]
    assert waiting(("never", 5, 9), ("small", 1, 0), rules=PreemptionPolicy(in_order=True)) == []
    assert waiting(("first", 1, 9), ("second", 2, 0), rules=PreemptionPolicy(in_order=True)) == [(cpu(1), 1, 9)]


@pytest.mark.parametrize("order", ["plain gang", "gang plain"])
def test_stage_that_waits_for_a_node_hides_no_gang(order):
    """Each node has 2 of 4 CPUs free: room for a gang of 4 bundles of 1 CPU, which lacks quota, and none for 4 CPUs on one node."""
    scheduler = StageAdmission((PoolSpec(pool="general", flavor="standard", capacity=cpu(8)),))
    scheduler.handle(NodesSeen(nodes=nodes(cpu(4), cpu(4))))
    busy = WorkloadOffered(workload="busy", tenant="acme", slot=cpu(2), width=1, priority=9)
    scheduler.handle(WorkloadFound(offer=busy, pool="general", slots=2, nodes=("n0", "n1")))
    for name in order.split():
        gang = Gang(size=4, bundle=cpu(1)) if name == "gang" else None
        offer = WorkloadOffered(workload=name, tenant="acme", slot=cpu(4), width=1, priority=0, gang=gang)
        asked = [decision for decision in scheduler.handle(offer) if isinstance(decision, AcquireLease)]
        assert [decision.workload for decision in asked] == (["gang"] if gang else [])
        for decision in asked:
            scheduler.handle(LeaseRefused(workload=decision.workload, reason=Reason.QUOTA_EXHAUSTED, detail="in words"))
    assert [(one.demand.slot, one.demand.slots) for one in wanted(scheduler, LeaseAccounting())] == [(cpu(4), 1)]


# ---- stages that leave the queue


def recorded(federation):
    return [(demand.slot, demand.slots) for demand in federation.store.snapshot().demands]


def test_stage_that_starts_with_fewer_slots_leaves_no_demand():
    federation = Federation(pool("general", 8), quota=2)
    federation.heartbeat()
    federation.submit("s", width=4)
    federation.notifications()
    assert (federation.running(), federation.held(), recorded(federation)) == ({"s"}, 2, [])


@pytest.fixture
def full():
    """`s` fills the mesh, and `t` waits for room; the ledger has the demand of `t`."""
    federation = Federation(pool("general", 1), quota=4)
    federation.heartbeat()
    for name in "st":
        federation.submit(name)
        federation.notifications()
    federation.heartbeat()
    assert recorded(federation) == [(cpu(1), 1)]
    return federation


@pytest.mark.parametrize("has_demand", [True, False])
def test_mesh_reports_at_once_if_a_demanded_stage_has_gone(full, has_demand):
    if not has_demand:
        full.store.cancel("t")
        full.heartbeat(2)
        full.submit("t", slot=cpu(9))
        full.notifications()
        full.heartbeat()
    full.store.cancel("t")
    assert recorded(full) == []
    full.heartbeat()
    assert (full.child.due_in_ms() == 0) is has_demand
    full.heartbeat()
    assert recorded(full) == []


def test_demand_of_an_equal_later_stage_is_reported_again():
    federation = Federation(pool("general", 2), quota=4)
    federation.heartbeat()
    for name in ("s", "t", "waits", "goes"):
        federation.submit(name)
        federation.notifications()
    federation.heartbeat()
    assert recorded(federation) == [(cpu(1), 2)]
    federation.store.cancel("goes")
    federation.submit("comes")
    federation.notifications()
    assert recorded(federation) == [(cpu(1), 1)]
    federation.child.heartbeat()
    assert recorded(federation) == [(cpu(1), 2)]


def test_demand_of_a_missing_part_names_the_whole_slot():
    federation = Federation(pool("general", 8), quota=3)
    federation.heartbeat()
    federation.submit("s", slot=cpu(2))
    federation.notifications()
    grown = TargetUpdate(mesh="east", tenant="acme", flavor="standard", target=cpu(3))
    federation.store.plan_apply(federation.store.elect("p", 10**9), federation.store.snapshot().version, (grown,))
    federation.heartbeat()
    federation.submit("t", slot=cpu(2))
    federation.notifications()
    for _ in range(2):
        (demand,) = federation.store.snapshot().demands
        assert (demand.slot, demand.whole) == (cpu(1), cpu(2))
        federation.child.heartbeat()
