"""Life cycle of each job: events about its members in, orders for them out.

    Pending ──▶ Starting ──▶ Running ──▶ Succeeded
       │            │  ▲         │
       │            ▼  │         ▼
       └──────▶ Rescheduling ◀───┘          any of them ──▶ Failed

The scheduler (`mesh.jobs.scheduler`) finds places on a snapshot from time to time. Only the controller changes jobs, and it may refuse a
place that came too late. It is level-triggered: after each event it orders whatever the current state requires (`_go_on`), so events may
be duplicate, late or out of order.

Rules that TY-Arranger leaves open:

- The leader restarts: its workers have an outdated address, so they are stopped and started again when the new one is known. This does
  not count against their restart limit.
- A member fails: it keeps its place and restarts there, up to `restart_limit` times. The first restart is immediate, later ones wait for
  a doubling pause. Otherwise workers of a dying leader would use up their restarts before its failure is known.
- A member loses its place: this does not count as a failure. A worker gets another place in a later round; if the leader loses its place,
  the whole job is placed again.
- A worker that failed too often is given up. If too few remain, the job fails; if enough remain but too few have a place, the job is
  placed again.
- A worker that has succeeded is done, even when its job is placed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from mesh.core.counting import counted, times
from mesh.core.ids import JobId
from mesh.core.json_codec import codec_of
from mesh.core.reasons import Reason
from mesh.errors import IllegalTransition
from mesh.jobs.decisions import JobDecision, RefuseJob, ReportJob, StartMember, StopMember
from mesh.jobs.events import (
    JobEvent,
    JobForgotten,
    JobRescheduled,
    JobsTicked,
    JobSubmitted,
    JobTerminated,
    MemberEvent,
    MemberFailed,
    MemberLost,
    MembersAllocated,
    MemberStarted,
    MemberSucceeded,
    NodeGone,
)
from mesh.jobs.members import environment
from mesh.jobs.records import ACTIVE, JobControllerState, JobRecord, MemberRecord
from mesh.jobs.snapshots import Allocation, JobSnapshot
from mesh.jobs.spec import CleanPolicy
from mesh.jobs.states import MemberState, ScheduleState, Stage

RESTART_PAUSE_MS, RESTART_PAUSE_MS_MAX = 1_000, 30_000

_WAITING = (Stage.PENDING, Stage.RESCHEDULING)
_UP = (Stage.STARTING, Stage.RUNNING)

_FORM = codec_of(JobControllerState)

Decisions = Iterator[JobDecision]


class JobController:
    """All jobs of a mesh. `jobs` is the state; only `handle` writes it."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobRecord] = {}
        self._arrivals = 0
        self._handlers: dict[type[JobEvent], Callable[[Any], Decisions]] = {
            JobSubmitted: self._submitted,
            MembersAllocated: self._allocated,
            JobTerminated: self._terminated,
            JobRescheduled: self._rescheduled,
            JobForgotten: self._forgotten,
            NodeGone: self._node_gone,
            JobsTicked: self._ticked,
        }

    def handle(self, *events: JobEvent) -> list[JobDecision]:
        """Apply the events, oldest first, and return the decisions they lead to, in order.

        Pure: the same events on the same state give the same decisions. Outdated and duplicate events give none.
        """
        return [decision for event in events for decision in self._take(event)]

    def snapshot(self) -> tuple[JobSnapshot, ...]:
        """Return all jobs that are not over, in order of arrival, for a round of the scheduler."""
        return tuple(job.snapshot() for job in self.jobs.values() if not job.is_over)

    def wakes_ms(self) -> int | None:
        """Return when the next restart pause ends: send `JobsTicked` then. None: no member waits for a pause."""
        waiting = (record for job in self.jobs.values() if job.stage in _UP for record in job.records if _waits_for_clock(job, record))
        return min((record.not_before_ms for record in waiting), default=None)

    def to_snapshot(self) -> object:
        """Return the whole state as values that `json_text` writes. Call between two calls of `handle`."""
        return _FORM.encode(JobControllerState(jobs=tuple(self.jobs.values()), arrivals=self._arrivals))

    @classmethod
    def from_snapshot(cls, kept: object) -> JobController:
        """Return a controller that continues from the snapshot.

        Raises:
            JsonCodecError: It is not such a snapshot.
        """
        state: JobControllerState = _FORM.decode(kept)
        controller = cls()
        controller.jobs = {job.job: job for job in state.jobs}
        controller._arrivals = state.arrivals
        return controller

    def _take(self, event: JobEvent) -> Decisions:
        if isinstance(event, MemberEvent):
            yield from self._member_event(event)
        else:
            yield from self._handlers[type(event)](event)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _submitted(self, event: JobSubmitted) -> Decisions:
        spec, known = event.spec, self.jobs.get(event.spec.job)
        if known is not None and replace(spec, terminating=known.spec.terminating) != known.spec:
            yield RefuseJob(job=spec.job, reason=Reason.ID_IN_USE, detail=f"job {spec.job} exists with another spec; choose another name")
            return
        if known is None:
            self._arrivals += 1
            known = JobRecord(spec=spec, arrival=self._arrivals, submitted_ms=event.at_ms, since_ms=event.at_ms)
            self.jobs[spec.job] = known
        if spec.terminating and not known.is_over:
            yield from self._end(known, Stage.SUCCEEDED, Reason.CANCELLED_BY_USER, "it was submitted as terminating", event.at_ms)
        yield from self._report(known)

    def _allocated(self, event: MembersAllocated) -> Decisions:
        found = event.allocation
        job = self.jobs.get(found.job)
        if job is None or job.is_over or job.incarnation != found.incarnation or (job.stage in _WAITING and job.is_stopping):
            return
        if found.schedule_state is ScheduleState.SCHEDULED_FAILED:
            if job.stage in _WAITING:
                job.set_schedule_state(ScheduleState.SCHEDULED_FAILED)
                yield from self._end(job, Stage.FAILED, found.reason, found.detail, event.at_ms)
        else:
            _place(job, found)
            yield from self._go_on(job, event.at_ms)
        yield from self._report(job)

    def _terminated(self, event: JobTerminated) -> Decisions:
        job = self.jobs.get(event.job)
        if job is not None and not job.is_over:
            yield from self._end(job, Stage.SUCCEEDED, Reason.CANCELLED_BY_USER, "a user ended it", event.at_ms)
            yield from self._report(job)

    def _rescheduled(self, event: JobRescheduled) -> Decisions:
        job = self.jobs.get(event.job)
        if job is not None and job.stage in _UP:
            yield from self._reschedule(job, event.detail, event.at_ms)
            yield from self._report(job)

    def _forgotten(self, event: JobForgotten) -> Decisions:
        job = self.jobs.get(event.job)
        if job is not None and job.is_over and not any(record.state in ACTIVE for record in job.records):
            del self.jobs[event.job]
        yield from ()

    def _node_gone(self, event: NodeGone) -> Decisions:
        for job in tuple(self.jobs.values()):
            on_it = [record for record in job.records if record.node == event.node and (record.holds_placement or record.state in ACTIVE)]
            for record in on_it:
                _lose(job, record, f"node {event.node} is gone")
            if on_it:
                yield from self._settle(job, event.at_ms)

    def _ticked(self, event: JobsTicked) -> Decisions:
        for job in tuple(self.jobs.values()):
            if job.stage in _UP:
                yield from self._go_on(job, event.at_ms)
                yield from self._report(job)

    # -- members -------------------------------------------------------------------------------------------------------

    def _member_event(self, event: MemberEvent) -> Decisions:
        job = self.jobs.get(event.job)
        record = None if job is None else job.members.get(event.member)
        if job is None or record is None or record.attempt != event.attempt or record.state not in ACTIVE:
            return
        if isinstance(event, MemberStarted):
            self._started(job, record, event.address)
        elif isinstance(event, MemberSucceeded):
            yield from self._succeeded(job, record, event.at_ms)
        elif isinstance(event, MemberFailed) and record.state is not MemberState.STOPPING:
            yield from self._failed(job, record, event.detail, event.at_ms)
        elif record.state is MemberState.STOPPING and not isinstance(event, MemberLost):
            _stopped(job, record)
        else:
            _lose(job, record, event.detail if isinstance(event, MemberLost) else "it was stopped from outside")
        yield from self._settle(job, event.at_ms)

    def _started(self, job: JobRecord, record: MemberRecord, address: str) -> None:
        if record.state is MemberState.STARTING:
            record.move(MemberState.RUNNING)
            if record.member.is_leader:
                job.leader_address = address

    def _succeeded(self, job: JobRecord, record: MemberRecord, at_ms: int) -> Decisions:
        if job.is_over and record.state is MemberState.STOPPING:
            _stopped(job, record)
            return
        record.move(MemberState.SUCCEEDED)
        record.keeps_placement = False
        if record.member.is_leader and not job.is_over:
            yield from self._end(job, Stage.SUCCEEDED, Reason.FINISHED, "", at_ms)

    def _failed(self, job: JobRecord, record: MemberRecord, detail: str, at_ms: int) -> Decisions:
        record.failures += 1
        record.detail = detail
        limit, failed = job.spec.restart_limit, f"{record.member} failed {times(record.failures)}"
        if job.is_over or record.failures > limit:
            record.move(MemberState.GIVEN_UP)
        else:
            record.move(MemberState.PLACED)
            record.not_before_ms = at_ms + _pause_ms(record.failures)
        if job.is_over:
            return
        if record.state is MemberState.GIVEN_UP and (record.member.is_leader or job.workers_left < job.spec.workers_needed):
            left = f", {counted(job.workers_left, 'worker is', 'workers are')} left, and at least {job.spec.workers_needed} needed"
            left = "" if record.member.is_leader else left
            why = f"{failed}, restart_limit is {limit}{left}; last error: {detail}"
            yield from self._end(job, Stage.FAILED, Reason.RESTART_LIMIT, why, at_ms)
        elif record.member.is_leader:
            left = counted(limit - record.failures, "restart is", "restarts are")
            yield from self._restart_leader(job, f"{failed}, {left} left: {detail}", at_ms)

    # -- effects -------------------------------------------------------------------------------------------------------

    def _settle(self, job: JobRecord, at_ms: int) -> Decisions:
        """After a loss, place the job again if too few members have places, then order what is due."""
        if job.stage in _UP and not job.may_start:
            who = (
                "its leader"
                if not job.leader.holds_placement
                else f"{counted(job.workers_placed, 'worker has', 'workers have')} places, and at least {job.spec.workers_needed} needed"
            )
            yield from self._reschedule(job, f"lost: {who}" if not job.leader.holds_placement else who, at_ms)
        yield from self._go_on(job, at_ms)
        yield from self._report(job)

    def _go_on(self, job: JobRecord, at_ms: int) -> Decisions:
        """Order what is due: first the leader alone, then the workers once its address is known."""
        if job.is_over:
            return
        job.judge()
        if job.stage in _WAITING and job.may_start:
            job.move(Stage.STARTING, at_ms)
        if job.stage not in _UP:
            return
        if _may_start(job.leader, at_ms):
            yield _start(job, job.leader)
        if job.leader.state is MemberState.RUNNING:
            for record in job.workers:
                if _may_start(record, at_ms):
                    yield _start(job, record)
            if job.stage is Stage.STARTING and job.workers_up >= job.spec.workers_needed:
                job.move(Stage.RUNNING, at_ms)
                if job.reason in (Reason.LEADER_RESTARTED, Reason.JOB_RESCHEDULED):
                    job.reason, job.detail = None, ""

    def _restart_leader(self, job: JobRecord, why: str, at_ms: int) -> Decisions:
        job.leader_address, job.reason, job.detail = None, Reason.LEADER_RESTARTED, why
        if job.stage is Stage.RUNNING:
            job.move(Stage.STARTING, at_ms)
        for record in job.workers:
            if record.state in (MemberState.STARTING, MemberState.RUNNING):
                record.keeps_placement = True
                yield _stop(job, record, Reason.LEADER_RESTARTED)

    def _reschedule(self, job: JobRecord, why: str, at_ms: int) -> Decisions:
        job.move(Stage.RESCHEDULING, at_ms)
        job.incarnation += 1
        job.leader_address, job.reason, job.detail = None, Reason.JOB_RESCHEDULED, why
        for record in reversed(job.records):
            if record.state is MemberState.PLACED:
                record.unplace()
            elif record.state in (MemberState.STARTING, MemberState.RUNNING):
                yield _stop(job, record, Reason.JOB_RESCHEDULED)
            record.keeps_placement = False
        job.judge()

    def _end(self, job: JobRecord, stage: Stage, reason: Reason | None, detail: str, at_ms: int) -> Decisions:
        """End the job and clean up its members by its policy, the leader last."""
        job.move(stage, at_ms)
        job.leader_address, job.reason, job.detail = None, reason, detail
        policy = job.spec.clean_pod_policy
        for record in reversed(job.records):
            record.keeps_placement = False
            if record.state in (MemberState.UNPLACED, MemberState.PLACED):
                record.move(MemberState.REMOVED)
            elif record.state in (MemberState.STARTING, MemberState.RUNNING):
                if policy is not CleanPolicy.NONE:
                    yield _stop(job, record, Reason.JOB_ENDED)
            elif record.state is not MemberState.STOPPING and policy is CleanPolicy.ALL:
                yield _stop(job, record, Reason.JOB_ENDED, has_ended=True)

    def _report(self, job: JobRecord) -> Decisions:
        report = ReportJob(job=job.job, stage=job.stage, schedule_state=job.schedule_state, reason=job.reason, detail=job.detail)
        if job.reported != report:
            job.reported = report
            yield report


