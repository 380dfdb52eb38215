"""Decisions of the mesh scheduler: frozen values named in the imperative, each with the state version that produced it."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.ids import AgentId, GroupId, NodeName, PoolName, TaskId
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Base of all decisions."""

    version: int  #: State version; grows with each call of `handle`.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGroup(Decision):
    """Create a placement group with each bundle pinned to its node. Answered by `GroupReady` or `GroupFailed`."""

    group: GroupId
    pool: PoolName
    shape: GroupShape
    nodes: tuple[NodeName, ...]  #: One per bundle.
    warm: bool = False  #: Start an agent process in the first bundle as soon as the group is ready.


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroup(Decision):
    """Remove the group in Ray and end its idle agent. Answered by `GroupGone`."""

    group: GroupId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(Decision):
    """Start the task's agent, on the group if there is one, and create its object. Answered by `TaskStarted` or `TaskRefused`."""

    task: TaskId
    attempt: int
    agent: AgentId
    node: NodeName
    group: GroupId | None
    resources: ResourceSet
    reason: Reason  #: RESERVED_LAYER, GROUP_REUSED, GROUP_CREATED or PLACED.
    resume: bool = False  #: Restore the saved state first.


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(Decision):
    """Stop the task within `grace_ms`, saving its state first if `keep_state`. Answered by `TaskStopped`."""

    task: TaskId
    attempt: int
    keep_state: bool
    grace_ms: int
    reason: Reason  #: PREEMPTED, CANCELLED_BY_USER or GANG_BROKEN; STALE_PLACEMENT or AGENT_LOST for an abandoned attempt.
    by: TaskId | None = None  #: The preemptor, if there is one.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainWaiting(Decision):
    """Report why the task waits and what would have to change."""

    task: TaskId
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTask(Decision):
    """Report that the task is over."""

    task: TaskId
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCapacity(Decision):
    """Request capacity from the autoscaler for demands that do not fit, one set per task or bundle. Replaces the previous request."""

    demands: tuple[ResourceSet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveGroup(Decision):
    """Hand the placement group of a task without an agent to its requester (`allocate_pg`)."""

    task: TaskId
    group: GroupId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSlot(Decision):
    """Answer a quota request: quota was reserved or refused."""

    slot: str
    refused: Reason | None  #: None: the quota was reserved.
    detail: str = ""
