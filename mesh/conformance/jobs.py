"""The kinds `job`, `job_round` and `drf`: orders for a job's members, their places, and the order of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh.conformance.answering import Verbs, answer_all
from mesh.conformance.fields import CaseError, Fields
from mesh.conformance.node_tables import read_table
from mesh.core.ids import JobId, NodeName, PoolName
from mesh.core.resources import ResourceSet
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import JobDecision, RefuseJob, ReportJob, StartMember, StopMember
from mesh.jobs.events import (
    JobEvent,
    JobRescheduled,
    JobsTicked,
    JobSubmitted,
    JobTerminated,
    MemberEvent,
    MemberFailed,
    MemberLost,
    MembersAllocated,
    MemberStarted,
    MemberStopped,
    MemberSucceeded,
    NodeGone,
)
from mesh.jobs.form import read_job
from mesh.jobs.invariants import violations
from mesh.jobs.members import LEADER_ADDRESS, Member, members_of
from mesh.jobs.ordering import fill_by_shares
from mesh.jobs.records import JobRecord
from mesh.jobs.room import PoolRoom
from mesh.jobs.scheduler import allocate
from mesh.jobs.snapshots import Allocation, JobSnapshot, MemberPlacement
from mesh.jobs.spec import JobQueuePolicy, JobSpec
from mesh.jobs.states import ScheduleState


@dataclass(slots=True)
class _Timeline:
    """One job, and the stages that it passed."""

    spec: JobSpec
    controller: JobController = field(default_factory=JobController)
    stages: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    at_ms: int = 0

    @property
    def job(self) -> JobRecord:
        return self.controller.jobs[self.spec.job]

    def member(self, name: str) -> Member:
        for member in members_of(self.spec):
            if str(member) == name:
                return member
        raise CaseError(f"job {self.spec.job} has no member {name!r}; it has {', '.join(map(str, members_of(self.spec)))}")

    def take(self, event: JobEvent) -> list[str]:
        """Handle the event and return the decisions as text."""
        decisions = self.controller.handle(event)
        self.at_ms += 1
        self.wrong += violations(self.controller)
        if not self.stages or self.stages[-1] != self.job.stage.value:
            self.stages.append(self.job.stage.value)
        return [_words(decision) for decision in decisions if not isinstance(decision, ReportJob)]


def run_job(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the decisions after each step, the stages passed, and the job after the last step."""
    with Fields(case["given"], "given") as given:
        timeline = _Timeline(read_job(given.take("job")))
    first = timeline.take(JobSubmitted(at_ms=0, spec=timeline.spec))
    answers = answer_all(_VERBS, timeline, case)
    job = timeline.job
    return {
        "first": first,
        "answers": answers,
        "stages": timeline.stages,
        "schedule_state": job.schedule_state.value,
        "reason": None if job.reason is None else job.reason.value,
        "detail": job.detail,
        "members": {str(member): record.state.value for member, record in job.members.items()},
        "attempts": {str(member): record.attempt for member, record in job.members.items()},
        "wrong": timeline.wrong,
    }


