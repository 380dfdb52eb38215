"""Ray resources that belong to ended stages. Pure.

A resource with an owner reference is removed with its stage. An actor is removed with the resources that it created; a placement group
with all its actors; a task with the task that started it. A resource without a record (a task below a node created it, or the process
was killed before it wrote the record) may belong to any stage that had begun to create resources by then. Such a resource is removed
when all these stages have ended. Resources that a running stage may own are never removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mesh.core.ids import StageId
from mesh.ray.user_code.ownership import OwnerReference, ResourceKind
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow, TaskRow

#: Largest assumed clock difference between two nodes; milliseconds.
SKEW_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependents:
    """Resources to remove, by Ray's ids: tasks before actors, actors before groups."""

    parents: frozenset[tuple[str, str]]  #: For each task: the process that owns it, and the task that started it.
    actors: frozenset[str]
    groups: frozenset[str]


def dependents(
    noted: Sequence[OwnerReference],
    *,
    running: Collection[StageId],
    actors: Sequence[ActorRow],
    groups: Sequence[GroupRow],
    tasks: Sequence[TaskRow],
    given_back: Collection[str],
    own: Collection[str],
) -> Dependents:
    """Return the resources of stages that do not run.

    Args:
        noted: All records of one mesh.
        running: Stages that have not ended.
        given_back: Placement groups of stages that have just ended; the groups themselves belong to the mesh.
        actors: All but the mesh's own detached actors.
        own: Processes of the mesh; resources that they created belong to the mesh.
    """
    ended = [one for one in noted if one.stage not in running]
    references = {one.id for one in noted}
    # A handle may refer to an actor that existed before (`get_if_exists`): such an actor belongs to the process that created it.
    noted_actors = {(one.id, one.worker) for one in ended if one.kind is ResourceKind.ACTOR}
    unschedulable = {actor.id for actor in actors if (actor.id, actor.owner) in noted_actors}
    going = {one.id for one in ended if one.kind is ResourceKind.GROUP} & {group.id for group in groups}
    processes = {actor.worker for actor in actors if actor.worker}
    unschedulable |= {
        actor.id
        for actor in actors
        if actor.id not in references
        and actor.owner not in processes
        and actor.owner not in own
        and _has_no_owner(actor.job, actor.created_ms, noted, running)
    }
    going |= {
        group.id
        for group in groups
        if group.id not in references and not group.creator and _has_no_owner(group.job, group.created_ms, noted, running)
    }
    unschedulable, going = _with_descendants(unschedulable, going, actors, groups, given_back)
    parents = _parents(tasks, {*processes, *own}, noted, running)
    return Dependents(parents=parents, actors=frozenset(unschedulable), groups=frozenset(going))


def _parents(
    tasks: Sequence[TaskRow], others: Collection[str], noted: Sequence[OwnerReference], running: Collection[StageId]
) -> frozenset[tuple[str, str]]:
    """Return the parents of tasks to cancel, but for tasks that are removed with their parent.

    Ray does not say when a task was started, so a task without a record may belong to the latest stage.

    Args:
        others: Processes of the mesh and of actors; their tasks belong to them.
    """
    stages: dict[str, set[StageId]] = {}
    for one in noted:
        if one.kind is ResourceKind.STAGE:
            stages.setdefault(one.id, set()).add(one.stage)
    are_left = {task.id for task in tasks}

    def goes(task: TaskRow) -> bool:
        if task.parent in stages:
            return stages[task.parent].isdisjoint(running)
        return task.parent not in are_left and _has_no_owner(task.job, 0, noted, running)

    return frozenset((task.owner, task.parent) for task in tasks if task.owner not in others and goes(task))


def _has_no_owner(job: str, created_ms: int, noted: Iterable[OwnerReference], running: Collection[StageId]) -> bool:
    """Return whether all stages that may have created the resource have ended, and there was at least one.

    `created_ms` 0: the resource is not up yet, so the latest stage may own it.
    """
    candidates = [
        one
        for one in noted
        if one.kind is ResourceKind.STAGE and one.job == job and one.at_ms > 0 and (created_ms == 0 or one.at_ms <= created_ms + SKEW_MS)
    ]
    return bool(candidates) and all(one.stage not in running for one in candidates)


def _with_descendants(
    unschedulable: set[str], going: set[str], actors: Sequence[ActorRow], groups: Sequence[GroupRow], given_back: Collection[str]
) -> tuple[set[str], set[str]]:
    while True:
        processes = {actor.worker for actor in actors if actor.id in unschedulable and actor.worker}
        more_actors = {actor.id for actor in actors if actor.owner in processes or actor.group in going or actor.group in given_back}
        more_groups = {group.id for group in groups if group.creator in unschedulable}
        if more_actors <= unschedulable and more_groups <= going:
            return unschedulable, going
        unschedulable |= more_actors
        going |= more_groups
