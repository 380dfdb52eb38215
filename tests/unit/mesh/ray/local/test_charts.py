"""Metrics as charts and as a panel in the terminal."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

import pytest
from matplotlib import figure
from rich.console import Console

from mesh.errors import RuntimeAdapterError
from mesh.observability.metric_targets import MetricsSnapshot, Targets
from mesh.ray.local.client import charts
from mesh.ray.local.client.charts import ChartsMissing, draw_page, metrics_panel, sparkline

TARGETS = Targets(preemptions_per_min=5, fragmentation_baseline=0.4)


def a_series(count=20, **facts):
    """Return metrics, one per five seconds; in the last ones the standard tier waits too long."""
    return [
        MetricsSnapshot(
            at_ms=5_000 * place,
            schedule_latency_p95_ms=10.0 + place,
            queue_wait_time_p99_ms={"high": 100.0, "standard": 12_000.0 if place == count - 1 else None},
            placement_success_rate=1.0,
            preemption_count={"tier:batch": place % 3},
            resource_fragmentation=0.2,
            agent_heartbeat_gap_ms=5_000,
            use={"gold": 0.5},
            **facts,
        )
        for place in range(count)
    ]


def shown(panel):
    console = Console(width=120, no_color=True, file=StringIO())
    console.print(panel)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("ending", "magic"),
    [
        pytest.param(".png", b"\x89PNG", id="as PNG"),
        pytest.param(".svg", b"<?xml", id="as SVG"),
        pytest.param(".pdf", b"%PDF", id="as PDF"),
    ],
)
def test_s23_the_metrics_are_drawn(tmp_path: Path, ending: str, magic: bytes):
    file = tmp_path / f"page{ending}"
    draw_page(a_series(), file, mesh="east", targets=TARGETS)
    assert file.read_bytes().startswith(magic)


@pytest.mark.parametrize(
    "series",
    [
        pytest.param([MetricsSnapshot(at_ms=0)], id="nothing is known"),
        pytest.param(a_series(1), id="one moment"),
        pytest.param([*a_series(3), MetricsSnapshot(at_ms=20_000), *a_series(1)], id="gaps"),
        pytest.param(
            [MetricsSnapshot(at_ms=at, use={f"pool {n}": 0.1 * n for n in range(9)}) for at in (0, 5_000)], id="more pools than colours"
        ),
        pytest.param([MetricsSnapshot(at_ms=at, preemption_count={"": 2}) for at in (0, 5_000)], id="a label without a name"),
    ],
)
def test_odd_series_are_drawn_too(tmp_path: Path, series: list[MetricsSnapshot]):
    draw_page(series, tmp_path / "page.svg")
    assert (tmp_path / "page.svg").stat().st_size > 10_000


def test_beyond_the_colours_the_smallest_are_drawn_together():
    lines = charts.lines_by_name([MetricsSnapshot(at_ms=0, use={f"p{n}": 0.1 * n for n in range(9)})], lambda metrics: metrics.use)
    assert list(lines) == ["p8", "p7", "p6", "p5", "p4", "p3", "others"]
    assert lines["others"] == pytest.approx([0.3])


def test_without_matplotlib_the_remedy_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ChartsMissing, match=r"pip install '\.\[charts\]' in the checkout"):
        draw_page(a_series(), tmp_path / "page.png")


@pytest.mark.parametrize(
    ("series", "name", "words"),
    [
        pytest.param(a_series(), "page.txt", "has no supported suffix", id="an ending that is no picture"),
        pytest.param([], "page.png", "try again after a metrics period", id="no figures"),
        pytest.param(a_series(), "gone/page.png", "cannot be written", id="a folder that is not there"),
    ],
)
def test_an_undrawable_chart_is_reported(tmp_path: Path, series: list[MetricsSnapshot], name: str, words: str):
    with pytest.raises(RuntimeAdapterError, match=words):
        draw_page(series, tmp_path / name)


def test_s23_the_panel_tells_value_target_course_and_standing():
    text = shown(metrics_panel(a_series(), mesh="east", targets=TARGETS))
    rows = {line.split()[1]: line for line in text.splitlines() if "≤" in line or "≥" in line}
    assert "mesh east, the last 2 min" in text
    assert rows["schedule_latency_p95"].split()[2:6] == ["29", "ms", "≤", "200"]
    assert rows["schedule_latency_p95"].rstrip(" │").endswith("✓ met")
    assert rows["queue_wait_time_p99{standard}"].rstrip(" │").endswith("✗ missed")
    assert "12.0 s" in rows["queue_wait_time_p99{standard}"]
    assert "100.0 %" in rows["placement_success_rate"]


def test_the_panel_of_nothing_says_so():
    assert "nothing is known yet" in shown(metrics_panel([]))
    assert "nothing is known yet" in shown(metrics_panel([MetricsSnapshot(at_ms=0)]))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([0, 1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇██", id="from zero to the largest"),
        pytest.param([0, 0], "▁▁", id="only zeros"),
        pytest.param([None, 5.0], " █", id="a gap"),
        pytest.param([], "", id="nothing"),
        pytest.param([9.0] + [1.0] * 32, "█" * 32, id="only the newest"),
    ],
)
def test_sparklines(values: list, expected: str):
    assert sparkline(values) == expected


@pytest.mark.parametrize(
    ("name", "room", "shown"),
    [
        pytest.param("gold", 4, "gold", id="one that fits"),
        pytest.param("a-pool-of-the-vision-team", 11, "a-poo…-team", id="a long one keeps both ends"),
        pytest.param("abcd", 3, "a…d", id="next to no room"),
    ],
)
def test_a_long_name_loses_its_middle(name: str, room: int, shown: str):
    assert charts.without_middle(name, room) == shown
    assert len(shown) <= room


def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, series: list[MetricsSnapshot]):
    """Return the page as matplotlib reads it."""
    pages = []
    make = figure.Figure
    monkeypatch.setattr(figure, "Figure", lambda **options: pages.append(make(**options)) or pages[-1])
    draw_page(series, tmp_path / "page.png", targets=TARGETS)
    return pages[0].axes


def test_seven_pools_with_long_names_leave_charts_their_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pools = {f"the-pool-of-team-number-{number}-of-the-laboratory": number / 10 for number in range(9)}
    axes = drawn(tmp_path, monkeypatch, [MetricsSnapshot(at_ms=0, use=pools), MetricsSnapshot(at_ms=600_000, use=pools)])
    widths = [chart.get_position().width for chart in axes]
    assert min(widths) > 0.38
    assert [text.get_text() for text in axes[2].get_legend().get_texts()][-1] == "others"


def test_one_pool_alone_has_its_name_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    axes = drawn(tmp_path, monkeypatch, a_series())
    assert [text.get_text() for text in axes[2].get_legend().get_texts()] == ["gold"]
    assert axes[1].get_legend() is None


@pytest.mark.parametrize(("count", "words"), [(2, "seconds ago"), (60, "minutes ago")])
def test_a_short_time_is_shown_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, words: str):
    assert {chart.get_xlabel() for chart in drawn(tmp_path, monkeypatch, a_series(count))} == {words}


def test_the_ending_of_a_picture_may_be_in_capitals(tmp_path: Path):
    draw_page(a_series(), tmp_path / "page.PNG")
    assert (tmp_path / "page.PNG").read_bytes().startswith(b"\x89PNG")
