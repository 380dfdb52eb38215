"""Instances of one resource: allocation, release and changes of capacity."""

from __future__ import annotations

import pytest

from mesh.core.amounts import ONE, Amount
from mesh.core.instance_pools import InstancePool
from mesh.core.instances import ResourceIds, without_ids
from mesh.errors import AmountError, LedgerError

HALF = Amount.of(0.5)


def parts(**amounts: object) -> ResourceIds:
    """`parts(_0=0.5)`: half of instance 0."""
    return ResourceIds(parts=tuple((int(name[1:]), Amount.of(amount)) for name, amount in amounts.items()))


def acquired(ids: ResourceIds, amount: object) -> tuple[ResourceIds, ResourceIds]:
    found = ids.acquire(Amount.of(amount))
    assert found is not None
    return found


def lent(pool: InstancePool, amount: object) -> ResourceIds:
    taken = pool.acquire(Amount.of(amount))
    assert taken is not None
    assert pool.check() == []
    return taken


def test_s26_instances_are_whole_or_parts_and_add_up():
    ids = ResourceIds(whole=(0, 2), parts=((1, HALF),))
    assert ids.total == Amount.of(2.5)
    assert ResourceIds.of(Amount.of(3)) == ResourceIds(whole=(0, 1, 2))
    assert ResourceIds.of(HALF) == parts(_0=0.5)
    assert ResourceIds.of(Amount(0)) == ResourceIds()


@pytest.mark.parametrize(
    ("amount", "is_there"),
    [
        pytest.param(1, True, id="one whole instance"),
        pytest.param(2, False, id="two, where one is whole and the parts would make the other"),
        pytest.param(1.5, False, id="more than one and not whole"),
        pytest.param(0.6, True, id="a part of a whole instance"),
        pytest.param(0.5, True, id="just a part"),
        pytest.param(0, True, id="nothing"),
    ],
)
def test_s26_what_is_there_is_known(amount, is_there):
    ids = ResourceIds(whole=(2,), parts=((0, HALF), (1, HALF)))
    assert ids.contains(Amount.of(amount)) is is_there
    assert (ids.acquire(Amount.of(amount)) is not None) is is_there


def test_s26_two_halves_are_never_glued():
    halves = ResourceIds(parts=((0, HALF), (1, HALF)))
    assert not halves.contains(Amount.of(0.75))
    assert not halves.contains(ONE)
    assert halves.acquire(Amount.of(0.75)) is None


def test_s26_a_partly_used_instance_is_taken_before_a_whole_one():
    taken, left = acquired(ResourceIds(whole=(0,), parts=((1, HALF),)), 0.4)
    assert (taken, left) == (parts(_1=0.4), ResourceIds(whole=(0,), parts=((1, Amount.of(0.1)),)))
    taken, left = acquired(left, 0.4)
    assert (taken, left) == (parts(_0=0.4), parts(_0=0.6, _1=0.1))


def test_s26_of_partly_used_instances_the_tightest_is_taken():
    taken, left = acquired(parts(_0=0.8, _1=0.3, _2=0.2), 0.25)
    assert (taken, left) == (parts(_1=0.25), parts(_0=0.8, _1=0.05, _2=0.2))


def test_s26_whole_instances_are_taken_by_number():
    taken, left = acquired(ResourceIds(whole=(1, 3, 4), parts=((0, HALF),)), 2)
    assert (taken, left) == (ResourceIds(whole=(1, 3)), ResourceIds(whole=(4,), parts=((0, HALF),)))


def test_s26_parts_that_come_back_merge_to_a_whole_instance():
    assert parts(_0=0.5).plus(parts(_0=0.5)) == ResourceIds(whole=(0,))
    assert parts(_0=0.5).plus(ResourceIds(whole=(1,), parts=((0, Amount.of(0.25)),))) == ResourceIds(
        whole=(1,), parts=((0, Amount.of(0.75)),)
    )


def test_more_of_an_instance_than_there_is_is_an_error():
    with pytest.raises(LedgerError, match="instance 0"):
        ResourceIds(whole=(0,)).plus(parts(_0=0.1))
    with pytest.raises(LedgerError, match="instance 1"):
        ResourceIds(whole=(0,)).minus(ResourceIds(whole=(1,)))


def test_instances_without_some_of_them():
    assert without_ids(ResourceIds(whole=(0, 2), parts=((1, HALF),)), [0, 1, 9]) == ResourceIds(whole=(2,))


