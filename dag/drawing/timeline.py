"""Timelines of runs on their meshes: rows of bars that do not overlap, one block of rows for each mesh."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from dag.drawing.picture import GraphNode

#: Nodes that get a bar each; of more, each stage gets one.
BARS_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Time in which something ran."""

    label: str
    mesh: str
    start_ms: int
    end_ms: int
    state: str = ""
    nodes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Bars of a run, from its start on."""

    title: str
    span_ms: int
    rows: tuple[tuple[str, tuple[Bar, ...]], ...]  #: Mesh and the bars of one row; the rows of a mesh stand together.


def timeline_of(title: str, nodes: Sequence[GraphNode], now_ms: int, begin_ms: int | None = None) -> Timeline:
    """Return the timeline of a run: a bar for each node that has begun, or for each stage if there are many nodes.

    Args:
        now_ms: End of the bars of nodes that still run.
        begin_ms: Start of the run; None: the first bar.
    """
    bars = [
        Bar(label=one.node, mesh=one.mesh, start_ms=one.started_ms, end_ms=max(one.finished_ms or now_ms, one.started_ms), state=one.state)
        for one in nodes
        if one.started_ms
    ]
    if len(bars) > BARS_MAX:
        bars = _by_stage([one for one in nodes if one.started_ms], now_ms)
    begin = min([bar.start_ms for bar in bars], default=0) if begin_ms is None else begin_ms
    moved = [_moved(bar, begin) for bar in bars]
    rows = [(mesh, row) for mesh in sorted({bar.mesh for bar in moved}) for row in _rows(bar for bar in moved if bar.mesh == mesh)]
    return Timeline(title=title, span_ms=max([bar.end_ms for bar in moved], default=0), rows=tuple(rows))


def _moved(bar: Bar, begin_ms: int) -> Bar:
    start_ms = max(0, bar.start_ms - begin_ms)
    return Bar(
        label=bar.label, mesh=bar.mesh, start_ms=start_ms, end_ms=max(start_ms, bar.end_ms - begin_ms), state=bar.state, nodes=bar.nodes
    )


def _by_stage(nodes: Iterable[GraphNode], now_ms: int) -> list[Bar]:
    of_stage: dict[tuple[str, str], list[GraphNode]] = {}
    for one in nodes:
        of_stage.setdefault((one.mesh, one.stage), []).append(one)
    return [
        Bar(
            label=stage or "no stage",
            mesh=mesh,
            start_ms=min(one.started_ms for one in members),
            end_ms=max(one.finished_ms or now_ms for one in members),
            nodes=len(members),
        )
        for (mesh, stage), members in of_stage.items()
    ]


def _rows(bars: Iterable[Bar]) -> list[tuple[Bar, ...]]:
    """Return the bars in as few rows as possible without an overlap."""
    rows: list[list[Bar]] = []
    free: list[tuple[int, int]] = []
    for bar in sorted(bars, key=lambda bar: (bar.start_ms, bar.end_ms, bar.label)):
        if free and free[0][0] <= bar.start_ms:
            _, row = heappop(free)
            rows[row].append(bar)
        else:
            row = len(rows)
            rows.append([bar])
        heappush(free, (max(bar.end_ms, bar.start_ms + 1), row))
    return [tuple(row) for row in rows]
