"""Urgent work goes to the least busy node; all other work is packed, so that whole nodes stay free for urgent work."""

from __future__ import annotations

from mesh.policies import least_busy
from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import mean_share_after


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return the score of `least_busy` for an urgent demand, else that of `binpack` [n], from 0 to 1."""
    return least_busy.score(demand, view) if demand.is_urgent else mean_share_after(demand, view)


PRIORITY = Policy("priority", score)
