"""Amounts in integer units."""

from __future__ import annotations

import pytest

from mesh.core.amounts import ONE, ZERO, Amount
from mesh.core.resources import AMOUNT_MAX
from mesh.errors import AmountError


def test_s24_amounts_are_integers_of_a_ten_thousandth():
    assert Amount.of("0.0001").units == 1
    assert Amount.of(0.5) == Amount(5_000)
    assert ONE.units == 10_000
    assert (Amount.of(2).is_whole, Amount.of(2.5).is_whole, Amount.of(2.5).wholes) == (True, False, 2)


def test_s24_sums_and_differences_are_exact():
    tenth = Amount.of(0.1)
    assert tenth + tenth + tenth == Amount.of(0.3)
    assert Amount.of(0.3) - tenth - tenth - tenth == ZERO
    assert sum([tenth] * 10, start=ZERO) == ONE


def test_s24_every_comparison_follows_from_equal_and_less():
    assert {name for name in ("__eq__", "__lt__") if name in vars(Amount)} == {"__eq__", "__lt__"}
    small, large, same = Amount(1), Amount(2), Amount(1)
    assert (small == same, small != same, small < same, small > same, small <= same, small >= same) == (
        True,
        False,
        False,
        False,
        True,
        True,
    )
    assert (small == large, small != large, small < large, small > large, small <= large, small >= large) == (
        False,
        True,
        True,
        False,
        True,
        False,
    )


def test_a_ledger_of_tenths_serves_the_last_one_too():
    room = Amount.of(0.4)
    for _ in range(4):
        room = room - Amount.of(0.1)
    assert room == ZERO


def test_what_was_given_in_two_pieces_comes_back_in_two_pieces():
    held = Amount.of(0.7) + Amount.of(0.1)
    assert held - Amount.of(0.7) - Amount.of(0.1) == ZERO


@pytest.mark.parametrize(
    "units",
    [
        pytest.param(-1, id="less than nothing"),
        pytest.param(AMOUNT_MAX + 1, id="more than a ledger holds"),
        pytest.param(1.0, id="a float"),
        pytest.param(True, id="a truth value"),
    ],
)
def test_what_is_no_amount_of_units_is_refused(units):
    with pytest.raises(AmountError):
        Amount(units)


@pytest.mark.parametrize("written", [-0.5, 0.00001, "many", None, float("nan")])
def test_what_a_user_cannot_have_meant_is_refused(written):
    with pytest.raises(AmountError):
        Amount.of(written)


def test_taking_away_more_than_there_is_is_refused():
    with pytest.raises(AmountError):
        Amount(1) - Amount(2)


def test_an_amount_is_a_value():
    with pytest.raises(AttributeError):
        ONE.units = 2  # type: ignore[misc]
    assert len({Amount(1), Amount(1), Amount(2)}) == 2
    assert (bool(ZERO), bool(ONE)) == (False, True)
    assert Amount(1) != 1


@pytest.mark.parametrize(("amount", "words"), [(Amount.of(2), "2"), (Amount.of("0.25"), "0.25"), (ZERO, "0")], ids=str)
def test_people_read_units(amount, words):
    assert str(amount) == words
