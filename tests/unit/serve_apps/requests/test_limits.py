"""Rate limits per key."""

from serve_apps.requests.limits import CallBudget


def test_a_burst_is_taken_and_then_calls_as_they_come_back():
    budget = CallBudget(calls_per_s=10, burst=3)
    assert [budget.take("a", 1_000) for _ in range(4)] == [0, 0, 0, 100]
    assert [budget.take("a", 1_050), budget.take("a", 1_100), budget.take("a", 1_100)] == [50, 0, 100]


def test_saved_budget_never_exceeds_the_burst():
    budget = CallBudget(calls_per_s=10, burst=2)
    assert [budget.take("a", now_ms) for now_ms in (0, 1_000_000, 1_000_000, 1_000_000)] == [0, 0, 0, 100]


def test_no_key_takes_from_another():
    budget = CallBudget(calls_per_s=1, burst=1)
    assert [budget.take(key, 0) for key in ("a", "a", "b", "b")] == [0, 1_000, 0, 1_000]


def test_a_refused_call_costs_nothing():
    budget = CallBudget(calls_per_s=1, burst=1)
    budget.take("a", 0)
    assert [budget.take("a", 900) for _ in range(5)] == [100] * 5
    assert budget.take("a", 1_000) == 0
