"""The less busy of two random nodes: nearly as even as `least_busy`, but many schedulers do not choose the same node.

Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing (2001).
"""

from __future__ import annotations

import numpy as np

from mesh.policies import least_busy
from mesh.policies.policy import Draw, FloatArray, NodeDemand, Policy


def pick(scores: FloatArray, demand: NodeDemand, draw: Draw) -> int | None:  # noqa: ARG001  the signature of all picks
    """Return the better of two different random rows; if equal, the first one drawn."""
    rows = np.flatnonzero(scores > -np.inf)
    if len(rows) < 2:  # noqa: PLR2004  the two of the name
        return int(rows[0]) if len(rows) else None
    one = draw(len(rows))
    other = draw(len(rows) - 1)
    other += other >= one
    better = one if scores[rows[one]] >= scores[rows[other]] else other
    return int(rows[better])


POWER_OF_TWO = Policy("power_of_two", least_busy.score, pick)
