from __future__ import annotations

from serve_apps.standalone.restarts import PAUSE_S, STEADY_S, Restarts


def die_and_start(restarts, now_s):
    pause_s = restarts.note_death("mesh west", now_s)
    restarts.note_start("mesh west", now_s + pause_s)
    return pause_s


def test_the_first_restart_is_at_once_then_the_pause_doubles():
    restarts = Restarts()
    assert [die_and_start(restarts, 0.0) for _ in range(8)] == [0, 1, 2, 4, 8, 16, PAUSE_S[1], PAUSE_S[1]]


def test_death_is_noted_once_and_the_restart_is_delayed():
    restarts = Restarts()
    die_and_start(restarts, 9.0)
    assert restarts.note_death("mesh west", 10.0) == PAUSE_S[0]
    assert restarts.note_death("mesh west", 10.5) is None
    assert [restarts.is_due("mesh west", now_s) for now_s in (10.9, 11.0)] == [False, True]


def test_long_lived_process_restarts_at_once():
    restarts = Restarts()
    for _ in range(5):
        die_and_start(restarts, 0.0)
    assert die_and_start(restarts, STEADY_S) == 16
    assert die_and_start(restarts, 3 * STEADY_S) == 0


def test_parts_are_counted_each_by_itself():
    restarts = Restarts()
    for _ in range(3):
        die_and_start(restarts, 0.0)
    assert restarts.note_death("root", 0.0) == 0


def test_a_start_that_is_put_off_is_not_due_before():
    restarts = Restarts()
    restarts.put_off("mesh west", 20.0)
    assert restarts.note_death("mesh west", 5.0) is None
    assert [restarts.is_due("mesh west", now_s) for now_s in (19.0, 20.0)] == [False, True]
