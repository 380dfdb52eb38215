"""Settings of a mesh for stages: weights of its node policy, preemption, and the order of its queue.

`schedulemesh apply` changes them while the mesh runs. They cross processes as JSON, so all numbers are integers: points of priority and
weights are in millionths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mesh.core.ids import TenantPath
from mesh.core.task_spec import Weights
from mesh.preemption.stage_preemption import MICROS, NO_LIMITS, PreemptionLimits

#: Key of the queue of all tenants that have none.
ANY_TENANT = "*"
_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWeights:
    """Weights of the node policy `weighted`, in millionths; see `Weights`."""

    availability: int = 100_000
    fragmentation: int = 1_000_000
    locality: int = 500_000
    contention: int = 50_000

    def as_weights(self) -> Weights:
        """Return the weights as the policy reads them."""
        return Weights(
            availability=self.availability / MICROS,
            fragmentation=self.fragmentation / MICROS,
            locality=self.locality / MICROS,
            contention=self.contention / MICROS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """Order of one queue's stages among all on the mesh: `priority` of the queue + priority of the stage + aging * wait."""

    priority: int = 0  #: Points that are added to each of its stages.
    aging_per_s: int = 0  #: Millionths of a point per second of waiting on the mesh.

    def key(self, priority: int, queued_ms: int) -> int:
        """Return the sort key of a stage, less is sooner, in billionths of a point. Keys of one queue never change.

        Args:
            queued_ms: When its wait on the mesh began, on the store's clock.
        """
        return -(self.priority + priority) * _BILLION + self.aging_per_s * queued_ms

    def gained(self, now_ms: int) -> int:
        """Return what is subtracted from the keys of all its stages now, to compare them with those of other queues."""
        return self.aging_per_s * now_ms


NO_QUEUE = QueueRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """Settings of one mesh."""

    weights: NodeWeights = NodeWeights()
    preemption: PreemptionLimits = NO_LIMITS
    queues: Mapping[str, QueueRules] = field(default_factory=dict)  #: By tenant, for all tenants below it too; `*`: every other tenant.

    def queue_of(self, tenant: TenantPath) -> QueueRules:
        """Return the rules of the tenant's queue: its own, else those of the nearest tenant above it, else those of `*`."""
        path: str = tenant
        while path and path not in self.queues:
            path = path.rpartition("/")[0]
        return self.queues.get(path or ANY_TENANT, NO_QUEUE)


DEFAULT_SETTINGS = StageSettings()
