from __future__ import annotations

import pytest

from mesh.errors import LedgerError
from mesh.pools import PoolLedger, PoolSpec
from mesh.resources import NOTHING, ResourceSet


def cpu(count):
    return ResourceSet.of({"cpu": count})


@pytest.fixture
def ledger():
    return PoolLedger(
        (
            PoolSpec(pool="general", flavor="standard", capacity=cpu(4)),
            PoolSpec(pool="spot", flavor="cheap", capacity=cpu(2)),
        )
    )


def test_an_empty_pool_has_all_of_its_capacity_free(ledger):
    assert (ledger.pools["general"].free, ledger.pools["general"].in_use) == (cpu(4), NOTHING)


def test_pools_are_tried_in_the_order_in_which_they_were_given(ledger):
    assert list(ledger.pools) == ["general", "spot"]


def test_what_is_reserved_is_not_free_and_not_in_use(ledger):
    ledger.reserve("general", "s1", cpu(3))
    assert (ledger.pools["general"].free, ledger.pools["general"].in_use) == (cpu(1), NOTHING)


def test_a_pool_can_be_filled_to_the_brim_and_no_further(ledger):
    ledger.reserve("general", "s1", cpu(4))
    with pytest.raises(LedgerError, match="s2 wants"):
        ledger.reserve("general", "s2", ResourceSet({"cpu": 1}))
    assert ledger.pools["general"].free == NOTHING


def test_what_a_pool_does_not_have_at_all_cannot_be_reserved(ledger):
    with pytest.raises(LedgerError):
        ledger.reserve("general", "s1", ResourceSet.of({"gpu": 1}))


@pytest.mark.parametrize("committed", [pytest.param(False, id="that is reserved"), pytest.param(True, id="that is in use")])
def test_a_holder_has_one_entry_in_a_pool(ledger, committed):
    ledger.reserve("general", "s1", cpu(1))
    if committed:
        ledger.commit("general", "s1", cpu(1))
    with pytest.raises(LedgerError, match="already"):
        ledger.reserve("general", "s1", cpu(1))


def test_committing_less_than_was_reserved_frees_the_rest(ledger):
    ledger.reserve("general", "s1", cpu(4))
    ledger.commit("general", "s1", cpu(1))
    assert (ledger.pools["general"].free, ledger.pools["general"].in_use, ledger.pools["general"].reserved) == (cpu(3), cpu(1), {})


def test_committing_more_than_was_reserved_is_refused_and_changes_nothing(ledger):
    ledger.reserve("general", "s1", cpu(1))
    with pytest.raises(LedgerError):
        ledger.commit("general", "s1", cpu(2))
    assert ledger.pools["general"].reserved == {"s1": cpu(1)}
    assert ledger.pools["general"].used == {}


@pytest.mark.parametrize("pool", [pytest.param("general", id="by nobody"), pytest.param("spot", id="in another pool")])
def test_what_was_not_reserved_cannot_be_committed(ledger, pool):
    ledger.reserve("general" if pool == "spot" else "spot", "s1", cpu(1))
    with pytest.raises(LedgerError):
        ledger.commit(pool, "s1", cpu(1))


def test_nothing_can_be_committed_twice(ledger):
    ledger.reserve("general", "s1", cpu(1))
    ledger.commit("general", "s1", cpu(1))
    with pytest.raises(LedgerError):
        ledger.commit("general", "s1", cpu(1))


def test_release_gives_back_what_is_reserved_and_what_is_used_in_every_pool(ledger):
    ledger.reserve("general", "s1", cpu(1))
    ledger.reserve("spot", "s1", cpu(1))
    ledger.commit("spot", "s1", cpu(1))
    assert ledger.release("s1")
    assert (ledger.pools["general"].free, ledger.pools["spot"].free) == (cpu(4), cpu(2))


def test_release_of_the_unknown_and_a_second_release_give_nothing_back(ledger):
    ledger.reserve("general", "s1", cpu(1))
    assert not ledger.release("s2")
    assert ledger.release("s1")
    assert not ledger.release("s1")


def test_an_entry_of_nothing_is_an_entry_all_the_same(ledger):
    ledger.reserve("general", "s1", NOTHING)
    ledger.commit("general", "s1", NOTHING)
    assert ledger.release("s1")
