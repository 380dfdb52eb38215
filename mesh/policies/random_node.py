"""Any node that fits, with equal probability."""

from __future__ import annotations

import numpy as np

from mesh.policies.policy import Draw, FloatArray, NodeDemand, NodeScoringView, Policy


def score(demand: NodeDemand, view: NodeScoringView) -> FloatArray:  # noqa: ARG001  the signature of all scores
    """Return the same score for all nodes [n]."""
    return np.zeros(len(view.total))


def pick(scores: FloatArray, demand: NodeDemand, draw: Draw) -> int | None:  # noqa: ARG001  the signature of all picks
    """Return a random row."""
    rows = np.flatnonzero(scores > -np.inf)
    return int(rows[draw(len(rows))]) if len(rows) else None


RANDOM = Policy("random", score, pick)
