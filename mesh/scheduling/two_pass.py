"""Ray's two-pass schedule, and the spill-over when a node joins or grows.

The first pass looks for nodes with room now, that is available less load; a task that finds none takes, in the second pass, a
node that could hold it when empty, and waits there for its turn. One of the nodes found is drawn at random: nodes decide on old
pictures of each other, and when all take the emptiest at once it is the fullest a moment later. Whatever is decided is charged
as load at once, so that the next decision sees it.

The mesh's own scheduler keeps waiting tasks in its queues instead of at nodes, and takes the first pass by score
(`mesh.scheduling.scheduler`); this is the plain rule for whoever wants just that.

Source:
    Seed 001, `SchedulingPolicy::Schedule` and `SpillOver`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mesh.ids import NodeName, TaskId
from mesh.labels import matches
from mesh.nodes import NodeTable
from mesh.policies.policy import Draw
from mesh.scheduling.feasibility import available_rows, feasible_rows
from mesh.scheduling.tasks import TaskRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Where each task of one schedule goes."""

    nodes: Mapping[TaskId, NodeName]  #: Of all that have one, in the order in which they were looked at.
    waiting: frozenset[TaskId]  #: Of these, the tasks that have to wait at their node for room.
    infeasible: tuple[TaskId, ...]  #: No node could hold them even when empty.


def schedule(tasks: Iterable[TaskRequest], table: NodeTable, draw: Draw) -> Placements:
    """A node for each task that has a feasible one; its load is charged in `table`.

    Args:
        tasks: The placeable ones, in their order.
        table: The nodes; only the load changes.
        draw: `draw(n)` is a whole number from 0 to n - 1.

    Raises:
        SelectorError: A task's selector cannot be read.
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
    """The tasks that go to a node which has joined or grown; their load is charged in `table`.

    All infeasible tasks that it could hold when empty go there, and the first such ready task, so that load moves to a new node
    bit by bit and not in one rush of all its neighbours.

    Raises:
        LedgerError: The node is unknown.
        SelectorError: A task's selector cannot be read.
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
