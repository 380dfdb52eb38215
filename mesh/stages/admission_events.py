"""Events of stage admission: frozen values, past tense."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.core.ids import GroupId, NodeName, PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.shapes import Gang, SlotShape
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy
from mesh.stages.stage_settings import StageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOffered:
    """A workload is queued for this mesh."""

    workload: StageId
    tenant: TenantPath
    slot: ResourceSet
    width: int  #: Most slots that it can use.
    priority: int
    created_ms: int = 0  #: See `StageSpec.created_ms`.
    preemption: PreemptionPolicy = NEVER_PREEMPTS  #: Which stages of its tenant it may preempt.
    since_ms: int = 0  #: Begin of its wait here, on the mesh's own clock; no decision here reads it.
    queued_ms: int = 0  #: Begin of its wait here, since the epoch, on the store's clock: aging counts from it.
    gang: Gang | None = None  #: Gang that each slot is; None: a slot lies on one node.

    @property
    def shape(self) -> SlotShape:
        """Return what a slot takes of nodes."""
        return self.gang or self.slot


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFound:
    """A workload runs that an earlier process of this mesh admitted."""

    offer: WorkloadOffered
    pool: PoolName
    slots: int
    nodes: tuple[NodeName, ...] = ()  #: Node of each slot in no reserved group, or of each bundle, gang after gang; empty: Ray placed them.
    groups: Mapping[GroupId, NodeName] = field(default_factory=dict)  #: Reserved groups, a slot each, with their nodes (empty: unknown).


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadWithdrawn:
    """The workload was cancelled, or has moved to another mesh."""

    workload: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGranted:
    """The federation granted a lease for this many slots, or for this many more of a running workload."""

    workload: StageId
    slots: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRefused:
    """The federation granted no lease. This holds for all workloads of the tenant with the same slot and pool."""

    workload: StageId
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsefulSlotsKnown:
    """A running workload can use this many slots at most from now on: it grows up to them."""

    workload: StageId
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsRetired:
    """A running workload has given back all slots but these."""

    workload: StageId
    slots: int
    gone: tuple[NodeName, ...] = ()  #: Nodes of the slots that it gave back, gang after gang, without those of `groups`; empty: unknown.
    groups: tuple[GroupId, ...] = ()  #: Reserved groups that it gave back.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadEnded:
    """No part of the workload runs any more."""

    workload: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomMayHaveCome:
    """Quota was returned or changed somewhere: refused workloads are tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockRead:
    """Time has passed: waiting workloads have aged."""

    now_ms: int  #: On the clock of `WorkloadOffered.queued_ms`.


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged:
    """The settings of the mesh have changed."""

    settings: StageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionDelayed:
    """A workload could preempt others, but the mesh may preempt nothing for the moment."""

    workload: StageId
    detail: str  #: The limit and when it is lifted, in words; empty: the limit is lifted.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSeen:
    """The nodes of the mesh were looked at."""

    nodes: tuple[NodeSeen, ...]  #: All of them; `available` leaves out what the mesh's own groups hold. Empty: unknown.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCameFree:
    """A part of the tenant's leases is unused: refused workloads of this tenant are tried again."""

    tenant: TenantPath


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomPromised:
    """A workload preempts others: one slot in the pool is reserved for it as room comes free."""

    workload: StageId
    pool: PoolName
    victims: frozenset[StageId]  #: Its lease is requested when all of these have ended.
    until_ms: int  #: End of the reservation, on the clock of the planner of preemptions.
    detail: str  #: The victims, in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseEnded:
    """The slot was not free in time: its reservation is released."""

    workload: StageId


AdmissionEvent = (
    WorkloadOffered
    | WorkloadFound
    | WorkloadWithdrawn
    | LeaseGranted
    | LeaseRefused
    | UsefulSlotsKnown
    | SlotsRetired
    | WorkloadEnded
    | RoomMayHaveCome
    | ClockRead
    | SettingsChanged
    | PreemptionDelayed
    | NodesSeen
    | LeaseCameFree
    | RoomPromised
    | PromiseEnded
)
