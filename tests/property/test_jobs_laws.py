"""Laws of jobs under random events: reordered, late, repeated, and of attempts long gone."""

from __future__ import annotations

import json

import numpy as np
from examples_of_laws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.json_codec import TaggedCodec, dataclasses_of, json_text
from mesh.core.nodes import NodeTable
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.errors import LedgerError
from mesh.jobs import events
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import StartMember, StopMember
from mesh.jobs.events import (
    JobEvent,
    JobRescheduled,
    JobsTicked,
    JobSubmitted,
    JobTerminated,
    MemberFailed,
    MemberLost,
    MembersAllocated,
    MemberStarted,
    MemberStopped,
    MemberSucceeded,
    NodeGone,
)
from mesh.jobs.invariants import violations
from mesh.jobs.members import LEADER_ADDRESS, members_of, replica_of
from mesh.jobs.ordering import dominant_share, fill_by_shares
from mesh.jobs.packing import Demands, Part, Steps, pack, shortage
from mesh.jobs.scheduler import allocate
from mesh.jobs.spec import BasicPolicy, CleanPolicy, JobQueuePolicy, JobSpec, ReplicaSpec, WorkerSetSpec
from mesh.jobs.states import ScheduleState

EVENTS = TaggedCodec(dataclasses_of(events, JobEvent))
ENDINGS = (MemberSucceeded, MemberFailed, MemberLost, MemberStopped)


def cpu(count):
    return ResourceSet.of({"cpu": count})


@st.composite
def specs(draw, name):
    sets = tuple(
        WorkerSetSpec(name=f"set{index}", counts=draw(st.integers(1, 3)), resources=cpu(draw(st.integers(0, 3))))
        for index in range(draw(st.integers(1, 2)))
    )
    return JobSpec(
        job=name,
        pool="train",
        leader=ReplicaSpec(resources=cpu(draw(st.integers(0, 3)))),
        worker_sets=sets,
        min_workers_num=draw(st.integers(0, sum(each.counts for each in sets))),
        restart_limit=draw(st.integers(0, 2)),
        clean_pod_policy=draw(st.sampled_from(CleanPolicy)),
        priority=draw(st.integers(1, 10)),
        job_queue_policy=draw(st.sampled_from(JobQueuePolicy)),
        basic_policy=draw(st.sampled_from(BasicPolicy)),
    )


