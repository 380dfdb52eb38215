"""Reserved groups in stage admission: the work that gets their room, the reasons of other work, and what a new process finds."""

from __future__ import annotations

import pytest

from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.shapes import Gang, GroupPoolSpec, GroupShape
from mesh.stages.admission import StageAdmission
from mesh.stages.admission_decisions import AcquireLease, ExplainWaiting, GrowWorkload, StartWorkload
from mesh.stages.admission_events import (
    LeaseGranted,
    LeaseRefused,
    NodesSeen,
    SlotsRetired,
    UsefulSlotsKnown,
    WorkloadEnded,
    WorkloadFound,
    WorkloadOffered,
    WorkloadWithdrawn,
)
from mesh.stages.admission_invariants import violations
from mesh.stages.reserved_groups import GroupCounts
from mesh.stages.workloads import WorkloadState

URGENT = 8


def cpu(count):
    return ResourceSet.of({"cpu": count})


def pool(cpus, *reserved, name="p", **groups):
    shapes = tuple(GroupShape((cpu(each),)) for each in reserved)
    return PoolSpec(pool=name, flavor="standard", capacity=cpu(cpus), groups=GroupPoolSpec(reserved=shapes, **{"max_dynamic": 99} | groups))


def offer(name, *, slot=1, width=1, priority=0):
    return WorkloadOffered(workload=name, tenant="acme", slot=cpu(slot), width=width, priority=priority)


def nodes(*cpus):
    seen = (NodeSeen(node=f"n{number}", total=cpu(count), labels={}, available=cpu(count)) for number, count in enumerate(cpus))
    return NodesSeen(nodes=tuple(seen))


class Checked(StageAdmission):
    """Admission that checks every invariant after every step."""

    def handle(self, *events):
        decisions = super().handle(*events)
        assert violations(self) == []
        return decisions

    def run(self, *offers):
        """Offer the stages, grant all that they ask for, and return the decisions that start or grow stages."""
        done, pending = [], self.handle(*offers)
        while pending:
            decision = pending.pop(0)
            if isinstance(decision, AcquireLease):
                pending += self.handle(LeaseGranted(workload=decision.workload, slots=decision.demand, token=1))
            elif isinstance(decision, (StartWorkload, GrowWorkload)):
                done.append(decision)
        return done

    def why(self, stage):
        return self.workloads[stage].reported


def test_urgent_work_takes_the_reserved_group_of_its_shape():
    mesh = Checked((pool(4, 2, 1),))
    mesh.handle(nodes(4))
    (start,) = mesh.run(offer("a", priority=URGENT))
    assert (dict(start.groups), start.nodes) == ({"p/1": "n0"}, ())
    assert mesh.reserved.counts("p") == GroupCounts(reserved=2, in_use=1, idle=1)


def test_an_urgent_gang_takes_no_reserved_group():
    mesh = Checked((pool(4, 2),))
    mesh.handle(nodes(4))
    gang = Gang(size=2, bundle=cpu(1))
    (start,) = mesh.run(WorkloadOffered(workload="a", tenant="acme", slot=gang.slot, gang=gang, width=2, priority=URGENT))
    assert (dict(start.groups), start.nodes) == ({}, ("n0", "n0"))
    assert mesh.reserved.counts("p") == GroupCounts(reserved=1, idle=1)


@pytest.mark.parametrize("gpus", [1, 2])
def test_gpus_of_a_lent_group_go_to_the_stage_and_back(gpus):
    one, bundle, node = (ResourceSet.of({"cpu": count, "gpu": count}) for count in (1, gpus, 3))
    groups = GroupPoolSpec(reserved=(GroupShape((bundle,)),), max_dynamic=99)
    mesh = Checked((PoolSpec(pool="p", flavor="standard", capacity=node, groups=groups),))
    mesh.handle(NodesSeen(nodes=(NodeSeen(node="n0", total=node, labels={}, available=node),)))
    (start,) = mesh.run(WorkloadOffered(workload="a", tenant="acme", slot=one, width=1, priority=URGENT))
    assert (dict(start.groups), start.nodes) == ({"p/0": "n0"}, ())
    mesh.handle(WorkloadEnded(workload="a"))
    assert mesh.reserved.counts("p") == GroupCounts(reserved=1, idle=1)
    (others,) = mesh.run(WorkloadOffered(workload="b", tenant="acme", slot=one, width=3, priority=0))
    assert (others.slots, dict(others.groups)) == (3 - gpus, {})


