"""Estimates of run times and sizes by tenant and function."""

from __future__ import annotations

import pytest

from dag.function_times import FUNCTIONS_MAX, RUN_MS_UNKNOWN, SIZE_UNKNOWN_BYTES, FunctionTimes


def times_of(*took, function="f", mesh="east"):
    times = FunctionTimes()
    for took_ms in took:
        times.note("acme", function, mesh, took_ms)
    return times


def test_an_unknown_function_of_an_unknown_tenant_is_short():
    assert FunctionTimes().run_ms("acme", "f") == RUN_MS_UNKNOWN
    assert FunctionTimes().size_bytes("acme", "f") == SIZE_UNKNOWN_BYTES


def test_an_unknown_function_takes_the_mean_of_its_tenant():
    assert times_of(2_000).run_ms("acme", "other") == pytest.approx(2_000, abs=1)
    assert times_of(2_000).run_ms("rival", "f") == RUN_MS_UNKNOWN


def test_a_mean_follows_its_function_slowly():
    assert times_of(1_000, 2_000).run_ms("acme", "f") == pytest.approx(1_125, abs=2)


def test_a_slow_mesh_is_learnt_from_known_functions():
    times = times_of(*[1_000] * 20)
    for _ in range(60):
        times.note("acme", "f", "west", 3_000)
        times.note("acme", "f", "east", 1_000)
    assert times.run_ms("acme", "f", "west") / times.run_ms("acme", "f", "east") == pytest.approx(3, rel=0.1)


def test_sizes_are_means_of_stored_values():
    times = times_of(1)
    times.note("acme", "f", "east", 1, 8_000)
    times.note("acme", "f", "east", 1, 16_000)
    assert times.size_bytes("acme", "f") == 9_000


def test_functions_that_ended_longest_ago_are_forgotten():
    times = times_of(5_000, function="first")
    for number in range(FUNCTIONS_MAX):
        times.note("acme", f"f{number}", "east", 1)
    assert times.run_ms("acme", "first") < 1_000
