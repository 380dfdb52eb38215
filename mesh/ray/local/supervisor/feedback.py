"""The closed loop: events become metrics, and metrics that miss their targets change settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mesh.core.ids import AgentId, PoolName
from mesh.core.resources import ResourceSet
from mesh.observability.metric_targets import AgentReport, MetricsSnapshot, Targets
from mesh.observability.metrics import MeshMetrics
from mesh.observability.tuning import REPLICAS, SettingChange, Tuner
from mesh.policies.fragmentation import fragmentation
from mesh.ray.local.agent_messages import AgentStatus
from mesh.tasks.decisions import Decision
from mesh.tasks.events import Event
from mesh.tasks.state import MeshState

#: Number of task shapes that measure the fragmentation: the commonest ones.
_SHAPES_MAX = 16


class Feedback:
    """Metrics and tuner of one mesh. Kept in memory only; windows are a minute long."""

    def __init__(self, targets: Targets) -> None:
        self._metrics = MeshMetrics()
        self._tuner = Tuner(targets)

    def fold(self, events: Sequence[Event], decisions: Sequence[Decision], took_ms: float) -> None:
        """Record the events and decisions of one call of the scheduler."""
        self._metrics.fold(events, decisions, took_ms=took_ms)

    def hear(self, agent: AgentId, status: AgentStatus, at_ms: int) -> None:
        """Record an agent's report; `at_ms` is on the mesh's clock. `agent` is the scheduler's id, which belongs to a task, so idle
        processes never count as silent.
        """
        self._metrics.hear(
            AgentReport(
                agent=agent,
                at_ms=at_ms,
                cpu=status.cpu,
                rss_bytes=status.rss_bytes,
                queue_length=status.running,
                calls=status.calls,
                failures=status.failures,
                retries=max(0, status.attempt - 1),
                queue_ms_max=status.queue_ms,
            )
        )

    def forget(self, agent: AgentId) -> None:
        """Drop an agent whose process has ended or become idle."""
        self._metrics.forget(agent)

    def metrics(self, state: MeshState, now_ms: int) -> MetricsSnapshot:
        return self._metrics.snapshot(now_ms, fragmentation=_fragmentation(state), use=_use(state))

    def propose(self, metrics: MetricsSnapshot, state: MeshState, now_ms: int) -> tuple[SettingChange, ...]:
        """Return the tuner's changes to the scheduler's settings. Call once for each set of metrics."""
        return tuple(change for change in self._tuner.propose(metrics, state.settings, now_ms) if change.name != REPLICAS)


def _fragmentation(state: MeshState) -> float | None:
    """Return the fragmentation of all nodes' free room for the shapes of unfinished tasks; None when there are none."""
    counts: Counter[ResourceSet] = Counter(record.request.resources for record in state.records.values() if record.request.resources)
    if not counts or not len(state.table):
        return None
    common = counts.most_common(_SHAPES_MAX)
    shapes = np.array([state.table.vector(shape) for shape, _ in common])
    return fragmentation(state.table.free(slice(0, len(state.table.names))), shapes, [count for _, count in common])


def _use(state: MeshState) -> dict[PoolName, float]:
    """Return for each pool the share in use of its scarcest resource."""
    return {
        name: max(((pool.used[each] + pool.reserved[each]) / amount for each, amount in pool.capacity.items()), default=0.0)
        for name, pool in state.pools.pools.items()
    }