def run_round(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run one round on a snapshot; return the order of the jobs and the places of each."""
    with Fields(case["given"], "given") as given:
        table, written = read_table(given.take("nodes")), given.take("jobs")
        pools, policy = given.take("pools", None), given.take("queue_policy", None)
        may_grow = given.take("may_grow", False)
    jobs = [_snapshot(read_job(each), arrival) for arrival, each in enumerate(written)]
    found = allocate(
        jobs,
        table,
        draw=lambda _: 0,
        pools=None if pools is None else {PoolName(name): _pool(name, pool) for name, pool in pools.items()},
        queue_policy=None if policy is None else JobQueuePolicy(policy),
        may_grow=may_grow,
    )
    return {
        "order": [each.job for each in found],
        "places": {each.job: {str(place.member): place.node for place in each.places} for each in found},
        "members": {each.job: len(each.places) for each in found},
        "schedule_states": {each.job: each.schedule_state.value for each in found},
        "reasons": {each.job: each.reason.value for each in found if each.reason is not None},
        "details": {each.job: each.detail for each in found if each.detail},
    }


def run_drf(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill one capacity progressively; return the turns, and what each job holds at the end."""
    with Fields(case["given"], "given") as given:
        capacity = ResourceSet.of(given.take("capacity"))
        wanted = {JobId(name): ResourceSet.of(amounts) for name, amounts in given.take("jobs").items()}
        most = {JobId(name): int(count) for name, count in given.take("members_max", {}).items()}
    filling = fill_by_shares(capacity, wanted, most)
    return {
        "turns": list(filling.turns),
        "members": dict(filling.counts),
        "shares": {job: str(share) for job, share in filling.shares.items()},
    }


def _snapshot(spec: JobSpec, arrival: int) -> JobSnapshot:
    return JobRecord(spec=spec, arrival=arrival, submitted_ms=0, since_ms=0).snapshot()


def _pool(name: str, written: Any) -> PoolRoom:
    with Fields(written, f"pool {name}") as fields:
        capacity = ResourceSet.of(fields.take("capacity"))
        free = fields.take("free", None)
        return PoolRoom(capacity=capacity, free=capacity if free is None else ResourceSet.of(free), selector=fields.take("selector", {}))


def _words(decision: JobDecision) -> str:
    if isinstance(decision, StartMember):
        address = decision.env.get(LEADER_ADDRESS)
        return f"start {decision.member} on {decision.node}" + ("" if address is None else f" for {address}")
    if isinstance(decision, StopMember):
        return f"{'let go' if decision.has_ended else 'stop'} {decision.member}: {decision.reason.value}"
    if isinstance(decision, RefuseJob):
        return f"refuse: {decision.reason.value}"
    raise CaseError(f"{type(decision).__name__} has no text form")


# -- steps of a job ----------------------------------------------------------------------------------------------------


def _allocated(timeline: _Timeline, places: Mapping[str, str], fields: Fields) -> list[str]:
    found = Allocation(
        job=timeline.spec.job,
        incarnation=fields.take("incarnation", timeline.job.incarnation),
        schedule_state=ScheduleState(fields.take("state", ScheduleState.SCHEDULED_SUCCEED.value)),
        places=tuple(MemberPlacement(timeline.member(name), NodeName(node)) for name, node in places.items()),
    )
    return timeline.take(MembersAllocated(at_ms=timeline.at_ms, allocation=found))


def _of_member(kind: type[MemberEvent], **result: str) -> Callable[[_Timeline, Any, Fields], list[str]]:
    def take(timeline: _Timeline, name: str, fields: Fields) -> list[str]:
        member = timeline.member(name)
        attempt = fields.take("attempt", timeline.job.members[member].attempt)
        more = {key: fields.take(key, usual) for key, usual in result.items()}
        return timeline.take(kind(at_ms=timeline.at_ms, job=timeline.spec.job, member=member, attempt=attempt, **more))

    return take


def _waited(timeline: _Timeline, duration_ms: int, _: Fields) -> list[str]:
    timeline.at_ms += duration_ms
    return timeline.take(JobsTicked(at_ms=timeline.at_ms))


_VERBS: Verbs[_Timeline] = {
    "waited": _waited,
    "submitted": lambda timeline, changed, _: timeline.take(JobSubmitted(at_ms=timeline.at_ms, spec=read_job(changed))),
    "allocated": _allocated,
    "started": _of_member(MemberStarted, address=""),
    "succeeded": _of_member(MemberSucceeded),
    "failed": _of_member(MemberFailed, detail="it raised"),
    "lost": _of_member(MemberLost, detail="its node is gone"),
    "stopped": _of_member(MemberStopped),
    "node_gone": lambda timeline, node, _: timeline.take(NodeGone(at_ms=timeline.at_ms, node=NodeName(node))),
    "terminated": lambda timeline, _, __: timeline.take(JobTerminated(at_ms=timeline.at_ms, job=timeline.spec.job)),
    "rescheduled": lambda timeline, why, _: timeline.take(JobRescheduled(at_ms=timeline.at_ms, job=timeline.spec.job, detail=why)),
}
