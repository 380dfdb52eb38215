"""Node table: totals, availability, foreign use, labels and rows."""

from __future__ import annotations

import pytest

from mesh.core.ids import NodeName
from mesh.core.nodes import NodeResources, NodeTable
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import AmountError, LedgerError

ONE, TWO, THREE = NodeName("one"), NodeName("two"), NodeName("three")


def some(**amounts: object) -> ResourceSet:
    return ResourceSet.of(amounts)


def table_of(**totals: ResourceSet) -> NodeTable:
    table = NodeTable()
    for name, total in totals.items():
        table.join(NodeName(name), total, {})
    return table


def run_on(table: NodeTable, node: NodeName, amounts: ResourceSet) -> None:
    row = table.row(node)
    table.promise(row, table.vector(amounts))
    table.start(row, table.vector(amounts))


def test_s27_a_node_has_a_total_an_available_part_and_a_load():
    table = table_of(one=some(cpu=4, gpu=2))
    run_on(table, ONE, some(cpu=1))
    table.promise(table.row(ONE), table.vector(some(cpu=2)))
    assert table.resources_of(ONE) == NodeResources(total=some(cpu=4, gpu=2), available=some(cpu=3, gpu=2), load=some(cpu=2))
    assert table.amounts(table.free(slice(0, 1))[0]) == some(cpu=1, gpu=2)


def test_s27_a_custom_resource_is_added_at_run_time():
    table = table_of(one=some(cpu=4), two=some(cpu=4))
    table.update_resource(ONE, "licence", 30_000)
    assert table.resources_of(ONE).available == some(cpu=4, licence=3)
    assert table.resources_of(TWO).total == some(cpu=4)


def test_s27_available_follows_a_changed_total_never_below_zero():
    table = table_of(one=some(licence=5))
    run_on(table, ONE, some(licence=4))
    table.update_resource(ONE, "licence", 30_000)
    assert table.resources_of(ONE) == NodeResources(total=some(licence=3), available=NOTHING, load=NOTHING)
    table.update_resource(ONE, "licence", 60_000)
    assert table.resources_of(ONE).available == some(licence=2)


def test_s27_a_release_never_exceeds_a_lowered_total():
    table = table_of(one=some(licence=5))
    run_on(table, ONE, some(licence=4))
    table.update_resource(ONE, "licence", 30_000)
    table.finish(table.row(ONE), table.vector(some(licence=4)))
    assert table.resources_of(ONE).available == some(licence=3)


def test_s27_a_custom_resource_is_deleted_in_use():
    table = table_of(one=some(cpu=1, licence=5))
    run_on(table, ONE, some(licence=4))
    table.delete_resource(ONE, "licence")
    with pytest.raises(LedgerError):
        table.promise(table.row(ONE), table.vector(some(licence=1)))
    table.finish(table.row(ONE), table.vector(some(licence=4)))
    assert table.resources_of(ONE) == NodeResources(total=some(cpu=1), available=some(cpu=1), load=NOTHING)


def test_deleting_an_unknown_resource_changes_nothing():
    table = table_of(one=some(cpu=1))
    before = table.shape_version
    table.delete_resource(ONE, "licence")
    assert (table.resources, table.shape_version) == (("cpu",), before)


def test_a_changed_resource_is_reported_to_score_caches():
    table = table_of(one=some(cpu=1), two=some(cpu=1))
    seen = len(table.touched)
    table.update_resource(TWO, "cpu", 20_000)
    assert table.touched[seen:] == [table.row(TWO)]


@pytest.mark.parametrize("units", [pytest.param(-1, id="less than nothing"), pytest.param(2**60, id="more than a ledger holds")])
def test_a_total_that_cannot_be_is_refused(units):
    table = table_of(one=some(cpu=1))
    with pytest.raises(AmountError):
        table.update_resource(ONE, "cpu", units)
    assert table.resources_of(ONE).total == some(cpu=1)


