"""A job's members together: the node that has most of them, of equals the fullest.

Source: TY-Arranger's JobAffinity (seed S37).
"""

from __future__ import annotations

from mesh.policies.policy import Demand, FloatArray, NodeView, Policy
from mesh.policies.shares import fewness, first_then, mean_share_after


def score(demand: Demand, view: NodeView) -> FloatArray:
    """0 without members, towards 1 with many [n]."""
    return first_then(1.0 - fewness(view.of_job), mean_share_after(demand, view))


JOB_AFFINITY = Policy("job_affinity", score)
