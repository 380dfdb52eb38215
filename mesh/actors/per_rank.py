"""Arguments that differ by rank: one program for all, with another part to play at each place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import DispatchError
from mesh.counting import counted


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank stands."""

    rank: int
    count: int  #: Ranks of the group.
    coordinates: Mapping[str, int]

    def __getitem__(self, dimension: str) -> int:
        return self.coordinates[dimension]


@dataclass(frozen=True, slots=True)
class PerRank:
    """In place of an argument, or of a method's name: `PerRank(["lead", "follow"])`, `PerRank(lambda place: place["tensor"])`."""

    values: Sequence[Any] | Callable[[Place], Any]  #: [ranks], or what makes the value of a place.

    def at(self, rank: int, dimensions: Dimensions) -> Any:
        """The value of the rank. Raises `DispatchError` when there is not exactly one value for each rank."""
        if callable(self.values):
            return self.values(Place(rank, dimensions.count, dimensions.coordinates(rank)))
        if len(self.values) != dimensions.count:
            has = f"PerRank has {counted(len(self.values), 'value')}"
            raise DispatchError(f"{has}, and the group has {counted(dimensions.count, 'rank')} ({dimensions})")
        return self.values[rank]


def at_rank(value: Any, rank: int, dimensions: Dimensions) -> Any:
    """The value itself, or the rank's own one. Raises `DispatchError` as `PerRank.at`."""
    return value.at(rank, dimensions) if isinstance(value, PerRank) else value
