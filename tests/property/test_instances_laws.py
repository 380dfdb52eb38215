"""Laws of instances: none is lost, merged or lent twice, under any order of events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.amounts import ONE, Amount
from mesh.core.instance_pools import InstancePool
from mesh.core.instance_sets import ResourceIdSet, TakenResources
from mesh.core.instances import ResourceIds
from mesh.core.resources import UNITS_PER_WHOLE, ResourceSet
from mesh.errors import AmountError

sixty = settings(max_examples=60)

small = st.integers(1, UNITS_PER_WHOLE - 1).map(Amount)
wanted = st.one_of(
    st.integers(1, 4).map(lambda count: Amount(count * UNITS_PER_WHOLE)), small, st.sampled_from([Amount.of(0.1), Amount.of(0.5)])
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), wanted),
        st.tuples(st.just("release"), st.integers(0, 50)),
        st.tuples(st.just("capacity"), st.integers(0, 6)),
    ),
    max_size=30,
)


@sixty
@given(st.integers(0, 6), st.lists(wanted, max_size=20))
def test_what_is_taken_and_what_is_left_are_what_there_was(count, demands):
    free, held = ResourceIds.of(Amount(count * UNITS_PER_WHOLE)), []
    for amount in demands:
        found = free.acquire(amount)
        assert (found is not None) == free.contains(amount)
        if found is not None:
            taken, left = found
            assert taken.total == amount
            assert taken.plus(left) == free
            assert amount >= ONE or len(taken.parts) == 1
            held.append(taken)
            free = left
    for taken in held:
        free = free.plus(taken)
    assert free == ResourceIds.of(Amount(count * UNITS_PER_WHOLE))


@sixty
@given(st.integers(0, 6), steps)
def test_a_pool_is_consistent_after_every_step(count, taken_steps):
    pool = InstancePool(Amount(count * UNITS_PER_WHOLE))
    held: list[ResourceIds] = []
    for verb, argument in taken_steps:
        if verb == "acquire":
            could, was_held = pool.contains(argument), pool.held.total
            taken = pool.acquire(argument)
            assert (taken is not None) == could
            if taken is not None:
                assert was_held + argument <= pool.capacity
                held.append(taken)
        elif verb == "release" and held:
            pool.release(held.pop(argument % len(held)))
        elif verb == "capacity":
            pool.update_capacity(Amount(argument * UNITS_PER_WHOLE))
        assert pool.check() == []
        assert pool.held == sum_of(held)
    for taken in held:
        pool.release(taken)
    assert (pool.free.total, pool.available, pool.check()) == (pool.capacity, pool.capacity, [])


@sixty
@given(
    st.dictionaries(st.sampled_from(["cpu", "gpu", "licence"]), st.integers(1, 4).map(lambda count: count * UNITS_PER_WHOLE)),
    st.integers(0, 1000),
    st.lists(
        st.dictionaries(st.sampled_from(["cpu", "gpu", "licence", "memory"]), st.sampled_from([1, 2_500, 10_000, 20_000])), max_size=12
    ),
)
def test_a_node_lends_whole_requests_and_gets_everything_back(counted, memory, requests):
    total = ResourceSet({**counted, "memory": memory})
    node = ResourceIdSet(total)
    held: list[TakenResources] = []
    for request in map(ResourceSet, requests):
        before = node.to_set()
        taken = node.acquire(request)
        if taken is None:
            assert node.to_set() == before
        else:
            assert taken.bulk + ResourceSet({name: ids.total.units for name, ids in taken.ids.items()}) == request
            assert node.to_set() == before - request
            held.append(taken)
    for taken in reversed(held):
        node.release(taken)
    assert (node.to_set(), node.check()) == (total, [])


@sixty
@given(st.integers(0, 50_000).map(Amount), st.integers(0, 50_000).map(Amount))
def test_amounts_are_ordered_as_their_units_are(a, b):
    assert [a < b, a <= b, a > b, a >= b, a == b, a != b].count(True) == 3
    assert (a < b, a == b) == (a.units < b.units, a.units == b.units)
    assert a + b - b == a
    try:
        assert a - b + b == a
    except AmountError:
        assert a < b


def sum_of(held: list[ResourceIds]) -> ResourceIds:
    total = ResourceIds()
    for ids in held:
        total = total.plus(ids)
    return total