def test_a_larger_group_serves_when_none_has_the_shape():
    mesh = Checked((pool(4, 3),))
    mesh.handle(nodes(4))
    (start,) = mesh.run(offer("a", priority=URGENT))
    assert dict(start.groups) == {"p/0": "n0"}
    assert mesh.ledger.pools["p"].free == cpu(1)  # The rest of the group stays held.
    mesh.handle(WorkloadEnded(workload="a"))
    assert mesh.reserved.idle_amounts("p") == cpu(3)


def test_work_below_the_threshold_never_gets_reserved_room():
    mesh = Checked((pool(4, 1, 1),))
    mesh.handle(nodes(2, 2))
    (start,) = mesh.run(offer("a", width=9, priority=URGENT - 1))
    assert (start.slots, dict(start.groups)) == (2, {})
    mesh.run(offer("b"))
    reason, detail = mesh.why("b")
    assert reason is Reason.CAPACITY_RESERVED
    assert detail == "pool p keeps 2 cpu in reserved groups, which slots of their size or less take from priority 8 on"


def test_a_node_full_of_reserved_room_is_named_as_the_reason():
    mesh = Checked((pool(4, 2),))
    full = NodeSeen(node="n1", total=cpu(2), labels={}, available=cpu(1))
    for _ in range(3):  # Others' use counts once it stays.
        mesh.handle(NodesSeen(nodes=(*nodes(2).nodes, full)))
    mesh.run(offer("a", slot=2))
    assert mesh.why("a")[0] is Reason.CAPACITY_RESERVED


def test_a_full_pool_is_busy_when_its_groups_are_in_use():
    mesh = Checked((pool(1, 1),))
    mesh.run(offer("a", priority=URGENT))
    mesh.run(offer("b"))
    assert mesh.why("b")[0] is Reason.POOL_BUSY


def test_urgent_work_of_the_same_tenant_and_slot_still_starts():
    """A refusal holds for all work of one kind, and the kinds differ in what they may take."""
    mesh = Checked((pool(1, 1),))
    mesh.run(offer("a"))
    assert [start.workload for start in mesh.run(offer("b", priority=URGENT))] == ["b"]


def test_the_room_of_an_ended_urgent_stage_is_held_again():
    mesh = Checked((pool(1, 1),))
    mesh.run(offer("a", priority=URGENT))
    mesh.run(offer("low"), offer("high", priority=URGENT))
    (start,) = mesh.run(WorkloadEnded(workload="a"))
    assert (start.workload, list(start.groups)) == ("high", ["p/0"])
    assert mesh.run(WorkloadEnded(workload="high")) == []
    assert mesh.reserved.counts("p") == GroupCounts(reserved=1, idle=1, reuse_count=1)


def test_urgent_work_uses_reserved_groups_then_other_room():
    mesh = Checked((pool(4, 1, 1),))
    mesh.handle(nodes(2, 2))
    (start,) = mesh.run(offer("a", width=9, priority=URGENT))
    assert (start.slots, len(start.groups), len(start.nodes)) == (4, 2, 2)
    assert sorted((*start.groups.values(), *start.nodes)) == ["n0", "n0", "n1", "n1"]


@pytest.mark.parametrize("granted", [1, 2, 3])
def test_a_smaller_lease_returns_the_rest(granted):
    mesh = Checked((pool(4, 1, 1),))
    mesh.handle(nodes(2, 2))
    mesh.handle(offer("a", width=4, priority=URGENT))
    (start,) = [each for each in mesh.handle(LeaseGranted(workload="a", slots=granted, token=1)) if isinstance(each, StartWorkload)]
    assert (start.slots, len(start.groups), len(start.nodes)) == (granted, min(granted, 2), max(0, granted - 2))
    assert mesh.reserved.counts("p").idle == 2 - min(granted, 2)


def test_a_refused_lease_returns_the_group():
    mesh = Checked((pool(1, 1),))
    mesh.handle(offer("a", priority=URGENT))
    mesh.handle(LeaseRefused(workload="a", reason=Reason.QUOTA_EXHAUSTED, detail="no quota"))
    assert mesh.reserved.counts("p").idle == 1
    mesh.handle(WorkloadWithdrawn(workload="a"))
    assert mesh.reserved.counts("p").idle == 1


