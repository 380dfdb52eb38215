"""Packing with CPU and memory in balance: `(1 - |cpu share - memory share|) * score`, where the score is `binpack`'s.

A node with all CPUs used and half its memory free strands that memory; the larger the gap, the lower the score. Shares include the
demand. A node without CPUs or known memory has no gap.

Source: TY-Arranger's MinFragment.
"""

from __future__ import annotations

import numpy as np

from mesh.policies.policy import FloatArray, NodeDemand, NodeScoringView, Policy
from mesh.policies.shares import column, shares_after


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return scores from 0 to 1 [n]."""
    shares = shares_after(demand, view)
    wanted = demand.wanted > 0
    packed: FloatArray = shares @ (wanted / max(int(np.count_nonzero(wanted)), 1))
    cpu, memory = column(view.resources, "cpu"), column(view.resources, "memory")
    if cpu is None or memory is None:
        return packed
    gap = np.abs(shares[:, cpu] - shares[:, memory])
    gap *= (view.total[:, cpu] > 0) & (view.total[:, memory] > 0)
    even: FloatArray = (1.0 - gap) * packed
    return even


MIN_FRAGMENT = Policy("min_fragment", score)