class World:
    """Cluster that carries out orders, and reports in any order."""

    def __init__(self, cpus):
        self.nodes, self.controller = NodeTable(), JobController()
        for index, count in enumerate(cpus):
            self.nodes.join(f"n{index}", cpu(count), {})
        self.live = {}  # (job, member) -> attempt, node, units
        self.new_events = []  # All past events, to be repeated.
        self.specs = {}
        self.at_ms = 0
        self.is_late = False  #: An answer of an earlier round was applied: the controller may hold places that are gone.
        self.crowded_out = []

    def report(self, event):
        self.at_ms += 1
        over = {job.job for job in self.controller.jobs.values() if job.is_over}
        decisions = self.controller.handle(event)
        self.new_events.append(event)
        assert violations(self.controller) == []
        assert not any(isinstance(each, StartMember) and each.job in over for each in decisions)
        assert all(
            each.reason is Reason.JOB_ENDED for each in decisions if isinstance(each, StopMember) and self.controller.jobs[each.job].is_over
        )
        for decision in decisions:
            if isinstance(decision, StartMember):
                self.start(decision)
        return decisions

    def start(self, decision):
        """Start one attempt of a member at a time, the leader first, and never on room that is taken."""
        assert (decision.job, decision.member) not in self.live
        assert decision.member.is_leader or decision.env[LEADER_ADDRESS] == self.address(decision.job)
        spec = self.specs[decision.job]
        assert decision.member in members_of(spec)
        units = self.nodes.vector(replica_of(spec, decision.member.role).resources)
        self.live[decision.job, decision.member] = (decision.attempt, decision.node, units)
        try:
            self.nodes.promise(self.nodes.row(decision.node), units)
        except LedgerError:
            assert self.is_late  # Only a late answer may name room that is taken by now.
            self.live[decision.job, decision.member] = (decision.attempt, decision.node, units * 0)
            self.crowded_out.append((decision.job, decision.member))

    def address(self, job):
        return f"{job}:{self.live[job, members_of(self.specs[job])[0]][0]}"

    def submit(self, spec):
        self.specs[spec.job] = spec
        self.report(JobSubmitted(at_ms=self.at_ms, spec=spec))

    def round(self, draw):
        found = allocate(self.controller.snapshot(), self.nodes, draw=lambda _: 0)
        for each in found:
            self.check(each)
        late = draw(st.booleans()) and len(found) > 1  # The answers of one round need not arrive in order.
        for each in reversed(found) if late else found:
            self.report(MembersAllocated(at_ms=self.at_ms, allocation=each))

    def check(self, found):
        """A gang, and the minimum of any job, is placed whole or not at all."""
        job = self.controller.jobs[found.job]
        if found.schedule_state in (ScheduleState.UNSCHEDULED, ScheduleState.SCHEDULED_FAILED):
            assert found.places == ()
        elif job.spec.basic_policy is BasicPolicy.GANG:
            assert found.schedule_state is ScheduleState.SCHEDULED_SUCCEED
            assert len(found.places) == sum(record.node is None for record in job.members.values())

    def starts(self, job, member):
        attempt = self.live[job, member][0]
        self.report(MemberStarted(at_ms=self.at_ms, job=job, member=member, attempt=attempt, address=f"{job}:{attempt}"))

    def ends(self, job, member, kind):
        attempt, node, units = self.live.pop((job, member))
        if node in self.nodes and units.any():
            self.nodes.withdraw(self.nodes.row(node), units)
        detail = {"detail": "it raised"} if kind in (MemberFailed, MemberLost) else {}
        self.report(kind(at_ms=self.at_ms, job=job, member=member, attempt=attempt, **detail))

    def node_goes_and_comes(self, node):
        total = self.nodes.amounts(self.nodes.total[self.nodes.row(node)])
        self.nodes.leave(node)
        for key in [key for key, (_, where, _) in self.live.items() if where == node]:
            del self.live[key]
        self.report(NodeGone(at_ms=self.at_ms, node=node))
        self.nodes.join(node, total, {})


