"""A piece of work at a mesh: a stage that waits there, or one that might be sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from federation.dispatch import QueuedStage
from mesh.ids import MeshId, TenantPath
from mesh.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Work at a mesh: what it needs to start, and whose it is."""

    stage: str  #: Its id; any name for what was not submitted.
    tenant: TenantPath
    mesh: MeshId
    slot: ResourceSet
    width: int = 1  #: Slots that it could use.
    priority: int = 0
    user: str = ""
    created_ms: int = 0  #: Of equals the earlier one goes first.


def pieces_in(queues: Mapping[MeshId, Sequence[QueuedStage]]) -> Iterator[Piece]:
    """Queues do not tell times; of equals the one that stands further in front has waited longer."""
    for mesh, queued in queues.items():
        for place, stage in enumerate(queued):
            yield Piece(
                stage=stage.stage,
                tenant=stage.tenant,
                mesh=mesh,
                slot=ResourceSet(stage.slot),
                width=stage.width,
                priority=stage.priority,
                created_ms=place,
            )
