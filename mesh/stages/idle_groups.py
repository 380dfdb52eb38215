"""Idle placement groups: which can be used again, which must go. Pure; a group is any value of the caller."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from mesh.core.resources import ResourceSet

Shape = TypeVar("Shape")
Group = TypeVar("Group")


class IdleGroups(Generic[Shape, Group]):
    """Groups that are kept for later use, oldest first."""

    def __init__(self) -> None:
        self._kept: list[tuple[Shape, Group, float]] = []  #: Each with the time since when it is idle, in seconds; ascending.

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, shape: Shape, group: Group, now_s: float) -> None:
        """Keep a group; `now_s` must never decrease."""
        self._kept.append((shape, group, now_s))

    def take(self, shape: Shape) -> Group | None:
        """Remove and return the newest group of exactly this shape: its processes are the warmest."""
        for index in range(len(self._kept) - 1, -1, -1):
            if self._kept[index][0] == shape:
                return self._kept.pop(index)[1]
        return None

    def in_the_way(
        self, wanted: ResourceSet, *, used: Iterable[ResourceSet], total: ResourceSet, amount_of: Callable[[Shape], ResourceSet]
    ) -> tuple[Group, ...]:
        """Remove and return the groups, oldest first, that must go so that `wanted` fits into `total` beside `used`.

        Groups that hold none of the scarce resources stay. If all groups together free too little, those that help go all the same.
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

    def older_than(self, moment_s: float, *, retained: int = 0, is_of: Callable[[Shape], bool] = lambda _shape: True) -> tuple[Group, ...]:
        """Remove and return the groups that are idle since `moment_s` or longer.

        Args:
            retained: Number of groups that are kept whatever their age, the newest ones.
            is_of: Which groups are counted and removed.
        """
        mine = [kept for kept in self._kept if is_of(kept[0])]
        old = [kept for kept in mine[: max(0, len(mine) - retained)] if kept[2] <= moment_s]
        self._kept = [kept for kept in self._kept if not any(kept is other for other in old)]
        return tuple(group for _, group, _ in old)

    def count(self, is_of: Callable[[Shape], bool]) -> int:
        """Return the number of groups of these shapes."""
        return sum(is_of(shape) for shape, _, _ in self._kept)

    def holding(self, is_wanted: Callable[[Shape], bool]) -> tuple[Group, ...]:
        """Remove and return the groups with a shape that others want."""
        return self._take_out(lambda shape, _: is_wanted(shape))

    def clear(self) -> tuple[Group, ...]:
        """Remove and return all groups."""
        return self._take_out(lambda *_: True)

    def _take_out(self, goes: Callable[[Shape, float], bool]) -> tuple[Group, ...]:
        gone = tuple(group for shape, group, since in self._kept if goes(shape, since))
        self._kept = [kept for kept in self._kept if not goes(kept[0], kept[2])]
        return gone
