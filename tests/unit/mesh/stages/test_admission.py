"""Admission of stages on a mesh: offers, leases, refusals, reasons and reservations."""

from __future__ import annotations

import pytest

from mesh.core.pools import Pool, PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.shapes import Gang
from mesh.errors import IllegalTransition
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease, ExplainWaiting, ReleaseLease, StartWorkload
from mesh.stages.admission_events import (
    LeaseCameFree,
    LeaseGranted,
    LeaseRefused,
    NodesSeen,
    PromiseEnded,
    RoomMayHaveCome,
    RoomPromised,
    SlotsRetired,
    WorkloadEnded,
    WorkloadOffered,
    WorkloadWithdrawn,
)
from mesh.stages.admission_invariants import violations
from mesh.stages.workloads import WorkloadState


def cpu(count):
    return ResourceSet.of({"cpu": count})


def pool(name, cpus, flavor="standard"):
    return PoolSpec(pool=name, flavor=flavor, capacity=cpu(cpus))


def offer(name, *, slot=None, width=1, priority=0, tenant="acme"):
    return WorkloadOffered(workload=name, tenant=tenant, slot=cpu(1) if slot is None else slot, width=width, priority=priority)


def granted(name, slots=1, token=5):
    return LeaseGranted(workload=name, slots=slots, token=token)


def refused(name, reason=Reason.QUOTA_EXHAUSTED, detail="no quota"):
    return LeaseRefused(workload=name, reason=reason, detail=detail)


def ended(name):
    return WorkloadEnded(workload=name)


def asked(decisions):
    return [(each.workload, each.pool, each.demand) for each in decisions if isinstance(each, AcquireLease)]


def explained(decisions):
    return [(each.workload, each.reason) for each in decisions if isinstance(each, ExplainWaiting)]


class Checked(StageAdmission):
    """Scheduler that checks every invariant after every step."""

    def handle(self, *events):
        decisions = super().handle(*events)
        assert violations(self) == []
        return decisions


def mesh(*pools):
    return Checked(pools or (pool("general", 4),))


def running(scheduler, name, **about):
    scheduler.handle(offer(name, **about))
    scheduler.handle(granted(name, slots=about.get("width", 1)))
    return scheduler


def test_an_offer_reserves_capacity_and_requests_its_lease():
    scheduler = mesh()
    wanted = AcquireLease(workload="s", tenant="acme", pool="general", flavor="standard", slot=cpu(1), demand=3)
    assert scheduler.handle(offer("s", width=3)) == [wanted]
    assert scheduler.workloads["s"].state is WorkloadState.RESERVED
    assert scheduler.ledger.pools["general"].free == cpu(1)


def test_no_more_slots_are_asked_for_than_there_is_room():
    assert asked(mesh().handle(offer("s", slot=cpu(1.5), width=9))) == [("s", "general", 2)]


def node(name, total, available=None, **labels):
    return NodeSeen(node=name, total=total, labels=labels, available=total if available is None else available)


def nodes(*cpus):
    return NodesSeen(nodes=tuple(node(f"n{number}", cpu(count)) for number, count in enumerate(cpus)))


def test_no_more_slots_are_asked_for_than_nodes_can_hold():
    """Ray would never place a group of three slots of two CPUs on two nodes of three."""
    mesh = Checked((pool("p", 6),))
    assert asked(mesh.handle(nodes(3, 3), offer("a", slot=cpu(2), width=3))) == [("a", "p", 2)]


def test_a_slot_larger_than_every_node_waits_until_one_comes():
    mesh = Checked((pool("p", 4),))
    (explanation,) = mesh.handle(nodes(2, 2), offer("a", slot=cpu(3)))
    words = "one slot takes 3 cpu, and no node of the mesh has that much; the largest has 2"
    assert (explanation.reason, explanation.detail) == (Reason.NO_NODE_FITS, words)
    assert asked(mesh.handle(nodes(2, 2, 4))) == [("a", "p", 1)]


