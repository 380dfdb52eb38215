"""Order of admission: strict order of a tenant, and the order of pools."""

from __future__ import annotations

import pytest

from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease, ExplainWaiting, StartWorkload
from mesh.stages.admission_events import (
    LeaseGranted,
    LeaseRefused,
    PromiseEnded,
    RoomMayHaveCome,
    RoomPromised,
    WorkloadEnded,
    WorkloadFound,
    WorkloadOffered,
    WorkloadWithdrawn,
)
from mesh.stages.admission_invariants import violations
from mesh.stages.admission_order import StrictQueues
from mesh.stages.workloads import WorkloadState

IN_ORDER = PreemptionPolicy(in_order=True)


def cpu(count):
    return ResourceSet.of({"cpu": count})


def mesh(*pools):
    return StageAdmission(tuple(PoolSpec(pool=name, flavor=flavor, capacity=cpu(cpus)) for name, cpus, flavor in pools))


def offer(name, cpus=1, *, priority=0, tenant="acme", rules=IN_ORDER):
    return WorkloadOffered(workload=name, tenant=tenant, slot=cpu(cpus), width=1, priority=priority, preemption=rules)


def granted(name):
    return LeaseGranted(workload=name, slots=1, token=5)


def refused(name):
    return LeaseRefused(workload=name, reason=Reason.QUOTA_EXHAUSTED, detail="no quota")


def asked(decisions):
    return [each.workload for each in decisions if isinstance(each, AcquireLease)]


def explained(decisions):
    return {each.workload: each.reason for each in decisions if isinstance(each, ExplainWaiting)}


@pytest.fixture
def full():
    """Return a mesh with one of four CPUs free, and a running stage of the tenant on three."""
    scheduler = mesh(("general", 4, "standard"))
    scheduler.handle(offer("running", 3))
    scheduler.handle(granted("running"))
    return scheduler


def test_small_work_does_not_overtake_earlier_large_work(full):
    decisions = full.handle(offer("large", 4), offer("small", 1))
    assert asked(decisions) == []
    assert explained(decisions) == {"large": Reason.POOL_BUSY, "small": Reason.BEHIND_HEAD}


def test_without_strict_order_small_work_starts_meanwhile(full):
    decisions = full.handle(offer("large", 4, rules=PreemptionPolicy()), offer("small", 1, rules=PreemptionPolicy()))
    assert asked(decisions) == ["small"]


def test_other_tenants_do_not_stand_in_its_line(full):
    assert asked(full.handle(offer("large", 4), offer("small", 1, tenant="acme/lab"))) == ["small"]


def test_the_head_is_the_most_urgent_then_the_oldest(full):
    full.handle(offer("first", 2), offer("second", 2), offer("urgent", 4, priority=5), offer("idle", 1, priority=-1))
    assert [name for name, kept in full.workloads.items() if kept.state is WorkloadState.QUEUED and not full.is_behind(kept)] == ["urgent"]
    full.handle(WorkloadWithdrawn(workload="urgent"))
    assert not full.is_behind(full.workloads["first"])
    assert full.is_behind(full.workloads["second"])


def test_the_next_is_tried_once_the_head_has_its_lease():
    scheduler = mesh(("general", 4, "standard"))
    assert asked(scheduler.handle(offer("a"), offer("b"), offer("c", 2))) == ["a"]
    decisions = scheduler.handle(granted("a"))
    assert asked(decisions) == ["b"]
    assert isinstance(decisions[0], StartWorkload)
    assert asked(scheduler.handle(granted("b"))) == ["c"]


def test_a_refused_head_blocks_those_behind_it():
    scheduler = mesh(("general", 4, "standard"))
    scheduler.handle(offer("a"), offer("b", 2))
    decisions = scheduler.handle(refused("a"))
    assert asked(decisions) == []
    assert explained(decisions) == {"a": Reason.QUOTA_EXHAUSTED}
    assert asked(scheduler.handle(RoomMayHaveCome())) == ["a"]


@pytest.mark.parametrize("gone", [WorkloadWithdrawn(workload="large"), WorkloadEnded(workload="large")], ids=["withdrawn", "ended"])
def test_when_the_first_is_gone_the_next_one_is_tried(full, gone):
    full.handle(offer("large", 4), offer("small", 1))
    assert asked(full.handle(gone)) == ["small"]


