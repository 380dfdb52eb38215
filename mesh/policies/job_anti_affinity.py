"""Spread a job's members: the node with fewest of them; among equals the emptiest.

Source: TY-Arranger's JobAntiAffinity.
"""

from __future__ import annotations

from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import fewness, first_then, mean_share_after


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return 1 without members, towards 0 with many [n]."""
    return first_then(fewness(view.of_job), 1.0 - mean_share_after(demand, view))


JOB_ANTI_AFFINITY = Policy("job_anti_affinity", score)