def _place(job: JobRecord, found: Allocation) -> None:
    """Apply the places that are still valid; none of them if the minimum that starts together is incomplete."""
    placed = []
    for place in found.places:
        record = job.members.get(place.member)
        if record is not None and record.state is MemberState.UNPLACED:
            record.move(MemberState.PLACED)
            record.node = place.node
            placed.append(record)
    if job.may_start:
        job.reason, job.detail = found.reason, found.detail
        return
    for record in placed:
        record.unplace()
    if found.reason is not None:
        job.reason, job.detail = found.reason, found.detail


def _may_start(record: MemberRecord, at_ms: int) -> bool:
    return record.state is MemberState.PLACED and record.not_before_ms <= at_ms


def _waits_for_clock(job: JobRecord, record: MemberRecord) -> bool:
    """Return whether the member is placed and only its restart pause is missing."""
    is_due = record.member.is_leader or job.leader.state is MemberState.RUNNING
    return record.state is MemberState.PLACED and is_due


def _pause_ms(failures: int) -> int:
    """Return the pause before a restart: none the first time, then 1, 2, 4, … seconds up to half a minute."""
    return 0 if failures <= 1 else min(RESTART_PAUSE_MS * 2 ** min(failures - 2, 16), RESTART_PAUSE_MS_MAX)


