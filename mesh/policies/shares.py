"""Used shares of nodes, the basis of most policies, for all rows at once.

A node's share of a resource is the amount used, including the demand, over its total; 1 is a full node.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mesh.policies.policy import FloatArray, IntArray, NodeDemand, NodeScoringView

#: Weight of a second criterion beside the first. Counts up to a few thousand stay distinct: 1/n - 1/(n+1) is larger.
_TIE = 2.0**-24


@lru_cache(maxsize=256)
def column(resources: tuple[str, ...], name: str) -> int | None:
    """Return the column of the resource; None when the table has none."""
    return resources.index(name) if name in resources else None


def shares_after(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return the used share of each resource [n, r] once the demand is placed; 0 if the node lacks it and it is not requested."""
    taken = view.total - view.free
    taken += demand.wanted
    shares: FloatArray = taken / np.maximum(view.total, 1)
    return shares


def mean_share_after(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return the mean of these shares over the requested resources [n]; 0 for an empty demand."""
    wanted = demand.wanted > 0
    count = np.count_nonzero(wanted)
    if count == 0:
        return np.zeros(len(view.total))
    mean: FloatArray = shares_after(demand, view) @ (wanted / count)
    return mean


def first_then(first: FloatArray, then: FloatArray) -> FloatArray:
    """Return a score ordered by `first`, then by `then`; both must be from 0 to 1, and so is the result."""
    return first * (1.0 - _TIE) + then * _TIE


def fewness(counts: IntArray) -> FloatArray:
    """Return counts as a score: 1 for none, towards 0 for many."""
    score: FloatArray = np.reciprocal(counts + 1.0)
    return score
