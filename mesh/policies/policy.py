"""What a node policy is: the score of each node for one demand, and the pick among the scores. Pure; chance is passed in.

Scores are kept by the scheduler and made again only for the rows that changed. So a score looks at its own row and at the
demand, never at the other rows; what needs all of them (the best, the best k, one by chance) is the pick's work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mesh.policies.fragmentation import CommonShapes
from mesh.reasons import Reason
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
    elsewhere: bool = False  #: `soft`, and the named node is gone or could never hold it; `settle` says so.
    is_urgent: bool = False  #: Of a priority that may take a reserved placement group; for `priority`.
    common: CommonShapes | None = None  #: What is asked for most; for `weighted`. None: nothing is known of it.
    top_k_fraction: float = 0.2
    top_k_absolute: int = 1
    spread_threshold: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No node will ever do, as things stand."""

    reason: Reason
    detail: str


#: Higher is better; -inf: not there. One score per row of the view. Must give a row the same score whatever other rows are in
#: the view, so that the scheduler can score again only what has changed. Only available rows are looked at by the pick.
Score = Callable[[Demand, NodeView], FloatArray]
#: The row to take, of scores that are -inf where the demand does not fit now; None when all are.
Pick = Callable[[FloatArray, Demand, Draw], int | None]
#: Called when the demand is new and whenever nodes come, go or change their totals, with the total [r] of the named node (None: it is
#: gone, or has not the labels): the demand to score with, or why it is never going to be placed.
Settle = Callable[[Demand, IntArray | None], Demand | Refused]


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
    score: Score  #: From 0 to 1 where the pick is `highest`, so that such policies can be combined.
    pick: Pick = highest
    settle: Settle | None = None
    sees_common: bool = True  #: False: its score does not depend on `Demand.common`, and need not be made again when that changes.
