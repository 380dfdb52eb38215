"""Results of an explanation: the full forecast, or the reason in short."""

from __future__ import annotations

from dataclasses import dataclass

from federation.explaining.pending_stages import PendingStage
from federation.quota.explain import Change
from federation.quota.limits import Gate
from mesh.core.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseVictim:
    """A lease of which a part would be reclaimed, or whose stages would be preempted."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    amounts: ResourceSet  #: The reclaimed part.
    reason: Reason
    stages: tuple[StageId, ...] = ()  #: Stages that would stop, if known.
    shrinking: tuple[StageId, ...] = ()  #: Stages that would give slots back and go on, if known.


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Full explanation of a pending stage."""

    pending: PendingStage
    reason: Reason | None  #: None: it could start at once.
    ahead: int = 0  #: Stages of the tenant, on any mesh, that go before it and compete with it.
    mesh_ahead: int = 0  #: Stages of any tenant before it in the queue of its mesh that could take one of its flavors.
    gate: Gate | None = None
    changes: tuple[Change, ...] = ()  #: All of them together would do.
    start_ms: int | None = None  #: Estimate on the ledger's clock; None: unknown.
    overdue_ms: int = 0  #: Work that has to end first is overdue by so much, so the start is unknown.
    victims: tuple[LeaseVictim, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason:
    """Short explanation of a waiting stage."""

    reason: Reason
    changes: tuple[Change, ...] = ()  #: As in `Forecast`; empty if the reason is the mesh's own.
