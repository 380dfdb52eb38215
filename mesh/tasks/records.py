"""Records of tasks, of queued shapes, and of preemptions in progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.core.ids import AgentId, GroupId, JobId, LabelName, NodeName, PoolName, TaskId
from mesh.core.nodes import Units
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import TaskRequest, Weights
from mesh.placement.candidates import Candidates
from mesh.tasks.events import ReservedPlacement


@dataclass(frozen=True, slots=True)
class BucketKey:
    """Key shared by queued tasks that are alike: when one of them does not fit now, none does."""

    label: LabelName
    pool: PoolName
    shape: GroupShape
    selector: tuple[tuple[str, str], ...]
    policy: str
    weights: Weights
    is_urgent: bool  #: It may use a reserved placement group.
    has_agent: bool
    node: NodeName | None = None
    soft: bool = False
    job: JobId | None = None
    role: str = ""
    own: TaskId | None = None  #: Set for a member of a gang, which is unlike any other task.
    places: tuple[tuple[NodeName, int], ...] = ()  #: Bytes of its arguments by node.


@dataclass(slots=True, kw_only=True, eq=False)
class Bucket:
    """Queued tasks of one key, with the nodes for them."""

    key: BucketKey
    amounts: ResourceSet  #: Amounts of one task with its whole placement group.
    candidates: Candidates
    refused: tuple[Reason, str] | None = None  #: Why its first task does not fit; None: not tried, or placed.
    tried_at: int = -1  #: Value of `room_epoch` at that refusal; while it is current, nothing has become free since.
    sort_key: str = field(init=False)  #: Orders buckets by their key alone: a snapshot does not save their age.

    def __post_init__(self) -> None:
        self.sort_key = repr(self.key)


@dataclass(slots=True, kw_only=True)
class TaskRecord:
    """A task that is not over."""

    request: TaskRequest
    since_ms: int  #: When it was submitted; unchanged when it is queued again, so that it keeps its position.
    arrival: int  #: Increasing number; breaks ties.
    bucket: Bucket | None = None  #: None: a call on an agent.
    attempt: int = 0  #: Number of starts; answers about another attempt are late.
    agent: AgentId | None = None
    node: NodeName | None = None  #: Node of its first bundle, from READY on.
    group: GroupId | None = None
    started_ms: int = 0
    kept_ms: int = 0  #: When its state was last saved; its start before that.
    restarts: int = 0
    refusals: int = 0  #: Consecutive failed starts.
    resume: bool = False
    stopping: Reason | None = None  #: Reason of the stop order in progress.
    destroy_group: bool = False  #: Remove its placement group after it.
    needs: set[TaskId] = field(default_factory=set)  #: Dependencies that have not succeeded yet.
    in_admitted_gang: bool = False  #: Its gang was admitted once; from then on it restarts alone.
    requeue: bool = False  #: Queue it again when it has stopped.


@dataclass(slots=True, kw_only=True)
class Eviction:
    """Eviction in progress for one task. Freed resources are held for that task."""

    preemptor: TaskId
    pool: PoolName
    since_ms: int
    victims: set[TaskId]  #: Still stopping.
    groups: set[GroupId] = field(default_factory=set)  #: Still being removed.
    rows: list[tuple[NodeName, Units]] = field(default_factory=list)  #: Node resources promised to the preemptor.
    holders: list[str] = field(default_factory=list)  #: Entries of the pool's ledger that hold quota for it.
    gang: str = ""  #: The eviction serves all members of this gang, one of which is the preemptor.
    places: Mapping[TaskId, tuple[NodeName, ...]] = field(default_factory=dict)  #: Nodes planned for each task; empty: any that fit.


@dataclass(slots=True, kw_only=True)
class NodeReservation:
    """Capacity reserved in one pool, as it becomes free, for a task that waited too long."""

    task: TaskId  #: The waiting head; for a gang, one of its members.
    pool: PoolName
    since_ms: int
    rows: list[tuple[NodeName, Units]] = field(default_factory=list)  #: Node resources promised to it.
    quota: ResourceSet = NOTHING  #: Reserved quota of the pool.
    needs: dict[NodeName, ResourceSet] = field(default_factory=dict)  #: Amounts of its places by node, held or still missing.


@dataclass(slots=True, kw_only=True)
class JobReservation:
    """Reservations for a job's workers that wait for their leader."""

    job: JobId
    pool: PoolName
    wanted: tuple[ReservedPlacement, ...]
    until_ms: int
    attempt: int  #: Attempt of the leader.
    kept: tuple[ReservedPlacement, ...] = ()  #: The wanted places whose resources and quota are held.


@dataclass(slots=True, kw_only=True)
class LabelRules:
    """Order and scoring of one label's queue."""

    priority: float = 0.0  #: P_label.
    aging_per_s: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    policy: str = ""
