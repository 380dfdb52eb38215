"""What the supervisor answers: frozen values for people and programs. Times are milliseconds on the mesh's clock (since the epoch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesh.ids import AgentId, GroupId, LabelName, NodeName, PoolName, TaskId, TenantPath
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.shapes import GroupShape
from mesh.scheduling.tasks import NO_LABEL, NO_TENANT, TERMINAL, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Not now, or never: `reason` says which, `detail` what would have to change. False in a condition."""

    reason: Reason
    detail: str = ""

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """Where a task stands, and why."""

    task: TaskId
    pool: PoolName
    state: TaskState
    is_ending: bool = False  #: It was asked to stop, and will not come back.
    reason: Reason | None = None
    detail: str = ""
    label: LabelName = NO_LABEL
    tenant: TenantPath = NO_TENANT
    priority: float = 0.0
    resources: ResourceSet = NOTHING
    attempt: int = 0
    agent: AgentId | None = None
    node: NodeName | None = None
    group: GroupId | None = None
    submitted_ms: int = 0
    started_ms: int | None = None
    ended_ms: int | None = None
    preemptions: int = 0
    lost_ms: int = 0  #: Work of its stopped attempts that was not kept and has to be done again.
    position: int | None = None  #: In the queue, from 1; None: not queued.
    estimate_ms: int | None = None  #: How long it will still wait, by the pace of the last starts; None: nothing is known.

    @property
    def is_over(self) -> bool:
        """Nothing follows."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """A pool and its ledger (seed §6.4.4): what it has, what is in use, what is set aside, how many agents its owner wants."""

    pool: PoolName
    capacity: ResourceSet
    used: ResourceSet
    reserved: ResourceSet
    free: ResourceSet
    target_agents: int
    agents: int
    queued: int
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: str = ""
    groups: int = 0
    is_closing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSeen:
    """An agent process and whom it serves."""

    agent: AgentId | None  #: None: it waits for work.
    task: TaskId | None
    pool: PoolName | None
    process: str  #: The name of the Ray actor.
    node: NodeName | None
    group: GroupId | None
    holds: ResourceSet  #: What of Ray's resources the process has itself; a standby has none.
    is_warm: bool  #: Ready, and without a task.
    state: TaskState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A placement group of the mesh."""

    group: GroupId
    pool: PoolName
    shape: GroupShape
    nodes: tuple[NodeName, ...]
    state: str
    layer: str = ""  #: RESERVED or DYNAMIC.
    holder: TaskId | None = None
    reuse_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """A node as the scheduler counts it."""

    node: NodeName
    total: ResourceSet
    used: ResourceSet
    load: ResourceSet
    labels: Mapping[str, str] = field(default_factory=dict)
    standbys: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateStatus:
    """A task that might give way, with its score and why it would or would not (dry run)."""

    task: TaskId
    score: float
    verdict: Reason
    detail: str
    would_stop: bool  #: It is among those that would be stopped.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGiven:
    """A placement group was given to whoever asked; it is theirs until `release_pg`."""

    holder: TaskId
    group: GroupId
    name: str  #: For `ray.util.get_placement_group`.
    reason: Reason  #: RESERVED_LAYER, GROUP_REUSED or GROUP_CREATED.


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReserved:
    """Quota was set aside."""

    slot: str
    pool: PoolName
    resources: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshStatus:
    """The mesh as a whole."""

    mesh: str
    namespace: str
    state_dir: str
    pid: int  #: Of the supervisor's process.
    incarnation: int  #: Grows with each start of the supervisor.
    version: int  #: Of the scheduler's state.
    tasks: Mapping[str, int] = field(default_factory=dict)  #: By state.
    metrics_port: int | None = None  #: Where Prometheus may ask; None: nowhere.


class NewsKind(str, Enum):
    """What a piece of news is about."""

    PLUGIN_FENCED = "PLUGIN_FENCED"
    """A hook of a plugin misbehaved and is not asked any more; the default answers in its place."""
    SETTING_TUNED = "SETTING_TUNED"
    """The tuner moved a setting, because a figure missed its target or keeps it well again."""
    ALARM = "ALARM"
    """A figure was unusual, or an agent silent, at two looks in a row."""
    ALARM_OVER = "ALARM_OVER"
    """It is as usual again."""
    STATE_LOST = "STATE_LOST"
    """A preserver or a restorer of a task failed, or there was no room; the default holds."""
    JOB = "JOB"
    """A job came to another stage, or to another schedule state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshNews:
    """Something that whoever looks after the mesh should know. Kept in memory only: the last thousand."""

    at_ms: int
    kind: NewsKind
    about: str  #: The plugin, the setting, the figure, the task, or the job.
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is not as it should be; empty when the ledgers agree with each other and with what lives in Ray."""

    violations: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.violations
