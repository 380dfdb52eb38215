"""Estimate of when a run ends: its work left over the slots that it holds, or its longest chain of nodes, whichever takes longer.

    end = now + max(work left / slots held, longest way from now to the end)

Both are lower bounds of any schedule on these slots, and a list schedule takes at most their sum [Graham 1966]. The run time of a node is
the mean of the run's own nodes with its function; before the first of these has succeeded, what the planner expected when it placed the
run. Without either, the mean of the functions that are known, as the planner assumes (ADR 0054). There is no estimate if that concerns
more than half of the nodes left, if the run holds no slot, or if some node waits for a signal or fits no mesh.

Rejected: planning the rest again for each look. It costs seconds for large graphs, and its result moves with every message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from dag.run.node_facts import CacheState, TimerKind
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord
from dag.run.states import NODE_ENDS, NodeState, RunState, StageState
from dag.spec.control import SIGNAL, SLEEP, Sleep, control_of, is_control
from mesh.stages.arrays import joined
from mesh.stages.calls import Calls

Times = NDArray[np.float64]

#: Part of its usual run time that a node is expected to need still, once it has run for longer.
OVERDUE_PART = 0.1
#: Least progress that says how long the rest takes.
PROGRESS_MIN = 0.01
#: Functions of the nodes that end arrays: they take no time worth counting.
_OF_ARRAYS = f"call:{joined.__module__}:"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLeft:
    """Work left of a run."""

    slot_ms: float  #: Run times of all nodes left, added up.
    way_ms: float  #: Longest chain of nodes, each after its needs.


def ends_at_ms(now_ms: int, left: WorkLeft, slots: int) -> int | None:
    """Return when the work ends, never before now; None: it needs a slot, and none is held."""
    if left.slot_ms > 0 and slots <= 0:
        return None
    return now_ms + ceil(max(0.0, left.way_ms, left.slot_ms / max(1, slots)))


def work_left(slot_ms: Times, way_ms: Times, needed: NDArray[np.int64], needing: NDArray[np.int64]) -> WorkLeft:
    """Return the work left of nodes in topological order.

    Args:
        slot_ms: Time that each node needs a slot for.
        way_ms: Time until each node has ended, once its needs have.
        needed: One end of each edge,
        needing: and the node that waits for it.
    """
    reach = way_ms.tolist()
    own = way_ms.tolist()
    order = np.argsort(needed, kind="stable")[::-1]
    for need, node in zip(needed[order].tolist(), needing[order].tolist(), strict=True):
        reach[need] = max(reach[need], own[need] + reach[node])
    return WorkLeft(slot_ms=float(slot_ms.sum()), way_ms=max(reach, default=0.0))


def estimated_end_ms(record: RunRecord, calls: Calls, now_ms: int) -> int | None:
    """Return when the run ends, if it keeps its slots; None: unknown, or it has ended or is being stopped.

    Args:
        calls: The nodes of its plans, in topological order.
    """
    if record.state is not RunState.RUNNING:
        return None
    rows = record.nodes.rows(calls.ids)
    states = record.nodes.columns.state[rows]
    is_left = ~NodeTable.are(states, NODE_ENDS)
    if NodeTable.are(states, (NodeState.BLOCKED,)).any():
        return None
    usual_ms = _run_times(record.nodes, calls, rows, record.expected_ms)
    left = _times_left(record.nodes, calls, rows, is_left, usual_ms, now_ms)
    if left is None:
        return None
    needed, needing = calls.edges()
    both = is_left[needed] & is_left[needing]
    slots = sum(stage.slots for stage in record.stages.values() if stage.state is StageState.RUNNING)
    return ends_at_ms(now_ms, work_left(*left, needed[both], needing[both]), slots)


def _run_times(nodes: NodeTable, calls: Calls, rows: NDArray[np.intp], expected_ms: Mapping[str, int]) -> Times:
    """Return the usual run time of each function; not a number: unknown."""
    columns = nodes.columns
    started, finished = columns.started_ms[rows], columns.finished_ms[rows]
    is_measured = NodeTable.are(columns.state[rows], (NodeState.SUCCEEDED,)) & (started > 0) & (finished >= started)
    copied = [row for row, rare in nodes.rare.items() if rare.cache is not None and rare.cache.state is CacheState.HIT]
    is_measured &= ~np.isin(rows, copied)
    places, functions = calls.function[is_measured], len(calls.functions)
    counts = np.bincount(places, minlength=functions)
    sums = np.bincount(places, weights=(finished - started)[is_measured], minlength=functions)
    means: Times = np.divide(sums, counts, out=np.full(functions, np.nan), where=counts > 0)
    for number, function in enumerate(calls.functions):
        if is_control(function) or function.startswith(_OF_ARRAYS):
            means[number] = 0.0
        elif not counts[number] and function in expected_ms:
            means[number] = expected_ms[function]
    return means


def _times_left(
    nodes: NodeTable, calls: Calls, rows: NDArray[np.intp], is_left: NDArray[np.bool_], usual_ms: Times, now_ms: int
) -> tuple[Times, Times] | None:
    """Return the times that `work_left` takes; None: too little is known."""
    own = usual_ms[calls.function]
    is_unknown = is_left & np.isnan(own)
    if is_unknown.any():
        known = [usual_ms[number] for number, function in enumerate(calls.functions) if _is_known(function, usual_ms[number])]
        if not known or 2 * int(is_unknown.sum()) > int(is_left.sum()):
            return None
        own = np.where(is_unknown, sum(known) / len(known), own)
    slot_ms = np.where(is_left, own, 0.0)
    place_of_row = {row: place for place, row in enumerate(rows.tolist())}
    for row in nodes.having(NodeState.RUNNING).tolist():
        if (place := place_of_row.get(row)) is not None:
            kept = nodes.at(row)
            slot_ms[place] = _rest_ms(float(slot_ms[place]), now_ms - kept.started_ms if kept.started_ms else 0, kept.progress)
    way_ms = slot_ms.copy()
    for row, rare in nodes.rare.items():
        place = place_of_row.get(row)
        if place is not None and is_left[place] and (due := rare.timers.get(TimerKind.RETRY)):
            way_ms[place] += max(0, due - now_ms)
    return (slot_ms, way_ms) if _add_sleeps(nodes, calls, rows, is_left, way_ms, now_ms) else None


def _add_sleeps(nodes: NodeTable, calls: Calls, rows: NDArray[np.intp], is_left: NDArray[np.bool_], way_ms: Times, now_ms: int) -> bool:
    """Add the sleeps that are left to the ways; return False if a node waits for a signal."""
    waits = [number for number, function in enumerate(calls.functions) if function in (SLEEP, SIGNAL)]
    for place in np.flatnonzero(is_left & np.isin(calls.function, waits)).tolist() if waits else ():
        call = calls.call(place)
        control = control_of(call.function, call.args)
        if not isinstance(control, Sleep):
            return False
        wakes_ms = nodes.at(int(rows[place])).timers.get(TimerKind.WAKE)
        way_ms[place] = max(0, wakes_ms - now_ms) if wakes_ms else control.sleep_ms
    return True


def _is_known(function: str, run_ms: float) -> bool:
    return not np.isnan(run_ms) and not is_control(function) and not function.startswith(_OF_ARRAYS)


def _rest_ms(usual_ms: float, ran_ms: int, progress: float | None) -> float:
    """Return how long a running node needs still: by its own report, or by the usual run time of its function."""
    if progress is not None and progress >= PROGRESS_MIN:
        return max(0, ran_ms) * max(0.0, 1 - progress) / progress
    return max(usual_ms * OVERDUE_PART, usual_ms - max(0, ran_ms))
