"""Label queues: the next task, and no starvation."""

from __future__ import annotations

import pickle

import pytest

from mesh.errors import AmountError, LedgerError
from mesh.tasks.queues import LabelQueues, LabelSettings

BUCKET = "b"


@pytest.fixture
def queues():
    """Queues that check their own state when the test ends."""
    made = LabelQueues()
    yield made
    assert made.check() == []


def add(queues, task, *, bucket=BUCKET, label="", priority=5.0, since_ms=0, arrival=None):
    queues.add(task, bucket=bucket, label=label, priority=priority, since_ms=since_ms, arrival=len(queues) if arrival is None else arrival)


def drain(turn, queues):
    """Take everything that the round yields, in order."""
    taken = []
    while (found := turn.next()) is not None:
        bucket, task = found
        assert queues.remove(task)
        taken.append(task)
        turn.again(bucket)
    return taken


# -- order -------------------------------------------------------------------------------------------------------------


def test_s10_priority_adds_up_label_task_and_age(queues):
    queues.configure("tenant:gold", LabelSettings(priority=2.0, aging_per_s=0.5))
    add(queues, "t", label="tenant:gold", priority=3.0, since_ms=1_000)
    assert queues.workload_priority("t", 1_000) == 5.0
    assert queues.workload_priority("t", 5_000) == 7.0


def test_s10_a_label_of_higher_priority_goes_first(queues):
    queues.configure("tenant:gold", LabelSettings(priority=1.5))
    add(queues, "plain", bucket="p", label="tenant:plain", priority=6.0)
    add(queues, "gold", bucket="g", label="tenant:gold", priority=5.0)
    assert list(queues.walk(0)) == ["gold", "plain"]


def test_s10_age_lets_a_task_overtake_a_higher_priority(queues):
    queues.configure("a", LabelSettings(aging_per_s=0.01))
    add(queues, "old and low", label="a", priority=4.0, since_ms=0)
    add(queues, "new and high", label="a", priority=5.0, since_ms=100_001)
    assert list(queues.walk(100_001)) == ["old and low", "new and high"]


def test_s10_labels_that_age_faster_overtake_with_time(queues):
    queues.configure("fast", LabelSettings(aging_per_s=1.0))
    queues.configure("slow", LabelSettings(aging_per_s=0.1))
    add(queues, "slow", bucket="s", label="slow", priority=5.0)
    add(queues, "fast", bucket="f", label="fast", priority=1.0)
    assert list(queues.walk(4_000)) == ["slow", "fast"]
    assert list(queues.walk(5_000)) == ["fast", "slow"]


def test_age_of_15_minutes_beats_the_highest_fresh_priority(queues):
    add(queues, "low", priority=1.0, since_ms=0)
    add(queues, "before", bucket="x", priority=10.0, since_ms=899_999)
    add(queues, "after", bucket="y", priority=10.0, since_ms=900_001)
    assert list(queues.walk(900_001)) == ["before", "low", "after"]


def test_equals_go_by_their_arrival(queues):
    for arrival, task in ((2, "b"), (0, "c"), (1, "a")):
        add(queues, task, arrival=arrival, bucket=task)
    assert list(queues.walk(77)) == ["c", "a", "b"]


def test_the_order_of_two_tasks_of_a_label_never_changes(queues):
    queues.configure("a", LabelSettings(aging_per_s=0.003))
    for number in range(30):
        add(queues, f"t{number}", bucket=number % 4, label="a", priority=1 + number % 7 / 3, since_ms=1_700_000_000_000 + 377 * number)
    now = 1_700_000_100_000
    assert list(queues.walk(now)) == list(queues.walk(now + 1)) == list(queues.walk(now + 999_999_937))


def test_a_task_that_comes_back_gets_its_old_place(queues):
    for number in range(3):
        add(queues, f"t{number}", since_ms=number, arrival=number)
    queues.remove("t1")
    add(queues, "t1", since_ms=1, arrival=1)
    assert queues.tasks(BUCKET) == ("t0", "t1", "t2")


