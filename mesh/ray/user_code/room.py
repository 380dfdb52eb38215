"""Detection of stage placement groups that Ray has placed, or placed and lost a node of, and of the holders of what others wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import structlog

from mesh.core.ids import StageId
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow, in_words

log = structlog.get_logger(__name__)

#: Pause between two looks at Ray's tables, at first and at most; it doubles. A waiting group is reported at the longest pause; seconds.
FIRST_LOOK_S, LOOK_S = 0.02, 1.0
_HOLDERS_NAMED = 5


def why_not_placed(group: str, groups: Sequence[GroupRow], actors: Sequence[ActorRow]) -> str | None:
    """Describe the resources that the group waits for and their holders. None: the group is placed, or gone.

    Tasks outside placement groups are in none of Ray's tables, so the description does not name them.
    """
    wanted = next((row for row in groups if row.id == group and not row.is_placed), None)
    if wanted is None:
        return None
    holders = sorted(_holders(wanted, groups, actors), key=lambda holder: -holder[0])
    named = [words for _, words in holders[:_HOLDERS_NAMED]]
    if len(holders) > _HOLDERS_NAMED:
        named.append(f"{len(holders) - _HOLDERS_NAMED} more")
    held = f"; held: {', '.join(named)}" if named else "; no actor and no placement group holds it"
    return f"Ray has no room for its placement group of {in_words(wanted.amounts)}{held}"


def _holders(wanted: GroupRow, groups: Sequence[GroupRow], actors: Sequence[ActorRow]) -> Iterator[tuple[float, str]]:
    """Yield how much of the wanted resources each holder has, and the same in words."""
    by_id = {actor.id: actor for actor in actors}
    for group in groups:
        if group.is_placed and (held := _shared(wanted.amounts, group.amounts)):
            creator = by_id.get(group.creator)
            of = f"of actor {_name(creator.name or creator.class_name, creator.id)}" if creator is not None else f"of job {group.job}"
            yield sum(held.values()), f"{in_words(held)} by placement group {_name(group.name, group.id)} {of}"
    for actor in actors:
        if held := _shared(wanted.amounts, actor.amounts):
            yield sum(held.values()), f"{in_words(held)} by actor {_name(actor.name or actor.class_name, actor.id)} of job {actor.job}"


def _shared(wanted: dict[str, float], held: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in held.items() if amount and name in wanted}


def _name(name: str, hex_id: str) -> str:
    return f"{name} ({hex_id[:8]})" if name else hex_id[:8]


class RoomWatch:
    """Reports placement groups that Ray has placed, and stages none of whose groups is placed. Safe to use from several threads.

    Args:
        waits: Called from a thread of the watch with a waiting stage and the description, whenever the description changes.
        placed: Called from a thread of the watch with a stage and a placed group of it, by Ray's id.
        broken: Called from a thread of the watch with a stage of which a gang has lost a node.
    """

    def __init__(
        self, waits: Callable[[StageId, str], None], placed: Callable[[StageId, str], None], broken: Callable[[StageId], None]
    ) -> None:
        self._waits = waits
        self._placed = placed
        self._broken = broken
        #: Groups that must stay whole: the nodes of their bundles at the last look. (): placed, on unknown nodes; None: not placed.
        self._gangs: dict[StageId, dict[str, tuple[str, ...] | None]] = {}
        self._groups: dict[StageId, dict[str, None]] = {}  #: Groups that are not placed.
        self._silent: set[StageId] = set()  #: Stages with a placed group: they can begin.
        self._reported: dict[StageId, str] = {}
        self._guard = threading.Lock()
        self._added = threading.Event()  #: A group was added: look soon.
        self._looks = False

    def add(self, stage: StageId, groups: Collection[str], *, can_begin: bool, gangs: Collection[str] = ()) -> None:
        """Watch groups of the stage until they are placed.

        Args:
            groups: Ray's ids.
            can_begin: Another group of the stage is known to be placed.
            gangs: Groups of the stage that are watched until it ends: Ray takes a group apart when one of its nodes is lost, and may
                have placed the lost bundles anew before the next look.
        """
        with self._guard:
            if can_begin:
                self._silent.add(stage)
            if not groups and not gangs:
                return
            self._groups.setdefault(stage, {}).update(dict.fromkeys(groups))
            if gangs:
                self._gangs.setdefault(stage, {}).update({group: None if group in groups else () for group in gangs})
            self._added.set()
            if not self._looks:
                self._looks = True
                threading.Thread(target=self._look_on, name="room", daemon=True).start()

    def drop(self, stage: StageId) -> None:
        """Stop watching the stage: it has ended. Harmless when repeated."""
        with self._guard:
            self._groups.pop(stage, None)
            self._gangs.pop(stage, None)
            self._reported.pop(stage, None)
            self._silent.discard(stage)

    def _look_on(self) -> None:
        pause_s = FIRST_LOOK_S
        while True:
            if self._added.wait(pause_s):
                pause_s = FIRST_LOOK_S
                self._added.clear()
                threading.Event().wait(pause_s)  # Ray takes some milliseconds to place a group.
            with self._guard:
                watched = {stage: tuple(groups) for stage, groups in self._groups.items() if groups}
                if not watched and not self._gangs:
                    self._looks = False
                    return
            try:
                self._look(watched, ray_tables.groups(), is_late=pause_s >= LOOK_S)
            except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
                log.warning("Ray does not list its placement groups", error=str(away))
            pause_s = min(LOOK_S, 2 * pause_s)

    def _look(self, watched: Mapping[StageId, Sequence[str]], groups: Sequence[GroupRow], *, is_late: bool) -> None:
        placed = {row.id: row.is_placed for row in groups}
        for stage in self._take_broken({row.id: row.nodes if row.is_placed else None for row in groups}):
            self._broken(stage)
        for stage, group in [(stage, group) for stage, its_groups in watched.items() for group in its_groups]:
            if placed.get(group) is False:
                continue
            with self._guard:
                if self._groups.get(stage, {}).pop(group, self) is self:
                    continue  # The stage has ended since.
                self._silent.add(stage)
            if group in placed:  # Else it is removed, and must get no task.
                self._placed(stage, group)
        late = [stage for stage in watched if is_late and stage not in self._silent]
        actors = ray_tables.actors() if late else []
        for stage in late:
            words = why_not_placed(watched[stage][0], groups, actors)
            with self._guard:
                if words is None or stage not in self._groups or self._reported.get(stage) == words:
                    continue
                self._reported[stage] = words
            self._waits(stage, words)

    def _take_broken(self, nodes: Mapping[str, tuple[str, ...] | None]) -> list[StageId]:
        """Return the stages with a gang that was placed and has lost a node, once. A removed group is reported by its tasks."""
        with self._guard:
            broken = [
                stage
                for stage, gangs in self._gangs.items()
                if any(group in nodes and _has_moved(before, nodes[group]) for group, before in gangs.items())
            ]
            for stage in broken:
                del self._gangs[stage]
            for gangs in self._gangs.values():
                gangs.update({group: nodes.get(group) for group in gangs})
        return broken


def _has_moved(before: tuple[str, ...] | None, now: tuple[str, ...] | None) -> bool:
    """Return whether a group has lost a bundle since it was placed: Ray has not placed it again, or has placed it on another node."""
    return before is not None and (now is None or before not in ((), now))
