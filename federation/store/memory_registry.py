"""The registry of meshes in memory, for tests, simulations and a federation in one process."""

import threading
from dataclasses import replace

from federation.registry import RegistryNote, Standings
from federation.standing import NEWCOMER, Drain, Standing
from mesh.ids import MeshId


class MemoryRegistry:
    """`MeshRegistry` in this process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standings = Standings()

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

    def standings(self) -> Standings:
        with self._lock:
            known = {mesh: kept for mesh, kept in self._standings.meshes.items() if kept != NEWCOMER}
            return replace(self._standings, meshes=known)

    def note(self, note: RegistryNote, version: int) -> bool:
        with self._lock:
            if self._standings.version != version:
                return False
            for mesh, steadiness in note.steadiness.items():
                self._put(mesh, replace(self._of(mesh), steadiness=steadiness))
            for mesh, pace in note.paces.items():
                self._put(mesh, replace(self._of(mesh), pace=pace))
            self._standings = replace(self._standings, watched_ms=note.watched_ms, version=version + 1)
            return True

    def _of(self, mesh: MeshId) -> Standing:
        return self._standings.meshes.get(mesh, NEWCOMER)

    def _put(self, mesh: MeshId, standing: Standing) -> None:
        self._standings = replace(self._standings, meshes={**self._standings.meshes, mesh: standing})
