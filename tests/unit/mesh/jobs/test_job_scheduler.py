"""Rounds of the job scheduler: whole gangs, minimum workers, policies and reasons."""

from __future__ import annotations

import pytest

from mesh.core.nodes import NodeTable
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import StartMember
from mesh.jobs.events import JobSubmitted, MemberLost, MembersAllocated, MemberStarted, MemberStopped
from mesh.jobs.invariants import violations
from mesh.jobs.members import Member, members_of, replica_of
from mesh.jobs.room import PoolRoom
from mesh.jobs.scheduler import allocate
from mesh.jobs.snapshots import JobSnapshot
from mesh.jobs.spec import BasicPolicy, JobQueuePolicy, JobSpec, ReplicaSpec, WorkerSetSpec
from mesh.jobs.states import ScheduleState
from mesh.policies.policy import Policy, highest

LEADER = Member("leader")
EMPTIEST = Policy("emptiest", lambda _, view: view.free[:, 0].astype(float), highest)
FAILED, PARTLY, SUCCEED, UNSCHEDULED = (
    ScheduleState.SCHEDULED_FAILED,
    ScheduleState.SCHEDULED_PARTLY,
    ScheduleState.SCHEDULED_SUCCEED,
    ScheduleState.UNSCHEDULED,
)


def cluster(*cpus, labels=None, **others):
    table = NodeTable()
    for index, cpu in enumerate(cpus):
        total = {"cpu": cpu, **{name: amounts[index] for name, amounts in others.items()}}
        table.join(f"n{index}", ResourceSet.of(total), (labels or {}).get(f"n{index}", {}))
    return table


def job(name, *, leader=1, workers=2, each=1, sets=None, **fields):
    """Return a job whose members request whole CPUs, or the resources of a mapping."""
    shapes = sets or [("actors", workers, each)]
    return JobSpec(
        job=name,
        pool="train",
        leader=ReplicaSpec(resources=wanted(leader)),
        worker_sets=tuple(WorkerSetSpec(name=name, counts=count, resources=wanted(shape)) for name, count, shape in shapes),
        **fields,
    )


def wanted(shape):
    return ResourceSet.of(shape if isinstance(shape, dict) else {"cpu": shape})


def snapshot(spec, arrival=1, *, places=(), unseen=(), incarnation=1, done=0, **fields):
    places = dict(places)
    return JobSnapshot(
        spec=spec,
        arrival=arrival,
        incarnation=incarnation,
        schedule_state=PARTLY if places else UNSCHEDULED,
        places=places,
        unseen=frozenset(unseen),
        unplaced=fields.get("unplaced", tuple(member for member in members_of(spec) if member not in places)),
        done=done,
    )


def round_of(nodes, *specs, **fields):
    jobs = [spec if isinstance(spec, JobSnapshot) else snapshot(spec, arrival) for arrival, spec in enumerate(specs)]
    return {each.job: each for each in allocate(jobs, nodes, draw=lambda _: 0, **fields)}


def on(found):
    return {str(place.member): place.node for place in found.places}


# -- one job -----------------------------------------------------------------------------------------------------------


def test_s38_a_round_places_the_leader_and_all_workers():
    found = round_of(cluster(3), job("pong"))["pong"]
    assert on(found) == {"leader": "n0", "actors-0": "n0", "actors-1": "n0"}
    assert (found.schedule_state, found.reason) == (SUCCEED, None)


def test_s38_a_round_leaves_the_table_of_nodes_as_it_was():
    nodes = cluster(3)
    round_of(nodes, job("pong", leader={"cpu": 1, "licence": 1}))
    assert (nodes.resources, nodes.load.sum(), nodes.busy.sum(), nodes.touched) == (("cpu",), 0, 0, [0])


def test_s38_workers_beyond_the_minimum_come_in_later_rounds():
    spec = job("pong", workers=3, min_workers_num=1)
    found = round_of(cluster(3), spec)["pong"]
    assert (found.schedule_state, found.reason) == (PARTLY, Reason.NODES_BUSY)
    assert found.detail == "1 worker still without a place for lack of capacity"
    placed = snapshot(spec, places={place.member: place.node for place in found.places})
    later = round_of(cluster(1), placed)["pong"]
    assert (on(later), later.schedule_state) == ({"actors-2": "n0"}, SUCCEED)


def test_s38_with_too_few_workers_nothing_is_kept():
    nodes = cluster(4)
    nodes.promise(0, nodes.vector(wanted(2)))
    found = round_of(nodes, job("pong", workers=3, min_workers_num=2))["pong"]
    assert (found.places, found.schedule_state, found.reason) == ((), UNSCHEDULED, Reason.NODES_BUSY)
    assert found.detail == "now: the leader and 2 workers need more cpu than the nodes can provide"


