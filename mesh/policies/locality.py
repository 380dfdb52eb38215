"""Where most bytes of the arguments lie; of equals, and for arguments that lie nowhere, as `hybrid`.

Only for work that names no other policy (`mesh.policies.catalogue.chosen`), however busy the node is otherwise. When that node has
no room the next one by bytes is taken.

Source: Ray's locality-aware scheduling; seed S33.
"""

from __future__ import annotations

from mesh.policies import hybrid
from mesh.policies.policy import Demand, Draw, FloatArray, NodeView, Policy

_PER_BYTE = 8.0  #: One byte outweighs the whole span of `hybrid`, which is 4. Below 2^40 bytes its difference still breaks ties.
_ANY_BYTES = 4.0


def score(demand: Demand, view: NodeView) -> FloatArray:
    """From 6 with any bytes, else that of `hybrid` [n]."""
    scores: FloatArray = hybrid.score(demand, view) + _PER_BYTE * view.local_bytes
    return scores


def pick(scores: FloatArray, demand: Demand, draw: Draw) -> int | None:
    """Most bytes, else as `hybrid`."""
    row = int(scores.argmax()) if scores.size else 0
    return row if scores.size and scores[row] > _ANY_BYTES else hybrid.pick(scores, demand, draw)


LOCALITY = Policy("locality", score, pick)
