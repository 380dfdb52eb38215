"""What the ranks of a collective call returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from mesh.actors.dimensions import Dimensions


@dataclass(frozen=True, slots=True)
class Results(Sequence[Any]):
    """The kept values in the order in which the calls were dealt: one per rank, or as many as the dispatch made.

    A sequence of plain values, so that `sum`, `max` or `np.vstack` can collect them as they are.
    """

    values: tuple[Any, ...]  #: [calls]
    ranks: tuple[int, ...]  #: [calls], who returned it.
    dimensions: Dimensions

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def by_rank(self) -> dict[int, list[Any]]:
        """Rank to its values in order; a rank that was not called is not there."""
        found: dict[int, list[Any]] = {}
        for rank, value in zip(self.ranks, self.values, strict=True):
            found.setdefault(rank, []).append(value)
        return found


#: Results to the value of the whole call. Any function of a sequence will do.
Collect = Callable[[Results], Any]