def test_a_mesh_that_may_grow_is_asked_for_all_slots():
    """An autoscaler adds nodes only for work that waits in Ray."""
    mesh = Checked((pool("p", 9),))
    assert asked(mesh.handle(nodes(2, 2), offer("a", slot=cpu(3), width=3))) == [("a", "p", 3)]


def test_nodes_that_are_not_known_yet_refuse_nothing():
    assert asked(Checked((pool("p", 6),)).handle(offer("a", slot=cpu(3), width=2))) == [("a", "p", 2)]


def test_resources_that_no_single_node_has_together_are_named():
    mesh = Checked((PoolSpec(pool="p", flavor="standard", capacity=ResourceSet.of({"cpu": 4, "gpu": 1})),))
    slot = ResourceSet.of({"cpu": 4, "gpu": 1})
    seen = NodesSeen(nodes=(node("n0", cpu(4)), node("n1", ResourceSet.of({"cpu": 1, "gpu": 1}))))
    (explanation,) = mesh.handle(seen, offer("a", slot=slot))
    assert explanation.detail == "one slot takes 4 cpu, 1 gpu, and no node of the mesh has that much together"


def test_work_of_zero_size_requests_all_slots_in_a_full_pool():
    scheduler = running(mesh(), "full", width=4)
    assert asked(scheduler.handle(offer("s", slot=NOTHING, width=7))) == [("s", "general", 7)]


def test_a_grant_starts_the_granted_slots_and_frees_the_rest():
    scheduler = mesh()
    scheduler.handle(offer("s", width=4))
    assert scheduler.handle(granted("s", slots=2, token=9)) == [StartWorkload(workload="s", pool="general", slot=cpu(1), slots=2, token=9)]
    assert scheduler.ledger.pools["general"].free == cpu(2)


def test_capacity_left_by_a_grant_is_offered_to_waiting_work():
    scheduler = mesh()
    scheduler.handle(offer("wide", width=4), offer("next"))
    assert asked(scheduler.handle(granted("wide", slots=1))) == [("next", "general", 1)]


def test_capacity_left_by_a_refusal_is_offered_to_waiting_work():
    scheduler = mesh()
    scheduler.handle(offer("wide", width=4), offer("next", tenant="other"))
    assert asked(scheduler.handle(refused("wide"))) == [("next", "general", 1)]


def test_priority_goes_first_then_arrival():
    scheduler = mesh(pool("general", 3))
    decisions = scheduler.handle(offer("low", priority=-1), offer("first"), offer("second"), offer("high", priority=5))
    assert [name for name, _, _ in asked(decisions)] == ["high", "first", "second"]


def test_waiting_work_gets_its_reason_after_all_answers():
    scheduler = mesh(pool("general", 2))
    assert explained(scheduler.handle(offer("first"), offer("second"), offer("third"))) == []
    assert explained(scheduler.handle(granted("first"))) == []
    assert explained(scheduler.handle(granted("second"))) == [("third", Reason.POOL_BUSY)]


def test_a_refusal_holds_for_tenant_and_slot_alone():
    scheduler = mesh(pool("general", 1))
    scheduler.handle(offer("s"), offer("equal"), offer("half", slot=cpu(0.5)), offer("others", tenant="other"))
    decisions = scheduler.handle(refused("s"))
    assert asked(decisions) == [("half", "general", 1)]
    assert explained(decisions) == [("s", Reason.QUOTA_EXHAUSTED), ("equal", Reason.QUOTA_EXHAUSTED), ("others", Reason.POOL_BUSY)]
    assert asked(scheduler.handle(refused("half"))) == [("others", "general", 1)]


def test_room_that_comes_while_a_lease_is_requested_is_used():
    scheduler = running(mesh(pool("p", 1), pool("q", 1)), "first", tenant="other")
    assert asked(scheduler.handle(offer("s"))) == [("s", "q", 1)]
    scheduler.handle(ended("first"))
    assert asked(scheduler.handle(offer("t"))) == [("t", "p", 1)]


