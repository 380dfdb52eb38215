"""Events handled by the job controller: frozen values named in the past tense.

An attempt counts the starts of one member over the whole life of its job. An event about another than the current attempt is outdated and
ignored, and so is a duplicate.
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.ids import JobId, NodeName
from mesh.jobs.members import Member
from mesh.jobs.snapshots import Allocation
from mesh.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Base of all events. `at_ms` is monotonic milliseconds on this mesh's clock."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(JobEvent):
    """A user submitted the job. Submitting the same spec again has no effect."""

    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersAllocated(JobEvent):
    """A round of the scheduler has answered for the job."""

    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerminated(JobEvent):
    """A user ended the job."""

    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRescheduled(JobEvent):
    """The job has to be placed again, on request or because its places are needed for others."""

    job: JobId
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForgotten(JobEvent):
    """The record of the job is no longer needed. Has an effect only when the job is over and cleaned up."""

    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTicked(JobEvent):
    """Time passed: the controller checks restart pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGone(JobEvent):
    """A node is gone, with everything that ran or was to run there."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEvent(JobEvent):
    """Base of events about one attempt of a member."""

    job: JobId
    member: Member
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStarted(MemberEvent):
    """The member is up and reachable at `address`."""

    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSucceeded(MemberEvent):
    """The member returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFailed(MemberEvent):
    """The member raised, its process died, or it could not be started. It keeps its place. Counts against the restart limit."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLost(MemberEvent):
    """The member lost its place: its node left, or it was preempted. Does not count against the restart limit."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStopped(MemberEvent):
    """A stop order was carried out; nothing of the member runs any more."""
