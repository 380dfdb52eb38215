"""Leaders on empty GPU nodes, workers on fuller nodes: the learner runs fast, the actors use what is left.

Both score the same weighted mean of used shares of CPU, memory and GPU; a resource that a node lacks counts as used. For a leader GPU has
the highest weight and the lowest mean wins; for a worker CPU has the highest weight and the highest mean wins. For a leader without GPU
demand, GPUs are left out of the mean.

Source: TY-Arranger's LeaderFirst.
"""

from __future__ import annotations

import numpy as np

from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import column, shares_after

LEADER = "leader"
_RAISED = 3.0


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return the mean share for a worker, 1 minus it for a leader [n], from 0 to 1."""
    is_leader = demand.role == LEADER
    weights = _weights(view.resources, demand, is_leader=is_leader)
    shares = np.where(view.total > 0, shares_after(demand, view), 1.0)
    mean: FloatArray = shares @ (weights / max(float(weights.sum()), 1.0))
    return 1.0 - mean if is_leader else mean


def _weights(resources: tuple[str, ...], demand: NodeDemand, *, is_leader: bool) -> FloatArray:
    weights = np.zeros(len(resources))
    raised = "gpu" if is_leader else "cpu"
    for name in ("cpu", "memory", "gpu"):
        place = column(resources, name)
        if place is not None and (name != "gpu" or not is_leader or demand.wanted[place]):
            weights[place] = _RAISED if name == raised else 1.0
    return weights


LEADER_FIRST = Policy("leader_first", score)
