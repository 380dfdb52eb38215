"""What a node policy is: the score of each node for one demand, and the pick among the scores. Pure; chance is passed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mesh.scheduling.tasks import Weights

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: `draw(n)`: a whole number from 0 to n - 1. The mesh passes a seeded one, so a journal replays to the same choices.
Draw = Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Some rows of the node table as they stand. Arrays are shared: nobody writes into them."""

    resources: tuple[str, ...]  #: r column names.
    total: IntArray  #: [n, r], units.
    free: IntArray  #: [n, r], units: available minus load, never below zero.
    busy: IntArray  #: [n], tasks that run there or are promised.
    load: IntArray  #: [n, r], units promised and not started.
    local_bytes: IntArray  #: [n], how much of the demand's arguments lies there; zeros when nothing is known.
    of_job: IntArray  #: [n], members of the demand's job that run there or are promised.
    is_named: BoolArray  #: [n], True for the node that the request names (`node_affinity`), or where the submitter sits.


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be placed."""

    wanted: IntArray  #: [r], units, in the columns of the view.
    weights: Weights = field(default_factory=Weights)
    role: str = ""
    soft: bool = False
    names_node: bool = False  #: A node is named; without one `node_affinity` refuses all.
    top_k_fraction: float = 0.2
    top_k_absolute: int = 1
    spread_threshold: float = 0.5


#: Higher is better; -inf: not there. One score per row of the view. Must give a row the same score whatever other rows are in
#: the view, so that the scheduler can score again only what has changed. Only available rows are looked at by the pick.
Score = Callable[[Demand, NodeView], FloatArray]
#: The row to take, of scores that are -inf where the demand does not fit now; None when all are.
Pick = Callable[[FloatArray, Demand, Draw], int | None]


def highest(scores: FloatArray, demand: Demand, draw: Draw) -> int | None:  # noqa: ARG001  the signature of all picks
    """The best row; of equals the first."""
    if scores.size == 0:
        return None
    row = int(scores.argmax())
    return row if scores[row] > -np.inf else None


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy by its name."""

    name: str
    score: Score
    pick: Pick = highest
