"""What the code of ended stages has left in Ray, told from what others own. Pure.

Whatever has an owner reference goes with its stage. So does what an actor that goes has created, and all actors in a placement group
that goes. A task goes with the one that has started it. What nobody noted (a task below a node created it, or the process was killed
before it could) may belong to any stage that had begun to create things by then: it goes when all of these have ended. Nothing goes
that a stage which runs may own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mesh.ids import StageId
from mesh.runtime.user_code.ownership import OwnerReference, ResourceKind
from mesh.runtime.user_code.ray_tables import ActorRow, GroupRow, TaskRow

#: How far the clocks of two nodes may be apart; milliseconds.
SKEW_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependents:
    """What has to go, by Ray's ids: tasks before actors, and these before groups."""

    parents: frozenset[tuple[str, str]]  #: Of the tasks: the process that owns them, and the task that has started them.
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
    """What belongs to stages that do not run.

    Args:
        noted: Of one mesh, all of it.
        running: Stages that are not over.
        given_back: Placement groups of stages that have just ended; they themselves are the mesh's.
        actors: But for the mesh's own detached ones.
        own: Processes of the mesh: what they have created is its own.
    """
    ended = [one for one in noted if one.stage not in running]
    references = {one.id for one in noted}
    # A handle can be of an actor that was there already (`get_if_exists`): it belongs to the process that has created it.
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
    """Of tasks that go, but for what goes with its parent. When a task was started is not known, so it may be the latest stage's.

    Args:
        others: Processes of the mesh and of actors, whose tasks are theirs.
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
    """All stages that may have created it are over, and there was one at least. What is not up yet may be the latest one's."""
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
