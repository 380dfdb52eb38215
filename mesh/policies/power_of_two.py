"""Two nodes by chance, of these the less busy one: nearly as even as `least_busy`, and many schedulers do not meet at one node.

Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing (2001).
"""

from __future__ import annotations

import numpy as np

from mesh.policies import least_busy
from mesh.policies.policy import Demand, Draw, FloatArray, Policy


def pick(scores: FloatArray, demand: Demand, draw: Draw) -> int | None:  # noqa: ARG001  the signature of all picks
    """The better of two different rows; of equals the one that was drawn first."""
    rows = np.flatnonzero(scores > -np.inf)
    if len(rows) < 2:  # noqa: PLR2004  the two of the name
        return int(rows[0]) if len(rows) else None
    one = draw(len(rows))
    other = draw(len(rows) - 1)
    other += other >= one
    better = one if scores[rows[one]] >= scores[rows[other]] else other
    return int(rows[better])


POWER_OF_TWO = Policy("power_of_two", least_busy.score, pick)
