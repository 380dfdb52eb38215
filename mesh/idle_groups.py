"""Which kept groups can be used again, and which must go. Pure; a group is whatever the caller keeps."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from mesh.resources import ResourceSet

Shape = TypeVar("Shape")
Group = TypeVar("Group")


class IdleGroups(Generic[Shape, Group]):
    """Groups that wait for the next taker, oldest first."""

    def __init__(self) -> None:
        self._kept: list[tuple[Shape, Group, float]] = []  #: With the moment since when, in seconds; ascending.

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, shape: Shape, group: Group, now_s: float) -> None:
        """Keep a group; `now_s` never goes back."""
        self._kept.append((shape, group, now_s))

    def take(self, shape: Shape) -> Group | None:
        """The latest kept group of exactly this shape: its processes are the warmest."""
        for index in range(len(self._kept) - 1, -1, -1):
            if self._kept[index][0] == shape:
                return self._kept.pop(index)[1]
        return None

    def in_the_way(
        self, wanted: ResourceSet, *, used: Iterable[ResourceSet], total: ResourceSet, amount_of: Callable[[Shape], ResourceSet]
    ) -> tuple[Group, ...]:
        """Take out the groups, oldest first, that have to go so that `wanted` fits into `total` beside `used`.

        Those that hold nothing of what is short stay. When even all of them would not make room, those that help go all the same.
        """
        need = wanted
        for amounts in (*used, *(amount_of(shape) for shape, _, _ in self._kept)):
            need += amounts
        gone: list[Group] = []
        for kept in tuple(self._kept):
            short = [name for name in wanted if need[name] > total[name]]
            if not short:
                break
            amounts = amount_of(kept[0])
            if any(amounts[name] for name in short):
                self._kept.remove(kept)
                gone.append(kept[1])
                need -= amounts
        return tuple(gone)

    def older_than(self, moment_s: float) -> tuple[Group, ...]:
        """Take out what has been kept since this moment or longer."""
        return self._take_out(lambda since: since <= moment_s)

    def clear(self) -> tuple[Group, ...]:
        """Take out everything."""
        return self._take_out(lambda _: True)

    def _take_out(self, goes: Callable[[float], bool]) -> tuple[Group, ...]:
        gone = tuple(group for _, group, since in self._kept if goes(since))
        self._kept = [kept for kept in self._kept if not goes(kept[2])]
        return gone
