"""Results of the ranks of a collective call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from mesh.actors.dimensions import Dimensions


@dataclass(frozen=True, slots=True)
class Results(Sequence[Any]):
    """Collected values in order of dispatch: one per rank, or one per call that the dispatch made.

    A sequence of plain values, so that `sum`, `max` or `np.vstack` can be used to collect them.
    """

    values: tuple[Any, ...]  #: [calls]
    ranks: tuple[int, ...]  #: [calls], rank of each value.
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
        """Return the values by rank in order; ranks that were not called are absent."""
        found: dict[int, list[Any]] = {}
        for rank, value in zip(self.ranks, self.values, strict=True):
            found.setdefault(rank, []).append(value)
        return found


#: From results to the value of the whole call. Any function of a sequence will do.
Collect = Callable[[Results], Any]
