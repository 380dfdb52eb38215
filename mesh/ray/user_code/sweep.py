"""One pass over all Ray resources that stages' code has created; it removes the resources of ended stages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import ray
import structlog

from mesh.core.ids import MeshId, StageId
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.dependents import dependents
from mesh.ray.user_code.ownership import forget, references
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow

log = structlog.get_logger(__name__)


class Swept(Enum):
    """Result of a sweep."""

    CLEAN = "clean"  #: No ended stage had created anything.
    REMOVED = "removed"  #: All resources of ended stages are removed, or nothing may be removed yet.
    LEFT = "left"  #: Resources may be left: sweep again.


@dataclass(frozen=True, slots=True)
class OwnActors:
    """The mesh's own actors, and its processes with this one, by Ray's ids."""

    actors: frozenset[str]
    processes: frozenset[str]
    workers: frozenset[str] = frozenset()  #: Workers of its runners, which run the code of stages.

    @classmethod
    def among(cls, rows: Sequence[ActorRow], prefixes: tuple[str, ...]) -> OwnActors:
        """Return those of the rows whose names begin with one of the prefixes."""
        own = [row for row in rows if row.is_detached and row.name.startswith(prefixes)]
        here = ray.get_runtime_context().get_worker_id()
        processes = {row.worker for row in own if row.worker}
        workers = frozenset(row.id for row in rows if row.owner in processes)
        return cls(frozenset(row.id for row in own), frozenset({here, *processes}), workers)

    def seen_without_workers(self, actors: Iterable[ActorRow], groups: Iterable[GroupRow]) -> tuple[list[ActorRow], list[GroupRow]]:
        """Return the rows as if nodes ran in tasks and not in workers: what a node creates is the node's, not its worker's."""
        kept = [actor for actor in actors if actor.id not in self.workers]
        return kept, [replace(group, creator="") if group.creator in self.workers else group for group in groups]


class Sweep:
    """Removes the Ray resources of ended stages of one mesh. Level-triggered: each call reads all records.

    Args:
        mesh: Its `detached_name`.
        own: Name prefixes of the mesh's own actors.
    """

    def __init__(self, mesh: MeshId, own: tuple[str, ...]) -> None:
        self._mesh = mesh
        self._own = own

    def __call__(self, given_back: Collection[str], running: Callable[[], Collection[StageId] | None]) -> Swept:
        """Remove the resources that ended stages have created.

        Args:
            given_back: Placement groups of stages that have just ended, by Ray's ids.
            running: Returns the stages that have not ended. None: these are not known yet, and nothing may be removed.

        Raises:
            Exception: Ray's control service is away; Ray raises many different errors for it.
        """
        known = {one.stage for one in references(self._mesh)}
        not_ended = running()
        if not_ended is None:
            return Swept.REMOVED
        ended = known.difference(not_ended)
        if not ended:
            return Swept.CLEAN
        noted = references(self._mesh)  # Again: a stage may have recorded more, and ended, since the first look.
        table, actors = ray_tables.tasks(), ray_tables.actors()
        own = OwnActors.among(actors, self._own)
        others, groups = own.seen_without_workers(actors, ray_tables.groups())
        left = dependents(
            noted,
            running={one.stage for one in noted} - ended,
            actors=[actor for actor in others if actor.id not in own.actors],
            groups=groups,
            tasks=table.rows,
            given_back=given_back,
            own=own.processes,
        )
        if left.parents or left.actors or left.groups:
            log.info(
                "removing resources that ended stages left in Ray",
                mesh=self._mesh,
                stages=sorted(ended),
                tasks_of=sorted(parent for _, parent in left.parents),
                actors=sorted(left.actors),
                placement_groups=sorted(left.groups),
            )
        ray_tables.cancel_children(left.parents)
        ray_tables.kill_actors(left.actors)
        ray_tables.remove_groups(left.groups)
        if left.parents or not table.is_whole:  # Tasks are known to have ended when their owners no longer list them.
            return Swept.LEFT
        for stage in ended:
            forget(self._mesh, stage)
        return Swept.REMOVED
