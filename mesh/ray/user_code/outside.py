"""Work that a stage's code holds in Ray outside the stage's placement group: no lease pays for it.

Two guards, since neither sees everything. The worker of a node refuses such a call before Ray carries it out (`ownership`). Tasks and
actors below a node run in processes without that guard: there `OutsideLook` finds the work at each heartbeat, and ends it.

All Ray work of the mesh's jobs belongs to stages or to the mesh itself. So work that holds resources outside the mesh's own groups is
unpaid, whichever stage created it; the stage is needed only to report it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from mesh.core.ids import MeshId, NodeId, StageId
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.dependents import SKEW_MS
from mesh.ray.user_code.ownership import NO_NODE, OwnerReference, ResourceKind, outside_words, references
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow, TaskRow
from mesh.ray.user_code.sweep import OwnActors

log = structlog.get_logger(__name__)

Above = tuple[StageId, NodeId]
#: Called with the stage, the node and the words about its work outside; returns when the node is about to fail.
Evict = Callable[[StageId, NodeId, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Work outside its stage's placement group."""

    kind: str  #: `task`, `actor` or `placement group`.
    name: str
    amounts: Mapping[str, float]  #: By Ray's names.
    above: Above | None  #: Stage and node whose code created it; None: it is unknown.

    @property
    def words(self) -> str:
        """Message about the work: its name, amounts and the remedy."""
        return outside_words(self.kind, self.name, self.above[1] if self.above else NO_NODE, self.amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Work to end, by Ray's ids: tasks before actors, actors before groups."""

    held: tuple[Held, ...]
    parents: frozenset[tuple[str, str]]  #: For each task: the process that owns it, and the task that started it.
    actors: frozenset[str]
    groups: frozenset[str]


def outside(
    noted: Sequence[OwnerReference],
    *,
    running: Collection[StageId],
    actors: Sequence[ActorRow],
    groups: Sequence[GroupRow],
    tasks: Sequence[TaskRow],
    own: OwnActors,
) -> Outside:
    """Return the work of stages that holds resources outside the placement groups of the mesh. Pure.

    Args:
        noted: All records of one mesh. Their jobs are those of the mesh: without a record, no stage has created anything.
        running: Stages that have not ended.
        own: The mesh's own actors and processes; they create placement groups for stages, and hold nothing else.
    """
    creators = _Creators(noted, running, actors, tasks)
    jobs = {one.job for one in noted}
    left = [group for group in groups if group.job in jobs and group.creator not in own.actors and creators.may_have_made(group)]
    going = {group.id for group in left}
    held = [
        Held(kind="placement group", name=group.name or group.id[:8], amounts=group.amounts, above=creators.of_group(group))
        for group in left
    ]
    ends_actors: set[str] = set()
    parents: set[tuple[str, str]] = set()
    for actor in actors:
        if (
            actor.job in jobs
            and actor.id not in own.actors
            and actor.owner not in own.processes
            and (actor.amounts or actor.group in going)
        ):
            ends_actors.add(actor.id)
            if actor.amounts:
                name = f"{actor.name or actor.class_name} ({actor.id[:8]})"
                held.append(Held(kind="actor", name=name, amounts=actor.amounts, above=creators.of_actor(actor)))
    for task in tasks:
        if task.job in jobs and task.owner not in own.processes and (task.amounts or task.group in going):
            parents.add((task.owner, task.parent))
            if task.amounts:
                held.append(Held(kind="task", name=task.name, amounts=task.amounts, above=creators.of_task(task)))
    return Outside(held=tuple(held), parents=frozenset(parents), actors=frozenset(ends_actors), groups=frozenset(going))


class _Creators:
    """Finds the nodes above tasks, actors and groups: by records, else through tasks and actors that exist, else the only candidate.

    A node is named only when no other can be meant, since the node is failed.
    """

    def __init__(
        self, noted: Sequence[OwnerReference], running: Collection[StageId], actors: Sequence[ActorRow], tasks: Sequence[TaskRow]
    ) -> None:
        self._noted: dict[str, list[OwnerReference]] = {}
        for one in noted:
            self._noted.setdefault(one.id, []).append(one)
        self._marks = [one for one in noted if one.kind is ResourceKind.STAGE]
        self._running = running
        self._actors = {actor.id: actor for actor in actors}
        self._by_process = {actor.worker: actor for actor in actors if actor.worker}
        self._tasks = {task.id: task for task in tasks}

    def may_have_made(self, group: GroupRow) -> bool:
        """Return whether a stage may have created the group. Ray itself removes the groups of an actor that is dead.

        The driver of a mesh creates no group, unless a program shares its process.
        """
        if group.creator:
            return group.creator in self._actors
        return group.id in self._noted or bool(self._candidates(group.job, group.created_ms))

    def of_group(self, group: GroupRow) -> Above | None:
        if group.id not in self._noted and group.creator in self._actors:
            return self.of_actor(self._actors[group.creator])
        return self._only(self._noted.get(group.id) or self._candidates(group.job, group.created_ms))

    def of_actor(self, actor: ActorRow) -> Above | None:
        above, seen = actor, {actor.id}
        while not self._creations_of(above) and (owner := self._by_process.get(above.owner)) is not None and owner.id not in seen:
            above = owner
            seen.add(above.id)
        return self._only(self._creations_of(above) or self._candidates(actor.job, actor.created_ms))

    def of_task(self, task: TaskRow) -> Above | None:
        above = task
        while above.parent not in self._noted and above.parent in self._tasks:
            above = self._tasks[above.parent]
        if above.parent not in self._noted and (actor := self._by_process.get(above.owner)) is not None:
            return self.of_actor(actor)
        return self._only(self._noted.get(above.parent) or self._candidates(task.job, 0))

    def _creations_of(self, actor: ActorRow) -> list[OwnerReference]:
        """Return the records of the actor's creation; a record by another process is of a handle to an actor that existed before."""
        return [one for one in self._noted.get(actor.id, ()) if one.worker == actor.owner]

    def _candidates(self, job: str, created_ms: int) -> list[OwnerReference]:
        return [one for one in self._marks if one.job == job and (created_ms == 0 or one.at_ms <= created_ms + SKEW_MS)]

    def _only(self, found: Sequence[OwnerReference]) -> Above | None:
        nodes = {(one.stage, one.node) for one in found if one.stage in self._running and one.node}
        return nodes.pop() if len(nodes) == 1 else None


class OutsideLook:
    """Finds and ends work outside the placement groups of one mesh. Costs one read of a key range while no stage's code calls Ray.

    Args:
        mesh: Its `detached_name`.
        own: Name prefixes of the own actors of all meshes: several meshes of one process share a job.
    """

    def __init__(self, mesh: MeshId, own: tuple[str, ...]) -> None:
        self._mesh = mesh
        self._own = own

    def __call__(self, running: Callable[[], Collection[StageId] | None], evict: Evict) -> None:
        """Fail the nodes that are above such work, then end the work.

        Args:
            running: Returns the stages that have not ended. None: these are not known yet, and nothing is ended.

        Raises:
            Exception: Ray's control service is away; Ray raises many different errors for it.
        """
        noted = references(self._mesh)
        not_ended = running() if noted else None
        if not_ended is None:
            return
        groups, tasks = ray_tables.groups(), ray_tables.tasks().rows
        actors = ray_tables.actors()  # After the groups: a keeper that is new has none in the list above.
        own = OwnActors.among(actors, self._own)
        actors, groups = own.seen_without_workers(actors, groups)
        found = outside(noted, running=not_ended, actors=actors, groups=groups, tasks=tasks, own=own)
        for held in found.held:
            log.warning(
                "work outside of its stage's placement group is ended",
                mesh=self._mesh,
                stage=held.above[0] if held.above else None,
                why=held.words,
            )
        for (stage, node), words in _by_node(found.held).items():
            evict(stage, node, words)
        ray_tables.cancel_children(found.parents)
        ray_tables.kill_actors(found.actors)
        ray_tables.remove_groups(found.groups)


def _by_node(held: Sequence[Held]) -> dict[Above, str]:
    """Return the words for each node: those about its first work, and how much more there is."""
    found: dict[Above, list[Held]] = {}
    for one in held:
        if one.above is not None:
            found.setdefault(one.above, []).append(one)
    return {key: works[0].words + (f" (and {len(works) - 1} more such)" if len(works) > 1 else "") for key, works in found.items()}


class OutsideWatch:
    """Calls a look on a thread of its own, since some of Ray's calls have no time limit. Safe to use from several threads."""

    def __init__(self, mesh: MeshId, look: Callable[[], None]) -> None:
        self._mesh = mesh
        self._look_once = look
        self._asked = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="outside", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Request a look; requests during a look are one request."""
        self._asked.set()

    def close(self, wait_s: float) -> None:
        """End the thread. Wait at most `wait_s` seconds."""
        self._is_closed = True
        self._asked.set()
        self._thread.join(wait_s)

    def _work(self) -> None:
        while self._asked.wait() and not self._is_closed:
            self._asked.clear()
            try:
                self._look_once()
            except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
                log.warning("Ray could not be searched for work outside of placement groups", mesh=self._mesh, error=str(away))
