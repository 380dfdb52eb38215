"""The idle groups of a ledger, by pool, layer and shape: which fits best, which waits for longest."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList  # type: ignore[import-untyped]  # it carries no types

from mesh.ids import GroupId, PoolName
from mesh.scheduling.groups import GroupRecord, Layer, wasted_share
from mesh.scheduling.shapes import GroupShape

#: Since when a group is idle (ms), and its name.
_Age = tuple[int, GroupId]


class IdleIndex:
    """Orders by age and then name, so that a ledger that was written down and read back chooses as before."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[PoolName, Layer], dict[GroupShape, SortedList[_Age]]] = {}
        self._ages: dict[GroupId, _Age] = {}  #: Where each stands in there.

    def put(self, record: GroupRecord) -> None:
        """It is idle from `idle_since_ms` on."""
        age = self._ages[record.group] = (record.since_ms, record.group)
        self._shapes.setdefault((record.pool, record.layer), {}).setdefault(record.shape, SortedList()).add(age)

    def take_out(self, record: GroupRecord) -> None:
        """It is idle no more. Raises `KeyError` when it was not."""
        shapes = self._shapes[record.pool, record.layer]
        shapes[record.shape].remove(self._ages.pop(record.group))
        if not shapes[record.shape]:
            del shapes[record.shape]
        if not shapes:
            del self._shapes[record.pool, record.layer]

    def oldest(self, pool: PoolName | None, layer: Layer) -> list[GroupId]:
        """All of a layer, of one pool or of every pool, idle for longest first."""
        found = [
            age
            for (name, kind), shapes in self._shapes.items()
            if kind is layer and pool in (None, name)
            for ages in shapes.values()
            for age in ages
        ]
        return [group for _, group in sorted(found)]

    def fitting(self, pool: PoolName, layer: Layer, shape: GroupShape, waste_max: float) -> Iterator[GroupId]:
        """What may be taken for this shape, best first: this very shape, then the least waste; of equals the last that became idle.

        Args:
            waste_max: See `wasted_share`.
        """
        idle = self._shapes.get((pool, layer), {})
        for _, group in reversed(idle.get(shape, ())):
            yield group
        others = [
            (waste, ages) for kept, ages in idle.items() if kept != shape and (waste := wasted_share(kept, shape, waste_max)) is not None
        ]
        for _, ages in sorted(others, key=lambda found: (found[0], -found[1][-1][0], found[1][-1][1])):
            for _, group in reversed(ages):
                yield group

    def groups(self) -> list[GroupId]:
        """All of them, sorted; for those who check."""
        return sorted(self._ages)

    def check(self) -> list[str]:
        """Every broken invariant, in words; empty when all hold."""
        indexed = sorted(group for shapes in self._shapes.values() for ages in shapes.values() for _, group in ages)
        return [] if indexed == self.groups() else [f"the index of idle groups has {indexed} by shape and {self.groups()} by name"]
