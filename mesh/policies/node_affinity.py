"""The node that the request names.

While that node exists and could hold the work, the work goes there or waits for it, soft or not. If the node is gone, or too small even
when empty, soft work goes elsewhere (as in `hybrid`). Other work is refused for good, with the reason.

Source: Ray's NodeAffinitySchedulingStrategy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mesh.core.reasons import Reason
from mesh.policies import hybrid
from mesh.policies.policy import Draw, FloatArray, IntArray, NodeDemand, NodeScoringView, PlacementRefused, Policy

_NAMED = 3.0  #: Above any score of `hybrid`.


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return 3 for the named node; for the others -inf, or the score of `hybrid` if the named one cannot be used [n]."""
    if not demand.names_node:
        return np.full(len(view.total), -np.inf)
    others: FloatArray | float = hybrid.score(demand, view) if demand.elsewhere else -np.inf
    return np.where(view.is_named, _NAMED, others)


def pick(scores: FloatArray, demand: NodeDemand, draw: Draw) -> int | None:
    """Return the named node, else the pick of `hybrid`."""
    row = int(scores.argmax()) if scores.size else 0
    return row if scores.size and scores[row] == _NAMED else hybrid.pick(scores, demand, draw)


def settle(demand: NodeDemand, named: IntArray | None) -> NodeDemand | PlacementRefused:
    """Resolve whether the named node can be used.

    Args:
        named: Total of the named node [r]; None: it is gone, or its labels do not match.
    """
    if not demand.names_node:
        return PlacementRefused(
            reason=Reason.REQUEST_INVALID, detail="policy node_affinity needs a node, but the task names none; set `node`"
        )
    if named is not None and bool((named >= demand.wanted).all()):
        return replace(demand, elsewhere=False)
    if demand.soft:
        return replace(demand, elsewhere=True)
    if named is None:
        return PlacementRefused(reason=Reason.NAMED_NODE_GONE, detail="the named node is not in the mesh; name another one, or set soft")
    return PlacementRefused(
        reason=Reason.NAMED_NODE_TOO_SMALL, detail="the named node could not hold the task even when empty; request less, or set soft"
    )


NODE_AFFINITY = Policy("node_affinity", score, pick, settle)
