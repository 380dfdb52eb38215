"""What stage admission is told: frozen values, past tense."""

from dataclasses import dataclass

from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.preemption.stage_preemption import NEVER_PREEMPTS, PreemptionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOffered:
    """Work is queued for this mesh."""

    workload: StageId
    tenant: TenantPath
    slot: ResourceSet
    width: int  #: Slots worth having.
    priority: int
    preemption: PreemptionPolicy = NEVER_PREEMPTS  #: Whether others of its tenant stop for it.
    since_ms: int = 0  #: Since when it waits here, on the mesh's own clock; no decision here reads it.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFound:
    """Work that was let in before, by an earlier process of this mesh, and runs."""

    offer: WorkloadOffered
    pool: PoolName
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadWithdrawn:
    """The work was cancelled, or is somebody else's now."""

    workload: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGranted:
    """The federation pays for this many slots."""

    workload: StageId
    slots: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRefused:
    """The federation does not pay now: neither for this work in its pool nor for any other with the same tenant and slot."""

    workload: StageId
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadEnded:
    """Nothing of it runs any more."""

    workload: StageId


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomMayHaveCome:
    """Quota was given back or changed somewhere: what was refused is worth another try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCameFree:
    """A part of what the tenant holds is paid out to nobody any more: what was refused to others stays refused."""

    tenant: TenantPath


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomPromised:
    """Others have been asked to stop for queued work: one slot in the pool is its own as it comes free."""

    workload: StageId
    pool: PoolName
    victims: frozenset[StageId]  #: It asks for its lease when all of these have ended.
    until_ms: int  #: When the promise ends, on the clock of whoever made it.
    detail: str  #: Who stops, in words.


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseEnded:
    """The room was not free in time: what has been set aside is anybody's again."""

    workload: StageId


AdmissionEvent = (
    WorkloadOffered
    | WorkloadFound
    | WorkloadWithdrawn
    | LeaseGranted
    | LeaseRefused
    | WorkloadEnded
    | RoomMayHaveCome
    | LeaseCameFree
    | RoomPromised
    | PromiseEnded
)
