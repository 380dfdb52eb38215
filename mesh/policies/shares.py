"""Shares of nodes, which most policies are made of, for all rows at once.

A node's share of a resource is what is taken of it, the demand included, over its total; so 1 is a full node.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mesh.policies.policy import Demand, FloatArray, IntArray, NodeView

#: How much a second criterion counts beside the first. Counts of tasks up to a few thousand stay apart: 1/n - 1/(n+1) is larger.
_TIE = 2.0**-24


@lru_cache(maxsize=256)
def column(resources: tuple[str, ...], name: str) -> int | None:
    """Where the resource stands; None when the table has no such column."""
    return resources.index(name) if name in resources else None


def shares_after(demand: Demand, view: NodeView) -> FloatArray:
    """What is taken of each resource [n, r] once the demand is placed; 0 of what the node has not and the demand wants not."""
    taken = view.total - view.free
    taken += demand.wanted
    shares: FloatArray = taken / np.maximum(view.total, 1)
    return shares


def mean_share_after(demand: Demand, view: NodeView) -> FloatArray:
    """The mean of these shares over the resources that the demand wants [n]; 0 for a demand of nothing."""
    wanted = demand.wanted > 0
    count = np.count_nonzero(wanted)
    if count == 0:
        return np.zeros(len(view.total))
    mean: FloatArray = shares_after(demand, view) @ (wanted / count)
    return mean


def first_then(first: FloatArray, then: FloatArray) -> FloatArray:
    """Ordered by `first`, of equals by `then`; from 0 to 1 as they are."""
    return first * (1.0 - _TIE) + then * _TIE


def fewness(counts: IntArray) -> FloatArray:
    """Counts as a score: 1 for none, towards 0 for many."""
    score: FloatArray = np.reciprocal(counts + 1.0)
    return score
