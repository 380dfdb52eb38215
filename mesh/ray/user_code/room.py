"""Detection of stage placement groups that Ray has not placed, and of the holders of the resources that they wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import structlog

from mesh.core.ids import StageId
from mesh.ray.user_code import ray_tables
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow

log = structlog.get_logger(__name__)

#: Pause between two looks at Ray's tables, and so the time before a waiting group is reported; seconds.
LOOK_S = 1.0
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
    return f"Ray has no room for its placement group of {_amounts(wanted.amounts)}{held}"


def _holders(wanted: GroupRow, groups: Sequence[GroupRow], actors: Sequence[ActorRow]) -> Iterator[tuple[float, str]]:
    """Yield how much of the wanted resources each holder has, and the same in words."""
    by_id = {actor.id: actor for actor in actors}
    for group in groups:
        if group.is_placed and (held := _shared(wanted.amounts, group.amounts)):
            creator = by_id.get(group.creator)
            of = f"of actor {_name(creator.name or creator.class_name, creator.id)}" if creator is not None else f"of job {group.job}"
            yield sum(held.values()), f"{_amounts(held)} by placement group {_name(group.name, group.id)} {of}"
    for actor in actors:
        if held := _shared(wanted.amounts, actor.amounts):
            yield sum(held.values()), f"{_amounts(held)} by actor {_name(actor.name or actor.class_name, actor.id)} of job {actor.job}"


def _shared(wanted: dict[str, float], held: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in held.items() if amount and name in wanted}


def _amounts(amounts: dict[str, float]) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in sorted(amounts.items()))


def _name(name: str, hex_id: str) -> str:
    return f"{name} ({hex_id[:8]})" if name else hex_id[:8]


class RoomWatch:
    """Reports stages whose placement groups are not placed. Safe to use from several threads.

    Args:
        send: Called from a thread of the watch with a waiting stage and the description, whenever the description changes.
    """

    def __init__(self, send: Callable[[StageId, str], None]) -> None:
        self._send = send
        self._groups: dict[StageId, str] = {}
        self._reported: dict[StageId, str] = {}
        self._guard = threading.Lock()
        self._looks = False

    def add(self, stage: StageId, group: str) -> None:
        """Watch the stage until its group is placed. `group`: Ray's id."""
        with self._guard:
            self._groups[stage] = group
            if not self._looks:
                self._looks = True
                threading.Thread(target=self._look_on, name="room", daemon=True).start()

    def drop(self, stage: StageId) -> None:
        """Stop watching the stage: it has begun or ended. Harmless when repeated."""
        with self._guard:
            self._groups.pop(stage, None)
            self._reported.pop(stage, None)

    def _look_on(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(LOOK_S)
            with self._guard:
                watched = dict(self._groups)
                if not watched:
                    self._looks = False
                    return
            try:
                groups, actors = ray_tables.groups(), ray_tables.actors()
            except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
                log.warning("Ray does not list its placement groups", error=str(away))
                continue
            for stage, group in watched.items():
                self._look(stage, why_not_placed(group, groups, actors))

    def _look(self, stage: StageId, words: str | None) -> None:
        if words is None:
            self.drop(stage)
            return
        with self._guard:
            if stage not in self._groups or self._reported.get(stage) == words:
                return
            self._reported[stage] = words
        self._send(stage, words)