@pytest.mark.parametrize(
    ("spec", "reason", "detail"),
    [
        pytest.param(
            job("pong", leader=5),
            Reason.NO_NODE_FITS,
            "the leader fits on no node: it requests 5 cpu, but a node can provide at most 4",
            id="leader",
        ),
        pytest.param(
            job("pong", workers=9, min_workers_num=8),
            Reason.NO_NODE_FITS,
            "the leader and 8 workers need more cpu than the nodes can provide",
            id="together",
        ),
        pytest.param(
            job("pong", leader=3, workers=2, each=3, min_workers_num=2),
            Reason.NO_NODE_FITS,
            "the leader and 2 workers need more cpu than the nodes can provide",
            id="too much",
        ),
        pytest.param(
            job("pong", selector={"zone": "moon"}),
            Reason.NO_NODE_FITS,
            "the leader fits on no node: no node has the required labels",
            id="labels",
        ),
    ],
)
def test_s38_what_no_nodes_could_ever_hold_has_failed(spec, reason, detail):
    nodes = cluster(4, 4)
    found = round_of(nodes, spec)["pong"]
    assert (found.schedule_state, found.reason, found.detail) == (FAILED, reason, f"even when empty: {detail}")


def test_s38_an_unknown_resource_is_reported_and_holds_nothing():
    found = round_of(cluster(4), job("pong", sets=[("actors", 2, {"accelerator": 1})]))["pong"]
    assert (found.schedule_state, found.reason, found.places) == (FAILED, Reason.NO_NODE_FITS, ())
    assert found.detail == "even when empty: 1 worker is needed, at most 0 would fit"


def test_an_impossible_arrangement_is_found_by_trying_all():
    found = round_of(cluster(5, 7), job("pong", leader=3, workers=3, each=3, min_workers_num=3))["pong"]
    assert (found.schedule_state, found.reason) == (FAILED, Reason.NO_NODE_FITS)
    assert found.detail == "even when empty: no arrangement of the leader and 3 workers fits on the nodes"


def test_nothing_fails_for_ever_where_nodes_may_still_come():
    spec = job("pong", leader=5)
    assert round_of(cluster(), spec)["pong"].schedule_state is UNSCHEDULED
    assert round_of(cluster(4), spec, may_grow=True)["pong"].schedule_state is UNSCHEDULED
    again = round_of(cluster(4), snapshot(spec, incarnation=2))["pong"]
    assert (again.schedule_state, again.reason) == (UNSCHEDULED, Reason.NO_NODE_FITS)


def test_an_arrangement_is_found_where_the_policy_gets_stuck():
    # This policy prefers the emptiest node, and puts the leader on the worker's only node.
    nodes = cluster(4, 9)
    nodes.promise(1, nodes.vector(wanted(7)))
    spec = job("pong", leader=2, sets=[("big", 1, 4)], basic_policy=BasicPolicy.JOB_ANTI_AFFINITY)
    found = round_of(nodes, spec, policy_of=lambda _: EMPTIEST)["pong"]
    assert on(found) == {"leader": "n1", "big-0": "n0"}


def test_workers_that_have_succeeded_are_not_needed_again():
    spec = job("pong", workers=2, min_workers_num=2)
    found = round_of(cluster(2), snapshot(spec, unplaced=(LEADER, Member("actors", 1)), done=1, incarnation=2))["pong"]
    assert (len(found.places), found.schedule_state) == (2, SUCCEED)


def test_a_job_without_workers_needs_its_leader_only():
    found = round_of(cluster(1), job("solo", sets=[("none", 1, 9)], min_workers_num=0))["solo"]
    assert (on(found), found.schedule_state) == ({"leader": "n0"}, PARTLY)


# -- the basic policies ------------------------------------------------------------------------------------------------


def test_s37_a_gang_is_placed_whole_or_not_at_all():
    spec = job("gang", workers=3, min_workers_num=1, basic_policy=BasicPolicy.GANG)
    nodes = cluster(4)
    nodes.promise(0, nodes.vector(wanted(1)))
    assert round_of(nodes, spec)["gang"].places == ()
    assert len(round_of(cluster(4), spec)["gang"].places) == 4


def test_s37_two_gangs_never_each_hold_half_of_the_room():
    gangs = [job(name, workers=3, basic_policy=BasicPolicy.GANG) for name in ("first", "second")]
    found = round_of(cluster(2, 3), *gangs)
    assert [len(found[name].places) for name in ("first", "second")] == [4, 0]
    assert found["second"].schedule_state is UNSCHEDULED