def test_the_preferred_pool_comes_first_when_two_have_room():
    """Both pools are on one node, as others use the second one. The end of one stage is room in both pools."""
    scheduler = mesh(pool("z", 3), pool("a", 3))
    seen = NodesSeen(nodes=(node("n0", cpu(3)), node("n1", cpu(3), NOTHING)))
    scheduler.handle(seen, seen)
    running(scheduler, "first", slot=cpu(3))
    scheduler.handle(offer("s"))
    assert scheduler.workloads["s"].refused_by.keys() == {"z", "a"}
    assert asked(scheduler.handle(ended("first"))) == [("s", "z", 1)]


def test_two_refused_kinds_do_not_wake_each_other():
    scheduler = mesh()
    pending = scheduler.handle(offer("one"), offer("half", slot=cpu(0.5)))
    answers = 0
    while pending and answers < 10:
        decision = pending.pop(0)
        if isinstance(decision, AcquireLease):
            answers += 1
            pending.extend(scheduler.handle(refused(decision.workload, reason=Reason.CAPACITY_RESERVED)))
    assert answers == 2


@pytest.fixture
def tries(monkeypatch):
    """Count the looks at a pool's free capacity, in a list."""
    looks, free = [], Pool.free.fget

    def counted(pool):
        looks.append(pool)
        return free(pool)

    monkeypatch.setattr(Pool, "free", property(counted))
    return looks


def answered(scheduler, decisions, answer):
    """Answer every request alike; return their number and the explanations."""
    questions, carried_out, pending = 0, 0, list(decisions)
    for decision in pending:
        if isinstance(decision, AcquireLease):
            questions += 1
            pending.extend(scheduler.handle(answer(decision.workload)))
        carried_out += isinstance(decision, ExplainWaiting)
    return questions, carried_out


def test_a_refusal_does_not_scan_a_long_queue_of_its_kind(tries):
    scheduler = StageAdmission((pool("general", 4),))
    offers = [offer(f"s{number}") for number in range(4096)]
    assert answered(scheduler, scheduler.handle(*offers), refused) == (4, 4096)
    assert len(tries) <= 16
    tries.clear()
    assert answered(scheduler, scheduler.handle(RoomMayHaveCome()), refused) == (4, 0)
    assert len(tries) <= 16


def test_a_long_queue_is_not_gone_through_for_each_start(tries):
    scheduler = StageAdmission((pool("general", 500),))
    offers = [offer(f"s{number}") for number in range(1000)]
    assert answered(scheduler, scheduler.handle(*offers), granted) == (500, 500)
    assert len(tries) <= 2 * 502, "one look to try a pool and one to reserve in it, for each start"


def test_a_freed_part_of_a_lease_retries_its_tenant_alone():
    scheduler = mesh(pool("general", 4))
    for name, tenant in (("a", "acme"), ("b", "beta")):
        scheduler.handle(offer(name, tenant=tenant))
        scheduler.handle(refused(name))
    assert asked(scheduler.handle(LeaseCameFree(tenant="beta"))) == [("b", "general", 1)]
    scheduler.handle(refused("b"))
    assert asked(scheduler.handle(RoomMayHaveCome())) == [("a", "general", 1), ("b", "general", 1)]


def test_kinds_with_one_slot_get_one_reason_for_a_full_pool():
    scheduler = running(mesh(pool("general", 1)), "runs")
    decisions = scheduler.handle(offer("a"), offer("b", tenant="beta"), offer("c", tenant="beta", slot=cpu(2)))
    words = {each.workload: each.detail for each in decisions}
    assert words["a"] == words["b"] == "pool general has 0 cpu free, one slot takes 1"
    assert words["c"] == "pool general has 1 cpu in all, one slot takes 2"


def test_unfitting_work_does_not_block_later_work():
    scheduler = running(mesh(), "runs", width=2)
    decisions = scheduler.handle(offer("large", slot=cpu(3), priority=9), offer("small"))
    assert asked(decisions) == [("small", "general", 1)]


