"""Weighted node score: `alpha * availability - beta * fragmentation + gamma * locality - delta * contention`.

Each term is from 0 to 1 and depends on one node:

- availability: mean free share of the requested resources once the demand is placed.
- fragmentation: what the placement costs other shapes beyond its own size. For each common shape it is the number of copies that fit
  before and not after, over the most that such a demand can cost. The mean over the shapes is weighted by frequency and size. A CPU task
  on a GPU node with few CPUs left costs GPU shapes; in the gap beside another CPU task it costs nothing. Until shapes are known, they are
  the whole, half, quarter and eighth of the node itself: filling a started eighth costs nothing, using an empty node costs most, and a
  node with more kinds of resources costs more.
- locality: bytes of arguments there, b / (b + 256 MiB): 0.5 at 256 MiB, and one more gigabyte hardly counts.
- contention: tasks there per CPU, t / (t + CPUs + 1).

Scoring the growth of fragmentation and not its level is what packs well (fragmentation gradient descent). Availability prefers empty
nodes, so by default beta dominates and alpha only decides between nodes of equal cost. In `benchmarks/fragmentation.py`, alpha 1 and beta
0.5 strand as much as `hybrid`.

Source: Weng et al., USENIX ATC 2023, for the gradient.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mesh.core.resources import UNITS_PER_WHOLE
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import FloatArray, IntArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import column, fewness

_HALF_LOCAL_BYTES = float(256 * 2**20)
_EIGHTHS = np.arange(9)
_SLICES = (1, 2, 4, 8)
#: `_HELD`: slices of all four sizes in a number of free eighths. `_SPOILT`: the most slices that a demand of so many eighths can spoil.
_HELD = np.array([sum(eighths * slices // 8 for slices in _SLICES) for eighths in _EIGHTHS], dtype=np.float64)
_SPOILT = np.array([max(sum(-(-eighths * slices // 8) for slices in _SLICES), 1) for eighths in _EIGHTHS], dtype=np.float64)
_ROUNDING = 1e-9  #: Compensates for rounding: eight times an exact eighth may be slightly below its integer.


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return scores from -(beta + delta) to alpha + gamma [n]."""
    weights = demand.weights
    per_unit, free = (
        1.0 / np.maximum(view.total, 1),
        view.free.astype(np.float64),
    )  # Convert once: each sum with integers would convert again.
    after = free - demand.wanted
    scores = _availability(demand, after, per_unit)
    scores *= weights.availability
    if weights.fragmentation:
        lost = _lost_slices(demand, view, per_unit) if demand.common is None else _lost_copies(demand, free, after, demand.common)
        lost *= weights.fragmentation
        scores -= lost
    if weights.locality and np.count_nonzero(view.local_bytes):
        scores += weights.locality * locality(view)
    if weights.contention:
        crowded = contention(view)
        crowded *= weights.contention
        scores -= crowded
    return scores


def score_from_0_to_1(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return the score normalised to 0 to 1 [n]; for combinations."""
    weights = demand.weights
    least = weights.fragmentation + weights.contention
    span = least + weights.availability + weights.locality
    return (score(demand, view) + least) / span if span > 0 else np.zeros(len(view.total))


def locality(view: NodeScoringView) -> FloatArray:
    """Return the locality term [n]."""
    near: FloatArray = view.local_bytes / (view.local_bytes + _HALF_LOCAL_BYTES)
    return near


def contention(view: NodeScoringView) -> FloatArray:
    """Return the contention term [n]."""
    cpu = column(view.resources, "cpu")
    if cpu is None:
        return 1.0 - fewness(view.busy)
    busy = view.busy.astype(np.float64)
    crowded: FloatArray = busy + 1.0
    crowded += view.total[:, cpu] / UNITS_PER_WHOLE
    return np.divide(busy, crowded, out=crowded)


def _availability(demand: NodeDemand, after: FloatArray | IntArray, per_unit: FloatArray) -> FloatArray:
    shares = _shares_of_wanted(demand.wanted.tobytes())
    if shares is None:
        return np.ones(len(after))
    free: FloatArray = (after * per_unit) @ shares
    return free


@lru_cache(maxsize=1_024)
def _shares_of_wanted(wanted_bytes: bytes) -> FloatArray | None:
    """Return the weight of each resource in the mean over the requested ones [r]; None for an empty demand."""
    wanted = np.frombuffer(wanted_bytes, dtype=np.int64) > 0
    count = np.count_nonzero(wanted)
    return wanted / count if count else None


def _lost_copies(demand: NodeDemand, free: FloatArray, after: FloatArray, common: CommonShapes) -> FloatArray:
    worth = _worth_by_bound(demand.wanted.tobytes(), common)
    if worth is None:
        return np.zeros(len(after))
    count = len(after)
    copies = common.copies_in(np.concatenate((free, np.maximum(after, 0.0))))  # In one call: most calls are for a few rows.
    # Row by row in memory, or the sum of a row would depend on the number of rows.
    lost = np.subtract(copies[:count], copies[count:], order="C")
    share: FloatArray = lost @ worth
    return share


@lru_cache(maxsize=1_024)
def _worth_by_bound(wanted_bytes: bytes, common: CommonShapes) -> FloatArray | None:
    """Return the weight of a copy of each shape, over the most that the demand can spoil [k]; None when it can spoil nothing."""
    wanted = np.frombuffer(wanted_bytes, dtype=np.int64)[: common.amounts.shape[1]]
    most = np.ceil((wanted * common.per_copy).max(axis=1))  # A demand of d units spoils at most ceil(d / m) copies of m units.
    bound = float(common.worth @ most)
    return None if bound == 0.0 else common.worth / bound


def _lost_slices(demand: NodeDemand, view: NodeScoringView, per_unit: FloatArray) -> FloatArray:
    has = view.total > 0
    before = view.free * per_unit
    before += ~has  # A resource that the node lacks is never its scarcest.
    taken = demand.wanted * per_unit
    least_before, least_after, most = _extreme(before, np.minimum), _extreme(before - taken, np.minimum), _extreme(taken, np.maximum)
    lost = _HELD[_eighths(least_before)] - _HELD[_eighths(np.maximum(least_after, 0.0))]  # Negative where it does not fit.
    lost /= _SPOILT[8 - _eighths(np.maximum(1.0 - most, 0.0))]
    kinds = has @ np.ones(has.shape[1])
    lost *= kinds / (kinds + 2.0)
    return lost


def _eighths(shares: FloatArray) -> NDArray[np.intp]:
    """Return the number of whole eighths in shares from 0 to 1."""
    return (shares * 8.0 + _ROUNDING).astype(np.intp)


def _extreme(shares: FloatArray, of_two: np.ufunc) -> FloatArray:
    """Return the minimum or maximum of each row; by columns, which is many times faster than along the rows."""
    extreme: FloatArray = shares[:, 0]
    for place in range(1, shares.shape[1]):
        extreme = of_two(extreme, shares[:, place])
    return extreme


WEIGHTED = Policy("weighted", score, summand=score_from_0_to_1)
