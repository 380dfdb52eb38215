"""The registry of meshes in memory, for tests, simulations and a federation in one process."""

import threading
from collections.abc import Mapping
from dataclasses import replace

from federation.mesh_conditions import NEWCOMER, Drain, MeshCondition
from federation.registry import MeshConditions, RegistryNote
from mesh.core.ids import MeshId
from mesh.stages.stage_settings import StageSettings


class MemoryRegistry:
    """`MeshRegistry` in this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conditions = MeshConditions()

    def drain(self, mesh: MeshId, drain: Drain) -> None:
        with self._lock:
            self._put(mesh, replace(self._of(mesh), drain=drain))

    def undrain(self, mesh: MeshId) -> bool:
        with self._lock:
            kept = self._of(mesh)
            if kept.drain is None:
                return False
            self._put(mesh, replace(kept, drain=None))
            return True

    def publish_settings(self, settings: Mapping[MeshId, StageSettings]) -> None:
        with self._lock:
            for mesh in self._conditions.meshes.keys() | settings.keys():
                self._put(mesh, replace(self._of(mesh), settings=settings.get(mesh)))

    def settings_of(self, mesh: MeshId) -> StageSettings | None:
        with self._lock:
            return self._of(mesh).settings

    def conditions(self) -> MeshConditions:
        with self._lock:
            known = {mesh: kept for mesh, kept in self._conditions.meshes.items() if kept != NEWCOMER}
            return replace(self._conditions, meshes=known)

    def note(self, note: RegistryNote, version: int) -> bool:
        with self._lock:
            if self._conditions.version != version:
                return False
            for mesh, flap_history in note.flap_history.items():
                self._put(mesh, replace(self._of(mesh), flap_history=flap_history))
            for mesh, pace in note.paces.items():
                self._put(mesh, replace(self._of(mesh), pace=pace))
            stage_metrics = note.stage_metrics or self._conditions.stage_metrics
            self._conditions = replace(self._conditions, watched_ms=note.watched_ms, version=version + 1, stage_metrics=stage_metrics)
            return True

    def _of(self, mesh: MeshId) -> MeshCondition:
        return self._conditions.meshes.get(mesh, NEWCOMER)

    def _put(self, mesh: MeshId, condition: MeshCondition) -> None:
        self._conditions = replace(self._conditions, meshes={**self._conditions.meshes, mesh: condition})
