"""The leader on an empty node with GPUs, its workers on the fuller nodes without: the learner runs well, the actors cost little.

Both see the same thing, a weighted mean of the shares taken of CPU, memory and GPU; what a node has not counts as taken. For a leader
the GPU weighs more and the lowest mean wins, for a worker the CPU weighs more and the highest wins. A leader that wants no GPU
leaves those of the node out of its mean.

Source: TY-Arranger's LeaderFirst (seed S37).
"""

from __future__ import annotations

import numpy as np

from mesh.policies.policy import Demand, FloatArray, NodeView, Policy
from mesh.policies.shares import column, shares_after

LEADER = "leader"
_RAISED = 3.0


def score(demand: Demand, view: NodeView) -> FloatArray:
    """The mean share for a worker, what is missing to 1 for a leader [n], from 0 to 1."""
    is_leader = demand.role == LEADER
    weights = _weights(view.resources, demand, is_leader=is_leader)
    shares = np.where(view.total > 0, shares_after(demand, view), 1.0)
    mean: FloatArray = shares @ (weights / max(float(weights.sum()), 1.0))
    return 1.0 - mean if is_leader else mean


def _weights(resources: tuple[str, ...], demand: Demand, *, is_leader: bool) -> FloatArray:
    weights = np.zeros(len(resources))
    raised = "gpu" if is_leader else "cpu"
    for name in ("cpu", "memory", "gpu"):
        place = column(resources, name)
        if place is not None and (name != "gpu" or not is_leader or demand.wanted[place]):
            weights[place] = _RAISED if name == raised else 1.0
    return weights


LEADER_FIRST = Policy("leader_first", score)
