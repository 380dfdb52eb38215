"""Ray's two-pass schedule, and the spill-over when a node joins or grows.

The first pass looks for nodes with capacity now: available less load. In the second pass a task without such a node takes one that could
hold it when empty, and waits there. One of the nodes found is drawn at random: nodes decide on outdated views of each other, and if all
chose the emptiest it would soon be the fullest. Each decision is charged as load at once, so that the next one sees it.

The mesh's own scheduler keeps waiting tasks in its queues instead of at nodes, and chooses by score (`mesh.tasks.scheduler`). This
module is the plain rule for callers that need only that.

Source:
    Ray, `SchedulingPolicy::Schedule` and `SpillOver`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mesh.core.ids import NodeName, TaskId
from mesh.core.labels import matches
from mesh.core.nodes import NodeTable
from mesh.core.task_spec import TaskRequest
from mesh.placement.feasibility import available_rows, feasible_rows
from mesh.policies.policy import Draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Result of one schedule."""

    nodes: Mapping[TaskId, NodeName]  #: Tasks with a node, in the order they were considered.
    waiting: frozenset[TaskId]  #: Those of them that must wait at their node for capacity.
    infeasible: tuple[TaskId, ...]  #: No node could hold them even when empty.


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
        wanted = table.vector(request.resources)
        feasible = feasible_rows(table, wanted, request.selector)
        rows = np.flatnonzero(available_rows(table, wanted, feasible))
        if rows.size == 0:
            rows = np.flatnonzero(feasible)
            if rows.size == 0:
                infeasible.append(request.task)
                continue
            waiting.add(request.task)
        row = int(rows[draw(rows.size)])
        table.queue_for(row, wanted)
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
    wanted = table.vector(request.resources)
    if (table.total[row] < wanted).any() or not matches(request.selector, table.labels[row]):
        return False
    table.queue_for(row, wanted)
    return True
