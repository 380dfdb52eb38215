"""Script per frame, as the benchmark of the page reads it from a trace of Chromium."""

from typing import Any

from benchmarks.page import Found, as_json, script_per_frame, table

PAGE = (7, 1)


def event(name: str, at_ms: float, took_ms: float, place: tuple[int, int] = PAGE, ph: str = "X") -> dict[str, Any]:
    return {"name": name, "ph": ph, "ts": at_ms * 1000, "dur": took_ms * 1000, "pid": place[0], "tid": place[1]}


def test_script_counts_for_the_frame_before_it():
    trace = [
        event("FunctionCall", 1, 2),  # Before the first frame.
        event("FireAnimationFrame", 10, 3),
        event("FunctionCall", 10, 3),
        event("FunctionCall", 20, 1),
        event("FireAnimationFrame", 26, 5),
        event("FunctionCall", 26, 5),
    ]
    assert script_per_frame(trace) == [4.0, 5.0]


def test_script_counts_by_its_time_on_the_processor():
    trace = [event("FireAnimationFrame", 0, 30), {**event("FunctionCall", 0, 30), "tdur": 2_000}]
    assert script_per_frame(trace) == [2.0]


def test_nested_script_counts_once_and_other_threads_do_not():
    trace = [
        event("FireAnimationFrame", 0, 4),
        event("FireAnimationFrame", 16, 4),
        event("FunctionCall", 0, 4),
        event("FunctionCall", 1, 1),
        event("RunMicrotasks", 4, 1),
        event("FunctionCall", 5, 9, place=(7, 2)),
        event("FireAnimationFrame", 5, 1, place=(8, 1)),
        event("FunctionCall", 6, 1, ph="I"),
    ]
    assert script_per_frame(trace) == [5.0, 0.0]


def test_trace_without_frames_has_no_samples():
    assert script_per_frame([event("FunctionCall", 1, 2)]) == []


def test_goal_limits_the_number_that_it_names():
    found = [Found(name="median", samples=(1.0, 2.0, 90.0), goal=10, is_p95=False), Found(name="p95", samples=(1.0, 2.0, 90.0), goal=10)]
    assert [one.judged for one in found] == [2.0, 90.0]
    assert table(found).row_count == 2
    assert as_json(found)["sides"]["p95"]["p95"] == 90.0


def test_machine_without_chromium_is_left_out():
    assert "left out" in str(table([]).title)
