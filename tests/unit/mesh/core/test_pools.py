"""Pool ledger: reserve, commit, release and over-commitment."""

from __future__ import annotations

import pytest

from mesh.core.pools import PoolLedger, PoolSpec
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import LedgerError


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
    assert (ledger.pools["general"].free, ledger.pools["general"].in_use, ledger.pools["general"].reservations) == (cpu(3), cpu(1), {})


def test_committing_more_than_reserved_is_refused(ledger):
    ledger.reserve("general", "s1", cpu(1))
    with pytest.raises(LedgerError):
        ledger.commit("general", "s1", cpu(2))
    assert ledger.pools["general"].reservations == {"s1": cpu(1)}
    assert ledger.pools["general"].uses == {}


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


def test_release_frees_reserved_and_used_in_every_pool(ledger):
    ledger.reserve("general", "s1", cpu(1))
    ledger.reserve("spot", "s1", cpu(1))
    ledger.commit("spot", "s1", cpu(1))
    assert ledger.release("s1")
    assert (ledger.pools["general"].free, ledger.pools["spot"].free) == (cpu(4), cpu(2))


def test_an_unknown_or_second_release_frees_nothing(ledger):
    ledger.reserve("general", "s1", cpu(1))
    assert not ledger.release("s2")
    assert ledger.release("s1")
    assert not ledger.release("s1")


def test_an_entry_of_nothing_is_an_entry_all_the_same(ledger):
    ledger.reserve("general", "s1", NOTHING)
    ledger.commit("general", "s1", NOTHING)
    assert ledger.release("s1")


# -- configured while in use -------------------------------------------------------------------------------------------


def test_s6_a_pool_reports_capacity_used_reserved_and_target():
    ledger = PoolLedger((PoolSpec(pool="general", capacity=cpu(8), target_agents=3),))
    ledger.reserve("general", "task:a", cpu(1))
    ledger.reserve("general", "task:b", cpu(2))
    ledger.commit("general", "task:b")
    pool = ledger.pool("general")
    assert (pool.capacity, pool.used, pool.reserved, pool.free, pool.target_agents) == (cpu(8), cpu(2), cpu(1), cpu(5), 3)


def test_s6_a_pool_grows_while_in_use(ledger):
    ledger.reserve("general", "a", cpu(4))
    ledger.configure(PoolSpec(pool="general", capacity=cpu(6)))
    assert ledger.pool("general").free == cpu(2)


def test_s6_a_pool_lowered_below_its_use_kills_nothing(ledger):
    ledger.reserve("general", "a", cpu(1))
    ledger.reserve("general", "b", cpu(3))
    ledger.commit("general", "b")
    ledger.configure(PoolSpec(pool="general", capacity=cpu(2)))
    pool = ledger.pool("general")
    assert (pool.free, pool.excess, pool.used, pool.reserved) == (NOTHING, cpu(2), cpu(3), cpu(1))
    with pytest.raises(LedgerError):
        ledger.reserve("general", "c", ResourceSet({"cpu": 1}))


def test_a_release_to_an_over_committed_pool_shrinks_the_excess(ledger):
    for holder in ("a", "b", "c", "d"):
        ledger.reserve("general", holder, cpu(1))
    ledger.configure(PoolSpec(pool="general", capacity=cpu(2)))
    seen = []
    for holder in ("a", "b", "c"):
        ledger.release(holder)
        seen.append((ledger.pool("general").excess, ledger.pool("general").free))
    assert seen == [(cpu(1), NOTHING), (NOTHING, NOTHING), (NOTHING, cpu(1))]


def test_a_reservation_made_before_a_cut_can_still_be_committed(ledger):
    ledger.reserve("general", "a", cpu(4))
    ledger.configure(PoolSpec(pool="general", capacity=cpu(1)))
    ledger.commit("general", "a")
    assert (ledger.pool("general").used, ledger.pool("general").excess) == (cpu(4), cpu(3))


def test_an_excess_of_one_resource_does_not_hide_another(ledger):
    ledger.configure(PoolSpec(pool="mixed", capacity=ResourceSet({"cpu": 5, "gpu": 5})))
    ledger.reserve("mixed", "a", ResourceSet({"cpu": 4}))
    ledger.configure(PoolSpec(pool="mixed", capacity=ResourceSet({"cpu": 1, "gpu": 5})))
    assert (ledger.pool("mixed").free, ledger.pool("mixed").excess) == (ResourceSet({"gpu": 5}), ResourceSet({"cpu": 3}))
    ledger.reserve("mixed", "b", ResourceSet({"gpu": 5}))


def test_a_removed_resource_that_is_held_is_all_excess(ledger):
    ledger.reserve("general", "a", cpu(2))
    ledger.configure(PoolSpec(pool="general", capacity=NOTHING))
    assert (ledger.pool("general").excess, ledger.pool("general").free) == (cpu(2), NOTHING)


def test_configuring_a_pool_again_changes_nothing(ledger):
    ledger.reserve("general", "a", cpu(2))
    spec = ledger.pool("general").spec
    ledger.configure(spec)
    assert (ledger.pool("general").free, list(ledger.pools)) == (cpu(2), ["general", "spot"])


def test_an_unknown_pool_is_named_with_those_there_are(ledger):
    with pytest.raises(LedgerError, match="there is no pool lab; there are general, spot"):
        ledger.reserve("lab", "a", NOTHING)
    with pytest.raises(LedgerError, match="there are none"):
        PoolLedger().pool("lab")


# -- deleted -----------------------------------------------------------------------------------------------------------


