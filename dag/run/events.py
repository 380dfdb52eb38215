"""Events of the run machine, besides `mesh.stages.messages.StageMessage`. Frozen values, named in the past tense."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dag.run.node_facts import CacheState
from dag.spec.growth import Growth
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Mesh of a node, with the reason for it."""

    mesh: MeshId
    why: str  #: The routing decision in one line.
    part: int = 0  #: Nodes of different parts of a mesh share no stage: one slot for both would fit nowhere there.


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockage:
    """Reason why no mesh takes a node at present."""

    reason: Reason
    detail: str  #: The reasons of the meshes.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPlaced:
    """Routing has decided on nodes without a stage."""

    placements: Mapping[NodeId, Placement] = field(default_factory=dict)
    blockages: Mapping[NodeId, Blockage] = field(default_factory=dict)
    order: tuple[NodeId, ...] = ()  #: Placed nodes in the order in which stages run them, needs first; empty: the order of the graph.


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAnswer:
    """Answer of the cache about a node."""

    state: CacheState  #: HIT, CLAIMED, IN_FLIGHT or OFF.
    key: str = ""
    value: StoredValue | None = None  #: For a HIT: a copy that belongs to the run.
    detail: str = ""  #: Where the value comes from, who computes it, or why there is no key.


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAnswered:
    """The cache has answered about nodes that could start."""

    answers: Mapping[NodeId, CacheAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGrown:
    """The nodes that a `NodeGrew` reports were read, and are right by themselves."""

    stage: StageId
    node: NodeId
    attempt: int
    started_ms: int
    finished_ms: int
    growth: Growth
    graph: StoredValue  #: The stored message, which is not needed any more.


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A user has cancelled the run. A repeat changes nothing, unless it stops the cleanup."""

    detail: str
    also_cleanup: bool = False  #: Stop the cleanup too.


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSent:
    """A signal has come for the nodes that wait for it, now or later. The first one of a name counts."""

    name: str
    value: StoredValue


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshGone:
    """The mesh is unreachable, or closed to the run's tenant. Stages that it has not begun go elsewhere."""

    mesh: MeshId
    reason: Reason = Reason.MESH_UNREACHABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshClosed:
    """The mesh is reachable but gets no new stages, because it is draining or on probation."""

    mesh: MeshId


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesMoved:
    """Another mesh has run dry and takes these stages, which their mesh has not begun."""

    stages: tuple[StageId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsAllowed:
    """Limit on the run's stages after this step, from the policies of its tenant and user."""

    under_way_max: int | None = None  #: Limit on stages that were sent and have not ended; None: no limit.
    reason: Reason | None = None  #: Reason for the limit.
    detail: str = ""
    is_shut: bool = False  #: Sent stages that have not begun are taken back too.
    preemption: PreemptionPolicy = NEVER_PREEMPTS  #: Policy for stages that are sent in this step.


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsLimited:
    """Nodes that have waited for capacity or quota for longer than this limit fail."""

    longest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersDue:
    """A timer or a time limit of the run is due. It only makes a step happen: each step takes what is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequested:
    """A user resumes the run, which has failed or was cancelled."""

    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetDue:
    """The run has ended without success, and the time in which its values were kept for a resumption is over."""
