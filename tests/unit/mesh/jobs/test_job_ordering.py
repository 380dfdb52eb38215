"""Order of waiting jobs: by priority, by shares, and over both kinds of jobs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mesh.core.resources import NOTHING, ResourceSet
from mesh.jobs.ordering import Turn, TurnQueue, dominant_share, fill_by_shares
from mesh.jobs.spec import JobQueuePolicy

DRF, PRIORITY = JobQueuePolicy.DRF, JobQueuePolicy.PRIORITY


def amounts(cpu, memory_gb=0):
    return ResourceSet.of({"cpu": cpu, "memory": f"{memory_gb}GB"})


def order_of(*turns, policy=None):
    """Return the jobs in their order; a turn is (job, policy, priority, cpus held)."""
    queue = TurnQueue(amounts(10), policy)
    for arrival, (job, kind, priority, held) in enumerate(turns):
        queue.push(Turn(job=job, policy=kind, priority=priority, arrival=arrival), amounts(held))
    return [queue.pop() for _ in turns]


def test_s36_the_published_example_of_drf_is_reproduced():
    filling = fill_by_shares(amounts(9, 18), {"a": amounts(1, 4), "b": amounts(3, 1)})
    assert filling.counts == {"a": 3, "b": 2}
    assert filling.shares == {"a": Fraction(2, 3), "b": Fraction(2, 3)}


def test_s36_the_turns_are_those_of_the_published_table():
    filling = fill_by_shares(amounts(9, 18), {"b": amounts(3, 1), "a": amounts(1, 4)})
    assert filling.turns == ("b", "a", "a", "b", "a")


def test_s36_by_priority_the_higher_goes_first_then_the_earlier():
    assert order_of(("low", PRIORITY, 1, 0), ("first", PRIORITY, 5, 9), ("second", PRIORITY, 5, 0)) == ["first", "second", "low"]


def test_s36_fair_order_is_by_share_then_priority_then_arrival():
    turns = (("rich", DRF, 9, 4), ("poor", DRF, 1, 1), ("late", DRF, 5, 2), ("urgent", DRF, 6, 2), ("later", DRF, 5, 2))
    assert order_of(*turns) == ["poor", "urgent", "late", "later", "rich"]


def test_heads_of_both_kinds_are_compared_by_priority():
    turns = (("rich", DRF, 9, 4), ("poor", DRF, 1, 1), ("urgent", PRIORITY, 5, 0), ("plain", PRIORITY, 1, 0))
    assert order_of(*turns) == ["urgent", "poor", "rich", "plain"]


def test_one_policy_for_all_overrides_what_the_jobs_say():
    turns = (("rich", PRIORITY, 9, 4), ("poor", DRF, 1, 1))
    assert order_of(*turns, policy=DRF) == ["poor", "rich"]
    assert order_of(*turns, policy=PRIORITY) == ["rich", "poor"]


def test_an_empty_queue_has_nobody_first():
    assert TurnQueue(amounts(1)).pop() is None


@pytest.mark.parametrize(
    ("held", "share"),
    [
        pytest.param(NOTHING, Fraction(0), id="nothing is no share"),
        pytest.param(amounts(3, 1), Fraction(1, 3), id="the larger of two shares"),
        pytest.param(amounts(1, 6), Fraction(1, 3), id="the larger is the other one"),
        pytest.param(ResourceSet.of({"gpu": 1}), Fraction(1), id="a resource that is not there is held as a whole"),
        pytest.param(ResourceSet.of({"cpu": "0.0001"}), Fraction(1, 90_000), id="the least amount is an exact share"),
    ],
)
def test_the_dominant_share_is_exact(held, share):
    assert dominant_share(held, amounts(9, 18)) == share


def test_filling_continues_past_a_full_or_unfitting_job():
    filling = fill_by_shares(amounts(9), {"small": amounts(1), "large": amounts(5), "idle": NOTHING}, {"small": 2})
    assert filling.counts == {"small": 2, "large": 1, "idle": 0}
