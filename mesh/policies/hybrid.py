"""Ray's DEFAULT: fill nodes to a threshold, then spread, and choose by chance among the best k.

A node's utilisation is the highest of its CPU, memory and object store as they stand, GPUs left out and the demand not added; below
`spread_threshold` it counts as none. The lower it is, the better the node. Of the best k (`top_k_fraction` of all nodes, at least
`top_k_absolute`) one is drawn, so that many schedulers do not meet at one node; the named node (the submitter's own) is taken
without a draw when none is better. Nodes with GPUs are taken for work without GPUs only when no other has room. Work that wants
nothing goes anywhere by chance.

A score holds all of that in one number: 2 - utilisation, 3 less on a GPU node that should be left alone, and a little more on the named
node. Utilisations are in single precision (as Ray's), so that this little is seen in a score whatever stands beside it.

Source: ray-project/ray, `hybrid_scheduling_policy.cc` and `NodeResources::CalculateCriticalResourceUtilization`; seed S32.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mesh.policies.policy import Demand, Draw, FloatArray, NodeView, Policy
from mesh.policies.shares import column

_CRITICAL = ("cpu", "memory", "object_store_memory")
_NAMED = 2.0**-30  #: Less than what single precision keeps of numbers from 1 to 2.
_LEFT_ALONE = 3.0


def score(demand: Demand, view: NodeView) -> FloatArray:
    """From 1 to 2 for the nodes to take, from -2 to -1 for those with GPUs that the demand does not want [n]."""
    scores = 2.0 - _utilisation(demand, view)
    gpu = column(view.resources, "gpu")
    if gpu is not None and not demand.wanted[gpu]:
        scores -= _LEFT_ALONE * (view.total[:, gpu] > 0)
    exact: FloatArray = scores.astype(np.float32).astype(np.float64)
    if np.count_nonzero(view.is_named):
        exact += _NAMED * view.is_named
    return exact


def pick(scores: FloatArray, demand: Demand, draw: Draw) -> int | None:
    """The named node if none is better, else one of the best k by chance."""
    if scores.size == 0:
        return None
    first = int(scores.argmax())
    best = float(scores[first])
    if best == -np.inf:
        return None
    if not demand.wanted.any():
        rows = np.flatnonzero(scores > -np.inf)
        return int(rows[draw(len(rows))])
    if float(np.float32(best)) != best:
        return first
    count = max(demand.top_k_absolute, int(len(scores) * demand.top_k_fraction), 1)
    return first if count == 1 else _drawn(scores, best, count, draw)


def _drawn(scores: FloatArray, best: float, count: int, draw: Draw) -> int:
    """One of the best `count` rows, ordered by score and row."""
    rows = (scores == best).nonzero()[0]
    if len(rows) < count:  # Nodes to be left alone are no candidates while there are others.
        rows = np.flatnonzero(scores > (0.0 if best > 0.0 else -np.inf))
        rows = rows[np.argsort(-scores[rows], kind="stable")]
    return int(rows[draw(min(count, len(rows)))])


def _utilisation(demand: Demand, view: NodeView) -> FloatArray:
    shares = (view.total - view.free) / np.maximum(view.total, 1)
    places = _critical(view.resources)
    if not places:
        return np.zeros(len(view.total))
    highest: FloatArray = shares[:, places[0]]
    for place in places[1:]:
        highest = np.maximum(highest, shares[:, place])
    highest[highest < demand.spread_threshold] = 0.0
    return highest


@lru_cache(maxsize=256)
def _critical(resources: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(place for name in _CRITICAL if (place := column(resources, name)) is not None)


HYBRID = Policy("hybrid", score, pick, sees_common=False)
