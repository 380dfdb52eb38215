"""Ray's DEFAULT: pack nodes up to a threshold, then spread, and choose at random among the best k.

A node's utilisation is the highest of its CPU, memory and object store, without GPUs and without the demand. Below `spread_threshold` it
counts as zero. Lower is better. One of the best k nodes (`top_k_fraction` of all, at least `top_k_absolute`) is drawn, so that many
schedulers do not choose the same node. The named node (the submitter's own) is used without a draw when none is better. GPU nodes are
used for work without GPUs only when no other node fits. Work without demands goes to a random node.

A score combines this in one number: 2 - utilisation, less 3 on a GPU node to be avoided, plus a tiny amount on the named node.
Utilisations are in single precision, as in Ray, so that the tiny amount is always visible.

Source: ray-project/ray, `hybrid_scheduling_policy.cc` and `NodeResources::CalculateCriticalResourceUtilization`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mesh.policies.policy import Draw, FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import column

_CRITICAL = ("cpu", "memory", "object_store_memory")
_NAMED = 2.0**-30  #: Below the single-precision resolution of numbers from 1 to 2.
_LEFT_ALONE = 3.0


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return from 1 to 2 for usable nodes, from -2 to -1 for GPU nodes to be avoided [n]."""
    scores = 2.0 - _utilisation(demand, view)
    gpu = column(view.resources, "gpu")
    if gpu is not None and not demand.wanted[gpu]:
        scores -= _LEFT_ALONE * (view.total[:, gpu] > 0)
    exact: FloatArray = scores.astype(np.float32).astype(np.float64)
    if np.count_nonzero(view.is_named):
        exact += _NAMED * view.is_named
    return exact


def pick(scores: FloatArray, demand: NodeDemand, draw: Draw) -> int | None:
    """Return the named node if none is better, else a random one of the best k."""
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
    """Return a random one of the best `count` rows, ordered by score and row."""
    rows = (scores == best).nonzero()[0]
    if len(rows) < count:  # Nodes to be avoided are no candidates while there are others.
        rows = np.flatnonzero(scores > (0.0 if best > 0.0 else -np.inf))
        rows = rows[np.argsort(-scores[rows], kind="stable")]
    return int(rows[draw(min(count, len(rows)))])


def _utilisation(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
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
