"""Graphs and timelines of runs as columns, from their records. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dag.run.array_states import ArrayElements, arrays_in, shown_rows
from dag.run.node_facts import STATES
from dag.run.node_table import NodeTable
from dag.run.run_status import shown_state
from dag.run.runs import RunRecord
from dag.run.states import NodeState
from dag.spec.spec import DagSpec
from mesh.core.ids import MeshId, StageId
from mesh.core.reasons import Reason
from serve_apps.schemas.graphs import GraphView, TimelineView
from serve_apps.views.runs import array_view

V = TypeVar("V", bound=Hashable)

_NAMES = [state.value for state in STATES]
_PLACE_OF = {state: place for place, state in enumerate(STATES)}


class _Listed(Generic[V]):
    """Values in the order in which they are first asked for; None has the place -1."""

    def __init__(self) -> None:
        self._place: dict[V, int] = {}

    def place(self, value: V | None) -> int:
        return -1 if value is None else self._place.setdefault(value, len(self._place))

    def names(self) -> list[str]:
        return [str(value) for value in self._place]


def graph_view(record: RunRecord, spec: DagSpec) -> GraphView:
    """Return the graph of the run with the state of each node."""
    table, ids = record.nodes, spec.calls.ids
    rows = {table.names[row]: (row, state) for row, state in shown_rows(table)}
    shown = [name for name in ids if name in rows]
    new_place = np.full(len(ids), -1, np.int64)
    new_place[[spec.calls.place_of[name] for name in shown]] = np.arange(len(shown))
    needed, waiting = (new_place[ends] for ends in spec.calls.edges())
    edges = np.unique(np.stack((needed, waiting))[:, (needed >= 0) & (waiting >= 0)], axis=1)
    stages, meshes = _Listed[str](), _Listed[str]()
    first_part = {array: int(parts[0]) for array, parts in table.arrays().items() if len(parts)}
    # An array has the stage of its first part: it runs in several, and its box stands in one.
    placed = [table.places[int(table.columns.place[first_part.get(rows[name][0], rows[name][0])])] for name in shown]
    return GraphView(
        id=record.run,
        tenant=record.tenant,
        state=shown_state(record).value,
        seq=record.seq,
        nodes=list(shown),
        edges_from=edges[0].tolist(),
        edges_to=edges[1].tolist(),
        states=_NAMES,
        node_state=[_PLACE_OF[rows[name][1]] for name in shown],
        node_stage=[stages.place(place.stage) for place in placed],
        node_mesh=[meshes.place(place.mesh) for place in placed],
        attempt=[int(table.columns.attempt[rows[name][0]]) for name in shown],
        stages=stages.names(),
        meshes=meshes.names(),
        arrays=[array_view(ArrayElements(table, spec, array).counts()) for array in arrays_in(table, spec)],
    )


class _Bar(NamedTuple):
    """An attempt, in the order of its sorting."""

    start_ms: int
    stop_ms: int
    row: int
    attempt: int
    mesh: MeshId | None
    stage: StageId | None
    state: NodeState
    reason: Reason | None


def timeline_view(record: RunRecord, now_ms: int) -> TimelineView:
    """Return a bar for each attempt that has begun, the earliest first. An array has those of its parts."""
    table, begin_ms = record.nodes, record.created_ms
    bars = sorted((*_present(table), *_past(table)), key=lambda bar: bar[:4])
    nodes, meshes, stages, reasons = _Listed[str](), _Listed[str](), _Listed[str](), _Listed[str]()
    return TimelineView(
        id=record.run,
        state=shown_state(record).value,
        created_ms=begin_ms,
        now_ms=max(0, now_ms - begin_ms),
        end_ms=record.ended_ms - begin_ms if record.ended_ms else -1,
        from_ms=[bar.start_ms - begin_ms for bar in bars],
        to_ms=[bar.stop_ms - begin_ms if bar.stop_ms else -1 for bar in bars],
        node=[nodes.place(table.names[bar.row]) for bar in bars],
        attempt=[bar.attempt for bar in bars],
        mesh=[meshes.place(bar.mesh) for bar in bars],
        stage=[stages.place(bar.stage) for bar in bars],
        bar_state=[_PLACE_OF[bar.state] for bar in bars],
        reason=[reasons.place(bar.reason.value if bar.reason is not None else None) for bar in bars],
        nodes=nodes.names(),
        meshes=meshes.names(),
        stages=stages.names(),
        reasons=reasons.names(),
        states=_NAMES,
    )


def _present(table: NodeTable) -> Iterator[_Bar]:
    """Yield the present attempts that have begun."""
    columns, arrays = table.columns, table.arrays()
    for row in np.flatnonzero(columns.started_ms).tolist():
        if row in arrays:
            continue
        place, state = table.places[int(columns.place[row])], STATES[int(columns.state[row])]
        why = table.words[int(columns.words[row])].reason if state is NodeState.FAILED else None
        start_ms, stop_ms = int(columns.started_ms[row]), int(columns.finished_ms[row])
        stop_ms = max(stop_ms, start_ms) if stop_ms else 0
        yield _Bar(start_ms, stop_ms, row, int(columns.attempt[row]), place.mesh, place.stage, state, why)


def _past(table: NodeTable) -> Iterator[_Bar]:
    """Yield the attempts that others followed."""
    for row, rare in table.rare.items():
        for past in rare.past:
            if past.started_ms:
                stop_ms = max(past.ended_ms, past.started_ms)
                yield _Bar(past.started_ms, stop_ms, row, past.attempt, past.mesh, None, NodeState.FAILED, past.reason)
