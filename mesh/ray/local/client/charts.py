"""Charts of a mesh's metrics: a page of six charts as PNG or SVG, and a panel of sparklines for the terminal.

The page needs matplotlib (`pip install '.[charts]'` in the checkout); the panel needs nothing beyond the mesh itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from mesh.errors import RuntimeAdapterError
from mesh.observability.metric_targets import MetricsSnapshot, TargetCheck, Targets, TargetStatus, check_targets

Axes: TypeAlias = Any  #: matplotlib's class; only `draw_page` imports matplotlib, which takes most of a second and may be missing.
#: Okabe and Ito's colours, which colour-blind people can distinguish, without yellow, which is invisible on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#555555")
_MISSED_COLOUR = "#D55E00"
_HALO = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}  #: Keeps text legible over lines.
_INK, _PALE = "#333333", "#dddddd"
_LINES_MAX = len(COLOURS)  #: Lines in one chart; the rest becomes one line, `others`.
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARKS_WIDTH = 32
_MS_PER_S = 1_000
_MINUTES_MIN = -1.0  #: A chart spans at least one minute.
_SECONDS_UP_TO = -2.0  #: Up to this many minutes, the axis is in seconds.
_LEGEND_COLUMNS, _LEGEND_CHARS = 4, 84  #: Limits of one row; each colour sample takes another 9 characters.
_SAMPLE_CHARS = 9

Lines = Mapping[str, Sequence[float]]
Pick = Callable[[MetricsSnapshot], Mapping[Any, float | None]]


class ChartsMissing(RuntimeAdapterError):
    """matplotlib is not installed."""


def draw_page(series: Sequence[MetricsSnapshot], file: Path, *, mesh: str = "", targets: Targets | None = None) -> None:
    """Draw six charts of the series, oldest first, into a file with suffix `.png`, `.svg` or `.pdf`.

    Raises:
        ChartsMissing: matplotlib is not installed.
        RuntimeAdapterError: There are no metrics, the file cannot be written, or its suffix is not supported.
    """
    try:
        from matplotlib import figure  # noqa: PLC0415  takes half a second, and may be missing
    except ImportError as missing:
        raise ChartsMissing(
            "the page of charts needs matplotlib; run: pip install '.[charts]' in the checkout of ScheduleMesh"
        ) from missing
    form = file.suffix.lower().removeprefix(".")
    if form not in ("png", "svg", "pdf"):
        raise RuntimeAdapterError(f"{file} has no supported suffix; use .png, .svg or .pdf")
    known = targets or Targets()
    if not series:
        raise RuntimeAdapterError("there are no metrics to draw yet; try again after a metrics period")
    minutes = [(metrics.at_ms - series[-1].at_ms) / 60_000 for metrics in series]
    page: Any = figure.Figure(figsize=(12, 9.5), layout="constrained")
    page.get_layout_engine().set(h_pad=0.14, w_pad=0.12)
    page.suptitle(_title(mesh, series), x=0.012, ha="left", fontsize=14, fontweight="bold", color=_INK)
    for axes, chart in zip(page.subplots(3, 2).flat, _CHARTS, strict=True):
        chart(axes, minutes, series, known)
    try:
        page.savefig(file, format=form, dpi=110, facecolor="white")
    except OSError as error:
        raise RuntimeAdapterError(f"{file} cannot be written: {error}") from error


def metrics_panel(series: Sequence[MetricsSnapshot], *, mesh: str = "", targets: Targets | None = None) -> Panel:
    """Return a `rich` panel of the metrics now, their targets, and their history as sparklines."""
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "right", "right", "left", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for one in check_targets(series[-1], targets or Targets()) if series else ():
        history = [_value(metrics, one.name, one.tag) for metrics in series]
        table.add_row(*_row(one, history))
    if not series or not table.rows:
        table.add_row(Text("nothing is known yet", style="dim"))
    return Panel(table, title=_title(mesh, series), title_align="left", border_style="dim", expand=False)


def sparkline(values: Sequence[float | None], width: int = _SPARKS_WIDTH) -> str:
    """Return the newest values as `▁▂▃▅▇`, scaled from zero to the largest; a space where a value is unknown."""
    kept = list(values[-width:])
    most = max((value for value in kept if value is not None), default=0.0)
    return "".join(" " if value is None else _SPARKS[min(7, int(8 * value / most))] if most > 0 else _SPARKS[0] for value in kept)


# -- the panel ---------------------------------------------------------------------------------------------------------


def _row(check: TargetCheck, history: Sequence[float | None]) -> tuple[Text, ...]:
    colour = {TargetStatus.MET: "green", TargetStatus.MISSED: "red", TargetStatus.NO_TARGET: "dim"}[check.status]
    sign = {TargetStatus.MET: "✓ met", TargetStatus.MISSED: "✗ missed", TargetStatus.NO_TARGET: ""}[check.status]
    name = f"{check.name}{{{check.tag}}}" if check.tag else check.name
    bound = "≥" if check.name == "placement_success_rate" else "≤"
    target = "" if check.target is None else f"{bound} {_shown(check.name, check.target)}"
    return (
        Text(name),
        Text(_shown(check.name, check.value), style="bold"),
        Text(target, style="dim"),
        Text(sparkline(history), style=colour if check.status is not TargetStatus.NO_TARGET else "blue"),
        Text(sign, style=colour),
    )


def _shown(name: str, value: float) -> str:
    if name in ("schedule_latency_p95", "queue_wait_time_p99", "agent_heartbeat_gap"):
        return f"{value:.0f} ms" if value < _MS_PER_S else f"{value / _MS_PER_S:.1f} s"
    if name in ("placement_success_rate", "resource_fragmentation"):
        return f"{100 * value:.1f} %"
    return f"{value:g}"


def _value(metrics: MetricsSnapshot, name: str, tag: str) -> float | None:
    return next((value for known, of, value in metrics.numbers() if (known, of) == (name, tag)), None)


def _title(mesh: str, series: Sequence[MetricsSnapshot]) -> str:
    shown = f"mesh {mesh}" if mesh else "mesh"
    if len(series) < 2:  # noqa: PLR2004  one moment spans no time
        return shown
    minutes = (series[-1].at_ms - series[0].at_ms) / 60_000
    return f"{shown}, the last {minutes:.0f} min" if minutes >= 1 else f"{shown}, the last {60 * minutes:.0f} s"


# -- the page ----------------------------------------------------------------------------------------------------------


def _queue_wait(axes: Axes, minutes: list[float], series: Sequence[MetricsSnapshot], targets: Targets) -> None:
    _frame(axes, "Queueing time of tasks (p99)", "seconds")
    lines = lines_by_name(series, lambda f: f.queue_wait_time_p99_ms, 1e-3)
    _draw(axes, minutes, lines)
    for place, tier in enumerate(lines):
        target_ms = targets.queue_wait_time_p99_ms.get(tier)
        if target_ms is not None and lines:
            _bound(axes, target_ms / _MS_PER_S, f"{tier}: {target_ms / _MS_PER_S:g} s", COLOURS[place])
    _scale_by_powers(axes)


def _latency(axes: Axes, minutes: list[float], series: Sequence[MetricsSnapshot], targets: Targets) -> None:
    _frame(axes, "Decision time of the scheduler (p95)", "milliseconds")
    lines = lines_by_name(series, lambda f: {"latency": f.schedule_latency_p95_ms})
    _draw(axes, minutes, lines, fill=True)
    _bound(axes, targets.schedule_latency_p95_ms, f"target: {targets.schedule_latency_p95_ms:g} ms")
    _tint(axes, minutes, lines, targets.schedule_latency_p95_ms)


def _pool_use(axes: Axes, minutes: list[float], series: Sequence[MetricsSnapshot], _: Targets) -> None:
    _frame(axes, "Share of each pool's quota that is held", "")
    _draw(axes, minutes, lines_by_name(series, lambda f: f.use), is_named=True)
    axes.set_ylim(0, 1.04)
    _as_percent(axes)


def _preemptions(axes: Axes, minutes: list[float], series: Sequence[MetricsSnapshot], targets: Targets) -> None:
    _frame(axes, "Preempted tasks, by label", "in the last minute")
    _draw(axes, minutes, lines_by_name(series, lambda f: f.preemption_count), fill=True, is_named=True)
    axes.set_ylim(0, max(axes.get_ylim()[1], 4))
    _ticks(axes.yaxis, lambda count: f"{count:g}" if count == int(count) else "")
    if targets.preemptions_per_min is not None:
        _bound(axes, targets.preemptions_per_min, f"limit of a label: {targets.preemptions_per_min}")


def _fragmentation(axes: Axes, minutes: list[float], series: Sequence[MetricsSnapshot], targets: Targets) -> None:
    _frame(axes, "Free room that fits no usual shape", "")
    lines = lines_by_name(series, lambda f: {"fragmentation": f.resource_fragmentation})
    _draw(axes, minutes, lines, fill=True)
    bound, baseline = targets.of("resource_fragmentation", ""), targets.fragmentation_baseline
    axes.set_ylim(0, max(axes.get_ylim()[1], 0.1, 1.25 * (baseline or 0)))
    if bound is not None and baseline is not None:
        _bound(axes, baseline, f"baseline: {100 * baseline:g} %", "#777777")
        _bound(axes, bound, f"target: {100 * bound:g} %")
        _tint(axes, minutes, lines, bound)
    _as_percent(axes)


def _heartbeats(axes: Axes, minutes: list[float], series: Sequence[MetricsSnapshot], targets: Targets) -> None:
    _frame(axes, "Longest silence of an agent", "seconds")
    lines = lines_by_name(series, lambda f: {"silence": f.agent_heartbeat_gap_ms}, 1e-3)
    bound = targets.agent_heartbeat_gap_ms / _MS_PER_S
    _draw(axes, minutes, lines, fill=True)
    _bound(axes, bound, f"alarm: {bound:g} s")
    _tint(axes, minutes, lines, bound)


_CHARTS = (_queue_wait, _latency, _pool_use, _preemptions, _fragmentation, _heartbeats)


def lines_by_name(series: Sequence[MetricsSnapshot], pick: Pick, scale: float = 1.0) -> Lines:
    """Return each name with its value at each moment; NaN where unknown, which leaves a gap."""
    names = list(dict.fromkeys(name for metrics in series for name in pick(metrics)))
    found = {name: [_number(pick(metrics).get(name), scale) for metrics in series] for name in names}
    kept = {name: values for name, values in found.items() if not all(math.isnan(value) for value in values)}
    if len(kept) <= _LINES_MAX:
        return kept
    by_size = sorted(kept, key=lambda name: -sum(value for value in kept[name] if not math.isnan(value)))
    others = [sum(moment) for moment in zip(*(kept[name] for name in by_size[_LINES_MAX - 1 :]), strict=True)]
    return {**{name: kept[name] for name in by_size[: _LINES_MAX - 1]}, "others": others}


def _number(value: float | None, scale: float) -> float:
    return math.nan if value is None else value * scale


def _frame(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, color=_INK, pad=24)
    axes.set_ylabel(unit, fontsize=9, color=_INK)
    axes.grid(axis="y", color=_PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, colors=_INK, length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_PALE)
    axes.margins(x=0)


def _draw(axes: Axes, minutes: list[float], lines: Lines, *, fill: bool = False, is_named: bool = False) -> None:
    """Draw the lines; with `is_named` a single line gets its name beside it too."""
    dot = "o" if len(minutes) == 1 else ""
    for colour, values in zip(COLOURS, lines.values(), strict=False):
        axes.plot(minutes, values, color=colour, linewidth=1.7, marker=dot, markersize=5, clip_on=not dot)
        if fill:
            axes.fill_between(minutes, values, color=colour, alpha=0.12, linewidth=0)
    _time_axis(axes, min(minutes[0], _MINUTES_MIN))
    axes.set_ylim(bottom=0)
    if not lines:
        axes.text(0.5, 0.5, "nothing is known yet", transform=axes.transAxes, ha="center", va="center", color="#999999", fontsize=10)
    elif is_named or len(lines) > 1:
        _legend(axes, list(lines))


def _time_axis(axes: Axes, first: float) -> None:
    """Draw the axis from `first`, in minutes below zero, to now; short spans are in seconds."""
    in_seconds = first >= _SECONDS_UP_TO
    axes.set_xlim(first, 0.0)
    axes.set_xlabel("seconds ago" if in_seconds else "minutes ago", fontsize=9, color=_INK)
    if in_seconds:
        axes.xaxis.set_major_locator(_ticker().MultipleLocator(0.25))
    _ticks(axes.xaxis, lambda minute: f"{-minute * (60 if in_seconds else 1):g}" if minute else "now")


def _ticker() -> ModuleType:
    from matplotlib import ticker  # noqa: PLC0415  as in `draw_page`

    return ticker


def _legend(axes: Axes, names: Sequence[str]) -> None:
    """Draw names above the chart, in one row or two; long names are shortened in the middle so that they do not squeeze the chart."""
    rows = math.ceil(len(names) / _LEGEND_COLUMNS)
    columns = math.ceil(len(names) / rows)
    room = _LEGEND_CHARS // columns - _SAMPLE_CHARS
    described = [without_middle(name or "no label", room) for name in names]
    place = {"loc": "lower left", "bbox_to_anchor": (-0.012, 1.0), "ncols": columns, "borderpad": 0.3}
    legend = axes.legend(axes.get_lines(), described, **place, fontsize=8.5, frameon=False, handlelength=1.2, labelspacing=0.2)
    legend.set_in_layout(False)
    if rows > 1:
        axes.set_title(axes.get_title(loc="left"), loc="left", fontsize=11, color=_INK, pad=24 + 12 * (rows - 1))


def without_middle(name: str, room: int) -> str:
    """Shorten the name in the middle to this many characters; its ends identify it better than its beginning."""
    if len(name) <= room:
        return name
    end = (room - 1) // 2
    return f"{name[: room - 1 - end]}…{name[len(name) - end :]}"


def _bound(axes: Axes, value: float, words: str, colour: str = _MISSED_COLOUR) -> None:
    """Draw a dashed line with its meaning above its left end; extend the chart to show it."""
    axes.axhline(value, color=colour, linewidth=1.1, linestyle=(0, (4, 3)))
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, 1.18 * value))
    words_at = {"xycoords": ("axes fraction", "data"), "xytext": (0, 4), "textcoords": "offset points"}
    axes.annotate(words, (0.008, value), **words_at, fontsize=8.5, color=colour, bbox=_HALO, zorder=5)


def _tint(axes: Axes, minutes: list[float], lines: Lines, bound: float) -> None:
    """Fill the space between a line and its exceeded bound with red."""
    for values in lines.values():
        axes.fill_between(minutes, values, bound, where=[value > bound for value in values], color=_MISSED_COLOUR, alpha=0.3, linewidth=0)


def _scale_by_powers(axes: Axes) -> None:
    """Scale by orders of magnitude, since waits of two tiers differ so much; draw a tenth of a second and less as almost zero."""
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(0, max(20.0, 2 * axes.get_ylim()[1]))
    _ticks(axes.yaxis, lambda value: f"{value:g}")


def _as_percent(axes: Axes) -> None:
    _ticks(axes.yaxis, lambda share: f"{100 * share:.0f} %")


def _ticks(axis: Any, shown: Callable[[float], str]) -> None:
    axis.set_major_formatter(_ticker().FuncFormatter(lambda value, _: shown(value)))
