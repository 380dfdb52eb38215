"""What the mesh scheduler is told: frozen values, past tense. `at_ms` is milliseconds on this mesh's clock, never going back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.ids import AgentId, GroupId, JobId, LabelName, NodeName, PoolName, TaskId
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.scheduling.tasks import NO_LABELS, TaskRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened."""

    at_ms: int


# -- the cluster -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(Event):
    """A node is there, or its totals or labels have changed."""

    node: NodeName
    total: ResourceSet
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUseSeen(Event):
    """How much of a node others use, who are not of this mesh."""

    node: NodeName
    foreign: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft(Event):
    """A node is gone, with all that ran on it."""

    node: NodeName


# -- configuration -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfigured(Event):
    """A pool was created, or its capacity, bounds or groups changed."""

    spec: PoolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDeleted(Event):
    """Nothing new goes into the pool; it is gone when what is in it has ended."""

    pool: PoolName


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged(Event):
    """Somebody, or the tuner, changed how the scheduler decides."""

    settings: Mapping[str, float]  #: By the names of `SchedulerSettings`, dotted for parts: `weights.availability`.


# -- tasks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSubmitted(Event):
    """A task was accepted. Again with the same id and request: nothing."""

    request: TaskRequest
    version: int | None = None  #: A submitter's own choice of node (`request.node`) was made on this version of the state.
    resume: bool = False  #: It was cancelled before, and goes on from its kept state.
    first_attempt: int = 0  #: The last attempt that it had before; the next one counts on from it.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(Event):
    """Its agent is up and has its object."""

    task: TaskId
    attempt: int
    agent: AgentId
    unrestored: str = ""  #: Why the state that its preserver had kept did not come back; it goes on from the default.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRefused(Event):
    """The start did not come about; it is tried again unless `final`."""

    task: TaskId
    attempt: int
    reason: Reason
    detail: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBlocked(Event):
    """It waits for something that another task makes (`blocked`), or goes on."""

    task: TaskId
    blocked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded(Event):
    """It is over by itself: returned, or its code raised."""

    task: TaskId
    attempt: int
    error: str = ""  #: Empty: it succeeded.
    keep_agent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCancelled(Event):
    """A user wants it gone. With `requeue`, its state is kept and it waits for its next turn."""

    task: TaskId
    keep_state: bool = True
    destroy_group: bool = False
    requeue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStopped(Event):
    """The order to stop it has been carried out; nothing of it runs any more."""

    task: TaskId
    attempt: int
    lost_ms: int = 0  #: Work since its last kept state.
    unkept: str = ""  #: What of its state was to be kept and was not, and why.


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointKept(Event):
    """A running task has kept its state; what it has done until now is safe."""

    task: TaskId
    attempt: int


# -- agents and placement groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLost(Event):
    """Its process died, or nothing has been heard of it for too long."""

    task: TaskId
    attempt: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReady(Event):
    """Ray has made the placement group."""

    group: GroupId
    nodes: tuple[NodeName, ...]  #: One per bundle.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFailed(Event):
    """Ray has not made it in time, or refused it; nothing of it is left."""

    group: GroupId
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGone(Event):
    """It was removed, as ordered or by somebody else; its room is free."""

    group: GroupId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(Event):
    """Time has passed: ages, idle groups and held room are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelConfigured(Event):
    """How one label's queue is ordered and scored."""

    label: LabelName
    priority: float = 0.0  #: P_label.
    aging_per_s: float | None = None  #: None: the mesh's.
    weights: Mapping[str, float] = field(default_factory=dict)
    policy: str = ""


# -- room without an agent ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAsked(Event):
    """Somebody wants quota of a pool set aside under a name of its own (`reserve_agent_slot`)."""

    slot: str
    pool: PoolName
    resources: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCommitted(Event):
    """The quota that was set aside is in use (`commit_agent_slot`)."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReleased(Event):
    """The quota is given back, whether it was set aside or in use."""

    slot: str


# -- places of jobs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPlace:
    """Where a worker will start once its leader is up."""

    prefix: str  #: With which the name of its task will begin.
    node: NodeName
    resources: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesKept(Event):
    """These workers of a job wait for their leader, and keep their places meanwhile; replaces what was kept for the job before."""

    job: JobId
    pool: PoolName
    places: tuple[KeptPlace, ...]
    until_ms: int  #: Not for longer, on this mesh's clock.
    attempt: int = 0  #: Of the leader.
