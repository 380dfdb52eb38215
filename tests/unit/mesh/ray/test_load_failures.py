"""Load failures of workers: when a worker is to blame, and when the function."""

from __future__ import annotations

import pytest

from mesh.ray.stage_runner.load_failures import LoadFailures


@pytest.mark.parametrize(
    ("failed", "loads", "places", "shown_by", "avoided"),
    [
        pytest.param(["w1 p"], False, "p", None, "", id="one worker proves nothing"),
        pytest.param(["w1 p", "w1 p"], False, "p", None, "", id="the same worker twice proves nothing"),
        pytest.param(["w1 p", "w2 p"], False, "p", "n1", "p", id="two workers at the only place prove it"),
        pytest.param(["w1 p", "w2 p"], False, "pq", None, "p", id="two workers of one node leave the other node"),
        pytest.param(["w1 p", "w2 p"], True, "", None, "p", id="no place is left for now"),
        pytest.param(["w1 p", "w2 q"], False, "pqr", "n1", "pq", id="two workers of two nodes prove it"),
        pytest.param(["w1 p", "w2 q"], True, "pqr", None, "pq", id="a function that was loaded has one more place"),
        pytest.param(["w1 p", "w2 q"], True, "pq", "n1", "pq", id="a function that was loaded fails at the last place"),
    ],
)
def test_a_function_is_blamed_after_two_workers(failed, loads, places, shown_by, avoided):
    failures = LoadFailures()
    if loads:
        failures.note_loaded("f")
    for number, words in enumerate(failed, 1):
        worker, place = words.split()
        failures.note_failure("f", f"n{number}", worker, place)
    assert failures.shown_by("f", set(places)) == shown_by
    assert set(failures.avoided("f")) == set(avoided)
    assert failures.shown_by("g", set(places)) is None
    assert set(failures.avoided("g")) == set()
