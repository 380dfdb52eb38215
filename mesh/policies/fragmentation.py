"""How much free capacity is stranded: there in sum, but in pieces that no wanted shape fits into.

For one shape the free capacity of a cluster amounts to some number of copies, were it all on one node; fewer fit into the pieces
that it is really in. The share that is missing is the fragmentation for that shape: 0 when every copy fits, 1 when none does. The
index is the mean over the shapes, by their weights. A shape of which the free capacity holds not even one copy is short of capacity,
which is not fragmentation: it counts 0.

Rejected: the free amounts that a shape leaves over, summed per resource. In a cluster with more CPUs than its GPU shapes can use it
calls CPUs stranded that CPU work takes the next moment.

Source: to measure by the shapes that are really asked for is the idea of Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing
Workloads with Fragmentation Gradient Descent (USENIX ATC 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROUNDING = 1e-9  #: Times the inverse, 3 / 3 may come out a little below 1.


@dataclass(frozen=True, slots=True, eq=False)
class CommonShapes:
    """The shapes that are asked for most, k of them; make one with `of`."""

    per_copy: NDArray[np.float64]  #: [k, r], 1 over the amount; 0 where the shape wants none.
    amounts: NDArray[np.float64]  #: [k, r], units.
    weights: NDArray[np.float64]  #: [k], how often each is asked for; sum 1.
    worth: NDArray[np.float64]  #: [k], how much of what is asked for in all a copy stands for: weight times size; sum 1.
    _per_copy_of_column: NDArray[np.float64]  #: [r, k, 1], the same as `per_copy`, laid out for `copies_in`.
    _slack_of_column: NDArray[np.float64]  #: [r, k, 1], infinite where the shape wants none, else only what mends rounding.

    @classmethod
    def of(cls, shapes: ArrayLike, weights: ArrayLike | None = None) -> CommonShapes:
        """From amounts [k, r] and how often each is asked for [k]; equally often when left out.

        Raises:
            ValueError: A negative amount, an empty shape, or weights that are negative or do not sum to more than zero.
        """
        amounts = np.atleast_2d(np.asarray(shapes, dtype=np.float64))
        shares = np.ones(len(amounts)) if weights is None else np.asarray(weights, dtype=np.float64)
        if (amounts < 0).any() or not (amounts > 0).any(axis=1).all():
            raise ValueError("each shape wants something, and nothing less than zero")
        if shares.shape != (len(amounts),) or (shares < 0).any() or not shares.sum() > 0:
            raise ValueError("there is one weight per shape, none is negative and one is positive")
        wants, often = amounts > 0, shares / shares.sum()
        usual = np.maximum(often @ amounts, 1e-9)  # Of each resource, what is asked for on average; the unit of sizes.
        worth = often * (amounts / usual).max(axis=1)
        per_copy, slack = np.where(wants, 1.0 / np.where(wants, amounts, 1.0), 0.0), np.where(wants, _ROUNDING, np.inf)
        by_column = (np.ascontiguousarray(each.T)[:, :, np.newaxis] for each in (per_copy, slack))
        return cls(per_copy, amounts, often, worth / worth.sum(), *by_column)

    def copies_in(self, free: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """How many whole copies of each shape each row of `free` [n, r] holds [n, k].

        The table may have got columns since the shapes were made: these come last, and no shape wants of them.
        """
        # Rows last in memory: they are the many, and the inner loops run over them.
        columns = free.T[: self.amounts.shape[1]].astype(np.float64, order="C")
        each = columns[:, np.newaxis] * self._per_copy_of_column
        each += self._slack_of_column
        copies: NDArray[np.float64] = np.floor(np.minimum.reduce(each)).T
        return copies


def fragmentation(free: ArrayLike, shapes: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The index, from 0 to 1.

    Args:
        free: [n, r], units that are free on each node.
        shapes: [k, r], units that are asked for at once.
        weights: [k], how often; equally often when left out.
    Raises:
        ValueError: As `CommonShapes.of`.
    """
    return fragmentation_for(np.atleast_2d(np.asarray(free)), CommonShapes.of(shapes, weights))


def fragmentation_for(free: NDArray[np.int64], common: CommonShapes) -> float:
    """The index of free units [n, r] for shapes that are kept."""
    in_one = common.copies_in(free.sum(axis=0, keepdims=True))[0]
    fit = common.copies_in(free).sum(axis=0)
    missing = np.where(in_one > 0, 1.0 - fit / np.maximum(in_one, 1.0), 0.0)
    return float(np.clip(missing @ common.weights, 0.0, 1.0))
