"""What the scheduler keeps about each task, each shape that waits, and each preemption that is under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.ids import AgentId, GroupId, JobId, LabelName, NodeName, PoolName, TaskId
from mesh.nodes import Units
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.candidates import Candidates
from mesh.scheduling.events import KeptPlace
from mesh.scheduling.shapes import GroupShape
from mesh.scheduling.tasks import TaskRequest, Weights


@dataclass(frozen=True, slots=True)
class BucketKey:
    """What makes two queued tasks alike: when one of them does not fit now, none does."""

    label: LabelName
    pool: PoolName
    shape: GroupShape
    selector: tuple[tuple[str, str], ...]
    policy: str
    weights: Weights
    is_urgent: bool  #: May take a reserved placement group.
    has_agent: bool
    node: NodeName | None = None
    soft: bool = False
    job: JobId | None = None
    role: str = ""
    own: TaskId | None = None  #: A task like no other: it is of a gang.
    places: tuple[tuple[NodeName, int], ...] = ()  #: Where how much of its arguments lies.


@dataclass(slots=True, kw_only=True, eq=False)
class Bucket:
    """All queued tasks of one key, and the nodes for them."""

    key: BucketKey
    amounts: ResourceSet  #: Of one task, its whole placement group.
    candidates: Candidates
    refused: tuple[Reason, str] | None = None  #: Why its first task does not fit; None: not tried, or it went.
    tried_at: int = -1  #: The room epoch of that refusal; nothing has become free since while they are equal.


@dataclass(slots=True, kw_only=True)
class TaskRecord:
    """A task that is not over."""

    request: TaskRequest
    since_ms: int  #: When it was submitted; kept when it is queued again, so that it gets its old place.
    arrival: int  #: Counts up; breaks ties.
    bucket: Bucket | None = None  #: None: a call on an agent.
    attempt: int = 0  #: Counts its starts; answers that carry another one are late.
    agent: AgentId | None = None
    node: NodeName | None = None  #: Of its first bundle, from READY on.
    group: GroupId | None = None
    started_ms: int = 0
    kept_ms: int = 0  #: When its state was last kept; its start before that.
    restarts: int = 0
    refusals: int = 0  #: Starts that did not come about, in a row.
    resume: bool = False
    stopping: Reason | None = None  #: The order to stop it is out, for this reason.
    destroy_group: bool = False  #: Its placement group is not kept after it.
    needs: set[TaskId] = field(default_factory=set)  #: Of those that it comes after, who have not succeeded yet.
    in_admitted_gang: bool = False  #: Its gang has been admitted whole once: from then on it starts again by itself.
    requeue: bool = False  #: When it has stopped it waits for its next turn.


@dataclass(slots=True, kw_only=True)
class Eviction:
    """Room that is being made for one task. What has come free is held: nobody else gets it."""

    preemptor: TaskId
    pool: PoolName
    since_ms: int
    victims: set[TaskId]  #: Still stopping.
    groups: set[GroupId] = field(default_factory=set)  #: Still being removed.
    rows: list[tuple[NodeName, Units]] = field(default_factory=list)  #: Room that is promised to the preemptor.
    holders: list[str] = field(default_factory=list)  #: Entries of the pool's ledger that hold its quota.
    gang: str = ""  #: The room is for all members of this gang, of whom the preemptor is one.
    places: Mapping[TaskId, tuple[NodeName, ...]] = field(default_factory=dict)  #: Where whom of them goes; empty: wherever it fits.


@dataclass(slots=True, kw_only=True)
class Reservation:
    """Room that is set aside in one pool, as it comes free, for work that has waited for too long."""

    task: TaskId  #: The head that waits; of a gang, one of its members.
    pool: PoolName
    since_ms: int
    rows: list[tuple[NodeName, Units]] = field(default_factory=list)  #: Room that is promised to it.
    quota: ResourceSet = NOTHING  #: What is set aside of the pool.
    needs: dict[NodeName, ResourceSet] = field(default_factory=dict)  #: What its places take of each node, held or still to come.


@dataclass(slots=True, kw_only=True)
class JobPlaces:
    """Places of a job's workers that wait for their leader."""

    job: JobId
    pool: PoolName
    wanted: tuple[KeptPlace, ...]
    until_ms: int
    attempt: int  #: Of the leader.
    kept: tuple[KeptPlace, ...] = ()  #: Of the wanted, those whose room and quota are held.


@dataclass(slots=True, kw_only=True)
class LabelRules:
    """How one label's queue is ordered and scored."""

    priority: float = 0.0  #: P_label.
    aging_per_s: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    policy: str = ""