# -- settings ----------------------------------------------------------------------------------------------------------


def test_changed_settings_order_what_waits_already(queues):
    add(queues, "low, early", label="a", priority=4.0, since_ms=0)
    add(queues, "high, late", label="a", priority=5.0, since_ms=10_000)
    assert queues.tasks(BUCKET) == ("high, late", "low, early")
    queues.configure("a", LabelSettings(aging_per_s=1.0))
    assert queues.tasks(BUCKET) == ("low, early", "high, late")
    queues.configure("a", LabelSettings(aging_per_s=0.0))
    assert queues.tasks(BUCKET) == ("high, late", "low, early")


def test_unconfigured_labels_follow_the_default_settings(queues):
    queues.configure("own", LabelSettings(priority=1.0))
    add(queues, "own", bucket="o", label="own", priority=1.0)
    add(queues, "other", bucket="p", label="other", priority=1.0)
    queues.configure(None, LabelSettings(priority=2.0))
    assert list(queues.walk(0)) == ["other", "own"]
    assert (queues.settings("own").priority, queues.settings("other").priority, queues.settings("unheard of").priority) == (1.0, 2.0, 2.0)


def test_the_settings_of_a_label_outlive_its_tasks(queues):
    queues.configure("a", LabelSettings(priority=3.0))
    add(queues, "t", label="a", priority=1.0)
    queues.remove("t")
    add(queues, "t", label="a", priority=1.0)
    assert queues.workload_priority("t", 0) == 4.0


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(LabelSettings(priority=float("inf")), id="a priority without end"),
        pytest.param(LabelSettings(priority=float("nan")), id="a priority that is no number"),
        pytest.param(LabelSettings(aging_per_s=-0.1), id="ageing backwards"),
    ],
)
def test_settings_that_order_nothing_are_refused(queues, settings):
    with pytest.raises(AmountError):
        queues.configure("a", settings)
    with pytest.raises(AmountError):
        LabelQueues(settings)
    assert queues.settings("a") == LabelSettings()


def test_a_priority_that_is_no_number_is_refused(queues):
    with pytest.raises(AmountError, match="priority must be finite, got nan"):
        add(queues, "t", priority=float("nan"))
    assert len(queues) == 0
    assert queues.buckets() == ()


# -- contents ----------------------------------------------------------------------------------------------------------


def test_what_is_added_is_there_until_it_is_removed(queues):
    add(queues, "t", bucket=("gpu", 1))
    assert ("t" in queues, len(queues), queues.buckets(), queues.count(("gpu", 1))) == (True, 1, (("gpu", 1),), 1)
    assert queues.remove("t")
    assert ("t" in queues, len(queues), queues.buckets(), queues.tasks(("gpu", 1)), queues.count(("gpu", 1))) == (False, 0, (), (), 0)


def test_removing_the_unknown_takes_nothing(queues):
    add(queues, "t")
    assert not queues.remove("u")
    assert queues.tasks(BUCKET) == ("t",)


def test_a_task_is_queued_once(queues):
    add(queues, "t")
    with pytest.raises(LedgerError, match="already queued"):
        add(queues, "t", bucket="other")


def test_a_bucket_belongs_to_one_label(queues):
    add(queues, "t", label="a")
    with pytest.raises(LedgerError, match="of label 'a'"):
        add(queues, "u", label="b")
    assert len(queues) == 1


def test_a_task_that_is_not_queued_has_no_position(queues):
    with pytest.raises(LedgerError, match="t is not queued"):
        queues.position("t", 0)


def test_labels_and_buckets_that_are_empty_leave_nothing_behind(queues):
    for number in range(100):
        add(queues, "t", bucket=number, label=f"user:{number}")
        queues.remove("t")
    assert (len(queues), queues.buckets()) == (0, ())
    assert len(pickle.dumps(queues)) < len(pickle.dumps(LabelQueues())) + 20


