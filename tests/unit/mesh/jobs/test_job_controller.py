"""Job controller: states of jobs and members, restarts, loss and recovery."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mesh.core.json_codec import JsonCodecError
from mesh.core.reasons import Reason
from mesh.errors import IllegalTransition
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import RefuseJob, ReportJob, StartMember, StopMember
from mesh.jobs.events import (
    JobForgotten,
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
from mesh.jobs.members import Member, members_of
from mesh.jobs.records import MemberRecord
from mesh.jobs.snapshots import Allocation, MemberPlacement
from mesh.jobs.spec import BasicPolicy, CleanPolicy, JobSpec, ReplicaSpec, WorkerSetSpec
from mesh.jobs.states import MemberState, ScheduleState, Stage
from mesh.jobs.views import view_of

LEADER = Member("leader")


def worker(index):
    return Member("actors", index)


def spec(*, workers=2, job="pong", **fields):
    return JobSpec(job=job, pool="train", leader=ReplicaSpec(), worker_sets=(WorkerSetSpec(name="actors", counts=workers),), **fields)


class Scenario:
    """One job and its orders; checks every invariant after every event."""

    def __init__(self, spec):
        self.spec = spec
        self.controller = JobController()
        self.now_ms = 0
        self.reports = []
        self.take(JobSubmitted(at_ms=0, spec=spec))

    @property
    def job(self):
        return self.controller.jobs[self.spec.job]

    def take(self, event):
        decisions = self.controller.handle(event)
        assert violations(self.controller) == []
        self.reports += [(each.stage, each.schedule_state) for each in decisions if isinstance(each, ReportJob)]
        return [reported_for(each) for each in decisions if not isinstance(each, ReportJob)]

    def allocate(self, *members, state=ScheduleState.SCHEDULED_SUCCEED, incarnation=None, reason=None):
        places = tuple(MemberPlacement(member, f"n{members_of(self.spec).index(member)}") for member in members)
        allocation = Allocation(
            job=self.spec.job, incarnation=incarnation or self.job.incarnation, schedule_state=state, places=places, reason=reason
        )
        return self.take(MembersAllocated(at_ms=self.tick(), allocation=allocation))

    def send(self, kind, member=LEADER, attempt=None, **fields):
        attempt = self.job.members[member].attempt if attempt is None else attempt
        return self.take(kind(at_ms=self.tick(), job=self.spec.job, member=member, attempt=attempt, **fields))

    def started(self, member=LEADER, **fields):
        return self.send(MemberStarted, member, **({"address": "10.0.0.1:7"} if member.is_leader else {}), **fields)

    def failed(self, member=LEADER, **fields):
        return self.send(MemberFailed, member, detail="it raised", **fields)

    def lost(self, member=LEADER, **fields):
        return self.send(MemberLost, member, detail="preempted", **fields)

    def stopped(self, member=LEADER, **fields):
        return self.send(MemberStopped, member, **fields)

    def succeeded(self, member=LEADER, **fields):
        return self.send(MemberSucceeded, member, **fields)

    def tick(self):
        self.now_ms += 1
        return self.now_ms

    def wait(self):
        """Let a minute pass without events."""
        self.now_ms += 60_000
        return self.take(JobsTicked(at_ms=self.now_ms))

    def state(self, member):
        return self.job.members[member].state


def reported_for(decision):
    if isinstance(decision, StartMember):
        return ("start", str(decision.member), decision.attempt)
    if isinstance(decision, StopMember):
        return ("let go" if decision.has_ended else "stop", str(decision.member), decision.reason)
    return decision


def running(**fields):
    """Return a job whose members all run."""
    scenario = Scenario(spec(**fields))
    scenario.allocate(*members_of(scenario.spec))
    scenario.started()
    for member in members_of(scenario.spec)[1:]:
        scenario.started(member)
    assert scenario.job.stage is Stage.RUNNING
    return scenario


# -- the stages of the seed --------------------------------------------------------------------------------------------


def test_s35_a_job_goes_from_pending_to_succeeded_by_its_leader():
    scenario = Scenario(spec())
    assert (scenario.job.stage, scenario.job.schedule_state) == (Stage.PENDING, ScheduleState.UNSCHEDULED)
    assert scenario.allocate(LEADER, worker(0), worker(1)) == [("start", "leader", 1)]
    assert scenario.job.stage is Stage.STARTING
    assert scenario.started() == [("start", "actors-0", 1), ("start", "actors-1", 1)]
    assert scenario.started(worker(1)) == []
    assert scenario.job.stage is Stage.RUNNING
    scenario.started(worker(0))
    assert scenario.succeeded() == [
        ("stop", "actors-1", Reason.JOB_ENDED),
        ("stop", "actors-0", Reason.JOB_ENDED),
        ("let go", "leader", Reason.JOB_ENDED),
    ]
    assert scenario.reports == [
        (Stage.PENDING, ScheduleState.UNSCHEDULED),
        (Stage.STARTING, ScheduleState.SCHEDULED_SUCCEED),
        (Stage.RUNNING, ScheduleState.SCHEDULED_SUCCEED),
        (Stage.SUCCEEDED, ScheduleState.SCHEDULED_SUCCEED),
    ]


def test_s35_an_unplaced_job_stays_pending_with_its_reason():
    scenario = Scenario(spec())
    assert scenario.allocate(state=ScheduleState.UNSCHEDULED, reason=Reason.NODES_BUSY) == []
    assert (scenario.job.stage, scenario.job.reason) == (Stage.PENDING, Reason.NODES_BUSY)


def test_s35_a_job_that_can_never_be_placed_fails():
    scenario = Scenario(spec())
    scenario.allocate(state=ScheduleState.SCHEDULED_FAILED, reason=Reason.NO_NODE_FITS)
    assert (scenario.job.stage, scenario.job.schedule_state) == (Stage.FAILED, ScheduleState.SCHEDULED_FAILED)
    assert scenario.job.reason is Reason.NO_NODE_FITS


def test_s35_workers_find_address_and_rank_in_their_env_vars():
    controller = JobController()
    invalid = replace(spec(), worker_sets=(WorkerSetSpec(name="actors", counts=2), WorkerSetSpec(name="judges")), min_workers_num=3)
    members = members_of(invalid)
    found = Allocation(
        job="pong",
        incarnation=1,
        schedule_state=ScheduleState.SCHEDULED_SUCCEED,
        places=tuple(MemberPlacement(member, "n1") for member in members),
    )
    controller.handle(JobSubmitted(at_ms=0, spec=invalid))
    (leader,) = [each for each in controller.handle(MembersAllocated(at_ms=1, allocation=found)) if isinstance(each, StartMember)]
    assert leader.env == {
        "SCHEDULEMESH_JOB": "pong",
        "SCHEDULEMESH_ROLE": "leader",
        "SCHEDULEMESH_RANK": "0",
        "SCHEDULEMESH_WORLD_SIZE": "4",
    }
    decisions = controller.handle(MemberStarted(at_ms=2, job="pong", member=LEADER, attempt=1, address="10.0.0.1:7"))
    workers = {str(each.member): each.env for each in decisions if isinstance(each, StartMember)}
    assert {env["SCHEDULEMESH_LEADER_ADDRESS"] for env in workers.values()} == {"10.0.0.1:7"}
    assert {name: env["SCHEDULEMESH_RANK"] for name, env in workers.items()} == {"actors-0": "1", "actors-1": "2", "judges-0": "3"}


def test_s35_a_job_runs_with_min_workers_and_adds_the_late_ones():
    scenario = Scenario(spec(workers=3, min_workers_num=2))
    scenario.allocate(LEADER, worker(0), worker(1), state=ScheduleState.SCHEDULED_PARTLY, reason=Reason.NODES_BUSY)
    assert scenario.job.schedule_state is ScheduleState.SCHEDULED_PARTLY
    scenario.started()
    scenario.started(worker(0))
    assert scenario.job.stage is Stage.STARTING
    scenario.started(worker(1))
    assert scenario.job.stage is Stage.RUNNING
    assert scenario.allocate(worker(2)) == [("start", "actors-2", 1)]
    assert (scenario.job.schedule_state, scenario.job.reason) == (ScheduleState.SCHEDULED_SUCCEED, None)


def test_s35_a_leader_that_fails_too_often_fails_the_job():
    scenario = running(restart_limit=2)
    for attempt in (2, 3):
        assert scenario.failed() == [
            ("stop", "actors-0", Reason.LEADER_RESTARTED),
            ("stop", "actors-1", Reason.LEADER_RESTARTED),
            *([("start", "leader", 2)] if attempt == 2 else []),
        ]
        assert attempt == 2 or scenario.wait() == [("start", "leader", attempt)]
        scenario.stopped(worker(0))
        scenario.stopped(worker(1))
        scenario.started()
        scenario.started(worker(0))
        scenario.started(worker(1))
    assert [each[:2] for each in scenario.failed()] == [("stop", "actors-1"), ("stop", "actors-0"), ("let go", "leader")]
    assert (scenario.job.stage, scenario.job.reason) == (Stage.FAILED, Reason.RESTART_LIMIT)
    assert "leader failed 3 times, restart_limit is 2" in scenario.job.detail


def test_s34_a_restart_limit_of_zero_never_starts_again():
    scenario = running(restart_limit=0)
    scenario.failed()
    assert scenario.job.stage is Stage.FAILED


def test_s34_a_terminating_job_succeeds():
    scenario = running()
    assert [each[:2] for each in scenario.take(JobTerminated(at_ms=9, job="pong"))] == [
        ("stop", "actors-1"),
        ("stop", "actors-0"),
        ("stop", "leader"),
    ]
    assert (scenario.job.stage, scenario.job.reason) == (Stage.SUCCEEDED, Reason.CANCELLED_BY_USER)
    assert scenario.take(JobTerminated(at_ms=10, job="pong")) == []


def test_s34_the_same_job_submitted_as_terminating_is_ended():
    scenario = running()
    scenario.take(JobSubmitted(at_ms=9, spec=replace(scenario.spec, terminating=True)))
    assert scenario.job.stage is Stage.SUCCEEDED


def test_a_job_that_is_submitted_as_terminating_is_over_at_once():
    assert Scenario(spec(terminating=True)).job.stage is Stage.SUCCEEDED


@pytest.mark.parametrize(
    ("policy", "ordered", "left"),
    [
        pytest.param(
            CleanPolicy.ALL,
            [("let go", "actors-1"), ("stop", "actors-0"), ("let go", "leader")],
            {MemberState.STOPPING},
            id="all: running members are stopped, nothing else is kept",
        ),
        pytest.param(
            CleanPolicy.RUNNING,
            [("stop", "actors-0")],
            {MemberState.STOPPING, MemberState.SUCCEEDED},
            id="running: only running members are stopped",
        ),
        pytest.param(CleanPolicy.NONE, [], {MemberState.RUNNING, MemberState.SUCCEEDED}, id="none: no member is stopped"),
    ],
)
def test_s34_members_are_cleaned_away_as_the_job_asks(policy, ordered, left):
    scenario = running(clean_pod_policy=policy)
    scenario.succeeded(worker(1))
    assert [each[:2] for each in scenario.succeeded()] == ordered
    assert {record.state for record in scenario.job.records} == left


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_worker_that_fails_is_started_again_at_its_place():
    scenario = running()
    assert scenario.failed(worker(0)) == [("start", "actors-0", 2)]
    assert scenario.job.stage is Stage.RUNNING
    assert scenario.job.members[worker(0)].node == "n1"


def test_a_failing_member_is_restarted_after_a_growing_pause():
    scenario = running(restart_limit=9)
    assert scenario.failed(worker(0)) == [("start", "actors-0", 2)]
    for attempt, pause_ms in ((3, 1_000), (4, 2_000), (5, 4_000)):
        assert scenario.failed(worker(0)) == []
        due_ms = scenario.now_ms + pause_ms
        assert scenario.controller.wakes_ms() == due_ms
        assert scenario.take(JobsTicked(at_ms=due_ms - 1)) == []
        assert scenario.take(JobsTicked(at_ms=due_ms)) == [("start", "actors-0", attempt)]
        scenario.now_ms = due_ms
    assert scenario.controller.wakes_ms() is None
    for _ in range(4):
        scenario.failed(worker(0))
        scenario.wait()
    scenario.failed(worker(0))
    assert scenario.controller.wakes_ms() == scenario.now_ms + 30_000


def test_a_lost_leader_uses_up_no_restarts_of_workers():
    scenario = running(restart_limit=2)
    scenario.failed(worker(0))
    scenario.failed(worker(0))
    scenario.failed()
    assert scenario.state(worker(0)) is MemberState.PLACED
    assert scenario.controller.wakes_ms() is None  # It waits for the leader, not for the clock.
    scenario.stopped(worker(1))
    assert scenario.send(MemberStarted, LEADER, address="10.0.0.9:7") == [("start", "actors-1", 2)]
    assert scenario.wait() == [("start", "actors-0", 3)]


def test_a_worker_beyond_its_restart_limit_is_given_up():
    scenario = running(restart_limit=1, min_workers_num=1)
    scenario.failed(worker(0))
    assert scenario.failed(worker(0)) == []
    assert scenario.state(worker(0)) is MemberState.GIVEN_UP
    assert (scenario.job.stage, scenario.job.schedule_state) == (Stage.RUNNING, ScheduleState.SCHEDULED_SUCCEED)


def test_with_too_few_workers_left_the_job_fails():
    scenario = running(restart_limit=0, min_workers_num=2)
    scenario.failed(worker(0))
    assert (scenario.job.stage, scenario.job.reason) == (Stage.FAILED, Reason.RESTART_LIMIT)
    assert "1 worker is left, and at least 2 needed" in scenario.job.detail


def test_a_gang_fails_with_the_first_worker_that_is_given_up():
    scenario = running(restart_limit=0, basic_policy=BasicPolicy.GANG)
    scenario.failed(worker(1))
    assert scenario.job.stage is Stage.FAILED


def test_workers_wait_for_the_address_of_a_restarted_leader():
    scenario = running()
    scenario.failed()
    assert scenario.job.stage is Stage.STARTING
    assert scenario.send(MemberStarted, LEADER, address="10.0.0.9:7") == []  # The old workers are still being stopped.
    assert scenario.stopped(worker(0)) == [("start", "actors-0", 2)]
    assert scenario.job.leader_address == "10.0.0.9:7"
    assert scenario.job.members[worker(0)].failures == 0


def test_a_worker_that_fails_while_being_stopped_is_not_blamed():
    scenario = running(restart_limit=1, min_workers_num=2)
    scenario.failed()
    assert scenario.failed(worker(0)) == []
    assert (scenario.state(worker(0)), scenario.job.members[worker(0)].failures) == (MemberState.PLACED, 0)


def test_a_succeeded_worker_counts_as_up_and_is_not_restarted():
    scenario = running(min_workers_num=2)
    scenario.succeeded(worker(0))
    assert scenario.job.stage is Stage.RUNNING
    scenario.take(JobRescheduled(at_ms=9, job="pong"))
    scenario.stopped()
    scenario.stopped(worker(1))
    assert scenario.controller.snapshot()[0].unplaced == (LEADER, worker(1))
    assert scenario.allocate(LEADER, worker(1)) == [("start", "leader", 2)]


# -- lost places -------------------------------------------------------------------------------------------------------


def test_s35_a_job_whose_leader_lost_its_node_is_rescheduled():
    scenario = running()
    assert scenario.lost() == [("stop", "actors-1", Reason.JOB_RESCHEDULED), ("stop", "actors-0", Reason.JOB_RESCHEDULED)]
    assert (scenario.job.stage, scenario.job.schedule_state) == (Stage.RESCHEDULING, ScheduleState.UNSCHEDULED)
    assert scenario.controller.snapshot()[0].unplaced == ()  # Nothing is placed while something of it still runs.
    scenario.stopped(worker(0))
    assert scenario.allocate(LEADER, worker(0), worker(1)) == []
    scenario.stopped(worker(1))
    assert scenario.controller.snapshot()[0].unplaced == members_of(scenario.spec)
    assert scenario.allocate(LEADER, worker(0), worker(1)) == [("start", "leader", 2)]
    assert scenario.started() == [("start", "actors-0", 2), ("start", "actors-1", 2)]
    scenario.started(worker(0))
    assert (scenario.job.stage, scenario.job.leader.failures) == (Stage.RUNNING, 0)


def test_s35_a_preempted_job_is_rescheduled():
    scenario = running()
    assert [each[0] for each in scenario.take(JobRescheduled(at_ms=9, job="pong", detail="room for ping"))] == ["stop"] * 3
    assert (scenario.job.stage, scenario.job.reason, scenario.job.detail) == (
        Stage.RESCHEDULING,
        Reason.JOB_RESCHEDULED,
        "room for ping",
    )
    assert scenario.take(JobRescheduled(at_ms=10, job="pong")) == []


def test_a_displaced_worker_is_placed_again_while_enough_remain():
    scenario = running(min_workers_num=1)
    assert scenario.lost(worker(0)) == []
    assert (scenario.job.stage, scenario.job.schedule_state) == (Stage.RUNNING, ScheduleState.SCHEDULED_PARTLY)
    assert scenario.allocate(worker(0)) == [("start", "actors-0", 2)]


def test_a_gang_is_placed_anew_when_one_worker_lost_its_place():
    scenario = running(basic_policy=BasicPolicy.GANG)
    assert [each[1] for each in scenario.lost(worker(0))] == ["actors-1", "leader"]
    assert scenario.job.stage is Stage.RESCHEDULING


def test_members_on_a_lost_node_are_lost_with_it():
    scenario = Scenario(spec(min_workers_num=1))
    scenario.allocate(*members_of(scenario.spec))
    assert scenario.take(NodeGone(at_ms=9, node="n2")) == []
    assert scenario.state(worker(1)) is MemberState.UNPLACED
    assert scenario.started() == [("start", "actors-0", 1)]
    assert [each[1] for each in scenario.take(NodeGone(at_ms=9, node="n0"))] == ["actors-0"]
    assert scenario.take(NodeGone(at_ms=9, node="n0")) == []
    assert scenario.lost(attempt=1) == []  # The task itself reports it again.


def test_a_leader_that_returns_while_stopping_has_succeeded():
    scenario = running()
    scenario.take(JobRescheduled(at_ms=9, job="pong"))
    scenario.succeeded()
    assert scenario.job.stage is Stage.SUCCEEDED


def test_a_member_that_somebody_else_stopped_has_lost_its_place():
    scenario = running(min_workers_num=1)
    scenario.stopped(worker(0))
    assert scenario.state(worker(0)) is MemberState.UNPLACED


# -- what comes late, twice or never -----------------------------------------------------------------------------------


def test_the_same_job_again_is_a_no_op_and_another_is_refused():
    scenario = running()
    assert scenario.take(JobSubmitted(at_ms=9, spec=scenario.spec)) == []
    (refused,) = scenario.take(JobSubmitted(at_ms=9, spec=replace(scenario.spec, priority=9)))
    assert isinstance(refused, RefuseJob)
    assert refused.reason is Reason.ID_IN_USE
    assert scenario.job.stage is Stage.RUNNING


def test_events_of_an_earlier_attempt_are_out_of_date():
    scenario = running()
    scenario.failed(worker(0))
    assert scenario.failed(worker(0), attempt=1) == []
    assert scenario.succeeded(worker(0), attempt=1) == []
    assert scenario.lost(worker(0), attempt=1) == []
    assert (scenario.state(worker(0)), scenario.job.members[worker(0)].failures) == (MemberState.STARTING, 1)


def test_places_of_an_earlier_incarnation_are_out_of_date():
    scenario = running()
    scenario.lost()
    scenario.stopped(worker(0))
    scenario.stopped(worker(1))
    assert scenario.allocate(*members_of(scenario.spec), incarnation=1) == []
    assert scenario.job.stage is Stage.RESCHEDULING


def test_places_that_do_not_suffice_are_not_taken():
    scenario = Scenario(spec(workers=3, basic_policy=BasicPolicy.GANG))
    assert scenario.allocate(LEADER, worker(0), worker(2)) == []
    assert {record.state for record in scenario.job.records} == {MemberState.UNPLACED}
    scenario = Scenario(spec(workers=3))
    assert scenario.allocate(worker(0), worker(1)) == []


def test_events_of_unknown_jobs_and_members_are_nothing():
    scenario = running()
    assert scenario.send(MemberStarted, worker(0), attempt=7) == []
    about = {"at_ms": 1, "attempt": 1, "member": worker(0)}
    assert scenario.take(MemberStarted(job="ping", **about)) == []
    assert scenario.take(MemberStarted(job="pong", **{**about, "member": Member("judges")})) == []
    assert scenario.take(JobTerminated(at_ms=1, job="ping")) == scenario.take(JobRescheduled(at_ms=1, job="ping")) == []


def test_a_finished_job_is_forgotten_when_nothing_of_it_runs():
    scenario = running()
    scenario.succeeded()
    scenario.take(JobForgotten(at_ms=9, job="pong"))
    assert "pong" in scenario.controller.jobs
    for member in members_of(scenario.spec):
        scenario.stopped(member)
    assert {record.state for record in scenario.job.records} == {MemberState.REMOVED}
    scenario.take(JobForgotten(at_ms=9, job="pong"))
    assert scenario.controller.jobs == {}
    scenario.take(JobSubmitted(at_ms=10, spec=scenario.spec))
    assert scenario.job.stage is Stage.PENDING


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        pytest.param("succeeded", MemberState.SUCCEEDED, id="it returns"),
        pytest.param("failed", MemberState.GIVEN_UP, id="it fails, and is not started again"),
        pytest.param("lost", MemberState.REMOVED, id="it loses its place"),
        pytest.param("stopped", MemberState.REMOVED, id="somebody stops it"),
    ],
)
def test_what_a_job_leaves_running_ends_by_itself(kind, state):
    scenario = running(clean_pod_policy=CleanPolicy.NONE)
    scenario.succeeded()
    assert getattr(scenario, kind)(worker(0)) == []
    assert scenario.state(worker(0)) is state


def test_an_illegal_transition_shows_the_history():
    scenario = running()
    with pytest.raises(IllegalTransition, match=r"job pong cannot go from Running to Pending; its members: leader Running \(attempt 1\)"):
        scenario.job.move(Stage.PENDING, 0)
    with pytest.raises(IllegalTransition, match="cannot go from Removed to Running"):
        MemberRecord(member=LEADER, state=MemberState.REMOVED).move(MemberState.RUNNING)
    with pytest.raises(IllegalTransition, match="cannot go from ScheduledSucceed to ScheduledFailed"):
        scenario.job.set_schedule_state(ScheduleState.SCHEDULED_FAILED)


def test_a_view_names_every_member_with_its_rank():
    scenario = running()
    view = view_of(scenario.job)
    assert [(each.name, each.rank, each.node, each.attempt) for each in view.members] == [
        ("leader", 0, "n0", 1),
        ("actors-0", 1, "n1", 1),
        ("actors-1", 2, "n2", 1),
    ]
    assert (view.stage, view.is_over, view.leader_address) == (Stage.RUNNING, False, "10.0.0.1:7")


def test_a_controller_resumes_from_a_snapshot():
    scenario = running(restart_limit=1)
    scenario.failed()
    twin = JobController.from_snapshot(json.loads(json.dumps(scenario.controller.to_snapshot())))
    assert twin.jobs == scenario.controller.jobs
    event = MemberFailed(at_ms=99, job="pong", member=LEADER, attempt=2, detail="it raised again")
    assert twin.handle(event) == scenario.controller.handle(event) != []
    first = JobSubmitted(at_ms=100, spec=spec(job="ping"))
    assert twin.handle(first) == scenario.controller.handle(first)
    assert twin.jobs["ping"].arrival == 2


def test_a_snapshot_that_is_none_is_refused():
    with pytest.raises(JsonCodecError, match="JobControllerState lacks jobs"):
        JobController.from_snapshot({})
