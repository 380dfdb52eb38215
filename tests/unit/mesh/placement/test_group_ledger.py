"""Ledger of placement groups: two layers, best fit, reuse, refill and removal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mesh.core.pools import PoolSpec
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.errors import IllegalTransition, LedgerError
from mesh.placement.group_ledger import GroupLedger
from mesh.placement.groups import GroupState, Layer

RESERVED, DYNAMIC = Layer.RESERVED, Layer.DYNAMIC
CREATING, IDLE, TAKEN, HELD, REMOVING = GroupState


def shape(*cpus, strategy="PACK", gpu=0):
    return GroupShape(tuple(ResourceSet.of({"cpu": cpu, "gpu": gpu}) for cpu in cpus), strategy)


def pool(**groups):
    return PoolSpec(pool="p", capacity=NOTHING, groups=GroupPoolSpec(**groups))


@pytest.fixture
def ledger():
    """Ledger that checks its own state when the test ends."""
    made = GroupLedger()
    yield made
    assert made.check() == []


def idle(ledger, group, wanted=None, *, layer=DYNAMIC, at_ms=0, name="p", nodes=None):
    wanted = wanted or shape(1)
    ledger.add(group, name, wanted, layer, nodes or ("n1",) * len(wanted.bundles))
    ledger.ready(group, at_ms)


def names(records):
    return [record.group for record in records]


# -- the life of a group -----------------------------------------------------------------------------------------------


def test_s7_a_group_is_made_taken_released_and_reused(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "a")
    seen = [(ledger.record("g").state, ledger.held_by("a").group)]
    ledger.ready("g", 10)
    seen.append((ledger.record("g").state, ledger.held_by("a").group))
    ledger.give_back("g", 20)
    seen.append((ledger.record("g").state, ledger.held_by("a")))
    ledger.take("g", "b")
    seen.append((ledger.record("g").state, ledger.held_by("b").group))
    assert seen == [(CREATING, "g"), (TAKEN, "g"), (IDLE, None), (TAKEN, "g")]


def test_s7_reuse_counts_takes_of_a_group_made_for_another_task(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "a")
    ledger.ready("g", 0)
    seen = [ledger.record("g").reuse_count]
    for task in ("b", "b", "a"):
        ledger.give_back("g", 0)
        ledger.take("g", task)
        seen.append(ledger.record("g").reuse_count)
    assert seen == [0, 1, 1, 2]


def test_a_group_that_nobody_has_had_is_used_and_not_reused(ledger):
    idle(ledger, "g", layer=RESERVED)
    assert ledger.take("g", "a").reuse_count == 0


def test_s7_a_destroyed_group_counts_until_it_is_gone(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "a")
    ledger.ready("g", 0)
    assert ledger.remove("g")
    assert not ledger.remove("g")
    assert (ledger.record("g").state, ledger.held_by("a"), ledger.dynamic_count("p")) == (REMOVING, None, 1)
    assert ledger.match("p", shape(1), layer=DYNAMIC) is None
    ledger.drop("g")
    assert (ledger.dynamic_count("p"), ledger.of_pool("p"), ledger.records) == (0, (), {})


def test_ray_tells_where_a_group_really_is(ledger):
    ledger.add("g", "p", shape(1, 1), DYNAMIC, ("n1", "n2"))
    ledger.ready("g", 0, nodes=("n3", "n2"))
    assert names(ledger.on_node("n3")) == ["g"]
    assert ledger.on_node("n1") == ()


def test_a_group_that_is_being_made_can_change_hands(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "a")
    ledger.give_back("g", 0)
    assert (ledger.record("g").state, ledger.record("g").holder) == (CREATING, None)
    ledger.take("g", "b")
    ledger.give_back("g", 0, hold_for="c")
    assert (ledger.record("g").state, ledger.record("g").holder) == (CREATING, "c")
    assert ledger.ready("g", 5).state is TAKEN


def test_the_loss_of_a_group_tells_whose_it_was(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "a")
    ledger.ready("g", 0)
    lost = ledger.drop("g")
    assert (lost.holder, lost.state, ledger.held_by("a"), ledger.drop("g")) == ("a", TAKEN, None, None)


@pytest.mark.parametrize("state", [pytest.param(state, id=f"while {state.value}") for state in GroupState])
def test_a_group_can_be_lost_at_any_time(ledger, state):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "a")
    if state is not CREATING:
        ledger.ready("g", 0)
    if state in (IDLE, HELD):
        ledger.give_back("g", 0, hold_for="b" if state is HELD else None)
    if state is REMOVING:
        ledger.remove("g")
    assert ledger.drop("g").state is state
    assert (ledger.records, ledger.of_pool("p"), ledger.dynamic_count("p"), ledger.idle()) == ({}, (), 0, ())
    assert (ledger.held_by("a"), ledger.held_by("b"), ledger.check()) == (None, None, [])


# -- held for one ------------------------------------------------------------------------------------------------------


def test_a_group_is_kept_for_the_preemptor_of_its_holder(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "victim")
    ledger.ready("g", 0)
    ledger.give_back("g", 7, hold_for="urgent")
    assert (ledger.record("g").state, ledger.held_by("urgent").group, ledger.record("g").idle_since_ms) == (HELD, "g", 7)
    assert ledger.match("p", shape(1), layer=DYNAMIC, task="passer-by") is None
    assert ledger.match("p", shape(1), layer=DYNAMIC) is None
    assert ledger.match("p", shape(1), layer=DYNAMIC, task="urgent").group == "g"
    with pytest.raises(IllegalTransition, match="HELD for urgent and cannot be given to passer-by"):
        ledger.take("g", "passer-by")
    assert ledger.take("g", "urgent").reuse_count == 1


def test_a_hold_is_lifted_by_giving_the_group_back_once_more(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "victim")
    ledger.ready("g", 0)
    ledger.give_back("g", 7, hold_for="urgent")
    ledger.give_back("g", 9)
    assert (ledger.record("g").state, ledger.record("g").idle_since_ms, ledger.held_by("urgent")) == (IDLE, 9, None)


def test_a_hold_ends_when_the_task_gets_another_group(ledger):
    ledger.add("held", "p", shape(1), DYNAMIC, ("n1",), "victim")
    ledger.ready("held", 0)
    ledger.give_back("held", 7, hold_for="urgent")
    idle(ledger, "other", layer=RESERVED)
    ledger.take("other", "urgent")
    assert (ledger.record("held").state, ledger.record("held").idle_since_ms, ledger.held_by("urgent").group) == (IDLE, 7, "other")


def test_a_kept_group_that_is_too_small_is_no_match(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "victim")
    ledger.ready("g", 0)
    ledger.give_back("g", 0, hold_for="urgent")
    assert ledger.match("p", shape(2), layer=DYNAMIC, task="urgent") is None


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_task_has_one_group(ledger):
    ledger.add("g", "p", shape(1), DYNAMIC, ("n1",), "a")
    idle(ledger, "h")
    ledger.add("i", "p", shape(1), DYNAMIC, ("n1",), "b")
    ledger.ready("i", 0)
    for second in (
        lambda: ledger.add("j", "p", shape(1), DYNAMIC, ("n1",), "a"),
        lambda: ledger.take("h", "a"),
        lambda: ledger.give_back("i", 0, hold_for="a"),
    ):
        with pytest.raises(LedgerError, match="a already has placement group g"):
            second()
    assert (ledger.record("h").state, ledger.record("i").holder, "j" in ledger.records) == (IDLE, "b", False)


def test_a_second_taker_of_a_group_learns_its_holder(ledger):
    idle(ledger, "g")
    ledger.take("g", "a")
    with pytest.raises(IllegalTransition, match=r"g \(DYNAMIC of pool p, last with a\) is TAKEN and is given to b"):
        ledger.take("g", "b")


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda ledger: ledger.ready("g", 0), id="made twice"),
        pytest.param(lambda ledger: ledger.give_back("g", 0), id="given back while idle"),
    ],
)
def test_a_group_goes_no_way_that_it_has_not(ledger, ask):
    idle(ledger, "g")
    with pytest.raises(IllegalTransition, match="is IDLE and"):
        ask(ledger)


def test_invalid_groups_are_refused(ledger):
    idle(ledger, "g")
    with pytest.raises(LedgerError, match="there is no placement group h"):
        ledger.take("h", "a")
    with pytest.raises(LedgerError, match="already"):
        ledger.add("g", "p", shape(1), DYNAMIC, ("n1",))
    with pytest.raises(LedgerError, match="2 bundles on 1 node"):
        ledger.add("h", "p", shape(1, 1), DYNAMIC, ("n1",))
    ledger.add("h", "p", shape(1), DYNAMIC, ("n1",))
    with pytest.raises(LedgerError, match="1 bundle on 2 nodes"):
        ledger.ready("h", 0, nodes=("n1", "n2"))


# -- best fit ----------------------------------------------------------------------------------------------------------


def test_s7_a_small_task_does_not_take_a_large_dynamic_group(ledger):
    """First fit would give a group of four CPUs to a task of a tenth of one."""
    idle(ledger, "large", shape(4))
    assert ledger.match("p", shape(0.1), layer=DYNAMIC) is None
    assert ledger.match("p", shape(4), layer=DYNAMIC).group == "large"


def test_s7_an_urgent_task_takes_the_reserved_group_of_best_fit(ledger):
    for group, cpus in (("eight", 8), ("two", 2), ("four", 4), ("one", 1)):
        idle(ledger, group, shape(cpus), layer=RESERVED)
    assert ledger.match("p", shape(2), layer=RESERVED).group == "two"
    ledger.take("two", "a")
    assert ledger.match("p", shape(2), layer=RESERVED).group == "four"
    assert ledger.match("p", shape(9), layer=RESERVED) is None


def test_the_resource_that_is_wasted_most_decides(ledger):
    idle(ledger, "a gpu for nothing", shape(1, gpu=1), layer=RESERVED)
    idle(ledger, "a cpu too much", shape(2), layer=RESERVED)
    assert ledger.match("p", shape(1), layer=RESERVED).group == "a cpu too much"


@pytest.mark.parametrize(
    ("waste_max", "found"),
    [pytest.param(0.5, "g", id="half of it may be wasted"), pytest.param(0.49, None, id="less than half may be wasted")],
)
def test_how_much_may_be_wasted_can_be_said(ledger, waste_max, found):
    idle(ledger, "g", shape(2))
    match = ledger.match("p", shape(1), layer=DYNAMIC, waste_max=waste_max)
    assert (match and match.group) == found


@pytest.mark.parametrize(
    ("has", "wanted", "fits"),
    [
        pytest.param(shape(1, 2), shape(1, 2), True, id="the same bundles"),
        pytest.param(shape(2, 1), shape(1, 2), False, id="the same bundles in another order: a leader is not a worker"),
        pytest.param(shape(2, 2), shape(2, 1), True, id="each bundle at least as large"),
        pytest.param(shape(4), shape(2, 2), False, id="one bundle for two"),
        pytest.param(shape(1, 1, 1), shape(1, 1), False, id="a bundle more"),
        pytest.param(shape(1, 1, strategy="STRICT_SPREAD"), shape(1, 1, strategy="SPREAD"), True, id="stricter than wanted"),
        pytest.param(shape(1, 1, strategy="SPREAD"), shape(1, 1, strategy="STRICT_SPREAD"), False, id="looser than wanted"),
        pytest.param(shape(1, 1, strategy="PACK"), shape(1, 1, strategy="SPREAD"), False, id="packed where spread is wanted"),
        pytest.param(shape(1, strategy="STRICT_SPREAD"), shape(1, strategy="PACK"), True, id="one bundle under any strategy"),
    ],
)
def test_a_group_fits_bundle_by_bundle(ledger, has, wanted, fits):
    idle(ledger, "g", has, layer=RESERVED)
    assert (ledger.match("p", wanted, layer=RESERVED) is not None) is fits


def test_an_exact_shape_goes_before_one_that_wastes_as_little(ledger):
    idle(ledger, "spread", shape(1, strategy="SPREAD"))
    idle(ledger, "exact", shape(1, strategy="PACK"))
    idle(ledger, "strict", shape(1, strategy="STRICT_PACK"))
    assert ledger.match("p", shape(1, strategy="PACK"), layer=DYNAMIC).group == "exact"


def test_of_equal_groups_the_last_used_is_taken(ledger):
    idle(ledger, "first", at_ms=1)
    idle(ledger, "second", at_ms=2)
    assert ledger.match("p", shape(1), layer=DYNAMIC).group == "second"
    ledger.take("first", "a")
    ledger.give_back("first", 3)
    assert ledger.match("p", shape(1), layer=DYNAMIC).group == "first"


def test_pools_and_layers_do_not_mix(ledger):
    idle(ledger, "g", layer=RESERVED, name="p")
    assert ledger.match("q", shape(1), layer=RESERVED) is None
    assert ledger.match("p", shape(1), layer=DYNAMIC) is None


def test_a_group_where_the_task_may_not_go_is_passed_over(ledger):
    idle(ledger, "east", at_ms=1, nodes=("n1",))
    idle(ledger, "west", at_ms=2, nodes=("n2",))
    assert ledger.match("p", shape(1), layer=DYNAMIC, accepts=lambda record: "n2" not in record.nodes).group == "east"
    assert ledger.match("p", shape(1), layer=DYNAMIC, accepts=lambda _: False) is None


# -- the reserved layer ------------------------------------------------------------------------------------------------


def test_s7_the_reserved_layer_is_what_the_pool_says(ledger):
    spec = pool(reserved=(shape(1), shape(2), shape(1))).groups
    assert ledger.missing_reserved("p", spec) == (shape(1), shape(2), shape(1))
    ledger.add("g", "p", shape(1), RESERVED, ("n1",))
    assert ledger.missing_reserved("p", spec) == (shape(2), shape(1))


def test_a_reserved_group_that_is_taken_is_not_missing(ledger):
    idle(ledger, "g", layer=RESERVED)
    ledger.take("g", "a")
    assert ledger.missing_reserved("p", pool(reserved=(shape(1),)).groups) == ()


@pytest.mark.parametrize("way", [GroupLedger.remove, GroupLedger.drop], ids=["when it was removed", "when it was lost"])
def test_a_reserved_group_is_made_again(ledger, way):
    """A reserved group outlives its agent."""
    idle(ledger, "g", layer=RESERVED)
    way(ledger, "g")
    assert ledger.missing_reserved("p", pool(reserved=(shape(1),)).groups) == (shape(1),)


def test_dynamic_groups_do_not_count_as_reserved_ones(ledger):
    idle(ledger, "g", layer=DYNAMIC)
    assert ledger.missing_reserved("p", pool(reserved=(shape(1),)).groups) == (shape(1),)


def test_reserved_groups_beyond_the_pool_are_surplus_once_idle(ledger):
    for number, cpus in enumerate((1, 1, 2)):
        idle(ledger, f"g{number}", shape(cpus), layer=RESERVED, at_ms=number)
    ledger.take("g2", "a")
    spec = pool(reserved=(shape(1),)).groups
    assert names(ledger.surplus_reserved("p", spec)) == ["g0"]
    ledger.give_back("g2", 9)
    assert names(ledger.surplus_reserved("p", spec)) == ["g0", "g2"]
    assert names(ledger.surplus_reserved("p", None)) == ["g0", "g1", "g2"]


def test_a_pool_without_groups_misses_none(ledger):
    assert ledger.missing_reserved("p", None) == ()


def test_a_used_surplus_group_releases_an_idle_one_of_its_shape(ledger):
    idle(ledger, "used", layer=RESERVED)
    idle(ledger, "idle", layer=RESERVED)
    ledger.take("used", "a")
    assert names(ledger.surplus_reserved("p", pool(reserved=(shape(1),)).groups)) == ["idle"]


# -- what goes ---------------------------------------------------------------------------------------------------------


def test_s7_idle_groups_above_the_minimum_expire_oldest_first(ledger):
    for number, at_ms in ((1, 300), (2, 100), (3, 200), (4, 900)):
        idle(ledger, f"g{number}", at_ms=at_ms)
    assert names(ledger.expired(1_000, pool(idle_ms=700))) == ["g2", "g3", "g1"]
    assert names(ledger.expired(1_000, pool(idle_ms=700, min_idle=2))) == ["g2", "g3"]
    assert names(ledger.expired(999, pool(idle_ms=700, min_idle=0))) == ["g2", "g3"]
    assert ledger.expired(1_000, pool(idle_ms=700, min_idle=4)) == ()


def test_groups_that_are_not_used_again_go_at_once(ledger):
    idle(ledger, "g", at_ms=5)
    assert names(ledger.expired(5, pool(reuse=False, min_idle=3))) == ["g"]
    assert names(ledger.expired(5, PoolSpec(pool="p", capacity=NOTHING))) == ["g"]


def test_reserved_taken_and_kept_groups_do_not_expire(ledger):
    idle(ledger, "reserved", layer=RESERVED)
    idle(ledger, "taken")
    ledger.take("taken", "a")
    idle(ledger, "kept")
    ledger.take("kept", "b")
    ledger.give_back("kept", 0, hold_for="c")
    assert ledger.expired(10**9, pool(idle_ms=1)) == ()


# -- written down and read back ----------------------------------------------------------------------------------------


def test_a_ledger_that_is_read_back_chooses_as_before(ledger):
    for number, at_ms in ((1, 50), (2, 90), (3, 90), (4, 10)):
        idle(ledger, f"g{number}", at_ms=at_ms)
    idle(ledger, "reserved", shape(2), layer=RESERVED)
    ledger.add("taken", "p", shape(1), DYNAMIC, ("n1",), "a")
    ledger.ready("taken", 0)
    ledger.add("going", "p", shape(1), DYNAMIC, ("n1",))
    ledger.remove("going")
    again = GroupLedger()
    for record in ledger.records.values():
        again.restore(replace(record))
    assert again.check() == []
    assert (again.records, again.idle(), again.held_by("a").group) == (ledger.records, ledger.idle(), "taken")
    for task in ("b", "c", "d", "e"):
        found = [each.match("p", shape(1), layer=DYNAMIC).group for each in (ledger, again)]
        assert found[0] == found[1]
        for each in (ledger, again):
            each.take(found[0], task)


def test_groups_that_cannot_be_are_not_read_back(ledger):
    idle(ledger, "g")
    ledger.add("h", "p", shape(1), DYNAMIC, ("n1",), "a")
    for wrong, words in (
        (replace(ledger.record("g")), "g or its holder None is in the ledger"),
        (replace(ledger.record("h"), group="i"), "i or its holder a is in the ledger"),
        (replace(ledger.record("g"), group="i", holder="b"), "i is IDLE with holder b"),
    ):
        with pytest.raises(LedgerError, match=words):
            ledger.restore(wrong)


def cpu(count):
    return ResourceSet.of({"cpu": count})


def test_s7_idle_groups_never_block_a_task_from_unused_room(ledger):
    """Four idle groups of four CPUs must not starve a task of eight on a node of sixteen."""
    for number in range(4):
        idle(ledger, f"g{number}", shape(4), at_ms=number)
    assert names(ledger.in_the_way("p", cpu(8), "n1")) == ["g0", "g1"]


def test_groups_of_any_pool_can_be_in_the_way(ledger):
    idle(ledger, "own", shape(1), at_ms=2)
    idle(ledger, "other", shape(1), at_ms=1, name="q")
    assert names(ledger.in_the_way(None, cpu(1), "n1")) == ["other"]
    assert names(ledger.in_the_way("p", cpu(1), "n1")) == ["own"]


def test_nothing_goes_for_nothing(ledger):
    idle(ledger, "old and small", shape(1), at_ms=1)
    idle(ledger, "without a gpu", shape(1), at_ms=2)
    idle(ledger, "elsewhere", shape(4, gpu=2), at_ms=3, nodes=("n2",))
    idle(ledger, "large", shape(4, gpu=2), at_ms=4)
    assert names(ledger.in_the_way(None, ResourceSet.of({"gpu": 1}), "n1")) == ["large"]
    assert names(ledger.in_the_way(None, cpu(4), "n1")) == ["large"]
    assert names(ledger.in_the_way(None, cpu(5), "n1")) == ["old and small", "large"]
    assert ledger.in_the_way(None, cpu(7), "n1") == ()
    assert ledger.in_the_way(None, NOTHING, "n1") == ()


def test_only_the_bundles_on_the_node_make_room_there(ledger):
    idle(ledger, "g", shape(1, 2, 4), nodes=("n1", "n2", "n1"))
    assert ledger.record("g").amounts_on("n1") == cpu(5)
    assert names(ledger.in_the_way(None, cpu(5), "n1")) == ["g"]
    assert ledger.in_the_way(None, cpu(6), "n1") == ()


def test_only_idle_groups_are_in_the_way(ledger):
    idle(ledger, "reserved", layer=RESERVED)
    idle(ledger, "taken")
    ledger.take("taken", "a")
    idle(ledger, "kept")
    ledger.take("kept", "b")
    ledger.give_back("kept", 0, hold_for="c")
    idle(ledger, "going")
    ledger.remove("going")
    assert ledger.in_the_way(None, cpu(1), "n1") == ()


# -- counted -----------------------------------------------------------------------------------------------------------


def test_the_dynamic_layer_counts_all_that_take_room(ledger):
    for number in range(4):
        idle(ledger, f"g{number}")
    idle(ledger, "reserved", layer=RESERVED)
    idle(ledger, "of another pool", name="q")
    ledger.take("g0", "a")
    ledger.remove("g1")
    ledger.add("making", "p", shape(1), DYNAMIC, ("n1",))
    assert ledger.dynamic_count("p") == 5
    assert ledger.dynamic_count("none such") == 0


def test_the_check_of_groups_reports_inconsistent_state():
    ledger = GroupLedger()
    idle(ledger, "g")
    record = ledger.record("g")
    record.state, record.nodes = TAKEN, ()
    assert ledger.check() == [
        "placement group g is TAKEN with idle_since_ms 0",
        "placement group g is TAKEN without a holder",
        "placement group g has 1 bundle on 0 nodes",
        "groups [] are idle, the index has ['g']",
    ]
    record.state, record.holder, record.idle_since_ms, record.pool = REMOVING, "a", None, "q"
    del ledger.records["g"]
    ledger.records["other"] = record
    assert ledger.check() == [
        "placement group g is REMOVING with holder a",
        "placement group g has 1 bundle on 0 nodes",
        "the holders of the groups differ from the index",
        "groups [] are idle, the index has ['g']",
        "the pools count {'p': 1} dynamic groups, which differs from the records",
        "the pools' groups differ from the ledger's",
    ]
