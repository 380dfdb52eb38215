"""Pack a job's members: the node with most of them; among equals the fullest.

Source: TY-Arranger's JobAffinity.
"""

from __future__ import annotations

from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import fewness, first_then, mean_share_after


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return 0 without members, towards 1 with many [n]."""
    return first_then(1.0 - fewness(view.of_job), mean_share_after(demand, view))


JOB_AFFINITY = Policy("job_affinity", score)
