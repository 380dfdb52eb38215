"""Ray's SPREAD: as many tasks on one node as on the next.

Ray goes round the nodes with an index that each raylet keeps. Here the tasks on the nodes are counted, which gives the same round while
nothing ends, needs no state that a journal would have to carry, and mends what endings have made uneven.

Source: ray-project/ray, `spread_scheduling_policy.cc`; seed S32.
"""

from __future__ import annotations

from mesh.policies.policy import Demand, FloatArray, NodeView, Policy
from mesh.policies.shares import fewness


def score(demand: Demand, view: NodeView) -> FloatArray:  # noqa: ARG001  the signature of all scores
    """1 for a node without tasks, towards 0 with many [n]."""
    return fewness(view.busy)


SPREAD = Policy("spread", score, sees_common=False)
