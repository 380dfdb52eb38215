"""States of jobs and of their members, with a table of transitions for each; read by the controller, docs and tests.

Stages and schedule states are those of TY-Arranger.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Stage(str, Enum):
    """Stage of a job."""

    PENDING = "Pending"
    """Submitted; too few members can be placed yet, so none holds a place."""
    STARTING = "Starting"
    """Placed: the leader starts, then the workers, which get its address."""
    RUNNING = "Running"
    """The leader and enough workers are up; missing workers are added when there is capacity."""
    RESCHEDULING = "Rescheduling"
    """The leader, or too many workers, lost their places: the rest is stopped, then the job is placed again."""
    SUCCEEDED = "Succeeded"
    """Over: the leader returned, or a user ended the job."""
    FAILED = "Failed"
    """Over: the leader failed too often, too few workers are left, or no nodes could ever hold the job."""


class ScheduleState(str, Enum):
    """Part of a job that has a place."""

    UNSCHEDULED = "Unscheduled"
    """No member has a place: the job's minimum does not fit now."""
    SCHEDULED_SUCCEED = "ScheduledSucceed"
    """Every member has a place, or had one and has succeeded."""
    SCHEDULED_FAILED = "ScheduledFailed"
    """No nodes of the mesh could ever hold the job's minimum."""
    SCHEDULED_PARTLY = "ScheduledPartly"
    """The leader and enough workers have places; the others get theirs in later rounds."""


class MemberState(str, Enum):
    """State of the leader, or of one worker."""

    UNPLACED = "Unplaced"
    """It has no node."""
    PLACED = "Placed"
    """It has a node with reserved resources and waits to start: a worker waits for the leader's address."""
    STARTING = "Starting"
    """Start ordered, not yet confirmed."""
    RUNNING = "Running"
    """It is up."""
    STOPPING = "Stopping"
    """Stop ordered, not yet confirmed."""
    SUCCEEDED = "Succeeded"
    """It returned; it is not started again."""
    GIVEN_UP = "GivenUp"
    """It failed and is not started again: it failed too often, or its job was over."""
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

#: Stages that nothing follows.
TERMINAL_STAGES = frozenset(stage for stage, after in STAGE_TRANSITIONS.items() if not after)
