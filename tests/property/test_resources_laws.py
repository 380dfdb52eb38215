"""Laws of amounts and resource sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.core.resources import AMOUNT_MAX, NOTHING, ResourceSet, format_units, from_units, to_units
from mesh.core.wire import decode, encode
from mesh.errors import AmountError

NAMES = ["cpu", "gpu", "memory", "object_store_memory", "licence"]
sets = st.dictionaries(st.sampled_from(NAMES), st.integers(0, AMOUNT_MAX // 4)).map(ResourceSet)
small_sets = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 20)).map(ResourceSet)


@given(sets, sets)
def test_what_was_added_can_be_taken_away_again(a, b):
    assert a + b - b == a
    assert a + b == b + a
    assert a - a == NOTHING


@given(sets, sets, sets)
def test_addition_can_be_grouped_at_will(a, b, c):
    assert (a + b) + c == a + (b + c)


@given(small_sets, small_sets, small_sets)
def test_to_hold_at_least_as_much_is_a_partial_order(a, b, c):
    assert a <= ResourceSet(dict(a))
    if a <= b <= a:
        assert a == b
        assert hash(a) == hash(b)
    if a <= b <= c:
        assert a <= c


@given(small_sets, small_sets)
def test_a_set_can_be_subtracted_exactly_when_it_is_covered(a, b):
    if a <= b:
        assert (b - a) + a == b
    else:
        with pytest.raises(AmountError):
            b - a


@given(small_sets, small_sets, small_sets)
def test_a_join_covers_both_and_nothing_less_does(a, b, other):
    join = a.join(b)
    assert a <= join
    assert b <= join
    if a <= other and b <= other:
        assert join <= other


@given(small_sets, small_sets)
def test_exactly_the_computed_number_of_copies_fits(slot, room):
    copies = slot.copies_in(room)
    if copies is None:
        assert slot == NOTHING
    else:
        assert slot.times(copies) <= room
        assert not slot.times(copies + 1) <= room


@given(small_sets, st.integers(0, 5), st.integers(0, 5))
def test_copies_add_up(a, some, more):
    assert a.times(some) + a.times(more) == a.times(some + more)


@given(sets)
def test_no_zero_is_kept_and_no_order_counts(a):
    assert all(a[name] > 0 for name in a)
    assert ResourceSet(dict(reversed(list(a.items())))) == a


@given(st.sampled_from(NAMES), st.integers(0, AMOUNT_MAX))
def test_printed_amounts_are_read_back_exactly(name, units):
    assert to_units(name, format_units(name, units)) == units


@given(st.sampled_from(NAMES), st.integers(0, 2**43))
def test_what_ray_is_given_is_read_back_exactly(name, units):
    assert to_units(name, from_units(name, units)) == units


@given(sets)
def test_a_set_crosses_the_wire_unchanged(a):
    assert decode(ResourceSet, encode(a, ResourceSet)) == a


@given(st.sampled_from(NAMES), st.one_of(st.text(max_size=12), st.floats(), st.integers(), st.booleans(), st.none(), st.decimals()))
def test_whatever_is_written_is_an_amount_or_refused(name, written):
    try:
        units = to_units(name, written)
    except AmountError:
        return
    assert 0 <= units <= AMOUNT_MAX
