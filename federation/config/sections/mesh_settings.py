"""Sections of a mesh that `apply` changes while the mesh runs: weights of the node policy, preemption, queues."""

from __future__ import annotations

from pydantic import Field

from federation.config.sections.section import Section
from federation.config.sections.values import Points, PointsFrom0
from mesh.core.task_spec import Weights
from mesh.stages.spec import PRIORITY_MAX

_DEFAULT = Weights()


class WeightsSection(Section):
    """Weights of the node policy `weighted`, for all pools of the mesh that use it."""

    availability: PointsFrom0 = Field(
        default=_DEFAULT.availability, description="Weight of the free share of the resources that the slot takes, after placement."
    )
    fragmentation: PointsFrom0 = Field(
        default=_DEFAULT.fragmentation, description="Weight, subtracted, of the share of free room that no common slot fits into."
    )
    locality: PointsFrom0 = Field(
        default=_DEFAULT.locality,
        description="Weight of the arguments' bytes on the node. No effect on stages: a slot is placed before its arguments are known.",
    )
    contention: PointsFrom0 = Field(default=_DEFAULT.contention, description="Weight, subtracted, of the number of slots on the node.")


class MeshPreemptionSection(Section):
    """Limits on the preemption that the mesh decides: of a tenant's stages, for a more urgent stage of that tenant that lacks room.

    The score of a victim is the difference of priorities, less `lost_work_per_s` for each second of unsaved work.
    """

    threshold: Points | None = Field(
        default=None, description="The score of a victim must be above this many points of priority; null: any score."
    )
    lost_work_per_s: PointsFrom0 = Field(
        default=0,
        description="Points that the score loses per second since the victim last saved a checkpoint, or has started.",
    )
    per_minute_max: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Most stages that the mesh preempts in a minute; null: no limit. A stage that needs more victims preempts after a "
        "minute without preemption.",
    )


class QueueSection(Section):
    """Order of a tenant's waiting stages on the mesh: `priority` + the stage's priority + `aging_per_s` * seconds of waiting."""

    priority: int = Field(
        default=0, ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="Points added to the priority of each stage. Preemption ignores them."
    )
    aging_per_s: PointsFrom0 = Field(
        default=0, description="Points that a stage gains per second of its wait on the mesh. Preemption ignores them."
    )
