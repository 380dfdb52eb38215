"""What a round of the job scheduler sees of each job, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mesh.ids import JobId, NodeName
from mesh.jobs.members import Member
from mesh.jobs.spec import JobSpec
from mesh.jobs.states import ScheduleState
from mesh.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job that is not over, as it stood when the round began."""

    spec: JobSpec
    arrival: int  #: Counts up; breaks ties.
    incarnation: int  #: Grows when the job is placed anew; an answer to an older one is out of date.
    schedule_state: ScheduleState
    places: Mapping[Member, NodeName]  #: Of the members that have one.
    unseen: frozenset[Member]  #: Those whose place is not charged on any node yet: the round keeps their room free.
    unplaced: tuple[Member, ...]  #: In the order of ranks; without those that are done or given up.
    done: int = 0  #: Workers that have succeeded: they count as placed, and hold nothing.


@dataclass(frozen=True, slots=True)
class Place:
    """A node for a member."""

    member: Member
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a round found for one job."""

    job: JobId
    incarnation: int
    schedule_state: ScheduleState
    places: tuple[Place, ...]  #: The new ones.
    reason: Reason | None = None  #: Why members are still without a place; None: none is.
    detail: str = ""
