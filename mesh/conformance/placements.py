"""The kinds `feasibility`, `two_pass` and `spill_over`: fit of nodes for demands, and placement of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from mesh.conformance.fields import Fields
from mesh.conformance.node_tables import read_request, read_table, set_load
from mesh.core.ids import NodeName
from mesh.core.nodes import NodeTable
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.placement.candidates import Candidates
from mesh.placement.feasibility import RowMask, available_rows, explain, feasible_rows, summarise
from mesh.placement.two_pass import find, is_feasible
from mesh.policies.policy import NodeDemand
from mesh.policies.random_node import RANDOM


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fit of the nodes for the demand, or the places of the tasks."""
    return {"feasibility": _run_feasibility, "two_pass": _run_two_pass, "spill_over": _run_spill_over}[case["kind"]](case)


def _run_feasibility(case: Mapping[str, Any]) -> Mapping[str, Any]:
    with Fields(case["given"], "given") as given:
        table, wanted = read_table(given.take("nodes")), ResourceSet.of(given.take("wanted"))
        selector, named = given.take("selector", {}), given.take("node", None)
    vector = table.vector(wanted)
    feasible = feasible_rows(table, vector, selector)
    verdicts = explain(table, wanted, selector, node=None if named is None else NodeName(named))
    reason, words = summarise(verdicts, is_named=named is not None)
    return {
        "fits": {verdict.node: verdict.fit.value for verdict in verdicts},
        "reasons": {verdict.node: verdict.reason.value for verdict in verdicts if verdict.reason is not None},
        "words": {verdict.node: verdict.words for verdict in verdicts if verdict.words},
        "feasible": _names(table, feasible),
        "available": _names(table, available_rows(table, vector, feasible)),
        "summary": {"reason": reason.value, "words": words},
    }


def _run_two_pass(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Place the tasks one by one, with the two passes by which the schedulers place; a waiting task waits at its node, as in Ray."""
    with Fields(case["given"], "given") as given:
        table = read_table(given.take("nodes"))
        tasks = [read_request(task) for task in given.take("tasks")]
        draws = cycle(given.take("draws", [0]))
    nodes: dict[str, str] = {}
    waiting: list[str] = []
    infeasible: list[str] = []
    for request in tasks:
        found = find(_candidates(table, request), lambda count: int(next(draws)) % count)
        if found.row is None and not len(found.feasible):
            infeasible.append(request.task)
            continue
        row = found.row if found.row is not None else int(found.feasible[int(next(draws)) % len(found.feasible)])
        if found.row is None:
            waiting.append(request.task)
        table.queue_for(row, table.vector(request.resources), request.task)
        nodes[request.task] = table.name(row)
    return {"nodes": nodes, "waiting": sorted(waiting), "infeasible": infeasible, "load": set_load(table)}


def _run_spill_over(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Find the tasks that the node could hold when empty, as the mesh's scheduler does: all infeasible ones, and one ready one."""
    with Fields(case["given"], "given") as given:
        table, node = read_table(given.take("nodes")), NodeName(given.take("node"))
        infeasible = [read_request(task) for task in given.take("infeasible", [])]
        ready = [read_request(task) for task in given.take("ready", [])]
    row = table.row(node)
    fit = [[request for request in tasks if is_feasible(_candidates(table, request), row)] for tasks in (infeasible, ready)]
    spilled = [*fit[0], *fit[1][:1]]
    for request in spilled:
        table.queue_for(row, table.vector(request.resources), request.task)
    return {"spilled": [request.task for request in spilled], "load": set_load(table)}


def _candidates(table: NodeTable, request: TaskRequest) -> Candidates:
    return Candidates(table, request.resources, request.selector, RANDOM, NodeDemand(wanted=table.vector(request.resources)))


def _names(table: NodeTable, rows: RowMask) -> list[str]:
    return [table.name(int(row)) for row in np.flatnonzero(rows)]