def test_overtaken_work_reports_that_it_is_behind(full):
    assert explained(full.handle(offer("large", 4))) == {"large": Reason.POOL_BUSY}
    decisions = full.handle(offer("urgent", 2, priority=1))
    assert explained(decisions) == {"urgent": Reason.POOL_BUSY, "large": Reason.BEHIND_HEAD}
    assert explained(full.handle(WorkloadWithdrawn(workload="urgent"))) == {"large": Reason.POOL_BUSY}


def test_a_start_reports_nothing_to_those_behind():
    scheduler = mesh(("general", 4, "standard"))
    first = scheduler.handle(offer("a"), offer("b"), offer("c"), offer("d"))
    reasons = {**explained(first), **explained(scheduler.handle(granted("a")))}
    assert explained(scheduler.handle(granted("b"))) == {}
    assert set(reasons.values()) <= {Reason.BEHIND_HEAD}


def test_reserved_capacity_goes_before_later_urgent_work(full):
    full.handle(offer("large", 4))
    full.handle(RoomPromised(workload="large", pool="general", victims=frozenset({"running"}), until_ms=9, detail="one stops"))
    decisions = full.handle(offer("urgent", 1, priority=5))
    assert explained(decisions) == {"urgent": Reason.BEHIND_HEAD}
    assert asked(full.handle(WorkloadEnded(workload="running"))) == ["large"]
    full.handle(granted("large"))
    assert not full.is_behind(full.workloads["urgent"])


def test_a_promise_that_ends_gives_the_first_place_back(full):
    full.handle(offer("large", 4))
    full.handle(RoomPromised(workload="large", pool="general", victims=frozenset({"running"}), until_ms=9, detail="one stops"))
    full.handle(offer("urgent", 1, priority=5))
    assert asked(full.handle(PromiseEnded(workload="large"))) == ["urgent"]
    assert full.is_behind(full.workloads["large"])


def test_a_refused_lease_ends_the_reservation(full):
    full.handle(offer("large", 4))
    full.handle(RoomPromised(workload="large", pool="general", victims=frozenset({"running"}), until_ms=9, detail="one stops"))
    full.handle(offer("urgent", 1, priority=5))
    full.handle(WorkloadEnded(workload="running"))
    assert asked(full.handle(refused("large"))) == ["urgent"]


def test_work_that_was_found_running_stands_in_nobodys_way():
    scheduler = mesh(("general", 4, "standard"))
    scheduler.handle(WorkloadFound(offer=offer("found", 2, priority=9), pool="general", slots=1))
    assert asked(scheduler.handle(offer("new"))) == ["new"]
    scheduler.handle(WorkloadEnded(workload="found"))
    assert violations(scheduler) == []


def test_pools_are_tried_by_flavor_order_then_mesh_order():
    rules = PreemptionPolicy(flavors=("spot", "standard"))
    scheduler = mesh(("a", 1, "other"), ("b", 1, "standard"), ("c", 1, "spot"), ("d", 1, "spot"))
    decisions = scheduler.handle(*(offer(f"w{number}", tenant=f"t{number}", rules=rules) for number in range(4)))
    assert [each.pool for each in decisions if isinstance(each, AcquireLease)] == ["c", "d", "b", "a"]


def test_without_flavor_order_pools_go_by_mesh_order():
    scheduler = mesh(("a", 1, "other"), ("b", 1, "standard"))
    decisions = scheduler.handle(offer("w", rules=PreemptionPolicy()))
    assert [each.pool for each in decisions if isinstance(each, AcquireLease)] == ["a"]


def test_a_change_returns_the_old_and_the_new_head():
    queues = StrictQueues()
    early, late = (0, 1, "early"), (0, 2, "late")
    assert queues.first("acme") is None
    assert queues.add("acme", late) == (late,)
    assert queues.add("acme", early) == (late, early)
    assert queues.start_reservation("acme", late) == (early, late)
    assert queues.end_reservation("acme", late) == (late, early)
    assert queues.remove("acme", late) == ()
    assert queues.remove("acme", early) == (early,)
    assert queues.first("acme") is None


def test_removing_an_unknown_stage_changes_nothing():
    queues = StrictQueues()
    assert queues.remove("acme", (0, 1, "unknown")) == ()
    assert queues.first("acme") is None
