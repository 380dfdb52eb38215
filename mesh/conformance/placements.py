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
from mesh.placement.feasibility import RowMask, available_rows, explain, feasible_rows, summarise
from mesh.placement.two_pass import schedule, spill_over


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
    with Fields(case["given"], "given") as given:
        table = read_table(given.take("nodes"))
        tasks = [read_request(task) for task in given.take("tasks")]
        draws = cycle(given.take("draws", [0]))
    placements = schedule(tasks, table, lambda count: int(next(draws)) % count)
    return {
        "nodes": dict(placements.nodes),
        "waiting": sorted(placements.waiting),
        "infeasible": list(placements.infeasible),
        "load": set_load(table),
    }


def _run_spill_over(case: Mapping[str, Any]) -> Mapping[str, Any]:
    with Fields(case["given"], "given") as given:
        table, node = read_table(given.take("nodes")), NodeName(given.take("node"))
        infeasible = [read_request(task) for task in given.take("infeasible", [])]
        ready = [read_request(task) for task in given.take("ready", [])]
    spilled = spill_over(infeasible, ready, table, node)
    return {"spilled": list(spilled), "load": set_load(table)}


def _names(table: NodeTable, rows: RowMask) -> list[str]:
    return [table.name(int(row)) for row in np.flatnonzero(rows)]