def test_s37_binpack_leaves_the_empty_node_empty():
    nodes = cluster(8, 8)
    nodes.promise(1, nodes.vector(wanted(1)))
    assert set(on(round_of(nodes, job("pong", basic_policy=BasicPolicy.BIN_PACK))["pong"]).values()) == {"n1"}


def test_s37_the_leader_spreads_and_the_workers_pack():
    nodes = cluster(8, 8, gpu=[2, 2])
    nodes.promise(1, nodes.vector(wanted(3)))
    spec = job("pong", leader={"cpu": 1, "gpu": 1}, basic_policy=BasicPolicy.LEADER_FIRST)
    assert on(round_of(nodes, spec)["pong"]) == {"leader": "n0", "actors-0": "n1", "actors-1": "n1"}


def test_s37_min_fragment_keeps_cpu_and_memory_in_proportion():
    nodes = cluster(8, 8, memory=["8GiB", "8GiB"])
    nodes.promise(1, nodes.vector(ResourceSet.of({"memory": "2GiB"})))
    spec = job("pong", leader={"cpu": 2}, workers=1, each={"cpu": "0.5", "memory": "512MiB"}, basic_policy=BasicPolicy.MIN_FRAGMENT)
    assert on(round_of(nodes, spec)["pong"])["leader"] == "n1"


def test_s37_affinity_gathers_a_job_anti_affinity_spreads_it():
    nodes = cluster(3, 3, 3)
    together = round_of(nodes, job("pong", basic_policy=BasicPolicy.JOB_AFFINITY))["pong"]
    apart = round_of(nodes, job("pong", basic_policy=BasicPolicy.JOB_ANTI_AFFINITY))["pong"]
    assert (len(set(on(together).values())), len(set(on(apart).values()))) == (1, 3)


def test_members_that_run_already_count_for_affinity():
    spec = job("pong", basic_policy=BasicPolicy.JOB_AFFINITY)
    found = round_of(cluster(3, 3, 3), snapshot(spec, places={LEADER: "n2", Member("actors", 0): "n2"}))["pong"]
    assert on(found) == {"actors-1": "n2"}


# -- many jobs ---------------------------------------------------------------------------------------------------------


def test_s36_the_higher_priority_is_placed_first():
    found = round_of(cluster(3), job("low", priority=1), job("high", priority=9))
    assert (found["high"].schedule_state, found["low"].schedule_state) == (SUCCEED, UNSCHEDULED)
    assert list(found) == ["high", "low"]


def test_s36_drf_fills_by_dominant_share_as_published():
    members = {"a": {"cpu": 1, "memory": "4GB"}, "b": {"cpu": 3, "memory": "1GB"}}
    specs = [
        job(name, leader=shape, sets=[("more", 9, shape)], min_workers_num=0, job_queue_policy=JobQueuePolicy.DRF)
        for name, shape in members.items()
    ]
    found = round_of(cluster(9, memory=["18GB"]), *specs)
    assert {name: len(each.places) for name, each in found.items()} == {"a": 3, "b": 2}


def test_s36_what_a_job_holds_already_counts_as_its_share():
    specs = [job(name, workers=9, min_workers_num=0, job_queue_policy=JobQueuePolicy.DRF) for name in ("rich", "poor")]
    nodes = cluster(8)
    nodes.promise(0, nodes.vector(wanted(4)))
    rich = snapshot(specs[0], 0, places=dict.fromkeys(members_of(specs[0])[:4], "n0"))
    found = round_of(nodes, rich, snapshot(specs[1], 1))
    assert (len(found["poor"].places), len(found["rich"].places)) == (4, 0)


def test_a_job_that_does_not_fit_holds_up_nobody_behind_it():
    found = round_of(cluster(3), job("large", leader=3, priority=9), job("small", priority=1))
    assert (found["large"].places, found["small"].schedule_state) == ((), SUCCEED)


def test_places_that_no_node_knows_of_are_kept_free():
    spec = job("first", workers=2)
    first = snapshot(spec, 0, places=dict.fromkeys(members_of(spec), "n0"), unseen=members_of(spec)[1:])
    nodes = cluster(3)
    nodes.promise(0, nodes.vector(wanted(1)))  # The leader's place.
    found = round_of(nodes, first, job("second"))
    assert list(found) == ["second"]
    assert found["second"].places == ()


def test_equal_jobs_are_tried_once_where_the_first_does_not_fit():
    asked = []

    def counting(name):
        asked.append(name)
        return EMPTIEST

    nodes = cluster(4)
    nodes.promise(0, nodes.vector(wanted(2)))
    found = round_of(nodes, *[job(f"j{index}", min_workers_num=2) for index in range(20)], policy_of=counting)
    assert {each.reason for each in found.values()} == {Reason.NODES_BUSY}
    assert len(asked) <= 3


