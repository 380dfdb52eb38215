"""Arguments that differ by rank: one program with another role at each rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import DispatchError
from mesh.core.counting import counted


@dataclass(frozen=True, slots=True)
class RankPlace:
    """Rank with its coordinates."""

    rank: int
    count: int  #: Number of ranks in the group.
    coordinates: Mapping[str, int]

    def __getitem__(self, dimension: str) -> int:
        return self.coordinates[dimension]


@dataclass(frozen=True, slots=True)
class PerRank:
    """Replaces an argument or a method's name: `PerRank(["lead", "follow"])`, `PerRank(lambda place: place["tensor"])`."""

    values: Sequence[Any] | Callable[[RankPlace], Any]  #: [ranks], or a function from a place to its value.

    def at(self, rank: int, dimensions: Dimensions) -> Any:
        """Return the value of the rank.

        Raises:
            DispatchError: The number of values and ranks differs.
        """
        if callable(self.values):
            return self.values(RankPlace(rank, dimensions.count, dimensions.coordinates(rank)))
        if len(self.values) != dimensions.count:
            has = f"PerRank has {counted(len(self.values), 'value')}"
            raise DispatchError(f"{has}, but the group has {counted(dimensions.count, 'rank')} ({dimensions})")
        return self.values[rank]


def at_rank(value: Any, rank: int, dimensions: Dimensions) -> Any:
    """Return the value itself, or the rank's own one if it is a `PerRank`.

    Raises:
        DispatchError: As `PerRank.at`.
    """
    return value.at(rank, dimensions) if isinstance(value, PerRank) else value
