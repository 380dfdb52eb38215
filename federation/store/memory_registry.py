"""The registry of meshes in memory, for tests, simulation and a federation of one process."""

import threading
from dataclasses import replace

from federation.registry import Note, Standings
from federation.standing import NEWCOMER, Drain, Standing
from mesh.ids import MeshId


class MemoryRegistry:
    """`MeshRegistry` in this process; safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._standings = Standings()

    def drain(self, mesh: MeshId, drain: Drain) -> None:
        """See `MeshRegistry.drain`."""
        with self._lock:
            self._put(mesh, replace(self._of(mesh), drain=drain))

    def undrain(self, mesh: MeshId) -> bool:
        """See `MeshRegistry.undrain`."""
        with self._lock:
            kept = self._of(mesh)
            if kept.drain is None:
                return False
            self._put(mesh, replace(kept, drain=None))
            return True

    def standings(self) -> Standings:
        """See `MeshRegistry.standings`."""
        with self._lock:
            known = {mesh: kept for mesh, kept in self._standings.meshes.items() if kept != NEWCOMER}
            return replace(self._standings, meshes=known)

    def note(self, note: Note, version: int) -> bool:
        """See `MeshRegistry.note`."""
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
