"""Clocks, and one that endures changes of the wall clock and sleep of the machine."""

import time

import pytest

from mesh.core.clock import EnduringClock


@pytest.fixture
def clocks(monkeypatch):
    """Replace both clocks of the machine, in seconds, by ones set by hand."""
    now = {"boot": 100.0, "wall": 1_000_000.0}
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: int(now["boot"] * 1e9))
    monkeypatch.setattr(time, "time_ns", lambda: int(now["wall"] * 1e9))
    return now


@pytest.mark.parametrize(
    ("boot_s", "wall_s", "elapsed_ms"),
    [
        pytest.param(5, 5, 5_000, id="both go on alike"),
        pytest.param(1, 61, 61_000, id="a virtual machine was paused: only the wall clock saw it"),
        pytest.param(1, 3_601, 3_601_000, id="the wall clock was set forward: deadlines come early, which is safe"),
        pytest.param(5, -3_595, 5_000, id="the wall clock was set back: no effect"),
        pytest.param(30, 5, 30_000, id="the wall clock lost time"),
    ],
)
def test_a_resumed_clock_follows_the_clock_that_saw_more(clocks, boot_s, wall_s, elapsed_ms):
    clock = EnduringClock()
    clocks["boot"] += boot_s
    clocks["wall"] += wall_s
    assert clock.monotonic_ms() == elapsed_ms


def test_an_enduring_clock_never_goes_back(clocks):
    clock = EnduringClock()
    clocks["wall"] += 10
    before = clock.monotonic_ms()
    clocks["wall"] -= 20
    assert clock.monotonic_ms() == before
