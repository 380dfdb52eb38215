"""Answers the verbs about the mesh as a whole."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

from mesh.observability.metric_targets import MetricsSnapshot
from mesh.ray.local.status_values import MeshAudit, MeshEvent, MeshStatus
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.auditing import audit
from mesh.ray.local.supervisor.supervised_mesh import SupervisedMesh
from mesh.tasks.events import LabelConfigured, SettingsChanged


class MeshService:
    def __init__(self, mesh: SupervisedMesh) -> None:
        self._mesh = mesh
        self._loop = mesh.loop
        self._observer = mesh.observer

    async def status(self) -> MeshStatus:
        options, state, task_index = self._mesh.options, self._loop.state, self._loop.task_index
        return MeshStatus(
            mesh=options.mesh,
            namespace=options.namespace,
            state_dir=options.state_dir,
            pid=os.getpid(),
            incarnation=self._mesh.incarnation,
            version=state.version,
            metrics_port=self._observer.metrics_port,
            tasks=dict(Counter(views.state_of(state, task, row).value for task, row in task_index.tasks.items())),
        )

    async def change_settings(self, settings: Mapping[str, float]) -> None:
        self._loop.state.settings.changed(settings)  # Raises for invalid settings before anything is journaled.
        self._loop.send(SettingsChanged(at_ms=self._loop.clock.now_ms(), settings=dict(settings)))

    async def configure_label(self, event: LabelConfigured) -> None:
        self._loop.send(
            LabelConfigured(
                at_ms=self._loop.clock.now_ms(),
                label=event.label,
                priority=event.priority,
                aging_per_s=event.aging_per_s,
                weights=event.weights,
                policy=event.policy,
            )
        )

    async def metrics(self) -> MetricsSnapshot:
        return self._observer.metrics(self._loop.state, self._loop.clock.now_ms())

    async def metrics_history(self) -> list[MetricsSnapshot]:
        return [*self._observer.history(), await self.metrics()]

    async def recent_events(self) -> list[MeshEvent]:
        return self._observer.recent_events()

    async def audit(self) -> MeshAudit:
        mesh = self._mesh
        return await audit(self._loop.state, self._loop.task_index, mesh.driver, mesh.agents, mesh.groups)
