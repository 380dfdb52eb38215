"""What the job controller wants done: frozen values, imperative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.ids import JobId, NodeName
from mesh.jobs.members import Member
from mesh.jobs.states import ScheduleState, Stage
from mesh.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDecision:
    """Something must be done."""

    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMember(JobDecision):
    """Start the member on its node, as `member_request` says. Answer: `MemberStarted`, `MemberFailed` or `MemberLost`."""

    member: Member
    attempt: int
    node: NodeName
    env: Mapping[str, str]  #: For workers, the leader's address is in it.


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMember(JobDecision):
    """Stop the member. Answer: `MemberStopped`, or that it ended by itself meanwhile."""

    member: Member
    attempt: int
    reason: Reason  #: LEADER_RESTARTED, JOB_RESCHEDULED or JOB_ENDED.
    has_ended: bool = False  #: It runs no more; what is kept of it (its process, its files) is to be let go.


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportJob(JobDecision):
    """Tell whoever asks where the job stands; only ordered when something of it has changed."""

    stage: Stage
    schedule_state: ScheduleState
    reason: Reason | None  #: Why it waits, or is over; None: all is well.
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseJob(JobDecision):
    """Tell the submitter that the job was not taken."""

    reason: Reason
    detail: str
