"""Input and output of a round of the job scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.core.ids import JobId, NodeName
from mesh.core.reasons import Reason
from mesh.jobs.members import Member
from mesh.jobs.spec import JobSpec
from mesh.jobs.states import ScheduleState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job that is not over, at the start of the round."""

    spec: JobSpec
    arrival: int  #: Increasing number; breaks ties.
    incarnation: int  #: Grows whenever the job is placed again; an answer about an older one is outdated.
    schedule_state: ScheduleState
    places: Mapping[Member, NodeName]  #: Places of the members that have one.
    unseen: frozenset[Member]  #: Members whose place no node counts yet; the round reserves it.
    unplaced: tuple[Member, ...]  #: In order of ranks, without members that are done or given up.
    done: int = 0  #: Workers that have succeeded: they count as placed and hold nothing.


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """Node for a member."""

    member: Member
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Result of a round for one job."""

    job: JobId
    incarnation: int
    schedule_state: ScheduleState
    places: tuple[MemberPlacement, ...]  #: New places only.
    reason: Reason | None = None  #: Why members are still unplaced; None: none is.
    detail: str = ""