def test_a_reservation_is_charged_at_once_within_what_is_free():
    table = table_of(one=some(cpu=2))
    row, wanted = table.row(ONE), table.vector(some(cpu=1))
    table.promise(row, wanted)
    table.promise(row, wanted)
    with pytest.raises(LedgerError, match="does not have"):
        table.promise(row, wanted)
    assert (table.resources_of(ONE).load, int(table.busy[row])) == (some(cpu=2), 2)
    table.withdraw(row, wanted)
    table.promise(row, wanted)


def test_an_over_committed_node_still_lends_other_resources():
    table = table_of(one=some(cpu=2, gpu=1))
    run_on(table, ONE, some(cpu=2))
    table.update_resource(ONE, "cpu", 10_000)
    table.promise(table.row(ONE), table.vector(some(gpu=1)))
    assert table.resources_of(ONE).load == some(gpu=1)


def test_tasks_may_queue_for_a_node_beyond_its_room():
    table = table_of(one=some(cpu=1))
    row, wanted = table.row(ONE), table.vector(some(cpu=1))
    table.queue_for(row, wanted)
    table.queue_for(row, wanted)
    assert (table.resources_of(ONE).load, table.amounts(table.free(slice(0, 1))[0])) == (some(cpu=2), NOTHING)
    table.start(row, wanted)
    assert table.resources_of(ONE) == NodeResources(total=some(cpu=1), available=NOTHING, load=some(cpu=1))


@pytest.mark.parametrize("verb", ["start", "withdraw", "finish"])
def test_nobody_gives_back_what_nobody_has(verb):
    table = table_of(one=some(cpu=1))
    with pytest.raises(LedgerError, match="which is not held there"):
        getattr(table, verb)(table.row(ONE), table.vector(some(cpu=1)))
    assert table.resources_of(ONE) == NodeResources(total=some(cpu=1), available=some(cpu=1), load=NOTHING)


def test_a_node_that_leaves_frees_its_row_for_the_next():
    table = table_of(one=some(cpu=1), two=some(cpu=1), three=some(cpu=1))
    run_on(table, TWO, some(cpu=1))
    gone = [table.row(name) for name in (TWO, ONE)]
    table.leave(TWO)
    table.leave(ONE)
    assert (TWO in table, len(table)) == (False, 1)
    table.join(NodeName("four"), some(gpu=1), {"zone": "east"})
    table.join(NodeName("five"), some(gpu=1), {})
    assert [table.row(NodeName(name)) for name in ("four", "five")] == sorted(gone)
    assert table.resources_of(NodeName("five")) == NodeResources(total=some(gpu=1), available=some(gpu=1), load=NOTHING)
    assert int(table.busy[table.row(NodeName("five"))]) == 0


def test_many_nodes_get_rows_of_their_own():
    table = table_of(**{f"n{number}": some(cpu=number + 1) for number in range(40)})
    assert sorted(table.row(NodeName(f"n{number}")) for number in range(40)) == list(range(40))
    assert table.resources_of(NodeName("n39")).total == some(cpu=40)


def test_the_unknown_is_an_error():
    table = table_of(one=some(cpu=1))
    table.leave(ONE)
    for ask in (table.row, table.leave, table.resources_of):
        with pytest.raises(LedgerError, match="not in the table"):
            ask(ONE)
    with pytest.raises(LedgerError, match="has no node"):
        table.name(0)


def test_labels_and_columns_change_the_shape_totals_do_not():
    table = table_of(one=some(cpu=1))
    versions = [table.shape_version]
    table.join(ONE, some(cpu=2), {})
    versions.append(table.shape_version)
    table.join(ONE, some(cpu=2), {"zone": "east"})
    versions.append(table.shape_version)
    table.vector(some(tpu=1))
    versions.append(table.shape_version)
    assert versions[0] == versions[1] < versions[2] < versions[3]


def test_foreign_use_is_accepted_after_a_new_resource_came():
    table = table_of(one=some(cpu=4))
    table.see_foreign(ONE, table.vector(some(cpu=1)))
    table.vector(some(licence=1))
    assert table.amounts(table.foreign[ONE]) == some(cpu=1)
    table.see_foreign(ONE, table.vector(some(cpu=2)))
    assert table.resources_of(ONE).available == some(cpu=2)
