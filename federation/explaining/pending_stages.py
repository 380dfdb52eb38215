"""Pending stages: a stage that waits at a mesh, or one that might be sent there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from federation.dispatch import QueuedStage
from federation.planning.planner_inputs import SlotNeed
from mesh.core.ids import MeshId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.stages.stage_settings import StageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStage:
    """Work at a mesh: its tenant, and its needs to start."""

    stage: str  #: Its id; any name for work that was not submitted.
    tenant: TenantPath
    mesh: MeshId
    slot: ResourceSet
    width: int = 1  #: Slots that it could use.
    priority: int = 0
    is_gang: bool = False  #: Each slot is a gang, which takes no reserved group.
    user: str = ""
    arrival: int = 0  #: Position in the queue of its mesh; among equals the lower one goes first.
    created_ms: int = 0  #: See `StageSpec.created_ms`.
    queued_ms: int | None = None  #: See `QueuedStage.queued_ms`; None: not sent yet.

    @property
    def need(self) -> SlotNeed:
        """Return the facts that decide whether one of its slots fits into a pool."""
        return SlotNeed(slot=self.slot, priority=self.priority, is_gang=self.is_gang)


def queue_order(queued: Sequence[QueuedStage], settings: StageSettings, now_ms: int) -> tuple[QueuedStage, ...]:
    """Return a mesh's stages, which are in the order of the store, in the order in which the mesh tries them now.

    Args:
        settings: Settings that the mesh follows.
        now_ms: On the store's clock.
    """
    if not settings.queues:
        return tuple(queued)
    rules = {stage.stage: settings.queue_of(stage.tenant) for stage in queued}

    def key(stage: QueuedStage) -> int:
        own = rules[stage.stage]
        return own.key(stage.priority, stage.queued_ms) - own.gained(now_ms)

    return tuple(sorted(queued, key=key))


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
                is_gang=stage.gang is not None,
                arrival=place,
                created_ms=stage.created_ms,
                queued_ms=stage.queued_ms,
            )
