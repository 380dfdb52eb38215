"""A job as people and other processes see it: frozen, and by names."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.ids import JobId, NodeName
from mesh.jobs.members import rank_of
from mesh.jobs.records import JobRecord
from mesh.jobs.states import MemberState, ScheduleState, Stage
from mesh.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """The leader, or one worker."""

    name: str  #: `leader`, or `actors-3`.
    role: str
    rank: int
    state: MemberState
    node: NodeName | None
    attempt: int  #: Starts so far.
    failures: int
    detail: str  #: What became of its last attempt, where that was nothing good.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job."""

    job: JobId
    stage: Stage
    schedule_state: ScheduleState
    reason: Reason | None  #: Why it waits, or is over; None: all is well.
    detail: str
    submitted_ms: int  #: On the mesh's clock.
    since_ms: int  #: When it came to its stage.
    is_over: bool
    leader_address: str | None
    members: tuple[MemberView, ...]  #: By rank.


def view_of(job: JobRecord) -> JobView:
    """The job as it stands."""
    members = tuple(
        MemberView(
            name=str(record.member),
            role=record.member.role,
            rank=rank_of(job.spec, record.member),
            state=record.state,
            node=record.node,
            attempt=record.attempt,
            failures=record.failures,
            detail=record.detail,
        )
        for record in job.members.values()
    )
    return JobView(
        job=job.job,
        stage=job.stage,
        schedule_state=job.schedule_state,
        reason=job.reason,
        detail=job.detail,
        submitted_ms=job.submitted_ms,
        since_ms=job.since_ms,
        is_over=job.is_over,
        leader_address=job.leader_address,
        members=members,
    )
