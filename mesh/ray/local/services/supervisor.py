"""The supervisor: one detached actor per mesh, with the one scheduler and everything that carries out its decisions.

Clients exchange values with it. Every method that changes state is idempotent: when the supervisor's process dies during a call,
the client sends the call to the next one. No method blocks the event loop, so a call that waits (for a start, for a placement
group) delays no other.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import ray

from mesh.observability.metric_targets import MetricValues
from mesh.ray.local.services.agent_handlers import AgentHandlers
from mesh.ray.local.services.group_handlers import GroupHandlers
from mesh.ray.local.services.job_handlers import JobHandlers
from mesh.ray.local.services.pool_handlers import PoolHandlers
from mesh.ray.local.status_values import MeshAudit, MeshEvent, MeshStatus
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.auditing import audit
from mesh.tasks.events import LabelConfigured, SettingsChanged

#: Number of calls that may wait at the same time.
CALLS_MAX = 10_000


class MeshSupervisor(PoolHandlers, GroupHandlers, JobHandlers, AgentHandlers):
    """The actor of one mesh. All methods are coroutines on one event loop."""

    async def status(self) -> MeshStatus:
        """Return the mesh's status once the supervisor is ready."""
        await self._ready
        return MeshStatus(
            mesh=self._options.mesh,
            namespace=self._options.namespace,
            state_dir=self._options.state_dir,
            pid=os.getpid(),
            incarnation=self._incarnation,
            version=self._state.version,
            metrics_port=self._observer.metrics_port,
            tasks=dict(Counter(views.state_of(self._state, task, row).value for task, row in self._loop.task_index.tasks.items())),
        )

    async def change_settings(self, settings: Mapping[str, float]) -> None:
        """Change settings of the scheduler, as `SchedulerSettings.changed` does."""
        await self._ready
        self._state.settings.changed(settings)  # Raises for invalid settings before anything is journaled.
        self._loop.send(SettingsChanged(at_ms=self._clock.now_ms(), settings=dict(settings)))

    async def configure_label(self, event: LabelConfigured) -> None:
        """Configure the order and scoring of one label's queue; `at_ms` is set here."""
        await self._ready
        self._loop.send(
            LabelConfigured(
                at_ms=self._clock.now_ms(),
                label=event.label,
                priority=event.priority,
                aging_per_s=event.aging_per_s,
                weights=event.weights,
                policy=event.policy,
            )
        )

    async def metric_values(self) -> MetricValues:
        await self._ready
        return self._observer.metric_values(self._state, self._clock.now_ms())

    async def metrics_history(self) -> list[MetricValues]:
        """Return the metrics per metrics period, for the last two hours at most; the last entry is current."""
        await self._ready
        return [*self._observer.history(), self._observer.metric_values(self._state, self._clock.now_ms())]

    async def recent_events(self) -> list[MeshEvent]:
        """Return the events for operators, oldest first."""
        await self._ready
        return self._observer.recent_events()

    async def audit(self) -> MeshAudit:
        """Audit all ledgers against each other and against Ray."""
        await self._ready
        return await audit(self._state, self._loop.task_index, self._driver, self._agents, self._groups)


#: The actor class. Typed as Any: Ray's types know no actor that is made by a call.
Supervisor: Any = ray.remote(num_cpus=0, max_restarts=-1, max_concurrency=CALLS_MAX)(MeshSupervisor)  # type: ignore[call-overload]  # as above
