"""Both passes for one demand: nodes with capacity now, nodes that could hold it when empty, or none."""

from __future__ import annotations

import pytest

from mesh.core.ids import NodeName
from mesh.core.nodes import NodeTable
from mesh.core.resources import NOTHING, ResourceSet
from mesh.placement.candidates import Candidates
from mesh.placement.two_pass import find, is_feasible, promise_copies
from mesh.policies.policy import NodeDemand
from mesh.policies.random_node import RANDOM


def some(**amounts: object) -> ResourceSet:
    return ResourceSet.of(amounts)


def table_of(**totals: ResourceSet) -> NodeTable:
    table = NodeTable()
    for name, total in totals.items():
        table.join(NodeName(name), total, {"zone": name})
    return table


def candidates(table: NodeTable, wanted: ResourceSet, **selector: str) -> Candidates:
    return Candidates(table, wanted, selector, RANDOM, NodeDemand(wanted=table.vector(wanted)))


def first(count: int) -> int:
    assert count > 0
    return 0


def found(table: NodeTable, wanted: ResourceSet, **selector: str) -> tuple[str, tuple[str, ...]]:
    """Return the node with capacity now, and those to wait for."""
    row, feasible = find(candidates(table, wanted, **selector), first)
    return "" if row is None else table.name(row), tuple(table.name(int(each)) for each in feasible)


def test_s28_the_first_pass_uses_availability_less_load():
    table = table_of(busy=some(cpu=4), promised=some(cpu=4), idle=some(cpu=4))
    for node in ("busy", "promised"):
        table.promise(table.row(NodeName(node)), table.vector(some(cpu=4)))
    table.start(table.row(NodeName("busy")), table.vector(some(cpu=4)))
    assert found(table, some(cpu=1)) == ("idle", ())


def test_s28_the_second_pass_takes_nodes_by_their_total():
    table = table_of(small=some(cpu=1), large=some(cpu=4))
    table.promise(table.row(NodeName("large")), table.vector(some(cpu=3)))
    assert found(table, some(cpu=2)) == ("", ("large",))


def test_s28_load_is_charged_at_once_for_later_decisions():
    table = table_of(one=some(cpu=1), two=some(cpu=1))
    assert promise_copies(candidates(table, some(cpu=1)), table, first, 3) == [0, 1]
    assert found(table, some(cpu=1)) == ("", ("one", "two"))


@pytest.mark.parametrize(
    ("wanted", "selector"),
    [
        pytest.param(some(gpu=1), {}, id="a resource that no node has"),
        pytest.param(some(cpu=1), {"zone": "elsewhere"}, id="a label that no node has"),
    ],
)
def test_s28_what_fits_no_empty_node_is_infeasible(wanted, selector):
    assert found(table_of(one=some(cpu=1)), wanted, **selector) == ("", ())


def test_s28_chance_picks_among_the_nodes_found():
    table = table_of(one=some(cpu=2), full=some(cpu=1), two=some(cpu=2))
    table.promise(table.row(NodeName("full")), table.vector(some(cpu=1)))
    assert [find(candidates(table, some(cpu=1)), lambda _, place=place: place).row for place in (0, 1)] == [0, 2]


def test_a_demand_for_nothing_fits_any_node():
    assert found(table_of(one=some(cpu=1)), NOTHING) == ("one", ())
    assert found(NodeTable(), NOTHING) == ("", ())


def test_s28_a_new_node_makes_feasible_what_it_holds_when_empty():
    table = table_of(new=some(cpu=8, gpu=2), old=some(cpu=1))
    table.promise(table.row(NodeName("new")), table.vector(some(gpu=2)))
    assert [is_feasible(candidates(table, some(gpu=count)), table.row(NodeName("new"))) for count in (1, 2, 3)] == [True, True, False]
    assert not is_feasible(candidates(table, some(cpu=1), zone="!new"), table.row(NodeName("new")))


def test_s28_a_node_that_grew_makes_feasible_what_was_not():
    table = table_of(new=some(cpu=1))
    assert not is_feasible(candidates(table, some(licence=2)))
    table.update_resource(NodeName("new"), "licence", 30_000)
    assert is_feasible(candidates(table, some(licence=2)))
