from __future__ import annotations

from federation.balance import LeaseBalance
from federation.wanting import wanted
from mesh.admission import StageAdmission
from mesh.admission_decisions import AcquireLease
from mesh.admission_events import LeaseRefused, WorkloadOffered
from mesh.giving_way import NEVER_TAKES, YieldRules
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet


def cpu(count):
    return ResourceSet.of({"cpu": count})


def waiting(*told, cpus=4, reason=Reason.QUOTA_EXHAUSTED, rules=NEVER_TAKES):
    """Stages as (name, cpus, priority), all of which the ledger refuses."""
    scheduler = StageAdmission((PoolSpec(pool="general", flavor="standard", capacity=cpu(cpus)),))
    for name, slot, priority in told:
        offer = WorkloadOffered(workload=name, tenant="acme", slot=cpu(slot), width=1, priority=priority, yielding=rules)
        pending = scheduler.handle(offer)
        for decision in pending:
            if isinstance(decision, AcquireLease):
                pending.extend(scheduler.handle(LeaseRefused(workload=decision.workload, reason=reason, detail="in words")))
    return [(want.slot, want.priority) for want in wanted(scheduler, LeaseBalance())]


def test_the_most_urgent_stage_stands_for_its_lease_however_long_others_have_waited():
    assert waiting(("big", 4, 0), ("urgent", 1, 9), ("late", 2, 9)) == [(cpu(1), 9)]


def test_a_stage_without_room_on_the_mesh_stands_for_its_lease_where_it_is_more_urgent():
    assert waiting(("big", 4, 0), ("huge", 4, 9), cpus=4) == [(cpu(4), 9)]


def test_what_more_quota_would_not_help_is_not_wanted():
    assert waiting(("s", 1, 0), reason=Reason.LEDGER_UNREACHABLE) == []
    assert waiting(("huge", 5, 0)) == []


def test_in_strict_order_only_the_first_wants_anything():
    assert waiting(("never", 5, 9), ("small", 1, 0)) == [(cpu(1), 0)]
    assert waiting(("never", 5, 9), ("small", 1, 0), rules=YieldRules(in_order=True)) == []
    assert waiting(("first", 1, 9), ("second", 2, 0), rules=YieldRules(in_order=True)) == [(cpu(1), 9)]