def test_an_end_releases_lease_and_capacity_for_the_next():
    scheduler = running(mesh(pool("general", 1)), "s")
    scheduler.handle(offer("next"))
    assert scheduler.handle(ended("s")) == [
        ReleaseLease(workload="s"),
        AcquireLease(workload="next", tenant="acme", pool="general", flavor="standard", slot=cpu(1), demand=1),
    ]
    assert "s" not in scheduler.workloads


def test_a_refusal_gives_the_room_back_and_tries_the_next_pool():
    scheduler = mesh(pool("general", 2), pool("spot", 2, flavor="cheap"))
    scheduler.handle(offer("s"))
    (decision,) = scheduler.handle(refused("s"))
    assert (decision.pool, decision.flavor) == ("spot", "cheap")
    assert scheduler.ledger.pools["general"].free == cpu(2)


def test_a_full_pool_is_passed_over_for_one_with_room():
    scheduler = running(mesh(pool("general", 1), pool("spot", 1)), "s")
    assert asked(scheduler.handle(offer("next"))) == [("next", "spot", 1)]


def test_work_refused_by_every_pool_waits_for_freed_capacity():
    scheduler = mesh()
    scheduler.handle(offer("s"))
    assert explained(scheduler.handle(refused("s"))) == [("s", Reason.QUOTA_EXHAUSTED)]
    assert scheduler.handle() == []
    assert asked(scheduler.handle(RoomMayHaveCome())) == [("s", "general", 1)]


def test_room_in_a_pool_does_not_lift_a_refusal_of_quota():
    scheduler = running(mesh(), "runs")
    scheduler.handle(offer("s"))
    scheduler.handle(refused("s"))
    assert scheduler.handle(ended("runs")) == [ReleaseLease(workload="runs")]


def test_the_same_explanation_is_given_once():
    scheduler = mesh()
    scheduler.handle(offer("s"))
    scheduler.handle(refused("s"))
    scheduler.handle(RoomMayHaveCome())
    assert scheduler.handle(refused("s")) == []
    scheduler.handle(RoomMayHaveCome())
    assert scheduler.handle(refused("s", detail="less than before")) == [
        ExplainWaiting(workload="s", reason=Reason.QUOTA_EXHAUSTED, detail="less than before")
    ]


@pytest.mark.parametrize(
    ("slot", "reason", "words"),
    [
        pytest.param(cpu(5), Reason.POOL_TOO_SMALL, "pool general has 4 cpu in all, one slot takes 5", id="more than the pool ever has"),
        pytest.param(
            ResourceSet.of({"gpu": 1}), Reason.POOL_TOO_SMALL, "pool general has 0 gpu in all, one slot takes 1", id="what it never has"
        ),
        pytest.param(cpu(4), Reason.POOL_BUSY, "pool general has 1 cpu free, one slot takes 4", id="more than is free"),
    ],
)
def test_a_shortage_is_reported_with_its_resource(slot, reason, words):
    scheduler = running(mesh(), "runs", width=3)
    assert scheduler.handle(offer("s", slot=slot)) == [ExplainWaiting(workload="s", reason=reason, detail=words)]


def test_the_amount_that_is_too_small_is_reported():
    scheduler = mesh(PoolSpec(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 4, "gpu": 1})))
    (decision,) = scheduler.handle(offer("s", slot=ResourceSet.of({"cpu": 1, "gpu": 2})))
    assert decision.detail == "pool general has 1 gpu in all, one slot takes 2"


@pytest.mark.parametrize(
    "passing",
    [
        pytest.param(Reason.QUOTA_EXHAUSTED, id="quota in use"),
        pytest.param(Reason.LEDGER_UNREACHABLE, id="a ledger that did not answer"),
    ],
)
def test_a_pool_that_may_admit_gives_the_reason_before_others(passing):
    scheduler = mesh(pool("tiny", 0.5), pool("general", 4))
    scheduler.handle(offer("s"))
    (decision,) = scheduler.handle(refused("s", passing, "later"))
    assert decision.reason is passing
    assert decision.detail == "pool tiny has 0.5 cpu in all, one slot takes 1; later"


