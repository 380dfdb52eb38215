"""The node that the request names.

While that node is there and could hold the work, the work goes there or waits for it, soft or not. When the node is gone, or too small even
when empty, soft work goes elsewhere (as `hybrid` would have it), and other work is refused for good, with the reason.

Source: Ray's NodeAffinitySchedulingStrategy; seeds S31, S32.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mesh.policies import hybrid
from mesh.policies.policy import Demand, Draw, FloatArray, IntArray, NodeView, Policy, Refused
from mesh.reasons import Reason

_NAMED = 3.0  #: More than any score of `hybrid`.


def score(demand: Demand, view: NodeView) -> FloatArray:
    """3 for the named node; for the others -inf, or what `hybrid` says when the named one will not do [n]."""
    if not demand.names_node:
        return np.full(len(view.total), -np.inf)
    others: FloatArray | float = hybrid.score(demand, view) if demand.elsewhere else -np.inf
    return np.where(view.is_named, _NAMED, others)


def pick(scores: FloatArray, demand: Demand, draw: Draw) -> int | None:
    """The named node, or as `hybrid`."""
    row = int(scores.argmax()) if scores.size else 0
    return row if scores.size and scores[row] == _NAMED else hybrid.pick(scores, demand, draw)


def settle(demand: Demand, named: IntArray | None) -> Demand | Refused:
    """Whether the named node will do, of which `named` is the total [r]; None: it is gone, or has not the labels."""
    if not demand.names_node:
        return Refused(
            reason=Reason.REQUEST_INVALID, detail="policy node_affinity wants a node, and the task names none; name one with `node`"
        )
    if named is not None and bool((named >= demand.wanted).all()):
        return replace(demand, elsewhere=False)
    if demand.soft:
        return replace(demand, elsewhere=True)
    if named is None:
        return Refused(reason=Reason.NAMED_NODE_GONE, detail="the node that it names is not in the mesh; name another one, or ask softly")
    return Refused(
        reason=Reason.NAMED_NODE_TOO_SMALL, detail="the node that it names could not hold it even when empty; ask for less, or softly"
    )


NODE_AFFINITY = Policy("node_affinity", score, pick, settle)
