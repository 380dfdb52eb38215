"""The states of jobs and of their members, and the one table of moves for each; the controller, docs and tests read them.

Stages and schedule states, with their names, are those of TY-Arranger.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Stage(str, Enum):
    """Where a job stands."""

    PENDING = "Pending"
    """Submitted; too few of its members have a place yet, and none of them holds one."""
    STARTING = "Starting"
    """Placed: the leader is being started, then the workers, which are told its address."""
    RUNNING = "Running"
    """The leader and enough workers are up; workers that are missing are added as room comes."""
    RESCHEDULING = "Rescheduling"
    """The leader, or too many workers, lost their places: what is left is stopped, then all of it is placed anew."""
    SUCCEEDED = "Succeeded"
    """Over: the leader returned, or a user ended the job."""
    FAILED = "Failed"
    """Over: the leader failed too often, too few workers are left, or no nodes could ever hold it."""


class ScheduleState(str, Enum):
    """How much of a job has a place."""

    UNSCHEDULED = "Unscheduled"
    """Nothing has: the smallest part that may start does not fit now."""
    SCHEDULED_SUCCEED = "ScheduledSucceed"
    """Each member has its place, or had it and is done."""
    SCHEDULED_FAILED = "ScheduledFailed"
    """No nodes of the mesh could ever hold the smallest part that may start."""
    SCHEDULED_PARTLY = "ScheduledPartly"
    """The leader and enough workers have places; the others get theirs in later rounds."""


class MemberState(str, Enum):
    """Where the leader, or one worker, stands."""

    UNPLACED = "Unplaced"
    """It has no node."""
    PLACED = "Placed"
    """It has a node, whose room is kept for it, and waits for its turn: a worker for the address of the leader."""
    STARTING = "Starting"
    """The order to start it is out."""
    RUNNING = "Running"
    """It is up."""
    STOPPING = "Stopping"
    """The order to stop it is out."""
    SUCCEEDED = "Succeeded"
    """It returned; it is not started again."""
    GIVEN_UP = "GivenUp"
    """It failed, and is not started again: it did so too often, or its job was over by then."""
    REMOVED = "Removed"
    """Its job is over, and nothing is left of it."""


_S = Stage
_ENDS = frozenset({_S.SUCCEEDED, _S.FAILED})

#: Stage to the stages that may follow it.
STAGE_TRANSITIONS: Mapping[Stage, frozenset[Stage]] = MappingProxyType(
    {
        _S.PENDING: frozenset({_S.STARTING, *_ENDS}),
        _S.STARTING: frozenset({_S.RUNNING, _S.RESCHEDULING, *_ENDS}),
        _S.RUNNING: frozenset({_S.STARTING, _S.RESCHEDULING, *_ENDS}),
        _S.RESCHEDULING: frozenset({_S.STARTING, *_ENDS}),
        _S.SUCCEEDED: frozenset(),
        _S.FAILED: frozenset(),
    }
)

_P = ScheduleState

#: Schedule state to the states that may follow it.
SCHEDULE_TRANSITIONS: Mapping[ScheduleState, frozenset[ScheduleState]] = MappingProxyType(
    {
        _P.UNSCHEDULED: frozenset({_P.SCHEDULED_SUCCEED, _P.SCHEDULED_PARTLY, _P.SCHEDULED_FAILED}),
        _P.SCHEDULED_SUCCEED: frozenset({_P.SCHEDULED_PARTLY, _P.UNSCHEDULED}),
        _P.SCHEDULED_PARTLY: frozenset({_P.SCHEDULED_SUCCEED, _P.UNSCHEDULED}),
        _P.SCHEDULED_FAILED: frozenset(),
    }
)

_M = MemberState

#: Member state to the states that may follow it.
MEMBER_TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = MappingProxyType(
    {
        _M.UNPLACED: frozenset({_M.PLACED, _M.REMOVED}),
        _M.PLACED: frozenset({_M.STARTING, _M.UNPLACED, _M.REMOVED}),
        _M.STARTING: frozenset({_M.RUNNING, _M.PLACED, _M.STOPPING, _M.UNPLACED, _M.SUCCEEDED, _M.GIVEN_UP, _M.REMOVED}),
        _M.RUNNING: frozenset({_M.PLACED, _M.STOPPING, _M.UNPLACED, _M.SUCCEEDED, _M.GIVEN_UP, _M.REMOVED}),
        _M.STOPPING: frozenset({_M.PLACED, _M.UNPLACED, _M.REMOVED, _M.SUCCEEDED}),
        _M.SUCCEEDED: frozenset({_M.STOPPING}),
        _M.GIVEN_UP: frozenset({_M.STOPPING}),
        _M.REMOVED: frozenset(),
    }
)

#: Nothing follows these.
TERMINAL_STAGES = frozenset(stage for stage, after in STAGE_TRANSITIONS.items() if not after)
