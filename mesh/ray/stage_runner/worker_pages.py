"""Pages of workers, read and written by the runner: directly on its own machine, through the node's guard elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import structlog

from mesh.core.ids import MeshId
from mesh.ray.stage_runner.node_guards import guard_name
from mesh.ray.worker import page
from mesh.ray.worker.chunk_calls import WorkerSite

log = structlog.get_logger(__name__)

#: Longest wait for a guard; seconds.
GUARD_S_MAX = 5.0
GONE = "a worker's page cannot be reached: it is killed after the grace period"


class WorkerPages:
    """Pages of the workers of one mesh.

    Args:
        guard_of: Returns the guard of a node of the mesh, by Ray's id. Default: the one that Ray knows by name.
    """

    def __init__(self, guard_of: Callable[[MeshId, str], Any] | None = None) -> None:
        self._guard_of = guard_of or (lambda mesh, node: ray.get_actor(guard_name(mesh, node)))
        self._mesh = MeshId("")

    def bind(self, mesh: MeshId) -> None:
        """Set the mesh of the guards."""
        self._mesh = mesh

    def ask_to_stop(self, site: WorkerSite, chunk: int) -> None:
        """Ask the worker to stop the chunk. Returns at once; harmless when the chunk has ended."""
        if not page.ask_to_stop(Path(site.page), chunk):
            threading.Thread(target=self._ask_elsewhere, args=(site, chunk), name="stop", daemon=True).start()

    def culprit(self, site: WorkerSite) -> tuple[int, int] | None:
        """Return the chunk and the task that a dead worker ran last; None: it cannot be told. May wait for a guard."""
        path = Path(site.page)
        if path.exists():
            return page.culprit(path)
        try:
            found: tuple[int, int] | None = ray.get(self._guard_of(self._mesh, site.node).culprit.remote(site.page), timeout=GUARD_S_MAX)
        except Exception as away:  # noqa: BLE001  the node may be gone with its guard, and Ray raises many errors then
            log.info("the page of a dead worker cannot be read", node=site.node, error=str(away).partition("\n")[0])
            return None
        return found

    def _ask_elsewhere(self, site: WorkerSite, chunk: int) -> None:
        try:
            ray.get(self._guard_of(self._mesh, site.node).ask_to_stop.remote(site.page, chunk), timeout=GUARD_S_MAX)
        except Exception as away:  # noqa: BLE001  as above
            log.warning(GONE, node=site.node, error=str(away).partition("\n")[0])
