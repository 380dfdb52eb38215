"""Any node that has room, all with the same chance."""

from __future__ import annotations

import numpy as np

from mesh.policies.policy import Demand, Draw, FloatArray, NodeView, Policy


def score(demand: Demand, view: NodeView) -> FloatArray:  # noqa: ARG001  the signature of all scores
    """The same for all [n]."""
    return np.zeros(len(view.total))


def pick(scores: FloatArray, demand: Demand, draw: Draw) -> int | None:  # noqa: ARG001  the signature of all picks
    """One of the rows by chance."""
    rows = np.flatnonzero(scores > -np.inf)
    return int(rows[draw(len(rows))]) if len(rows) else None


RANDOM = Policy("random", score, pick)
