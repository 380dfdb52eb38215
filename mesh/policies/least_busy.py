"""The node with the least taken of what the demand wants; of equals the one with fewest tasks. A larger node takes more."""

from __future__ import annotations

from mesh.policies.policy import Demand, FloatArray, NodeView, Policy
from mesh.policies.shares import fewness, first_then, mean_share_after


def score(demand: Demand, view: NodeView) -> FloatArray:
    """What would still be free of the wanted resources, as a mean share [n], from 0 to 1."""
    return first_then(1.0 - mean_share_after(demand, view), fewness(view.busy))


LEAST_BUSY = Policy("least_busy", score, sees_common=False)