def test_the_same_offer_twice_is_one_workload():
    scheduler = mesh()
    scheduler.handle(offer("s"))
    assert scheduler.handle(offer("s", width=3)) == []
    assert len(scheduler.workloads) == 1


@pytest.mark.parametrize(
    ("event", "before"),
    [
        pytest.param(granted("s"), (), id="a grant for the unknown"),
        pytest.param(refused("s"), (), id="a refusal for the unknown"),
        pytest.param(granted("s"), (offer("s"), granted("s")), id="a second grant"),
        pytest.param(refused("s"), (offer("s"), granted("s")), id="a refusal of what runs"),
        pytest.param(granted("s"), (offer("s"), refused("s")), id="a grant after the refusal"),
        pytest.param(granted("s"), (offer("s"), ended("s")), id="a grant after the end"),
    ],
)
def test_an_answer_that_nobody_asked_for_is_refused(event, before):
    scheduler = mesh()
    for earlier in before:
        scheduler.handle(earlier)
    with pytest.raises(IllegalTransition, match="s has requested no lease"):
        scheduler.handle(event)


@pytest.mark.parametrize("event", [ended("s"), WorkloadWithdrawn(workload="s")], ids=["an end", "a withdrawal"])
def test_the_unknown_ends_without_a_word(event):
    assert mesh().handle(event) == []


@pytest.mark.parametrize("event", [ended("s"), WorkloadWithdrawn(workload="s")], ids=["an end", "a withdrawal"])
@pytest.mark.parametrize(
    ("steps", "decisions"),
    [
        pytest.param((offer("s", slot=cpu(9)),), [], id="of what is queued gives nothing back"),
        pytest.param((offer("s"),), [], id="of what is reserved gives the room back"),
        pytest.param((offer("s"), granted("s")), [ReleaseLease(workload="s")], id="of what runs gives the lease back too"),
    ],
)
def test_work_can_go_in_every_state(steps, decisions, event):
    scheduler = mesh()
    for step in steps:
        scheduler.handle(step)
    assert scheduler.handle(event) == decisions
    assert scheduler.workloads == {}
    assert scheduler.ledger.pools["general"].free == cpu(4)


def test_withdrawn_work_can_be_offered_again_at_the_end():
    scheduler = mesh(pool("general", 1))
    scheduler.handle(offer("a"), offer("b"), WorkloadWithdrawn(workload="a"), offer("a"))
    assert scheduler.workloads["b"].state is WorkloadState.RESERVED
    assert scheduler.workloads["a"].state is WorkloadState.QUEUED


def test_the_same_events_give_the_same_decisions():
    events = [
        offer("a", width=2),
        offer("b", priority=1),
        granted("b"),
        refused("a"),
        RoomMayHaveCome(),
        ended("b"),
        offer("c", slot=cpu(3)),
    ]
    assert [mesh().handle(*events[:2])] == [mesh().handle(*events[:2])]
    one, other = mesh(), mesh()
    assert [one.handle(event) for event in events] == [other.handle(event) for event in events]


def test_the_invariants_report_inconsistent_state():
    scheduler = running(StageAdmission((pool("general", 1),)), "s")
    scheduler.ledger.pools["general"].uses["ghost"] = cpu(1)
    assert violations(scheduler) == [
        "pool general has reserved {cpu: 2} of {cpu: 1}",
        "pool general counts ghost as running, which it is not",
    ]
    scheduler.ledger.pools["general"].reservations["s"] = NOTHING
    assert "pool general has reserved room for s, which has not requested any" in violations(scheduler)
    scheduler.workloads["s"].pool = None
    assert "s is RUNNING with pool None" in violations(scheduler)


# -- room that is promised -------------------------------------------------------------------------------------------------


def promised(name, *victims, until_ms=1_000):
    return RoomPromised(workload=name, pool="general", victims=frozenset(victims), until_ms=until_ms, detail="others stop for it")


