"""Results as tables for people and as JSON for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.measuring import Result, Series

_FASTER = 0.5  #: Smaller ratios are printed inverted: 25 x faster says more than 0.04 x.


def tables(results: Iterable[Result]) -> RenderableType:
    """Return all results as text, one below the other."""
    return Group(*[part for result in results for part in (*_tables(result), Text())])


def as_json(machine: Mapping[str, Any], results: Iterable[Result]) -> dict[str, Any]:
    """Return everything, including the single samples, in milliseconds."""
    return {"machine": dict(machine), "benchmarks": [_json_of(result) for result in results]}


def _tables(result: Result) -> list[RenderableType]:
    base = _base(result)
    title = Text.assemble((result.name, "bold"), f": {result.about}")
    table = _table("side", "turns", "median", "p95", "p99", "least")
    if base is not None:
        table.add_column(f"against {base.name}", justify="right")
    for side in result.sides:
        numbers = (side.median_ms, side.p95_ms, side.p99_ms, min(side.samples_ms))
        cells = [side.name, str(len(side.samples_ms)), *(f"{number:,.1f} {result.unit}" for number in numbers)]
        table.add_row(*cells, *([_against(side, base)] if base is not None else []))
    parts: list[RenderableType] = [title, table]
    for side in result.sides:
        if side.name in result.parts:
            parts += [
                Text(f"the parts of {side.name}", style="italic"),
                _parts_table(side, result),
            ]
    return parts


def _parts_table(side: Series, result: Result) -> Table:
    table = _table("part", "median", "p95", "of the whole")
    for part in result.parts[side.name]:
        shown = (f"{number:,.1f} {result.unit}" for number in (part.median_ms, part.p95_ms))
        table.add_row(part.name, *shown, f"{part.median_ms / side.median_ms:.0%}")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    return table


def _against(side: Series, base: Series) -> str:
    if side is base:
        return ""
    ratio = side.ratio_to(base)
    described = f"{ratio:.2f} x" if ratio > _FASTER else f"{1 / ratio:.1f} x faster"
    return f"{described}, {side.excess_over_ms(base):+,.1f} ms"


def _base(result: Result) -> Series | None:
    return next((side for side in result.sides if side.name == result.base), None)


def _json_of(result: Result) -> dict[str, Any]:
    base = _base(result)
    sides = {side.name: _times(side) for side in result.sides}
    for side in result.sides:
        if base is not None and side is not base:
            sides[side.name] |= {"ratio": round(side.ratio_to(base), 3), "excess_ms": round(side.excess_over_ms(base), 3)}
        if side.name in result.parts:
            sides[side.name]["parts"] = {part.name: _times(part) for part in result.parts[side.name]}
    return {"name": result.name, "about": result.about, "unit": result.unit, "base": result.base, "sides": sides}


def _times(series: Series) -> dict[str, Any]:
    return {
        "median_ms": round(series.median_ms, 3),
        "p95_ms": round(series.p95_ms, 3),
        "p99_ms": round(series.p99_ms, 3),
        "samples_ms": [round(sample, 3) for sample in series.samples_ms],
    }
