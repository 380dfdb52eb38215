"""Job as users and other processes see it: frozen, with plain names."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.ids import JobId, NodeName
from mesh.core.reasons import Reason
from mesh.jobs.members import rank_of
from mesh.jobs.records import JobRecord
from mesh.jobs.states import MemberState, ScheduleState, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """View of the leader, or of one worker."""

    name: str  #: `leader`, or `actors-3`.
    role: str
    rank: int
    state: MemberState
    node: NodeName | None
    attempt: int  #: Number of starts.
    failures: int
    detail: str  #: Error of its last attempt; empty if none.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """View of a job."""

    job: JobId
    stage: Stage
    schedule_state: ScheduleState
    reason: Reason | None  #: Why it waits or is over; None: no problem.
    detail: str
    submitted_ms: int  #: On the mesh's clock.
    since_ms: int  #: Start of its stage.
    is_over: bool
    leader_address: str | None
    members: tuple[MemberView, ...]  #: By rank.


def view_of(job: JobRecord) -> JobView:
    """Return the view of a job."""
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