def gathering(*, urgent=2):
    """Return a mesh whose two stages fill a pool of two, and stop for `urgent`."""
    scheduler = running(running(mesh(pool("general", 2)), "a"), "b")
    scheduler.handle(offer("urgent", slot=cpu(urgent), priority=5))
    assert scheduler.handle(promised("urgent", "a", "b")) == [
        ExplainWaiting(workload="urgent", reason=Reason.WAITING_FOR_VICTIMS, detail="others stop for it")
    ]
    return scheduler


def test_freed_capacity_is_reserved_until_a_slot_is_whole():
    scheduler = gathering()
    assert asked(scheduler.handle(ended("a"))) == []
    assert scheduler.ledger.held_by("urgent") == cpu(1)
    assert asked(scheduler.handle(ended("b"))) == [("urgent", "general", 1)]


def test_reserved_capacity_goes_to_nobody_else_however_urgent():
    scheduler = gathering()
    scheduler.handle(ended("a"))
    decisions = scheduler.handle(offer("small", priority=9))
    assert explained(decisions) == [("small", Reason.CAPACITY_RESERVED)]
    assert asked(scheduler.handle(WorkloadWithdrawn(workload="urgent"))) == [("small", "general", 1)]


def test_smaller_work_gets_what_is_beyond_the_promise():
    scheduler = gathering(urgent=1)
    assert asked(scheduler.handle(offer("small"), ended("a"))) == []
    assert asked(scheduler.handle(ended("b"))) == [("urgent", "general", 1), ("small", "general", 1)]


def test_a_reservation_waits_for_all_leases_that_stop():
    scheduler = running(mesh(pool("general", 2)), "a")
    scheduler.handle(offer("urgent", priority=5))
    scheduler.handle(refused("urgent"))
    scheduler.handle(promised("urgent", "a"))
    assert scheduler.ledger.held_by("urgent") == cpu(1)
    assert asked(scheduler.handle(ended("a"))) == [("urgent", "general", 1)]


def test_a_promise_that_ends_gives_back_what_was_set_aside():
    scheduler = gathering()
    decisions = scheduler.handle(ended("a"), offer("small"), PromiseEnded(workload="urgent"))
    assert scheduler.workloads["urgent"].state is WorkloadState.QUEUED
    assert asked(decisions) == [("small", "general", 1)]
    assert explained(decisions) == [("urgent", Reason.POOL_BUSY)]


@pytest.mark.parametrize("event", [promised("gone", "a"), promised("a", "b"), PromiseEnded(workload="a"), PromiseEnded(workload="gone")])
def test_promises_about_what_does_not_wait_change_nothing(event):
    scheduler = running(mesh(), "a")
    assert scheduler.handle(event) == []
    assert scheduler.workloads["a"].state is WorkloadState.RUNNING


def test_a_gang_waits_for_all_its_nodes_and_grows_whole():
    scheduler = Checked((pool("p", 4),))
    gang = Gang(size=2, bundle=cpu(1), strategy="STRICT_SPREAD")
    scheduler.handle(nodes(2, 2), offer("single", slot=cpu(2)))
    scheduler.handle(granted("single"))
    offered = WorkloadOffered(workload="gangs", tenant="acme", slot=gang.slot, gang=gang, width=3, priority=0)
    (waits,) = scheduler.handle(offered)
    words = "2 bundles of 1 cpu each on nodes of their own, 1 has a node; the gang starts when all have one"
    assert (waits.reason, waits.detail) == (Reason.NODES_BUSY, words)
    assert asked(scheduler.handle(ended("single"))) == [("gangs", "p", 2)]
    (started, *_) = scheduler.handle(granted("gangs", slots=1))
    assert (started.slots, sorted(started.nodes)) == (1, ["n0", "n1"])
    assert asked(scheduler.handle(RoomMayHaveCome())) == [("gangs", "p", 1)]
    (grown,) = scheduler.handle(granted("gangs", slots=1))
    assert sorted(grown.nodes) == ["n0", "n1"]
    scheduler.handle(SlotsRetired(workload="gangs", slots=1, gone=grown.nodes))
    assert sorted(scheduler.placement.nodes_of("gangs")) == ["n0", "n1"]
    assert violations(scheduler) == []
