"""Fragmentation index: the share of free capacity in pieces that no requested shape fits into.

For one shape, the free capacity on a single imaginary node would hold some number of copies; the real nodes hold fewer. The missing share
is the fragmentation for that shape: 0 if all copies fit, 1 if none does. The index is the mean over the shapes by weight. A shape of
which the free capacity holds not even one copy counts 0: that is a shortage, not fragmentation.

Rejected: the sum of the free amounts that a shape leaves over, per resource. In a cluster with more CPUs than its GPU shapes can use, it
counts CPUs as stranded although CPU tasks can use them.

Source: measuring by the shapes that are really requested is the idea of Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing
Workloads with Fragmentation Gradient Descent (USENIX ATC 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Numbers in one temporary array of `copies_in`. The C library maps greater ones anew each time, which takes longer than the sums in them.
_AT_ONCE = 12_000
_ROUNDING = 1e-9  #: Compensates for rounding: times the inverse, 3 / 3 may be slightly below 1.


@dataclass(frozen=True, slots=True, eq=False)
class CommonShapes:
    """The k most requested shapes; create with `of`."""

    per_copy: NDArray[np.float64]  #: [k, r], 1 over the amount; 0 where the shape needs none.
    amounts: NDArray[np.float64]  #: [k, r], units.
    weights: NDArray[np.float64]  #: [k], frequencies with sum 1.
    worth: NDArray[np.float64]  #: [k], frequency times size of a copy, with sum 1.
    _per_copy_of_column: NDArray[np.float64]  #: [r, k, 1], `per_copy` in the layout of `copies_in`.
    _slack_of_column: NDArray[np.float64]  #: [r, k, 1], infinite where the shape needs none, else the rounding correction.

    @classmethod
    def of(cls, shapes: ArrayLike, weights: ArrayLike | None = None) -> CommonShapes:
        """Return the shapes for amounts [k, r] and frequencies [k]; equal frequencies if omitted.

        Raises:
            ValueError: An amount is negative, a shape is empty, or the weights are negative or have no positive sum.
        """
        amounts = np.atleast_2d(np.asarray(shapes, dtype=np.float64))
        shares = np.ones(len(amounts)) if weights is None else np.asarray(weights, dtype=np.float64)
        if (amounts < 0).any() or not (amounts > 0).any(axis=1).all():
            raise ValueError("each shape must have a positive amount and no negative one")
        if shares.shape != (len(amounts),) or (shares < 0).any() or not shares.sum() > 0:
            raise ValueError("weights must be one per shape, none negative and at least one positive")
        wants, often = amounts > 0, shares / shares.sum()
        usual = np.maximum(often @ amounts, 1e-9)  # Mean demand per resource, the unit of sizes.
        worth = often * (amounts / usual).max(axis=1)
        per_copy, slack = np.where(wants, 1.0 / np.where(wants, amounts, 1.0), 0.0), np.where(wants, _ROUNDING, np.inf)
        by_column = (np.ascontiguousarray(each.T)[:, :, np.newaxis] for each in (per_copy, slack))
        return cls(per_copy, amounts, often, worth / worth.sum(), *by_column)

    def copies_in(self, free: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many whole copies of each shape each row of `free` [n, r] holds [n, k].

        The table may have gained columns since the shapes were created. They come last, and no shape needs them.
        """
        # Rows last in memory: there are many, and the inner loops run over them.
        columns = free.T[: self.amounts.shape[1]].astype(np.float64, order="C")
        count, at_once = columns.shape[1], _AT_ONCE // self.per_copy.size
        if count <= at_once:
            return self._copies(columns)
        parts = [self._copies(columns[:, begin : begin + at_once]) for begin in range(0, count, at_once)]
        joined: NDArray[np.float64] = np.concatenate([part.T for part in parts], axis=1).T
        return joined

    def _copies(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        each = columns[:, np.newaxis] * self._per_copy_of_column
        each += self._slack_of_column
        copies: NDArray[np.float64] = np.floor(np.minimum.reduce(each)).T
        return copies


def fragmentation(free: ArrayLike, shapes: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the index, from 0 to 1.

    Args:
        free: [n, r], free units on each node.
        shapes: [k, r], units of each shape.
        weights: [k], frequencies; equal if omitted.

    Raises:
        ValueError: As `CommonShapes.of`.
    """
    return fragmentation_for(np.atleast_2d(np.asarray(free)), CommonShapes.of(shapes, weights))


def fragmentation_for(free: NDArray[np.int64], common: CommonShapes) -> float:
    """Return the index of free units [n, r] for prepared shapes."""
    in_one = common.copies_in(free.sum(axis=0, keepdims=True))[0]
    fit = common.copies_in(free).sum(axis=0)
    missing = np.where(in_one > 0, 1.0 - fit / np.maximum(in_one, 1.0), 0.0)
    return float(np.clip(missing @ common.weights, 0.0, 1.0))