def test_an_empty_pool_is_deleted_at_once_and_idempotently(ledger):
    assert ledger.delete("spot")
    assert list(ledger.pools) == ["general"]
    assert ledger.delete("spot")


def test_a_pool_in_use_is_not_deleted_and_takes_nothing_new(ledger):
    ledger.reserve("general", "a", cpu(1))
    assert not ledger.delete("general")
    assert ledger.pool("general").is_closing
    assert not ledger.pool("general").fits(cpu(1))
    with pytest.raises(LedgerError, match="being deleted"):
        ledger.reserve("general", "b", cpu(1))
    ledger.commit("general", "a")
    ledger.release("a")
    assert ledger.delete("general")


def test_a_closing_pool_that_is_configured_is_open_again(ledger):
    ledger.reserve("general", "a", cpu(1))
    ledger.delete("general")
    ledger.configure(PoolSpec(pool="general", capacity=cpu(4)))
    ledger.reserve("general", "b", cpu(1))
    assert not ledger.pool("general").is_closing


# -- handed over -------------------------------------------------------------------------------------------------------


def test_a_move_hands_over_every_entry_as_it_stands(ledger):
    ledger.reserve("general", "old", cpu(1))
    ledger.reserve("spot", "old", cpu(2))
    ledger.commit("spot", "old")
    assert ledger.move("old", "new")
    assert (ledger.held_by("old"), ledger.held_by("new"), ledger.pools_of("new")) == (NOTHING, cpu(3), ("general", "spot"))
    assert (ledger.pool("general").reserved, ledger.pool("spot").used) == (cpu(1), cpu(2))
    assert ledger.check() == []


def test_a_move_of_nothing_and_to_oneself_moves_nothing(ledger):
    ledger.reserve("general", "a", cpu(1))
    assert not ledger.move("b", "c")
    assert ledger.move("a", "a")
    assert ledger.held_by("a") == cpu(1)


def test_a_move_onto_an_entry_is_refused_whole(ledger):
    ledger.reserve("general", "old", cpu(1))
    ledger.reserve("spot", "old", cpu(1))
    ledger.reserve("spot", "new", cpu(1))
    with pytest.raises(LedgerError, match="new has an entry in pool spot already"):
        ledger.move("old", "new")
    assert (ledger.held_by("old"), ledger.held_by("new"), ledger.check()) == (cpu(2), cpu(1), [])


def test_a_move_to_one_who_holds_something_elsewhere_adds_to_it(ledger):
    ledger.reserve("general", "old", cpu(1))
    ledger.reserve("spot", "new", cpu(1))
    ledger.move("old", "new")
    assert ledger.release("new")
    assert (ledger.pool("general").is_empty, ledger.pool("spot").is_empty) == (True, True)


# -- what the nearest peer got wrong -----------------------------------------------------------------------------------


def test_a_pool_for_four_agents_of_a_tenth_takes_all_four():
    """With floats the last one does not fit: 0.1 * 4 - 0.1 - 0.1 - 0.1 < 0.1."""
    ledger = PoolLedger((PoolSpec(pool="small", capacity=cpu(0.1).times(4)),))
    for agent in range(4):
        ledger.reserve("small", f"agent {agent}", cpu(0.1))
    assert ledger.pool("small").free == NOTHING


def test_released_tenths_leave_nothing_behind():
    ledger = PoolLedger((PoolSpec(pool="small", capacity=cpu(0.8)),))
    for holder, amount in (("a", 0.7), ("b", 0.1)):
        ledger.reserve("small", holder, cpu(amount))
        ledger.commit("small", holder)
    ledger.release("a")
    ledger.release("b")
    assert (ledger.pool("small").free, ledger.pool("small").used) == (cpu(0.8), NOTHING)


def test_memory_is_counted_in_the_bytes_of_the_cluster():
    ledger = PoolLedger((PoolSpec(pool="small", capacity=ResourceSet.of({"memory": "4GiB"})),))
    with pytest.raises(LedgerError):
        ledger.reserve("small", "a", ResourceSet({"memory": 2**32 + 1}))


def test_a_second_release_frees_nothing_of_a_new_reservation(ledger):
    ledger.reserve("general", "a", cpu(4))
    ledger.release("a")
    ledger.reserve("general", "b", cpu(4))
    assert not ledger.release("a")
    assert ledger.held_by("b") == cpu(4)


# -- what is short, what is wrong --------------------------------------------------------------------------------------


def test_a_pool_tells_what_is_short(ledger):
    ledger.reserve("general", "a", cpu(3))
    pool = ledger.pool("general")
    assert pool.short_of(cpu(2)) == cpu(1)
    assert pool.short_of(cpu(1)) == NOTHING
    assert pool.short_of(ResourceSet.of({"gpu": 1})) == ResourceSet.of({"gpu": 1})


def test_what_an_over_committed_pool_awaits_includes_the_excess(ledger):
    ledger.reserve("general", "a", cpu(4))
    ledger.configure(PoolSpec(pool="general", capacity=cpu(1)))
    assert ledger.pool("general").short_of(cpu(1)) == cpu(4)


def test_the_check_of_a_pool_reports_inconsistent_state(ledger):
    ledger.reserve("general", "a", cpu(1))
    assert ledger.check() == []
    ledger.pool("general").uses["a"] = cpu(1)
    ledger.pool("general").uses["ghost"] = cpu(2)
    assert ledger.check() == [
        "a has two entries in pool general",
        "pool general: used is {}, but its entries sum to {'cpu': 30000}",
        "ghost and pool general disagree on whether the holder has an entry there",
    ]
