"""Decisions of the job controller: frozen values named in the imperative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.core.ids import JobId, NodeName
from mesh.core.reasons import Reason
from mesh.jobs.members import Member
from mesh.jobs.states import ScheduleState, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDecision:
    """Base of all decisions."""

    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMember(JobDecision):
    """Start the member on its node, as `member_request` says. Answered by `MemberStarted`, `MemberFailed` or `MemberLost`."""

    member: Member
    attempt: int
    node: NodeName
    env: Mapping[str, str]  #: For workers, includes the leader's address.


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMember(JobDecision):
    """Stop the member. Answered by `MemberStopped`, or by an event that it ended by itself."""

    member: Member
    attempt: int
    reason: Reason  #: LEADER_RESTARTED, JOB_RESCHEDULED or JOB_ENDED.
    has_ended: bool = False  #: It has ended; release what is retained of it (process, files).


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportJob(JobDecision):
    """Report the job's state; ordered only when it has changed."""

    stage: Stage
    schedule_state: ScheduleState
    reason: Reason | None  #: Why it waits or is over; None: no problem.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseJob(JobDecision):
    """Report to the submitter that the job was refused."""

    reason: Reason
    detail: str
