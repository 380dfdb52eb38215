"""Index of a ledger's idle groups by pool, layer, shape and age."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedList  # type: ignore[import-untyped]  # it carries no types

from mesh.core.ids import GroupId, PoolName
from mesh.core.shapes import GroupShape
from mesh.placement.groups import GroupRecord, Layer, wasted_share

#: Time at which a group became idle (ms), and its name.
_Age = tuple[int, GroupId]


class IdleIndex:
    """Index ordered by age and then name, so that a restored ledger makes the same choices."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[PoolName, Layer], dict[GroupShape, SortedList[_Age]]] = {}
        self._ages: dict[GroupId, _Age] = {}  #: Key of each group in `_shapes`.

    def put(self, record: GroupRecord) -> None:
        """Add a group that is idle since `idle_since_ms`."""
        age = self._ages[record.group] = (record.since_ms, record.group)
        self._shapes.setdefault((record.pool, record.layer), {}).setdefault(record.shape, SortedList()).add(age)

    def take_out(self, record: GroupRecord) -> None:
        """Remove a group that is no longer idle.

        Raises:
            KeyError: It is not in the index.
        """
        shapes = self._shapes[record.pool, record.layer]
        shapes[record.shape].remove(self._ages.pop(record.group))
        if not shapes[record.shape]:
            del shapes[record.shape]
        if not shapes:
            del self._shapes[record.pool, record.layer]

    def oldest(self, pool: PoolName | None, layer: Layer) -> list[GroupId]:
        """Return the groups of a layer, of one pool or of every pool, idle for longest first."""
        found = [
            age
            for (name, kind), shapes in self._shapes.items()
            if kind is layer and pool in (None, name)
            for ages in shapes.values()
            for age in ages
        ]
        return [group for _, group in sorted(found)]

    def fitting(self, pool: PoolName, layer: Layer, shape: GroupShape, waste_max: float) -> Iterator[GroupId]:
        """Yield the groups that may be used for this shape, best first: the same shape, then the least waste; among equals the youngest.

        Args:
            waste_max: As in `wasted_share`.
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
        """Return the names of all groups, sorted; for checks."""
        return sorted(self._ages)

    def check(self) -> list[str]:
        """Return a message per broken invariant; empty when all hold."""
        indexed = sorted(group for shapes in self._shapes.values() for ages in shapes.values() for _, group in ages)
        return [] if indexed == self.groups() else [f"the index of idle groups has {indexed} by shape and {self.groups()} by name"]
