from __future__ import annotations

from federation.quota.preemption.eviction_order import EvictionOrder
from federation.quota.quota_fixtures import work


def test_preemptor_is_not_preempted_by_its_victims():
    order = EvictionOrder()
    order.record("a", "b")
    order.record("b", "c")
    a, b, c = (work(name, "q", 1) for name in "abc")
    assert order.displaced(b, a)
    assert order.displaced(c, a)
    assert not order.displaced(a, b)
    assert not order.displaced(a, c)


def test_ended_workload_leaves_the_order_of_the_others():
    order = EvictionOrder()
    order.record("a", "b")
    order.record("b", "c")
    order.forget("b")
    assert order.displaced(work("c", "q", 1), work("a", "q", 1))
    order.forget("a")
    assert not order.displaced(work("c", "q", 1), work("a", "q", 1))


def test_a_circle_of_reclaims_is_looked_through_and_ends():
    order = EvictionOrder()
    order.record("a", "b")
    order.record("b", "a")
    assert not order.displaced(work("c", "q", 1), work("a", "q", 1))
