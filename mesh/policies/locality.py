"""The node with most bytes of the arguments; among equals, and for arguments without a location, as `hybrid`.

It applies only to tasks that name no other policy (`mesh.policies.catalogue.chosen`), however busy the node is. If that node does not
fit, the next one by bytes is used.

Source: Ray's locality-aware scheduling.
"""

from __future__ import annotations

from mesh.policies import hybrid
from mesh.policies.policy import Draw, FloatArray, NodeDemand, NodeScoringView, Policy

_PER_BYTE = 8.0  #: One byte outweighs the range of `hybrid`, which is 4. Below 2^40 bytes `hybrid` still breaks ties.
_ANY_BYTES = 4.0


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return at least 6 for nodes with any bytes, else the score of `hybrid` [n]."""
    scores: FloatArray = hybrid.score(demand, view) + _PER_BYTE * view.local_bytes
    return scores


def pick(scores: FloatArray, demand: NodeDemand, draw: Draw) -> int | None:
    """Return the row with most bytes, else that of `hybrid`."""
    row = int(scores.argmax()) if scores.size else 0
    return row if scores.size and scores[row] > _ANY_BYTES else hybrid.pick(scores, demand, draw)


LOCALITY = Policy("locality", score, pick)