@settings(max_examples=examples(80))
@given(st.data())
def test_every_invariant_holds_under_any_order_of_events(data):
    draw = data.draw
    world = World(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    may_be_late = draw(st.booleans())
    for name in ("a", "b")[: draw(st.integers(1, 2))]:
        world.submit(draw(specs(name)))
    for _ in range(draw(st.integers(5, 40))):
        go_on(world, draw, may_be_late=may_be_late)
    twin = JobController()
    for event in world.new_events:
        twin.handle(EVENTS.decode(json.loads(json_text(EVENTS.encode(event)))))
        if draw(st.integers(0, 9)) == 0:
            twin = JobController.from_snapshot(json.loads(json_text(twin.to_snapshot())))
    assert twin.jobs == world.controller.jobs


STEPS = ("round", "round", "start", "start", "start", "end", "again", "terminate", "reschedule", "node", "wait")


def go_on(world, draw, *, may_be_late):
    """Make one of the possible events happen."""
    step = draw(st.sampled_from(STEPS))
    if step == "round":
        world.round(draw)
    elif step in ("start", "end") and world.live:
        job, member = draw(st.sampled_from(sorted(world.live, key=str)))
        if step == "start":
            world.starts(job, member)
        else:
            world.ends(job, member, draw(st.sampled_from(ENDINGS)))
    elif step == "again":
        repeat(world, draw(st.sampled_from(world.new_events)), may_be_late=may_be_late)
    elif step == "terminate" and draw(st.integers(0, 3)) == 0:
        world.report(JobTerminated(at_ms=world.at_ms, job=draw(st.sampled_from(sorted(world.specs)))))
    elif step == "reschedule":
        world.report(JobRescheduled(at_ms=world.at_ms, job=draw(st.sampled_from(sorted(world.specs)))))
    elif step == "wait":
        world.at_ms += 60_000
        world.report(JobsTicked(at_ms=world.at_ms))
        assert world.controller.wakes_ms() is None
    elif step == "node":
        world.node_goes_and_comes(draw(st.sampled_from([name for name in world.nodes.names if name])))


def take_late(world, event):
    """Apply an answer of an earlier round, late or again; a member without room has lost its place."""
    world.is_late = True
    world.report(event)
    while world.crowded_out:
        job, member = world.crowded_out.pop()
        if (job, member) in world.live:
            attempt, _, _ = world.live.pop((job, member))
            world.report(MemberLost(at_ms=world.at_ms, job=job, member=member, attempt=attempt, detail="no room"))


def repeat(world, event, *, may_be_late):
    """Repeat old events of members and old places: only a new request may move a job again."""
    if isinstance(event, MembersAllocated) and may_be_late:
        take_late(world, event)
    elif not isinstance(event, (JobRescheduled, JobsTicked, NodeGone, JobTerminated, MembersAllocated)):
        assert world.report(event) == []


@settings(max_examples=60)
@given(specs("a"), st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_an_event_that_comes_twice_counts_once(spec, cpus):
    world = World(cpus)
    world.submit(spec)
    for each in allocate(world.controller.snapshot(), world.nodes, draw=lambda _: 0):
        event = MembersAllocated(at_ms=1, allocation=each)
        world.report(event)
        assert world.report(event) == []
    for job, member in tuple(world.live):
        world.starts(job, member)
        assert world.report(world.new_events[-1]) == []
    for job, member in tuple(world.live):
        if (job, member) in world.live:
            world.ends(job, member, MemberFailed)
            assert world.report(world.new_events[-1]) == []


@given(st.integers(1, 30), st.integers(1, 30), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_fair_filling_leaves_no_job_that_could_get_a_member(cpus, gpus, shapes):
    capacity = ResourceSet({"cpu": cpus, "gpu": gpus})
    wanted = {str(index): ResourceSet({"cpu": each[0], "gpu": each[1]}) for index, each in enumerate(shapes)}
    filling = fill_by_shares(capacity, wanted)
    used = sum((wanted[job].times(count) for job, count in filling.counts.items()), start=ResourceSet())
    assert used <= capacity
    assert not any(shape and used + shape <= capacity for shape in wanted.values())
    assert filling.shares == {job: dominant_share(wanted[job].times(count), capacity) for job, count in filling.counts.items()}


@st.composite
def small_demands(draw):
    count = draw(st.integers(1, 3))
    free = np.array([[draw(st.integers(1, 6)), draw(st.integers(0, 2))] for _ in range(count)], dtype=np.int64)

    def part(role, most):
        wanted = np.array([draw(st.integers(1, 3)), draw(st.integers(0, 1))])
        suits = np.array([draw(st.booleans()) or draw(st.booleans()) for _ in range(count)])
        return Part(role=role, wanted=wanted, suits=suits, count=draw(st.integers(1, most)))

    sets = tuple(part(f"s{index}", 2) for index in range(draw(st.integers(1, 3))))
    needed = draw(st.integers(0, sum(each.count for each in sets)))
    limit = np.array([draw(st.integers(2, 12)), draw(st.integers(0, 4))]) if draw(st.booleans()) else None
    return Demands(leader=part("leader", 1), sets=sets, needed=needed), free, limit


def by_brute_force(demand, free, limit):
    """Return whether an arrangement exists, trying every member on every node, or left out."""
    parts = [demand.leader, *(each for each in demand.sets for _ in range(each.count))]

    def fits(index, free, limit, left):
        if index == len(parts):
            return left <= 0
        part = parts[index]
        if index > 0 and fits(index + 1, free, limit, left):
            return True
        for row in range(len(free)):
            if part.suits[row] and (free[row] >= part.wanted).all() and (limit is None or (limit >= part.wanted).all()):
                rest = free.copy()
                rest[row] -= part.wanted
                if fits(index + 1, rest, None if limit is None else limit - part.wanted, left - (index > 0)):
                    return True
        return False

    return fits(0, free, limit, demand.needed)


@settings(max_examples=300)
@given(small_demands())
def test_an_arrangement_is_found_exactly_when_there_is_one(case):
    demand, free, limit = case
    packing = pack(demand, free, limit, Steps(100_000))
    assert packing.is_sure
    assert (packing.places is not None) == by_brute_force(demand, free, limit)
    if packing.places is not None:
        assert shortage(demand, free, limit, ("cpu", "gpu")) is None
        assert [role for role, _ in packing.places].count("leader") == 1
        assert len(packing.places) == 1 + demand.needed
