"""Ray's SPREAD: an equal number of tasks per node.

Ray cycles through the nodes with an index per raylet. Here the tasks on the nodes are counted. This gives the same cycle while no task
ends, needs no state in the journal, and corrects imbalance when tasks end.

Source: ray-project/ray, `spread_scheduling_policy.cc`.
"""

from __future__ import annotations

from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import fewness


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:  # noqa: ARG001  the signature of all scores
    """Return 1 for a node without tasks, towards 0 with many [n]."""
    return fewness(view.busy)


SPREAD = Policy("spread", score, sees_common=False)
