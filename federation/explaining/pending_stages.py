"""Pending stages: a stage that waits at a mesh, or one that might be sent there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from federation.dispatch import QueuedStage
from mesh.core.ids import MeshId, TenantPath
from mesh.core.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStage:
    """Work at a mesh: its tenant, and its needs to start."""

    stage: str  #: Its id; any name for work that was not submitted.
    tenant: TenantPath
    mesh: MeshId
    slot: ResourceSet
    width: int = 1  #: Slots that it could use.
    priority: int = 0
    user: str = ""
    arrival: int = 0  #: Position in the queue of its mesh; among equals the lower one goes first.
    created_ms: int = 0  #: See `StageSpec.created_ms`.


def pending_stages_in(queues: Mapping[MeshId, Sequence[QueuedStage]]) -> Iterator[PendingStage]:
    """Yield the pending stages of all queues."""
    for mesh, queued in queues.items():
        for place, stage in enumerate(queued):
            yield PendingStage(
                stage=stage.stage,
                tenant=stage.tenant,
                mesh=mesh,
                slot=stage.slot,
                width=stage.width,
                priority=stage.priority,
                arrival=place,
                created_ms=stage.created_ms,
            )
