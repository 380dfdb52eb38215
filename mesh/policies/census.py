"""Census of requested shapes and their frequency, for which `weighted` preserves capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mesh.core.resources import ResourceSet
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import IntArray

_KEPT = 64
_WHOLE_SHARE = 0.02  #: Assumed frequency of a demand for a whole node.


class Census:
    """Counts of demands with exponential decay: each new one weighs `1 + 1 / memory` times the one before.

    Invariant: at most 64 shapes are retained; a new one replaces the rarest.
    """

    def __init__(self, *, memory: int = 1_000, most: int = 8) -> None:
        """Create an empty census.

        Args:
            memory: About how many demands are remembered.
            most: How many shapes `common` returns.
        """
        self._growth = 1.0 + 1.0 / memory
        self._most = most
        self._worth = 1.0
        self._counts: dict[ResourceSet, float] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[tuple[ResourceSet, float]]:
        """Yield each shape with its share of all demands, most frequent first."""
        total = sum(self._counts.values())
        yield from ((shape, count / total) for shape, count in sorted(self._counts.items(), key=lambda entry: -entry[1]))

    def count(self, wanted: ResourceSet) -> None:
        """Count a demand; empty ones are ignored."""
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
        """Return the most important shapes in the columns of a table (`NodeTable.vector`); None before anything was counted.

        Importance is frequency times size: an occasional demand for a whole node can matter more than a constant one for a CPU.

        Args:
            largest: Totals of the largest node. It counts as requested occasionally. Otherwise, while only small tasks have been seen,
            they would be scattered over all nodes.
        """
        if not self._counts:
            return None
        vectors = [vector(shape) for shape in self._counts]  # Build all vectors first: each may add a column.
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
