"""Places of a stage's slots: which group gets a task, and which groups retire."""

from __future__ import annotations

import pytest

from mesh.core.resources import NOTHING, ResourceSet
from mesh.stages.slot_window import BACKLOG_MS, FUNCTIONS_MAX, LEAST_SHARE, SHARES, TASK_MS_MIN, WINDOW, RunTimes, SlotWindow, share_of


def window(*groups, closed=()):
    """Return a window with these groups of one slot each; a number after `*` is another count of slots."""
    kept = SlotWindow()
    for text in groups:
        name, _, slots = text.partition("*")
        kept.add(name, int(slots or 1), is_open=name not in closed)
    return kept


def fed(kept, *nodes, share=SHARES, expected_ms=None, may_wait=True):
    """Place each task; return their groups."""
    return [kept.place(node, share, expected_ms, may_wait=may_wait) for node in nodes]


def test_idle_slots_come_before_places_behind_running_tasks():
    assert fed(window("a", "b"), *"1234") == ["a", "b", "a", "b"]


def test_a_full_slot_takes_a_task_when_one_comes_back():
    kept = window("a")
    assert fed(kept, *"123") == ["a", "a", None]
    kept.remove("1")
    assert (kept.place("3", SHARES), kept.group_of("3")) == ("a", "a")


def test_a_group_of_several_slots_has_places_for_each():
    assert fed(window("a*2", "b"), *"123456") == ["a", "b", "a", "a", "b", "a"]


def test_a_group_that_is_not_placed_gets_no_task():
    kept = window("a", "b", closed="b")
    assert fed(kept, *"123") == ["a", "a", None]
    assert (kept.open("b"), kept.open("b"), kept.open("gone")) == (True, False, False)
    assert fed(kept, "3") == ["b"]


@pytest.mark.parametrize(
    ("task", "share"),
    [
        pytest.param({"cpu": 2}, SHARES, id="a task as large as the slot"),
        pytest.param({"cpu": 1}, SHARES // 2, id="half of the slot"),
        pytest.param({"cpu": 0.5, "gpu": 1}, SHARES, id="all of one resource"),
        pytest.param({}, LEAST_SHARE, id="nothing"),
        pytest.param({"cpu": 4}, SHARES, id="more than the slot, which Ray refuses"),
    ],
)
def test_the_share_of_a_task_is_its_largest_part(task, share):
    assert share_of(ResourceSet.of(task), ResourceSet.of({"cpu": 2, "gpu": 1})) == share


def test_small_tasks_share_a_slot():
    kept = window("a")
    third = share_of(ResourceSet.of({"cpu": 1}), ResourceSet.of({"cpu": 3}))
    assert fed(kept, *"1234567", share=third) == ["a"] * 3 * WINDOW + [None]


def test_a_slot_of_nothing_holds_64_tasks():
    kept = window("a")
    placed = fed(kept, *map(str, range(65)), share=share_of(NOTHING, NOTHING))
    assert (placed.count("a"), placed[-1]) == (64, None)


def test_idle_slots_retire_first_unplaced_ones_before_all():
    kept = window("a", "b", "c", closed="c")
    fed(kept, "1")
    assert (kept.retire(1), kept.take_free()) == (1, ("c",))
    assert (kept.retire(1), kept.take_free(), kept.slots) == (1, ("b",), 1)


def test_of_working_slots_that_whose_task_began_last_retires():
    kept = window("a", "b")
    fed(kept, "1", "2", "3")
    kept.remove("1")  # Now 3 begins, after 2.
    kept.retire(1)
    assert fed(kept, "4", "5") == ["b", None]


def test_the_last_slot_never_retires():
    kept = window("a", "b")
    assert (kept.retire(5), kept.take_free(), kept.slots) == (1, ("a",), 1)
    assert (kept.retire(1), fed(kept, "1")) == (0, ["b"])


def test_a_group_larger_than_what_should_go_stays():
    kept = window("a*4", "b*4", "c")
    assert (kept.retire(3), kept.take_free(), kept.slots) == (1, ("c",), 8)


def test_a_retired_slot_is_held_until_its_last_task_is_over():
    kept = window("a", "b")
    fed(kept, *"1234")
    kept.retire(1)
    assert (kept.take_free(), kept.slots, kept.group_of("2")) == ((), 2, "b")
    kept.remove("2")
    assert kept.take_free() == ()
    kept.remove("4")
    assert (kept.take_free(), kept.slots) == (("b",), 1)


def test_a_task_surely_waits_behind_those_that_fill_its_slot():
    kept = window("a", "b")
    fed(kept, *"1234")
    kept.retire(1)
    assert [list(kept.waiting(begun, retired=True)) for begun in ({"1"}, {"2"})] == [[], ["4"]]
    assert [list(kept.waiting(begun, retired=False)) for begun in ({"1"}, {"2"})] == [["3"], []]


def test_a_task_beside_a_small_one_may_run():
    kept = window("a", "b*2")
    fed(kept, "1", share=SHARES)
    fed(kept, "2", "3", "4", share=SHARES // 2)
    kept.retire(2)
    assert list(kept.waiting({"2"}, retired=True)) == []


def test_a_task_that_must_not_wait_gets_idle_slots_only():
    kept = window("a", "b")
    assert fed(kept, *"123", may_wait=False) == ["a", "b", None]
    kept.remove("2")
    assert (kept.idle, fed(kept, "3", may_wait=False), kept.idle) == (1, ["b"], 0)


def test_more_of_short_tasks_wait_in_a_slot():
    kept = window("a")
    placed = fed(kept, *map(str, range(BACKLOG_MS + 1)), expected_ms=1.0)
    assert (placed.count("a"), placed[-1]) == (BACKLOG_MS, None)


@pytest.mark.parametrize("first_ms", [None, 10_000.0], ids=["an unknown time", "a long time"])
def test_no_more_short_tasks_wait_behind_one_of(first_ms):
    kept = window("a")
    fed(kept, "1", expected_ms=first_ms)
    assert fed(kept, *"23", expected_ms=1.0) == ["a", None]


def test_the_expected_time_of_a_function_follows_its_runs():
    times = RunTimes()
    assert times.of("f") is None
    times.note("f", 0)
    assert times.of("f") == TASK_MS_MIN
    times.note("f", 1_000)
    assert times.of("f") == 200
    for number in range(FUNCTIONS_MAX):
        times.note(str(number), 5)
    assert times.of("f") is None


@pytest.mark.parametrize(("at_least", "retired"), [(False, 0), (True, 2)])
def test_groups_larger_than_asked_retire_only_when_they_must(at_least, retired):
    kept = window("a*2", "b*2")
    assert kept.retire(1, at_least=at_least) == retired
    assert kept.retire(9, at_least=at_least) == 2 - retired, "the last group stays"
