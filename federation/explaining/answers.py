"""What is answered about a piece of work: all that can be said, or why it waits, in short."""

from __future__ import annotations

from dataclasses import dataclass

from federation.explaining.pieces import Piece
from federation.quota.explain import Change
from federation.quota.limits import Gate
from mesh.ids import FlavorName, MeshId, StageId, TenantPath
from mesh.reasons import Reason
from mesh.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class GivesWay:
    """A lease that would be asked for a part of what it holds, or pays for stages that would stop."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    amounts: ResourceSet  #: The part.
    reason: Reason
    stages: tuple[StageId, ...] = ()  #: Which would stop, where that is known: the piece's own tenant's, on its own mesh.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """All that can be said about a piece of work."""

    piece: Piece
    reason: Reason | None  #: None: it could start at once.
    ahead: int = 0  #: Stages of the tenant, on any mesh, that go before it and wait for something that it waits for too.
    mesh_ahead: int = 0  #: Stages of anybody that stand before it in the queue of its mesh and could take a flavor that it could take.
    gate: Gate | None = None
    changes: tuple[Change, ...] = ()  #: All of them together would do.
    start_ms: int | None = None  #: On the ledger's clock, about; None: nobody can say.
    overdue_ms: int = 0  #: What has to end first should have ended so long ago, so nobody can say.
    gives_way: tuple[GivesWay, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a stage waits, in short."""

    reason: Reason
    changes: tuple[Change, ...] = ()  #: As in `Outlook`; empty where the reason is what its mesh said.
