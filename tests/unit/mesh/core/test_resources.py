"""Resource sets: parsing, units, arithmetic and comparison."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from decimal import Decimal

import pytest

from mesh.core.resources import AMOUNT_MAX, NOTHING, ResourceSet, format_units, from_units, parse_bytes, to_units
from mesh.core.wire import decode, encode
from mesh.errors import AmountError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        pytest.param("4GiB", 4 * 2**30, id="a binary factor"),
        pytest.param("500MB", 500 * 10**6, id="a decimal factor"),
        pytest.param("1.5Ki", 1536, id="a fraction that comes to whole bytes"),
        pytest.param(" 7 ", 7, id="plain bytes with blanks around"),
        pytest.param("2 TiB", 2 * 2**40, id="a blank before the factor"),
        pytest.param(0, 0, id="zero"),
        pytest.param(AMOUNT_MAX, AMOUNT_MAX, id="the most that a ledger holds"),
    ],
)
def test_a_size_is_read(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("4 apples", id="an unknown factor"),
        pytest.param("4gib", id="a factor in lower case"),
        pytest.param("-1", id="a negative text"),
        pytest.param(-1, id="a negative number"),
        pytest.param("0.5", id="half a byte"),
        pytest.param("1e9", id="a power of ten"),
        pytest.param(AMOUNT_MAX + 1, id="one byte more than a ledger holds"),
        pytest.param("9" * 40 + "TiB", id="a number of forty digits"),
        pytest.param(True, id="a truth value"),
    ],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(AmountError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("name", "amount", "units"),
    [
        pytest.param("cpu", 2, 20_000, id="whole CPUs"),
        pytest.param("cpu", 0.1, 1_000, id="a float that binary cannot hold exactly"),
        pytest.param("gpu", "0.25", 2_500, id="text"),
        pytest.param("cpu", 0.0001, 1, id="the least that there is"),
        pytest.param("licence", Decimal("1.5"), 15_000, id="a decimal"),
        pytest.param("cpu", "1e2", 1_000_000, id="a power of ten"),
        pytest.param("memory", "1KiB", 1_024, id="memory in bytes"),
        pytest.param("object_store_memory", 5, 5, id="memory of the object store in bytes"),
        pytest.param("cpu", 0, 0, id="zero"),
    ],
)
def test_what_a_user_writes_becomes_whole_units(name, amount, units):
    assert to_units(name, amount) == units


@pytest.mark.parametrize(
    ("name", "amount"),
    [
        pytest.param("cpu", 0.00001, id="finer than the unit"),
        pytest.param("cpu", -1, id="negative"),
        pytest.param("cpu", True, id="a truth value"),
        pytest.param("cpu", None, id="nothing"),
        pytest.param("cpu", [1], id="a list"),
        pytest.param("cpu", "many", id="a word"),
        pytest.param("cpu", "", id="an empty text"),
        pytest.param("cpu", float("nan"), id="not a number"),
        pytest.param("cpu", "sNaN", id="a signalling not-a-number"),
        pytest.param("cpu", float("inf"), id="infinity"),
        pytest.param("cpu", "1e999999", id="more than decimals can multiply"),
        pytest.param("cpu", "1e999000", id="a number of a million digits"),
        pytest.param("cpu", "4GiB", id="a size where a count is asked"),
        pytest.param("cpu", AMOUNT_MAX // 10_000 + 1, id="more than a ledger holds"),
        pytest.param("memory", 0.5, id="half a byte"),
        pytest.param("memory", -1, id="negative memory"),
    ],
)
def test_what_is_no_amount_is_refused(name, amount):
    with pytest.raises(AmountError):
        to_units(name, amount)


@pytest.mark.parametrize(
    ("name", "units", "words"),
    [
        pytest.param("cpu", 20_000, "2", id="whole"),
        pytest.param("cpu", 5_000, "0.5", id="a half"),
        pytest.param("cpu", 1, "0.0001", id="the least"),
        pytest.param("cpu", 0, "0", id="none"),
        pytest.param("cpu", 1_000_000, "100", id="no power of ten for a hundred"),
        pytest.param("cpu", 12_345_678, "1234.5678", id="every digit that counts"),
        pytest.param("cpu", 12_345_670_000, "1234567", id="every digit of a large number"),
        pytest.param("memory", 4 * 2**30, "4GiB", id="the largest binary factor that divides"),
        pytest.param("memory", 1_000, "1000B", id="bytes that no factor divides"),
        pytest.param("memory", 0, "0B", id="no memory"),
    ],
)
def test_units_are_exact(name, units, words):
    assert format_units(name, units) == words


def test_whole_amounts_are_integers_and_others_fractions():
    assert from_units("cpu", 20_000) == 2
    assert isinstance(from_units("cpu", 20_000), int)
    assert from_units("cpu", 2_500) == 0.25
    assert from_units("memory", 3) == 3


def test_what_is_absent_counts_as_zero_and_zeros_are_not_kept():
    amounts = ResourceSet({"cpu": 0, "gpu": 3})
    assert (amounts["cpu"], amounts["anything"], "cpu" in amounts, list(amounts), len(amounts)) == (0, 0, False, ["gpu"], 1)
    assert amounts == ResourceSet({"gpu": 3})
    assert hash(amounts) == hash(ResourceSet({"gpu": 3}))


@pytest.mark.parametrize(
    "units",
    [
        pytest.param({"cpu": -1}, id="negative"),
        pytest.param({"cpu": 1.0}, id="a float"),
        pytest.param({"cpu": True}, id="a truth value"),
        pytest.param({"cpu": AMOUNT_MAX + 1}, id="too large for the ledger"),
    ],
)
def test_a_set_holds_whole_units_only(units):
    with pytest.raises(AmountError):
        ResourceSet(units)


def test_taking_away_more_than_there_is_is_refused():
    with pytest.raises(AmountError, match="cpu"):
        ResourceSet({"cpu": 1}) - ResourceSet({"cpu": 2})


def test_adding_beyond_what_a_ledger_holds_is_refused():
    with pytest.raises(AmountError):
        ResourceSet({"cpu": AMOUNT_MAX}) + ResourceSet({"cpu": 1})


def test_sets_with_more_of_different_resources_do_not_compare():
    cpus, gpus = ResourceSet({"cpu": 2}), ResourceSet({"gpu": 1})
    assert not cpus <= gpus
    assert not gpus <= cpus
    assert cpus >= NOTHING


def test_copies_are_bounded_by_the_scarcest_resource():
    slot = ResourceSet({"cpu": 2, "gpu": 1})
    assert slot.copies_in(ResourceSet({"cpu": 9, "gpu": 3})) == 3
    assert slot.copies_in(ResourceSet({"cpu": 9})) == 0
    assert NOTHING.copies_in(slot) is None


def test_people_read_whole_cpus_and_bytes():
    amounts = ResourceSet.of({"cpu": 0.5, "gpu": 2, "memory": "1KiB"})
    assert amounts.in_ray_units() == {"cpu": 0.5, "gpu": 2, "memory": 1024}
    assert repr(amounts) == "{cpu: 0.5, gpu: 2, memory: 1KiB}"


def test_on_the_wire_a_set_is_an_object_of_whole_units():
    amounts = ResourceSet.of({"cpu": 0.5, "memory": 7})
    assert encode(amounts, ResourceSet) == b'{"cpu":5000,"memory":7}'
    assert decode(ResourceSet, b'{"memory":7,"cpu":5000}') == amounts


def test_s25_a_subset_has_no_more_of_any_resource():
    small, large = ResourceSet.of({"cpu": 1}), ResourceSet.of({"cpu": 2, "gpu": 1})
    assert (small.is_subset_of(large), large.is_superset_of(small), large.is_subset_of(small)) == (True, True, False)
    assert small.is_subset_of(ResourceSet.of({"cpu": 1}))
    assert small == ResourceSet.of({"cpu": 1.0})


def test_s25_a_bounded_sum_is_never_above_the_total():
    free, back, total = ResourceSet.of({"cpu": 3}), ResourceSet.of({"cpu": 2, "gpu": 1}), ResourceSet.of({"cpu": 4, "gpu": 2})
    assert free.add_bounded(back, total) == ResourceSet.of({"cpu": 4, "gpu": 1})


def test_s25_a_bounded_sum_omits_removed_resources():
    assert ResourceSet.of({"cpu": 1}).add_bounded(ResourceSet.of({"licence": 1}), ResourceSet.of({"cpu": 4})) == ResourceSet.of({"cpu": 1})


def test_s25_a_strict_difference_is_never_below_zero():
    assert ResourceSet.of({"cpu": 2}) - ResourceSet.of({"cpu": 2}) == NOTHING
    with pytest.raises(AmountError, match="gpu"):
        ResourceSet.of({"cpu": 2}) - ResourceSet.of({"gpu": 1})


def test_s25_one_resource_is_read_set_and_deleted_by_its_label():
    amounts = ResourceSet.of({"cpu": 2, "gpu": 1})
    assert (amounts["gpu"], amounts.get("gpu"), amounts["tpu"], amounts.get("tpu")) == (10_000, 10_000, 0, 0)
    assert amounts.with_amount("tpu", 5_000) == ResourceSet.of({"cpu": 2, "gpu": 1, "tpu": 0.5})
    assert amounts.with_amount("gpu", 0) == amounts.without("gpu") == ResourceSet.of({"cpu": 2})
    assert amounts.without("tpu") == amounts


def test_a_pool_of_four_tenths_fits_four_agents_of_a_tenth():
    room, agent = ResourceSet.of({"cpu": 0.4}), ResourceSet.of({"cpu": 0.1})
    assert agent.copies_in(room) == 4
    for _ in range(4):
        room = room - agent
    assert room == NOTHING


def test_a_set_from_another_process_is_found_among_equal_ones():
    program = (
        "import pickle, sys; from mesh.core.resources import ResourceSet;"
        "sent = pickle.loads(bytes.fromhex(sys.argv[1])); print(sent in {ResourceSet.of({'cpu': 1, 'gpu': 2})})"
    )
    sent = pickle.dumps(ResourceSet.of({"cpu": 1, "gpu": 2})).hex()
    for seed in ("1", "2"):  # Python salts hashes per process.
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.run([sys.executable, "-c", program, sent], env=environment, capture_output=True, text=True, check=True)
        assert found.stdout == "True\n"


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        pytest.param(float("nan"), "cpu: nan is not a finite number", id="not a number"),
        pytest.param(float("inf"), "cpu: inf is not a finite number", id="infinity"),
        pytest.param(-3, "cpu: -3 is below zero", id="negative"),
        pytest.param(10**12, "cpu: 1000000000000 is not between 0 and", id="more than a ledger holds"),
        pytest.param(0.00001, "cpu: 1e-05 is finer than the ledger's unit", id="finer than the unit"),
    ],
)
def test_the_error_of_an_impossible_amount_says_what_is_wrong(amount, words):
    with pytest.raises(AmountError, match=words):
        to_units("cpu", amount)
