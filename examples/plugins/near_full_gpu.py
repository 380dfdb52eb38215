"""A policy in Python: finish GPU nodes that are nearly full first, and keep work without GPUs off them.

Named in the mesh's settings as `examples.plugins.near_full_gpu:NearFullGpu`, or announced by an installed package:

    [project.entry-points."schedulemesh.policies"]
    near_full_gpu = "examples.plugins.near_full_gpu:NearFullGpu"
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mesh import NodeDemand, NodeScoringView
from mesh.plugins import CandidateFacts, TaskFacts

_INTERACTIVE_BONUS = 2.0
_SAVED_MS_MAX = 3_600_000


class NearFullGpu:
    """Plugin with all three hooks; a plugin may have any of them."""

    def score(self, demand: NodeDemand, view: NodeScoringView) -> NDArray[np.float64]:
        """Score all nodes at once, from 0 to 1: arrays in, one number per node out."""
        gpu = view.resources.index("gpu") if "gpu" in view.resources else None
        if gpu is None:
            return np.zeros(len(view.total))
        taken = 1.0 - view.free[:, gpu] / np.maximum(view.total[:, gpu], 1)
        return taken if demand.wanted[gpu] else (view.total[:, gpu] == 0).astype(np.float64)

    def priority(self, facts: TaskFacts) -> float:
        """Raise interactive work above batch work of the same priority."""
        return facts.priority + (_INTERACTIVE_BONUS if facts.workload_type == "interactive" else 0.0)

    def preemption_policy(self, facts: CandidateFacts) -> float | None:
        """Protect tasks that have saved no state for an hour; score the others by the work that they would lose."""
        if facts.lost_ms > _SAVED_MS_MAX:
            return None
        return facts.priority_delta - facts.lost_ms / 60_000
