"""Ray's two-pass schedule, and the spill-over when a node joins or grows.

`find` looks for nodes with capacity now: available less load. The second pass looks for those that could hold the task when empty; there
it waits, or in the mesh's queue. Each decision is charged as load at once, so that the next one sees it.

The mesh's scheduler and the placement of stages' slots call `find` and `is_feasible` with the policy of a pool. They keep waiting tasks
in queues instead of at nodes (ADR 0049). `schedule` and `spill_over` are Ray's whole rule for callers without queues: a node is drawn at
random, since nodes that decide on outdated views of each other would all choose the emptiest.

Source:
    Ray, `SchedulingPolicy::Schedule` and `SpillOver`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mesh.core.ids import NodeName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.task_spec import TaskRequest
from mesh.placement.candidates import Candidates
from mesh.policies.policy import Draw, NodeDemand
from mesh.policies.random_node import RANDOM


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Result of one schedule."""

    nodes: Mapping[TaskId, NodeName]  #: Tasks with a node, in the order they were considered.
    waiting: frozenset[TaskId]  #: Those of them that must wait at their node for capacity.
    infeasible: tuple[TaskId, ...]  #: No node could hold them even when empty.


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


def schedule(tasks: Iterable[TaskRequest], table: NodeTable, draw: Draw) -> Placements:
    """Return a node for each task that has a feasible one, and charge its load in `table`.

    Args:
        tasks: The placeable tasks, in order.
        table: The nodes; only the load changes.
        draw: `draw(n)` is a random integer from 0 to n - 1.

    Raises:
        SelectorError: A task's selector cannot be parsed.
    """
    nodes: dict[TaskId, NodeName] = {}
    waiting: set[TaskId] = set()
    infeasible: list[TaskId] = []
    for request in tasks:
        candidates = _candidates(table, request)
        found = find(candidates, draw)
        if found.row is None and not len(found.feasible):
            infeasible.append(request.task)
            continue
        row = found.row
        if row is None:
            row = int(found.feasible[draw(len(found.feasible))])
            waiting.add(request.task)
        table.queue_for(row, candidates.vector, request.task)
        nodes[request.task] = table.name(row)
    return Placements(nodes=nodes, waiting=frozenset(waiting), infeasible=tuple(infeasible))


def spill_over(infeasible: Iterable[TaskRequest], ready: Iterable[TaskRequest], table: NodeTable, node: NodeName) -> tuple[TaskId, ...]:
    """Return the tasks that go to a node that has joined or grown, and charge their load in `table`.

    All infeasible tasks that it could hold when empty go there, but only the first such ready task. Load then moves to a new node
    gradually and not from all its neighbours at once.

    Raises:
        LedgerError: The node is unknown.
        SelectorError: A task's selector cannot be parsed.
    """
    row = table.row(node)
    spilled = [request.task for request in infeasible if _charge_if_feasible(table, row, request)]
    for request in ready:
        if _charge_if_feasible(table, row, request):
            spilled.append(request.task)
            break
    return tuple(spilled)


def _charge_if_feasible(table: NodeTable, row: int, request: TaskRequest) -> bool:
    candidates = _candidates(table, request)
    if not is_feasible(candidates, row):
        return False
    table.queue_for(row, candidates.vector, request.task)
    return True


def _candidates(table: NodeTable, request: TaskRequest) -> Candidates:
    return Candidates(table, request.resources, request.selector, RANDOM, NodeDemand(wanted=table.vector(request.resources)))
