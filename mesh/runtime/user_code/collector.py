"""The garbage collector of a mesh: it removes what the code of a stage has created in Ray when the stage is over."""

from __future__ import annotations

from collections.abc import Collection

import ray
import structlog

from mesh.ids import MeshId, StageId
from mesh.runtime.user_code import ray_tables
from mesh.runtime.user_code.dependents import dependents
from mesh.runtime.user_code.ownership import forget, references

log = structlog.get_logger(__name__)

REMEDY = "it is tried again with the next heartbeat; look whether the head of the Ray cluster answers"


class GarbageCollector:
    """Of one mesh, for the process that orders its stages. Level-triggered: each call looks at all that is noted.

    Args:
        mesh: Its `standing_name`.
        own: What the names of the mesh's own actors begin with.
    """

    def __init__(self, mesh: MeshId, own: tuple[str, ...]) -> None:
        self._mesh = mesh
        self._own = own
        self.is_due = False  #: The last call failed.

    def collect(self, running: Collection[StageId], given_back: Collection[str] = ()) -> bool:
        """Remove what stages that do not run have created.

        Args:
            running: Stages that are not over.
            given_back: Placement groups of stages that have just ended, by Ray's ids.

        Returns:
            Whether such a stage had created anything, or that could not be seen: then none of its placement groups is clean.
        """
        try:
            had_left = self._collect(running, given_back)
        except Exception as away:  # noqa: BLE001  Ray has many ways to say that its control service is away
            self.is_due = True
            log.warning("what stages have left in Ray could not be removed", mesh=self._mesh, error=str(away), remedy=REMEDY)
            return True
        self.is_due = False
        return had_left

    def _collect(self, running: Collection[StageId], given_back: Collection[str]) -> bool:
        noted = references(self._mesh)
        ended = {one.stage for one in noted if one.stage not in running}
        if not ended:
            return False
        left = dependents(
            noted,
            running=running,
            actors=[actor for actor in ray_tables.actors() if not (actor.is_detached and actor.name.startswith(self._own))],
            groups=ray_tables.groups(),
            given_back=given_back,
            driver=ray.get_runtime_context().get_worker_id(),
        )
        if left.actors or left.groups:
            log.info(
                "what stages have left in Ray is removed",
                mesh=self._mesh,
                stages=sorted(ended),
                actors=sorted(left.actors),
                placement_groups=sorted(left.groups),
            )
        ray_tables.kill_actors(left.actors)
        ray_tables.remove_groups(left.groups)
        for stage in ended:
            forget(self._mesh, stage)
        return True
