"""What the run machine is told; with `mesh.messages.StageMessage` these are all its events. Frozen values, past tense."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.ids import MeshId, NodeId
from mesh.reasons import Reason
from mesh.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a node goes, and why there."""

    mesh: MeshId
    why: str  #: The routing decision in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockage:
    """Why no mesh takes a node at present."""

    reason: Reason
    detail: str  #: What each mesh said.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPlaced:
    """Routing has answered for nodes that had no stage."""

    placements: Mapping[NodeId, Placement] = field(default_factory=dict)
    blockages: Mapping[NodeId, Blockage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody wants the run to stop."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshGone:
    """The mesh is not heard of, or is shut to the run's tenant; what it has not begun goes elsewhere."""

    mesh: MeshId
    reason: Reason = Reason.MESH_UNREACHABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshClosed:
    """The mesh is there and gets nothing new: it is draining, or has to show first that it stays."""

    mesh: MeshId


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsAllowed:
    """How many stages of the run may be under way after this step, by what holds for its tenant and its user."""

    under_way_max: int | None = None  #: Sent and not ended; None: any number, as when nothing is told.
    reason: Reason | None = None  #: What allows no more.
    detail: str = ""
    is_shut: bool = False  #: What was sent and has not begun comes back as well.
    preemption: PreemptionPolicy = NEVER_PREEMPTS  #: Goes along with what is sent in this step.


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsLimited:
    """Whatever has waited for room or quota for longer than this is refused."""

    longest_ms: int
