"""Answers of the supervisor: frozen values for people and programs. Times are milliseconds since the epoch, on the mesh's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mesh.core.ids import AgentId, GroupId, LabelName, NodeName, PoolName, TaskId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import NO_LABEL, NO_TENANT, TERMINAL, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRefused:
    """A refusal: `reason` says why, `detail` what would have to change. False in a condition."""

    reason: Reason
    detail: str = ""

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """State of a task, and the reason for it."""

    task: TaskId
    pool: PoolName
    state: TaskState
    is_ending: bool = False  #: True: the task was asked to stop and will not resume.
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
    lost_ms: int = 0  #: Milliseconds of work that stopped attempts did not save and that must be redone.
    position: int | None = None  #: Position in the queue, from 1; None: not queued.
    estimate_ms: int | None = None  #: Estimated wait by the pace of recent starts; None: unknown.

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return self.state in TERMINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """A pool: capacity, used and reserved resources, and the number of agents that its owner wants."""

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
    """An agent process and its task."""

    agent: AgentId | None  #: None: the process is idle.
    task: TaskId | None
    pool: PoolName | None
    process: str  #: Name of the Ray actor.
    node: NodeName | None
    group: GroupId | None
    holds: ResourceSet  #: Ray resources of the process itself; a standby has none.
    is_warm: bool  #: True: ready, and without a task.
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
    """A preemption candidate with its score and its verdict (dry run)."""

    task: TaskId
    score: float
    verdict: Reason
    detail: str
    would_stop: bool  #: True: the task is a victim.


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGiven:
    """A placement group that was allocated; the caller owns it until `release_pg`."""

    holder: TaskId
    group: GroupId
    name: str  #: Name for `ray.util.get_placement_group`.
    reason: Reason  #: RESERVED_LAYER, GROUP_REUSED or GROUP_CREATED.


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReserved:
    """Quota was reserved."""

    slot: str
    pool: PoolName
    resources: ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshStatus:
    """The mesh as a whole."""

    mesh: str
    namespace: str
    state_dir: str
    pid: int  #: Process id of the supervisor.
    incarnation: int  #: Grows with each start of the supervisor.
    version: int  #: Version of the scheduler's state.
    tasks: Mapping[str, int] = field(default_factory=dict)  #: Number of tasks by state.
    metrics_port: int | None = None  #: Port of the Prometheus endpoint; None: there is none.


class MeshEventKind(str, Enum):
    """Kind of a mesh event."""

    PLUGIN_FENCED = "PLUGIN_FENCED"
    """A hook of a plugin misbehaved and is disabled; the default replaces it."""
    SETTING_TUNED = "SETTING_TUNED"
    """The tuner changed a setting, because a metric missed its target or meets it again."""
    ALARM = "ALARM"
    """A metric was anomalous, or an agent silent, at two checks in a row."""
    ALARM_OVER = "ALARM_OVER"
    """The anomaly is over."""
    STATE_LOST = "STATE_LOST"
    """A preserver or restorer of a task failed, or there was no space; the default state is used."""
    JOB = "JOB"
    """A job changed its stage or its schedule state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshEvent:
    """An event for operators of the mesh. Kept in memory only: the last thousand."""

    at_ms: int
    kind: MeshEventKind
    about: str  #: The plugin, setting, metric, task, or job.
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshAudit:
    """Violations found by an audit; empty when all ledgers agree with each other and with Ray."""

    violations: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.violations