@pytest.mark.parametrize(
    ("whole", "some"),
    [
        pytest.param((0, 0), (), id="an instance twice"),
        pytest.param((0,), ((0, HALF),), id="an instance whole and in part"),
        pytest.param((), ((0, ONE),), id="a part that is whole"),
        pytest.param((), ((0, Amount(0)),), id="a part of nothing"),
    ],
)
def test_instances_that_cannot_be_are_refused(whole, some):
    with pytest.raises(AmountError):
        ResourceIds(whole=whole, parts=some)


# -- pools: capacity that changes in use -------------------------------------------------------------------------------


def test_s26_a_raised_capacity_brings_the_lowest_new_numbers():
    pool = InstancePool(Amount.of(2))
    lent(pool, 2)
    pool.update_capacity(Amount.of(4))
    assert pool.free == ResourceIds(whole=(2, 3))
    assert pool.check() == []


def test_s26_a_lowered_capacity_takes_the_highest_free_first():
    pool = InstancePool(Amount.of(4))
    lent(pool, 1)
    pool.update_capacity(Amount.of(2))
    assert (pool.free, pool.backlog) == (ResourceIds(whole=(1,)), Amount(0))


def test_s26_a_backlog_of_removals_is_served_by_releases():
    pool = InstancePool(Amount.of(3))
    first, second, third = (lent(pool, 1) for _ in range(3))
    pool.update_capacity(Amount.of(1))
    assert (pool.backlog, pool.available, pool.acquire(ONE)) == (Amount.of(2), Amount(0), None)
    pool.release(third)
    pool.release(first)
    assert (pool.backlog, pool.available) == (Amount(0), Amount(0))
    pool.release(second)
    assert (pool.free, pool.available) == (ResourceIds(whole=(1,)), ONE)
    assert pool.check() == []


def test_s26_nothing_is_lent_beyond_capacity_during_a_backlog():
    pool = InstancePool(Amount.of(2))
    small, other = lent(pool, 0.5), lent(pool, 0.6)
    pool.update_capacity(ONE)
    assert (pool.backlog, pool.available) == (ONE, Amount(0))  # 1.1 are held, of a capacity of 1.
    assert pool.acquire(Amount.of(0.1)) is None
    pool.release(small)
    assert (pool.backlog, pool.available) == (Amount(0), Amount.of(0.4))
    pool.release(other)
    assert pool.free.total == ONE


def test_s26_a_capacity_that_comes_back_cancels_its_backlog():
    pool = InstancePool(Amount.of(3))
    everything = lent(pool, 3)
    pool.update_capacity(Amount.of(0))
    pool.update_capacity(Amount.of(4))
    assert (pool.backlog, pool.free) == (Amount(0), ResourceIds(whole=(3,)))
    pool.release(everything)
    assert pool.free == ResourceIds(whole=(0, 1, 2, 3))


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(2, 1.5, id="down"), pytest.param(2, 2.5, id="up"), pytest.param(0.5, 1, id="from a part")],
)
def test_capacity_does_not_change_by_a_part_of_an_instance(before, after):
    pool = InstancePool(Amount.of(before))
    with pytest.raises(AmountError, match="whole instances"):
        pool.update_capacity(Amount.of(after))
    assert (pool.capacity, pool.check()) == (Amount.of(before), [])


def test_a_resource_of_less_than_one_goes_and_comes_whole():
    pool = InstancePool(HALF)
    taken = lent(pool, 0.5)
    pool.update_capacity(Amount(0))
    pool.release(taken)
    assert (pool.free, pool.backlog) == (ResourceIds(), Amount(0))
    pool.update_capacity(HALF)
    assert pool.free == parts(_0=0.5)


def test_what_nobody_holds_cannot_come_back():
    pool = InstancePool(ONE)
    with pytest.raises(LedgerError):
        pool.release(parts(_0=0.5))
    taken = lent(pool, 0.5)
    pool.release(taken)
    with pytest.raises(LedgerError):
        pool.release(taken)
    assert pool.free == ResourceIds(whole=(0,))


def test_inconsistent_state_is_reported():
    pool = InstancePool(ONE)
    pool.held = ResourceIds(whole=(0,))
    pool.backlog = ONE
    pool.free = ResourceIds(whole=(0,))
    assert pool.check() == ["instance 0 would have 2 of 1"]
    pool.held, pool.backlog = ResourceIds(), HALF
    assert len(pool.check()) == 2
