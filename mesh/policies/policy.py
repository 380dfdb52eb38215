"""Interface of node policies: the score of each node for one demand, and the pick among the scores. Pure; randomness is passed in.

The scheduler caches scores and recomputes them only for rows that changed. A score therefore depends on its own row and the demand only,
never on other rows. A step that needs all rows (the best, the best k, a random one) belongs to the pick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mesh.core.reasons import Reason
from mesh.core.task_spec import Weights
from mesh.policies.fragmentation import CommonShapes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

#: `draw(n)`: an integer from 0 to n - 1. The mesh passes a seeded source, so that a journal replays to the same choices.
Draw = Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScoringView:
    """Rows of the node table. Arrays are shared and read-only."""

    resources: tuple[str, ...]  #: r column names.
    total: IntArray  #: [n, r], units.
    free: IntArray  #: [n, r], units: available minus load, never below zero.
    busy: IntArray  #: [n], tasks that run there or are promised.
    load: IntArray  #: [n, r], units promised and not started.
    local_bytes: IntArray  #: [n], bytes of the demand's arguments there; zeros when unknown.
    of_job: IntArray  #: [n], members of the demand's job that run there or are promised.
    is_named: BoolArray  #: [n], True for the node that the request names (`node_affinity`), or the submitter's node.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDemand:
    """Demand to be placed."""

    wanted: IntArray  #: [r], units, in the columns of the view.
    weights: Weights = field(default_factory=Weights)
    role: str = ""
    soft: bool = False
    names_node: bool = False  #: A node is named; without one `node_affinity` refuses.
    elsewhere: bool = False  #: `soft`, and the named node is gone or too small; set by `settle`.
    is_urgent: bool = False  #: Its priority allows a reserved placement group; for `priority`.
    common: CommonShapes | None = None  #: Most requested shapes, for `weighted`. None: unknown.
    top_k_fraction: float = 0.2
    top_k_absolute: int = 1
    spread_threshold: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRefused:
    """No node can ever hold the demand, as things are."""

    reason: Reason
    detail: str


#: One score per row of the view; higher is better, -inf: does not fit. A row's score must not depend on the other rows, so that the
#: scheduler can recompute changed rows alone. The pick considers available rows only.
Score = Callable[[NodeDemand, NodeScoringView], FloatArray]
#: Row to use, given scores that are -inf where the demand does not fit now; None when all are.
Pick = Callable[[FloatArray, NodeDemand, Draw], int | None]
#: Called for a new demand and whenever nodes join, leave or change totals, with the total [r] of the named node. None: it is gone, or
#: its labels do not match. Returns the demand to score with, or why it can never be placed.
Settle = Callable[[NodeDemand, IntArray | None], NodeDemand | PlacementRefused]


def highest(scores: FloatArray, demand: NodeDemand, draw: Draw) -> int | None:  # noqa: ARG001  the signature of all picks
    """Return the row with the highest score; among equals the first."""
    if scores.size == 0:
        return None
    row = int(scores.argmax())
    return row if scores[row] > -np.inf else None


@dataclass(frozen=True, slots=True)
class Policy:
    """Named pair of score and pick."""

    name: str
    score: Score  #: From 0 to 1 if the pick is `highest` and `summand` is None, so that such policies can be combined.
    pick: Pick = highest
    settle: Settle | None = None
    sees_common: bool = True  #: False: the score does not depend on `NodeDemand.common` and need not be recomputed when that changes.
    summand: Score | None = None  #: Its score in a combination, from 0 to 1 or -inf, if `score` has another scale.
    version: Callable[[], int] | None = None  #: Changes when another score takes over, so that earlier scores are void; None: never.
