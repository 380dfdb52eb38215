"""Events handled by the mesh scheduler: frozen values named in the past tense. `at_ms` is monotonic milliseconds on this mesh's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.core.ids import AgentId, GroupId, JobId, LabelName, NodeName, PoolName, TaskId
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import NO_LABELS, TaskRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    at_ms: int


# -- the cluster -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(Event):
    """A node joined, or its totals or labels changed."""

    node: NodeName
    total: ResourceSet
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUseSeen(Event):
    """Usage of a node by workloads outside this mesh."""

    node: NodeName
    foreign: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft(Event):
    """A node left, and everything that ran on it is lost."""

    node: NodeName


# -- configuration -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfigured(Event):
    """A pool was created, or its capacity, bounds or groups changed."""

    spec: PoolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDeleted(Event):
    """A pool was deleted: nothing new is admitted, and the pool disappears when its last task has ended."""

    pool: PoolName


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged(Event):
    """A user or the tuner changed settings."""

    settings: Mapping[str, float]  #: Keys are field names of `SchedulerSettings`, dotted for nested ones: `weights.availability`.


# -- tasks -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSubmitted(Event):
    """A task was accepted. Submitting the same id and request again has no effect."""

    request: TaskRequest
    version: int | None = None  #: State version on which the submitter chose `request.node`.
    resume: bool = False  #: The task was cancelled before and resumes from its saved state.
    first_attempt: int = 0  #: The last attempt it had before; the next attempt continues the count.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted(Event):
    """The task's agent is up and has its object."""

    task: TaskId
    attempt: int
    agent: AgentId
    unrestored: str = ""  #: Why its saved state was not restored; empty if it was. The task then starts from its initial state.


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRefused(Event):
    """The start failed; the scheduler retries unless `final`."""

    task: TaskId
    attempt: int
    reason: Reason
    detail: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBlocked(Event):
    """The task began (`blocked`) or stopped waiting for another task's output."""

    task: TaskId
    blocked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded(Event):
    """The task ended by itself: it returned, or its code raised."""

    task: TaskId
    attempt: int
    error: str = ""  #: Empty: success.
    keep_agent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCancelled(Event):
    """A user cancelled the task. With `requeue`, its state is saved and it is queued again."""

    task: TaskId
    keep_state: bool = True
    destroy_group: bool = False
    requeue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStopped(Event):
    """A stop order was carried out; nothing of the task runs any more."""

    task: TaskId
    attempt: int
    lost_ms: int = 0  #: Work lost since its last saved state, in milliseconds.
    unkept: str = ""  #: Which part of its state could not be saved, and why.


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointKept(Event):
    """A running task saved its state; its work so far is safe."""

    task: TaskId
    attempt: int


# -- agents and placement groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLost(Event):
    """The task's agent process died, or sent no heartbeat for too long."""

    task: TaskId
    attempt: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReady(Event):
    """Ray created the placement group."""

    group: GroupId
    nodes: tuple[NodeName, ...]  #: One per bundle.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFailed(Event):
    """Ray did not create the group in time, or refused it; nothing of it is left."""

    group: GroupId
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGone(Event):
    """The group was removed, as ordered or by someone else; its resources are free."""

    group: GroupId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(Event):
    """Time passed: the scheduler checks ages, idle groups and holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelConfigured(Event):
    """Order and scoring of one label's queue."""

    label: LabelName
    priority: float = 0.0  #: P_label.
    aging_per_s: float | None = None  #: None: the mesh's default.
    weights: Mapping[str, float] = field(default_factory=dict)
    policy: str = ""


# -- capacity without an agent -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAsked(Event):
    """A caller asked to reserve pool quota under its own name (`reserve_agent_slot`)."""

    slot: str
    pool: PoolName
    resources: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCommitted(Event):
    """Reserved quota is now in use (`commit_agent_slot`)."""

    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReleased(Event):
    """Reserved or used quota was released."""

    slot: str


# -- reservations of jobs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedPlacement:
    """Reservation for a worker that starts once its leader is up."""

    prefix: str  #: Prefix of the future task's name.
    node: NodeName
    resources: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementsReserved(Event):
    """Workers of a job wait for their leader, with these places reserved. Replaces the job's previous reservations."""

    job: JobId
    pool: PoolName
    places: tuple[ReservedPlacement, ...]
    until_ms: int  #: The reservations expire at this time on this mesh's clock.
    attempt: int = 0  #: Attempt of the leader.
