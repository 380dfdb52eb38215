"""Estimates of waiting and transfer times, computed by hand."""

import pytest

from federation.estimates import CostRules, Pace, overdue_ms, paced, transfer_ms, typical_run_ms, wait_ms


@pytest.mark.parametrize(
    ("timings", "expected_ms"),
    [
        pytest.param({"waiting": 0, "room": 1, "running": 0}, 0, id="capacity and an empty queue"),
        pytest.param({"waiting": 2, "room": 3, "running": 5}, 0, id="capacity for the queue and for it"),
        pytest.param({"waiting": 2, "room": 2, "running": 1}, 600, id="capacity for the queue and not for it"),
        pytest.param({"waiting": 0, "room": 0, "running": 1}, 600, id="one runs before it"),
        pytest.param({"waiting": 3, "room": 0, "running": 4}, 600, id="four run side by side"),
        pytest.param({"waiting": 3, "room": 0, "running": 7}, 343, id="rounded up"),
        pytest.param({"waiting": 1, "room": 0, "running": 0}, 1_200, id="capacity used by foreign work"),
    ],
)
def test_the_wait_is_the_time_until_enough_stages_have_ended(timings, expected_ms):
    assert wait_ms(**timings, run_ms=600) == expected_ms


@pytest.mark.parametrize(
    ("timings", "expected"),
    [
        pytest.param({"waiting": 0, "room": 0, "running": 1, "age_ms": 200}, (400, 0), id="the running one has done a third"),
        pytest.param({"waiting": 1, "room": 0, "running": 1, "age_ms": 200}, (1_000, 0), id="and another one comes first"),
        pytest.param({"waiting": 0, "room": 0, "running": 4, "age_ms": 200}, (100, 0), id="each of four has done a third"),
        pytest.param({"waiting": 1, "room": 0, "running": 1, "age_ms": 1_200}, (600, 0), id="it has run twice the mean"),
        pytest.param({"waiting": 1, "room": 0, "running": 1, "age_ms": 1_201}, (600, 601), id="it is overdue"),
        pytest.param({"waiting": 0, "room": 1, "running": 1, "age_ms": 1_201}, (0, 0), id="it is overdue, and there is capacity"),
    ],
)
def test_wait_shrinks_while_work_runs_and_becomes_overdue(timings, expected):
    overruns = {name: value for name, value in timings.items() if name != "running"}
    assert (wait_ms(**timings, run_ms=600), overdue_ms(**overruns, run_ms=600)) == expected


def test_stages_that_take_no_time_are_waited_for_all_the_same():
    assert wait_ms(waiting=4, room=0, running=1, run_ms=0) == 5


def test_transfer_time_follows_bandwidth_with_a_minimum():
    rules = CostRules(bandwidth_bytes_per_s=1_000)
    assert [transfer_ms(size, rules) for size in (0, 1, 1_000, 1_500, 1_501)] == [0, 1, 1_000, 1_500, 1_501]
    assert transfer_ms(1, CostRules()) == 1


def test_the_pace_follows_what_was_seen_lately():
    pace = paced(None, 800)
    assert pace == Pace(run_ms=800, stages=1)
    assert paced(pace, 1_600) == Pace(run_ms=900, stages=2)
    assert paced(pace, 0) == Pace(run_ms=700, stages=2)


def test_a_clock_that_fell_back_makes_no_pace_negative():
    assert paced(paced(None, -5), -1_000_000) == Pace(run_ms=0, stages=2)


def test_a_mesh_without_a_pace_is_taken_for_what_the_others_are():
    assert typical_run_ms([Pace(run_ms=100, stages=3), None, Pace(run_ms=500, stages=1)], CostRules()) == 200
    assert typical_run_ms([None], CostRules(run_ms_unknown=77)) == 77
