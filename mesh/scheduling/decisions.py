"""What the mesh scheduler wants done: frozen values, imperative, each with the version of the state that it was made on."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.ids import AgentId, GroupId, NodeName, PoolName, TaskId
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.scheduling.shapes import GroupShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something must be done."""

    version: int  #: Of the state; grows with each call of `handle`.


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGroup(Decision):
    """Make a placement group, each bundle pinned to its node. Answer: `GroupReady` or `GroupFailed`."""

    group: GroupId
    pool: PoolName
    shape: GroupShape
    nodes: tuple[NodeName, ...]  #: One per bundle.
    warm: bool = False  #: Start an agent process in its first bundle as soon as it is ready.


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroup(Decision):
    """Give the group's room back to Ray, and end the agent that waits in it. Answer: `GroupGone`."""

    group: GroupId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(Decision):
    """Start the task's agent, on the group if there is one, and give it its object. Answer: `TaskStarted` or `TaskRefused`."""

    task: TaskId
    attempt: int
    agent: AgentId
    node: NodeName
    group: GroupId | None
    resources: ResourceSet
    reason: Reason  #: RESERVED_LAYER, GROUP_REUSED, GROUP_CREATED or PLACED.
    resume: bool = False  #: Its kept state is to be restored first.


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(Decision):
    """Stop the task within `grace_ms`, keeping its state first if asked. Answer: `TaskStopped`."""

    task: TaskId
    attempt: int
    keep_state: bool
    grace_ms: int
    reason: Reason  #: PREEMPTED, CANCELLED_BY_USER, GANG_BROKEN; of an attempt that is given up already STALE_CHOICE, AGENT_LOST.
    by: TaskId | None = None  #: For whom it gives way.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainWaiting(Decision):
    """Tell whoever asks why the task waits, and who would have to change what."""

    task: TaskId
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTask(Decision):
    """The task is over; tell whoever waits for it."""

    task: TaskId
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCapacity(Decision):
    """Tell the autoscaler what fits on no node, or waits: one set per task or bundle. Replaces what was asked before."""

    demands: tuple[ResourceSet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveGroup(Decision):
    """A task without an agent has its placement group: tell whoever asked for it (`allocate_pg`)."""

    task: TaskId
    group: GroupId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSlot(Decision):
    """Quota was set aside, or not: tell whoever asked."""

    slot: str
    refused: Reason | None
    detail: str = ""
