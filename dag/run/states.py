"""States of runs, stages and nodes, with the tables of their transitions; docs, tests and views use these tables."""

from enum import Enum


class RunState(str, Enum):
    """State of a run."""

    PENDING = "PENDING"
    """Accepted and stored; not planned yet."""
    WAITING = "WAITING"
    """Planned; none of its stages runs, and some part waits for what passes: quota, room, a limit, a mesh that is away."""
    BLOCKED = "BLOCKED"
    """Planned; none of its stages runs, and none will before somebody changes the work, the meshes or the quotas."""
    RUNNING = "RUNNING"
    """Planned; at least one stage runs."""
    CANCELLING = "CANCELLING"
    """Asked to stop; running tasks are being stopped."""
    SUCCEEDED = "SUCCEEDED"
    """All outputs are stored."""
    FAILED = "FAILED"
    """A node failed for good."""
    CANCELLED = "CANCELLED"
    """Stopped on request."""


class StageState(str, Enum):
    """State of a stage."""

    PLANNED = "PLANNED"
    """The stage has a mesh, but is not sent, because none of its nodes can start yet."""
    QUEUED = "QUEUED"
    """Sent to its mesh; waits for quota or capacity there."""
    RUNNING = "RUNNING"
    """Admitted: it has a lease and a runner."""
    ENDED = "ENDED"
    """Nothing of the stage runs; its lease is returned."""
    STOPPED = "STOPPED"
    """Preempted, stopped because its mesh left, or taken back before it began; its unfinished nodes run again."""
    LOST = "LOST"
    """Its mesh or runner is gone; its unfinished nodes run again elsewhere."""


class NodeState(str, Enum):
    """State of the present attempt of a node."""

    WAITING = "WAITING"
    """Not sent, because some inputs are not being computed yet; or it waits for a time, a signal, or nodes that its function returned."""
    BLOCKED = "BLOCKED"
    """No mesh accepts the node; its detail has the reasons of each mesh."""
    ASSIGNED = "ASSIGNED"
    """Part of a stage that was sent to a mesh. Back to WAITING when the stage is recalled before the node started."""
    RUNNING = "RUNNING"
    """A worker runs it."""
    SUCCEEDED = "SUCCEEDED"
    """Its function returned."""
    FAILED = "FAILED"
    """The node failed, and has no attempt left."""
    SKIPPED = "SKIPPED"
    """A need failed, or the run stopped at a failure elsewhere; `roots` has the failed nodes. No roots: its branch was not taken."""
    CANCELLED = "CANCELLED"
    """The run was cancelled before it finished."""


#: States that are shown for a planned run and never stored: they follow from its stages and from their reasons (`run_status.shown_state`).
SHOWN_FOR_PLANNED = frozenset({RunState.WAITING, RunState.BLOCKED, RunState.RUNNING})

#: Of stored states; a planned run is stored as RUNNING. A failed or cancelled run that is resumed begins at RUNNING again.
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

#: Transitions within one attempt. A new attempt (retry, lost mesh, lost value) begins at WAITING again.
NODE_TRANSITIONS: dict[NodeState, frozenset[NodeState]] = {
    NodeState.WAITING: frozenset(
        {
            NodeState.BLOCKED,
            NodeState.ASSIGNED,
            NodeState.SUCCEEDED,  # Only nodes that the root does itself: cond, sleep, signal.
            NodeState.FAILED,
            NodeState.SKIPPED,
            NodeState.CANCELLED,
        }
    ),
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
#: States of nodes that have not ended.
OPEN = frozenset(NodeState) - NODE_ENDS
