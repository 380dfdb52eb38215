"""Which shapes are asked for, and how often: what `weighted` keeps room for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import IntArray
from mesh.resources import ResourceSet

_KEPT = 64
_WHOLE_SHARE = 0.02  #: How often, among all demands, a whole node counts as asked for.


class Census:
    """Counts of demands, in which an older one counts less: each new one outweighs by `1 + 1 / memory` the one before.

    Invariant: at most 64 shapes are kept; the rarest goes for a new one.
    """

    def __init__(self, *, memory: int = 1_000, most: int = 8) -> None:
        """`memory`: about how many demands are remembered; `most`: how many shapes `common` gives."""
        self._growth = 1.0 + 1.0 / memory
        self._most = most
        self._worth = 1.0
        self._counts: dict[ResourceSet, float] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[tuple[ResourceSet, float]]:
        """Shapes and how often each is asked for, as shares of all that are kept; the most frequent first."""
        total = sum(self._counts.values())
        yield from ((shape, count / total) for shape, count in sorted(self._counts.items(), key=lambda entry: -entry[1]))

    def count(self, wanted: ResourceSet) -> None:
        """Somebody asks for this. Nothing is not counted."""
        if not wanted:
            return
        before = self._counts.get(wanted)
        if before is None and len(self._counts) == _KEPT:
            del self._counts[min(self._counts, key=self._counts.__getitem__)]
        self._counts[wanted] = (before or 0.0) + self._worth
        self._worth *= self._growth
        if self._worth > 1e100:  # noqa: PLR2004  far below what a float holds
            self._counts = {shape: count / self._worth for shape, count in self._counts.items()}
            self._worth = 1.0

    def common(self, vector: Callable[[ResourceSet], IntArray], largest: ResourceSet | None = None) -> CommonShapes | None:
        """The shapes that matter most in the columns of a table (`NodeTable.vector`); None before anything was counted.

        They are those that stand for most of what is asked for in all: a whole node that is asked for now and then can matter more
        than a CPU that is asked for all the time.

        Args:
            largest: What the largest node has in all. Somebody may want all of it one day, so it counts as asked for now and then:
                without it small work, as long as nothing else has been seen, would be strewn over every node.
        """
        if not self._counts:
            return None
        vectors = [vector(shape) for shape in self._counts]  # All before any is used: each may add a column.
        columns = max(len(row) for row in vectors)
        amounts = np.array([[*row, *[0] * (columns - len(row))] for row in vectors])
        every = CommonShapes.of(amounts, list(self._counts.values()))
        most = np.sort(np.argsort(-every.worth, kind="stable")[: self._most])
        kept, often = amounts[most], every.weights[most]
        if largest:
            whole = np.zeros(columns, dtype=np.int64)
            whole[: len(vector(largest))] = vector(largest)[:columns]
            kept, often = np.vstack([kept, whole]), np.append(often, _WHOLE_SHARE * often.sum())
        return CommonShapes.of(kept, often)