def test_a_position_counts_what_goes_before_in_all_labels(queues):
    queues.configure("gold", LabelSettings(priority=10.0))
    add(queues, "plain 1", bucket="p", label="plain")
    add(queues, "plain 2", bucket="p", label="plain")
    add(queues, "gold", bucket="g", label="gold")
    assert [queues.position(task, 0) for task in ("gold", "plain 1", "plain 2")] == [1, 2, 3]


class Changing:
    """Bucket name whose hash can change."""

    hashed = 1

    def __hash__(self):
        return self.hashed


def test_the_check_of_queues_reports_inconsistent_state():
    queues = LabelQueues()
    changing = Changing()
    add(queues, "t", bucket=changing)
    assert queues.check() == []
    changing.hashed += 1
    assert queues.check() == ["the labels' buckets differ from the queues'"]


# -- rounds ------------------------------------------------------------------------------------------------------------


def test_a_round_yields_everything_in_order_if_all_fits(queues):
    for number in range(20):
        add(queues, f"t{number}", bucket=number % 3, priority=number % 5)
    expected = list(queues.walk(0))
    assert drain(queues.round(0), queues) == expected
    assert len(queues) == 0


def test_a_shape_that_does_not_fit_holds_up_nothing_behind_it(queues):
    """There is no head-of-line blocking."""
    for number in range(3):
        add(queues, f"large {number}", bucket="large", priority=9.0)
        add(queues, f"small {number}", bucket="small", priority=1.0)
    turn, seen = queues.round(0), []
    while (found := turn.next()) is not None:
        bucket, task = found
        seen.append(task)
        if bucket == "small":
            queues.remove(task)
            turn.again(bucket)
    assert seen == ["large 0", "small 0", "small 1", "small 2"]
    assert queues.tasks("large") == ("large 0", "large 1", "large 2")


def test_a_round_over_some_buckets_looks_at_no_other(queues):
    for bucket in ("a", "b", "c"):
        add(queues, f"of {bucket}", bucket=bucket)
    assert drain(queues.round(0, ["c", "a", "unknown", "a"]), queues) == ["of a", "of c"]
    assert list(queues.walk(0)) == ["of b"]


def test_a_round_of_nothing_ends_at_once(queues):
    assert queues.round(0).next() is None
    queues.round(0).again("unknown")


def test_a_head_that_was_taken_by_somebody_else_is_not_given(queues):
    """A gang is admitted as one: with its first task, the others leave their buckets."""
    for task, bucket in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("c1", "c")):
        add(queues, task, bucket=bucket)
    turn = queues.round(0)
    assert turn.next() == ("a", "a1")
    for task in ("a1", "b1", "c1"):
        queues.remove(task)
    assert turn.next() == ("b", "b2")
    assert turn.next() is None


def test_a_new_head_during_a_round_is_yielded_first(queues):
    add(queues, "a1", bucket="a", priority=5.0)
    add(queues, "b1", bucket="b", priority=4.0)
    turn = queues.round(0)
    add(queues, "b0", bucket="b", priority=4.5)
    assert drain(turn, queues) == ["a1", "b0", "b1"]


def test_a_task_that_changes_its_bucket_is_yielded_once_a_round(queues):
    class Shape:
        """Key without an order, like the scheduler's buckets."""

    one, other = Shape(), Shape()
    add(queues, "t", bucket=one, arrival=0)
    turn = queues.round(0)
    queues.remove("t")
    add(queues, "t", bucket=other, arrival=0)
    turn.again(other)
    assert drain(turn, queues) == ["t"]


def test_putting_a_bucket_back_twice_plays_it_once(queues):
    add(queues, "a1", bucket="a")
    add(queues, "a2", bucket="a")
    turn = queues.round(0)
    turn.again("a")
    assert turn.next() == ("a", "a1")
    queues.remove("a1")
    turn.again("a")
    turn.again("a")
    assert turn.next() == ("a", "a2")
    assert turn.next() is None
