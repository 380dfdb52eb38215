from __future__ import annotations

import pytest

from federation.child.lease_accounting import LeaseAccounting
from federation.child.preemption_planner import PreemptionPlanner, words_of
from federation.leases import Lease, LedgerResponse
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import Occupant, PreemptionPolicy
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_events import LeaseGranted, LeaseRefused, RoomPromised, WorkloadOffered

KEY = ("acme", "standard")
NOW_MS = 100_000


def cpu(count):
    return ResourceSet.of({"cpu": count})


class ChildState:
    """Pools, a lease of `acme` and running stages; the ledger grants nothing by default."""

    def __init__(self, *capacities, held, target=None):
        pools = tuple(PoolSpec(pool=f"p{index}", flavor="standard", capacity=cpu(cpus)) for index, cpus in enumerate(capacities))
        self.admission = StageAdmission(pools)
        self.accounting = LeaseAccounting()
        self.lease(held, target)
        self.occupants = []
        self.leaving = []
        self.asked = []
        self.grants = False
        self.headroom = {}

    def lease(self, held, target=None):
        lease = Lease(mesh="east", tenant="acme", flavor="standard", held=cpu(held), target=cpu(held if target is None else target))
        self.accounting.apply(LedgerResponse(leases=(lease,)))

    def run(self, name, cpus=1, priority=0, *, leaves=False):
        self.admission.handle(WorkloadOffered(workload=name, tenant="acme", slot=cpu(cpus), width=1, priority=priority))
        (pool,) = self.admission.ledger.pools_of(name)
        self.admission.handle(LeaseGranted(workload=name, slots=1, token=1))
        self.accounting.spend(name, KEY, cpu(cpus), 0)
        occupant = Occupant(stage=name, tenant="acme", priority=priority, pool=pool, amounts=cpu(cpus), started_ms=0)
        (self.leaving if leaves else self.occupants).append(occupant)

    def wait(self, name, cpus=1, priority=5, *, refused=(), takes=True, in_order=False):
        preemption = PreemptionPolicy(takes=takes, min_run_ms=0, reservation_timeout_ms=700, in_order=in_order)
        offer = WorkloadOffered(workload=name, tenant="acme", slot=cpu(cpus), width=1, priority=priority, preemption=preemption)
        self.admission.handle(offer)
        for reason in refused:
            self.admission.handle(LeaseRefused(workload=name, reason=reason, detail="no"))

    def made(self):
        return PreemptionPlanner(
            admission=self.admission,
            accounting=self.accounting,
            occupants=tuple(self.occupants),
            leaving=tuple(self.leaving),
            now_ms=NOW_MS,
            headroom=self.headroom,
        )

    def ask(self, workload, pool, amounts):
        self.asked.append((workload.offer.workload, pool.flavor, amounts))
        return self.grants

    def victims(self, name):
        way = self.made().preempt_for(self.admission.workloads[name], self.ask)
        return None if way is None else (way.pool, [victim.stage for victim in way.victims])


def test_only_stages_that_may_preempt_are_tried_by_urgency():
    child_state = ChildState(2, held=2)
    child_state.run("a")
    child_state.run("b", priority=3)
    child_state.wait("equal", priority=0)
    child_state.wait("late", priority=5)
    child_state.wait("polite", priority=9, takes=False)
    child_state.wait("high", priority=8)
    assert [workload.offer.workload for workload in child_state.made().waiting()] == ["high", "late"]


def test_in_strict_order_others_stop_for_the_first_only():
    child_state = ChildState(2, held=2)
    child_state.run("a")
    child_state.run("b")
    child_state.wait("low", priority=5, in_order=True)
    child_state.wait("high", priority=8, in_order=True)
    assert [workload.offer.workload for workload in child_state.made().waiting()] == ["high"]


def test_the_pool_where_it_does_least_harm_is_chosen():
    child_state = ChildState(1, 1, held=2)
    child_state.run("a", priority=3)
    child_state.run("b", priority=1)
    child_state.wait("urgent")
    assert child_state.victims("urgent") == ("p1", ["b"])


def test_leaving_stage_is_counted_and_not_chosen_again():
    child_state = ChildState(2, held=2)
    child_state.run("a", leaves=True)
    child_state.run("b")
    child_state.wait("urgent")
    assert child_state.victims("urgent") is None
    child_state.wait("large", 2)
    assert child_state.victims("large") == ("p0", ["b"])


@pytest.mark.parametrize("held", [pytest.param(2, id="of pool and lease"), pytest.param(9, id="of the pool alone")])
def test_reservations_of_others_are_not_taken(held):
    child_state = ChildState(2, held=held)
    child_state.run("a", leaves=True)
    child_state.run("b")
    child_state.wait("first")
    child_state.admission.handle(RoomPromised(workload="first", pool="p0", victims=frozenset({"a"}), until_ms=0, detail="a stops"))
    child_state.accounting.hold("first", KEY, cpu(1))
    child_state.wait("second")
    assert child_state.victims("second") == ("p0", ["b"])


@pytest.mark.parametrize(
    ("grants", "victims"),
    [
        pytest.param(True, ["a"], id="the ledger grants the rest"),
        pytest.param(False, ["a", "b"], id="the ledger refuses and one more stops"),
    ],
)
def test_the_ledger_is_asked_where_room_alone_would_take_fewer(grants, victims):
    child_state = ChildState(3, held=2)
    child_state.grants = grants
    child_state.run("a")
    child_state.run("b", priority=1)
    child_state.wait("urgent", 2)
    assert child_state.victims("urgent") == ("p0", victims)
    assert child_state.asked == [("urgent", "standard", cpu(2))]


def test_victims_are_fewer_where_the_ledger_has_free_quota():
    child_state = ChildState(4, held=2)
    child_state.grants, child_state.headroom = True, {KEY: cpu(2)}
    child_state.run("a")
    child_state.run("b")
    child_state.wait("urgent", 3)
    assert child_state.victims("urgent") == ("p0", ["a"])
    assert child_state.asked == [("urgent", "standard", cpu(3))]


@pytest.mark.parametrize("reason", [Reason.QUOTA_CONTESTED, Reason.QUOTA_EXHAUSTED, Reason.LEDGER_UNREACHABLE, Reason.QUOTA_TOO_SMALL])
def test_other_refusals_preempt_no_stage(reason):
    child_state = ChildState(3, held=2)
    child_state.run("a")
    child_state.run("b")
    child_state.wait("urgent", 1, refused=[reason])
    assert child_state.victims("urgent") is None


def test_quota_promised_by_a_plan_preempts_no_stage():
    child_state = ChildState(3, held=2, target=3)
    child_state.run("a")
    child_state.run("b")
    child_state.wait("urgent", 1, refused=[Reason.QUOTA_EXHAUSTED])
    assert child_state.victims("urgent") is None


def test_detail_names_the_first_of_many_victims():
    many = [f"s{index}" for index in range(6)]
    assert words_of(many) == "waits until preempted stages of its own tenant stop: s0, s1, s2, s3, s4, …"
    assert words_of(many[:2]) == "waits until preempted stages of its own tenant stop: s0, s1"
