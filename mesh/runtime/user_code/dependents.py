"""What the code of ended stages has left in Ray, told from what others own. Pure.

Whatever has an owner reference goes with its stage. So does what an actor that goes has created, and all actors in a placement group
that goes. What nobody noted (a task below a node created it, or the process was killed before it could) may belong to any stage that
had begun to create things by then: it goes when all of these have ended. Nothing goes that a stage which runs may own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mesh.ids import StageId
from mesh.runtime.user_code.ownership import Kind, OwnerReference
from mesh.runtime.user_code.ray_tables import ActorRow, GroupRow

#: How far the clocks of two nodes may be apart; milliseconds.
SKEW_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependents:
    """What has to go, by Ray's ids: actors first."""

    actors: frozenset[str]
    groups: frozenset[str]


def dependents(
    noted: Sequence[OwnerReference],
    *,
    running: Collection[StageId],
    actors: Sequence[ActorRow],
    groups: Sequence[GroupRow],
    given_back: Collection[str],
    driver: str,
) -> Dependents:
    """What belongs to stages that do not run.

    Args:
        noted: Of one mesh, all of it.
        running: Stages that are not over.
        given_back: Placement groups of stages that have just ended; they themselves are the mesh's.
        actors: But for the mesh's own detached ones.
        driver: The worker whose actors are the mesh's own.
    """
    ended = [one for one in noted if one.stage not in running]
    references = {one.id for one in noted}
    # A handle can be of an actor that was there already (`get_if_exists`): it belongs to the process that has created it.
    noted_actors = {(one.id, one.worker) for one in ended if one.kind is Kind.ACTOR}
    doomed = {actor.id for actor in actors if (actor.id, actor.owner) in noted_actors}
    going = {one.id for one in ended if one.kind is Kind.GROUP} & {group.id for group in groups}
    processes = {actor.worker for actor in actors if actor.worker}
    doomed |= {
        actor.id
        for actor in actors
        if actor.id not in references
        and actor.owner not in processes
        and actor.owner != driver
        and _has_no_owner(actor.job, actor.created_ms, noted, running)
    }
    going |= {
        group.id
        for group in groups
        if group.id not in references and not group.creator and _has_no_owner(group.job, group.created_ms, noted, running)
    }
    return _with_descendants(doomed, going, actors, groups, given_back)


def _has_no_owner(job: str, created_ms: int, noted: Iterable[OwnerReference], running: Collection[StageId]) -> bool:
    """All stages that may have created it are over, and there was one at least. What is not up yet may be the latest one's."""
    candidates = [
        one
        for one in noted
        if one.kind is Kind.STAGE and one.job == job and one.at_ms > 0 and (created_ms == 0 or one.at_ms <= created_ms + SKEW_MS)
    ]
    return bool(candidates) and all(one.stage not in running for one in candidates)


def _with_descendants(
    doomed: set[str], going: set[str], actors: Sequence[ActorRow], groups: Sequence[GroupRow], given_back: Collection[str]
) -> Dependents:
    while True:
        processes = {actor.worker for actor in actors if actor.id in doomed and actor.worker}
        more_actors = {actor.id for actor in actors if actor.owner in processes or actor.group in going or actor.group in given_back}
        more_groups = {group.id for group in groups if group.creator in doomed}
        if more_actors <= doomed and more_groups <= going:
            return Dependents(actors=frozenset(doomed), groups=frozenset(going))
        doomed |= more_actors
        going |= more_groups
