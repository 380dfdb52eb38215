"""The two passes of a placement, for one demand.

`find` looks for nodes with capacity now: available less load. The second pass looks for those that could hold the demand when empty. Each
decision is charged as load at once, so that the next one sees it.

The mesh's scheduler and the placement of stages' slots call these functions with the policy of a pool. Work without capacity waits in their
queues, and not at a node as in Ray (ADR 0049).

Source:
    Ray, `SchedulingPolicy::Schedule` and `SpillOver`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mesh.core.nodes import NodeTable
from mesh.placement.candidates import Candidates
from mesh.policies.policy import Draw

_NO_ROWS: NDArray[np.intp] = np.zeros(0, dtype=np.intp)


class Found(NamedTuple):
    """Result of both passes for one demand."""

    row: int | None  #: Row with capacity now, as the policy chose it.
    feasible: NDArray[np.intp] = _NO_ROWS  #: Rows that could hold the demand when empty; searched only when none has capacity now.


def find(candidates: Candidates, draw: Draw) -> Found:
    """Return a row with capacity now, or else the rows to wait for; none of both: the demand is infeasible."""
    row = candidates.pick(draw)
    return Found(None, candidates.feasible_rows()) if row is None else Found(row)


def promise_copies(candidates: Candidates, table: NodeTable, draw: Draw, most: int, holder: str = "") -> list[int]:
    """Promise the demand up to `most` times, each time on a row with capacity now; return these rows. All scores are of `table`."""
    if candidates.are_static:
        rows = candidates.picks(draw, most)
        table.promise_each(rows, candidates.vector, holder)
        return rows
    rows = []
    while len(rows) < most and (row := find(candidates, draw).row) is not None:
        table.promise(row, candidates.vector, holder)
        rows.append(row)
    return rows


def is_feasible(candidates: Candidates, row: int | None = None) -> bool:
    """Return whether this row, or any, could hold the demand when empty."""
    rows = candidates.feasible_rows()
    return len(rows) > 0 if row is None else row in rows
