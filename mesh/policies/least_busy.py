"""The node with the lowest used share of the requested resources; among equals the one with fewest tasks. Larger nodes get more tasks."""

from __future__ import annotations

from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import fewness, first_then, mean_share_after


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return the mean free share of the requested resources [n], from 0 to 1."""
    return first_then(1.0 - mean_share_after(demand, view), fewness(view.busy))


LEAST_BUSY = Policy("least_busy", score, sees_common=False)