def _start(job: JobRecord, record: MemberRecord) -> StartMember:
    if record.node is None:
        raise IllegalTransition(f"member {record.member} of job {job.job} has no node to start on")
    record.move(MemberState.STARTING)
    record.attempt += 1
    address = None if record.member.is_leader else job.leader_address
    env = environment(job.spec, record.member, address)
    return StartMember(job=job.job, member=record.member, attempt=record.attempt, node=record.node, env=env)


def _stop(job: JobRecord, record: MemberRecord, reason: Reason, *, has_ended: bool = False) -> StopMember:
    record.move(MemberState.STOPPING)
    return StopMember(job=job.job, member=record.member, attempt=record.attempt, reason=reason, has_ended=has_ended)


def _stopped(job: JobRecord, record: MemberRecord) -> None:
    """Record that a stop order was carried out."""
    if job.is_over:
        record.move(MemberState.REMOVED)
    elif record.keeps_placement:
        record.move(MemberState.PLACED)
        record.keeps_placement = False
    else:
        record.unplace()


def _lose(job: JobRecord, record: MemberRecord, detail: str) -> None:
    """Record that the member is gone and lost its place."""
    record.detail = detail
    if job.is_over:
        record.move(MemberState.REMOVED)
    else:
        record.unplace()
    if record.member.is_leader:
        job.leader_address = None