def test_a_running_urgent_stage_grows_into_reserved_groups():
    mesh = Checked((pool(2, 1, 1),))
    mesh.handle(nodes(2))
    mesh.run(offer("other", priority=URGENT))
    mesh.run(offer("a", width=2, priority=URGENT))
    assert mesh.workloads["a"].slots == 1
    (grow,) = mesh.run(WorkloadEnded(workload="other"))
    assert (grow.workload, grow.slots, len(grow.groups)) == ("a", 1, 1)
    mesh.handle(WorkloadEnded(workload="a"))
    assert mesh.reserved.counts("p").idle == 2


def test_a_retired_reserved_slot_is_held_again():
    mesh = Checked((pool(3, 1),))
    mesh.handle(nodes(3))
    (start,) = mesh.run(offer("a", width=3, priority=URGENT))
    mesh.handle(UsefulSlotsKnown(workload="a", slots=2), SlotsRetired(workload="a", slots=2, groups=tuple(start.groups)))
    assert mesh.reserved.counts("p") == GroupCounts(reserved=1, idle=1)
    mesh.handle(UsefulSlotsKnown(workload="a", slots=1), SlotsRetired(workload="a", slots=1, gone=("n0",)))
    assert mesh.ledger.pools["p"].free == cpu(1)


def test_a_found_stage_keeps_its_groups():
    mesh = Checked((pool(3, 2),))
    mesh.handle(WorkloadFound(offer=offer("a", width=2, priority=URGENT), pool="p", slots=2, nodes=("n1",), groups={"p/0": "n0"}))
    mesh.handle(nodes(2, 1))
    assert mesh.reserved.counts("p") == GroupCounts(reserved=1, in_use=1)
    mesh.handle(WorkloadEnded(workload="a"))
    (group,) = mesh.reserved.layers().reserved
    assert (group.group, group.node, group.slot) == ("p/0", "n0", cpu(2))


def test_found_work_may_hold_what_is_reserved_now():
    """The configuration may have changed since it started."""
    mesh = Checked((pool(2, 1, 1),))
    mesh.handle(WorkloadFound(offer=offer("a", width=2), pool="p", slots=2))
    assert mesh.reserved.layers().reserved == ()
    mesh.run(offer("b"))
    mesh.handle(WorkloadEnded(workload="a"))
    assert mesh.reserved.counts("p").idle == 2
    assert mesh.workloads["b"].state is WorkloadState.QUEUED


def test_groups_of_a_lost_node_are_placed_elsewhere():
    mesh = Checked((pool(2, 1, 1),))
    mesh.handle(nodes(2))
    mesh.handle(NodesSeen(nodes=(NodeSeen(node="new", total=cpu(2), labels={}, available=cpu(2)),)))
    assert {group.node for group in mesh.reserved.layers().reserved} == {"new"}


def test_a_limit_of_groups_on_demand_holds_back_other_work():
    mesh = Checked((pool(4, 1, max_dynamic=2),))
    (start,) = mesh.run(offer("a", width=9))
    assert start.slots == 2
    mesh.run(offer("b"))
    assert mesh.why("b") == (Reason.GROUPS_AT_LIMIT, "pool p has all the groups on demand that `dynamic_max` allows")
    assert [len(start.groups) for start in mesh.run(offer("c", priority=URGENT))] == [1]
    assert [start.workload for start in mesh.run(WorkloadEnded(workload="a"))] == ["b"]


def test_work_without_resources_takes_no_group():
    mesh = Checked((pool(1, 1, max_dynamic=0),))
    offered = WorkloadOffered(workload="a", tenant="acme", slot=NOTHING, width=3, priority=URGENT)
    (start,) = mesh.run(offered)
    assert dict(start.groups) == {}


def test_a_reserved_reason_is_reported_once():
    mesh = Checked((pool(1, 1),))
    decisions = mesh.handle(offer("a"))
    assert [each.reason for each in decisions if isinstance(each, ExplainWaiting)] == [Reason.CAPACITY_RESERVED]
    assert mesh.handle(nodes(1)) == []
