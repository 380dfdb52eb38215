"""The states of runs and nodes, and the one table of moves between them; docs, tests and views read it."""

from enum import Enum


class RunState(str, Enum):
    """Where a run stands."""

    PENDING = "PENDING"
    """Accepted and stored; not planned yet."""
    RUNNING = "RUNNING"
    """Planned; its stages are sent, run or wait for a mesh."""
    CANCELLING = "CANCELLING"
    """Asked to stop; running tasks are being stopped."""
    SUCCEEDED = "SUCCEEDED"
    """All outputs are stored."""
    FAILED = "FAILED"
    """A node failed for good."""
    CANCELLED = "CANCELLED"
    """Stopped on request."""


class StageState(str, Enum):
    """Where a stage stands."""

    PLANNED = "PLANNED"
    """It has a mesh; none of its nodes can start yet, so it was not sent."""
    QUEUED = "QUEUED"
    """Sent to its mesh, which waits for quota or room."""
    RUNNING = "RUNNING"
    """Admitted: a lease pays, a runner works."""
    ENDED = "ENDED"
    """Nothing of it runs; its lease is given back."""
    STOPPED = "STOPPED"
    """Stopped in good order, or taken back before it began: it gave way, its mesh left, its tenant may not; the rest runs again."""
    LOST = "LOST"
    """Its mesh or its runner is gone; what was not finished goes elsewhere."""


class NodeState(str, Enum):
    """Where the present attempt of a node stands."""

    WAITING = "WAITING"
    """Its inputs are not all on their way; nothing was sent."""
    BLOCKED = "BLOCKED"
    """No mesh accepts it; the reasons of each mesh are with it."""
    ASSIGNED = "ASSIGNED"
    """Part of a stage that was sent to a mesh. Back to WAITING when the stage is recalled before the node started."""
    RUNNING = "RUNNING"
    """A worker runs it."""
    SUCCEEDED = "SUCCEEDED"
    """It returned."""
    FAILED = "FAILED"
    """It failed, and no attempt is left."""
    SKIPPED = "SKIPPED"
    """Something it depends on failed, or the run stopped at a failure elsewhere; the root failures are with it."""
    CANCELLED = "CANCELLED"
    """The run was cancelled before it finished."""


RUN_TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.PENDING: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.RUNNING: frozenset({RunState.CANCELLING, RunState.SUCCEEDED, RunState.FAILED}),
    RunState.CANCELLING: frozenset({RunState.CANCELLED}),
    RunState.SUCCEEDED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}

STAGE_TRANSITIONS: dict[StageState, frozenset[StageState]] = {
    StageState.PLANNED: frozenset({StageState.QUEUED, StageState.ENDED}),
    StageState.QUEUED: frozenset({StageState.RUNNING, StageState.ENDED, StageState.STOPPED, StageState.LOST}),
    StageState.RUNNING: frozenset({StageState.ENDED, StageState.STOPPED, StageState.LOST}),
    StageState.ENDED: frozenset(),
    StageState.STOPPED: frozenset(),
    StageState.LOST: frozenset(),
}

#: Moves within one attempt. A new attempt (retry, lost mesh, lost value) begins at WAITING again.
NODE_TRANSITIONS: dict[NodeState, frozenset[NodeState]] = {
    NodeState.WAITING: frozenset({NodeState.BLOCKED, NodeState.ASSIGNED, NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED}),
    NodeState.BLOCKED: frozenset({NodeState.WAITING, NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED}),
    NodeState.ASSIGNED: frozenset(
        {NodeState.WAITING, NodeState.RUNNING, NodeState.SUCCEEDED, NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED}
    ),
    NodeState.RUNNING: frozenset({NodeState.SUCCEEDED, NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED}),
    NodeState.SUCCEEDED: frozenset(),
    NodeState.FAILED: frozenset(),
    NodeState.SKIPPED: frozenset(),
    NodeState.CANCELLED: frozenset(),
}

STAGE_ENDS = frozenset(state for state, after in STAGE_TRANSITIONS.items() if not after)
RUN_ENDS = frozenset(state for state, after in RUN_TRANSITIONS.items() if not after)
NODE_ENDS = frozenset(state for state, after in NODE_TRANSITIONS.items() if not after)
