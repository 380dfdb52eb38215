"""What the job controller is told: frozen values, past tense.

An attempt counts the starts of one member over the whole life of its job. An event of another attempt than the present
one is out of date, and is ignored; so is an event that says again what is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.ids import JobId, NodeName
from mesh.jobs.members import Member
from mesh.jobs.snapshots import Allocation
from mesh.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something happened. `at_ms` is milliseconds on this mesh's clock, never going back."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(JobEvent):
    """A user wants it. Again with the same spec: nothing."""

    spec: JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersAllocated(JobEvent):
    """A round has found places, or has found out that there are none."""

    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerminated(JobEvent):
    """A user ends it."""

    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRescheduled(JobEvent):
    """Its places are needed for others, or somebody wants it placed anew."""

    job: JobId
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForgotten(JobEvent):
    """Nobody will ask for it any more. Only of use when it is over and cleaned up."""

    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsTicked(JobEvent):
    """Time has passed: members that wait to be started again are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGone(JobEvent):
    """A node is gone, with all that ran or was to run there."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberEvent(JobEvent):
    """Something happened to one attempt of a member."""

    job: JobId
    member: Member
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStarted(MemberEvent):
    """It is up, and others reach it at `address`."""

    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSucceeded(MemberEvent):
    """It returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFailed(MemberEvent):
    """It raised, or its process died, or could not be started; its place is still its own. Counts against the restart limit."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLost(MemberEvent):
    """It is gone with its place: its node left, or it gave way to others. No fault of its own, so it is not counted."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStopped(MemberEvent):
    """The order to stop it has been carried out; nothing of it runs any more."""