def test_a_smaller_job_is_tried_after_a_similar_one_failed():
    found = round_of(cluster(3), job("more", workers=3, min_workers_num=3), job("less", workers=3, min_workers_num=2), may_grow=True)
    assert [len(found[name].places) for name in ("more", "less")] == [0, 3]


def test_an_over_committed_resource_blocks_no_other_resource():
    greedy = job("greedy", leader={"gpu": 2}, workers=1, each={"gpu": 2})
    held = snapshot(greedy, 0, places=dict.fromkeys(members_of(greedy), "n0"), unseen=members_of(greedy))
    found = round_of(cluster(3, gpu=[2]), held, job("modest"), pools={"train": PoolRoom(capacity=wanted(9), free=wanted(3))})
    assert len(found["modest"].places) == 3


# -- pools -------------------------------------------------------------------------------------------------------------


def pools(capacity, free=None, **fields):
    return {"train": PoolRoom(capacity=wanted(capacity), free=wanted(capacity if free is None else free), **fields)}


def test_a_pool_gives_no_more_than_it_has():
    spec = job("pong", workers=4, min_workers_num=1)
    found = round_of(cluster(9), spec, pools=pools(8, 3))["pong"]
    assert (len(found.places), found.reason) == (3, Reason.POOL_BUSY)
    found = round_of(cluster(9), spec, pools=pools(8, 1))["pong"]
    assert (found.schedule_state, found.reason) == (UNSCHEDULED, Reason.POOL_BUSY)
    found = round_of(cluster(9), spec, pools=pools(1))["pong"]
    assert (found.schedule_state, found.reason) == (FAILED, Reason.POOL_TOO_SMALL)


def test_only_nodes_of_the_pool_and_of_the_jobs_labels_are_used():
    labels = {"n0": {"pool": "a"}, "n1": {"pool": "a", "zone": "west"}, "n2": {"zone": "west"}}
    found = round_of(cluster(3, 3, 3, labels=labels), job("pong", selector={"zone": "west"}), pools=pools(9, selector={"pool": "a"}))[
        "pong"
    ]
    assert set(on(found).values()) == {"n1"}


def test_a_job_of_an_unknown_pool_waits_for_it():
    found = round_of(cluster(9), job("pong"), pools={})["pong"]
    assert (found.schedule_state, found.reason) == (UNSCHEDULED, Reason.POOL_UNKNOWN)


# -- round and controller together -------------------------------------------------------------------------------------


class Mesh:
    """Table of nodes that carries out the controller's orders at once."""

    def __init__(self, nodes):
        self.nodes, self.controller, self.running = nodes, JobController(), {}

    def take(self, *events):
        for event in events:
            for decision in self.controller.handle(event):
                if isinstance(decision, StartMember):
                    self.start(decision)
            assert violations(self.controller) == []

    def start(self, decision):
        units = self.nodes.vector(replica_of(self.controller.jobs[decision.job].spec, decision.member.role).resources)
        self.nodes.promise(self.nodes.row(decision.node), units)  # Raises if the round granted the same room twice.
        self.running[decision.job, decision.member] = (decision.attempt, decision.node, units)

    def round(self):
        found = allocate(self.controller.snapshot(), self.nodes, draw=lambda _: 0)
        self.take(*(MembersAllocated(at_ms=0, allocation=each) for each in found))

    def all_up(self, name):
        for member in members_of(self.controller.jobs[name].spec):
            attempt = self.running[name, member][0]
            self.take(MemberStarted(at_ms=0, job=name, member=member, attempt=attempt, address="a"))

    def ends(self, name, member, kind, **fields):
        attempt, node, units = self.running.pop((name, member))
        self.nodes.withdraw(self.nodes.row(node), units)
        self.take(kind(at_ms=0, job=name, member=member, attempt=attempt, **fields))


def test_s38_two_gangs_run_through_rounds_one_after_the_other():
    mesh = Mesh(cluster(2, 2))
    for name in ("first", "second"):
        mesh.take(JobSubmitted(at_ms=0, spec=job(name, workers=3, basic_policy=BasicPolicy.GANG)))
    mesh.round()
    mesh.round()
    assert [str(member) for _, member in mesh.running] == ["leader"]  # The workers' room is reserved in the round only.
    mesh.all_up("first")
    mesh.ends("first", LEADER, MemberLost, detail="its node left")
    for index in range(3):
        mesh.ends("first", Member("actors", index), MemberStopped)
    assert mesh.running == {}
    mesh.round()
    assert [name for name, _ in mesh.running] == ["first"]
