from __future__ import annotations

from federation.child import quota_demand
from federation.child.lease_accounting import LeaseAccounting
from federation.child.quota_demand import wanted
from federation.leases import Lease, LedgerResponse
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease
from mesh.stages.admission_events import LeaseRefused, WorkloadOffered


def cpu(count):
    return ResourceSet.of({"cpu": count})


def demands(*response, cpus=4, reason=Reason.QUOTA_EXHAUSTED, rules=NEVER_PREEMPTS, accounting=None, tenant="acme"):
    """Return the demands of refused stages (name, cpus, priority), created a second apart."""
    scheduler = StageAdmission((PoolSpec(pool="general", flavor="standard", capacity=cpu(cpus)),))
    for place, (name, slot, priority) in enumerate(response):
        own = tenant if isinstance(tenant, str) else tenant(place)
        about = {"width": 1, "priority": priority, "preemption": rules, "since_ms": 1_000 * place}
        pending = scheduler.handle(WorkloadOffered(workload=name, tenant=own, slot=cpu(slot), **about))
        for decision in pending:
            if isinstance(decision, AcquireLease):
                pending.extend(scheduler.handle(LeaseRefused(workload=decision.workload, reason=reason, detail="in words")))
    return wanted(scheduler, accounting or LeaseAccounting())


def waiting(*response, **about):
    return [(one.demand.slot, one.demand.slots, one.demand.priority) for one in demands(*response, **about)]


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


def test_idle_part_of_the_first_slot_is_not_demanded():
    accounting, idle = LeaseAccounting(), ResourceSet.of({"cpu": 0.5})
    accounting.take_in(LedgerResponse(leases=(Lease(tenant="acme", mesh="east", flavor="standard", held=idle, target=idle, version=1),)))
    assert waiting(("a", 1, 0), ("b", 1, 0), accounting=accounting) == [(cpu(0.5), 1, 0), (cpu(1), 1, 0)]


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
