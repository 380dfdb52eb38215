"""Two-pass placement: ready, waiting and infeasible tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.errors import LedgerError
from mesh.placement.two_pass import schedule, spill_over

NEW = NodeName("new")


def some(**amounts: object) -> ResourceSet:
    return ResourceSet.of(amounts)


def task(name: str, wanted: ResourceSet, **selector: str) -> TaskRequest:
    return TaskRequest(task=TaskId(name), pool=PoolName("default"), resources=wanted, selector=selector)


def table_of(**totals: ResourceSet) -> NodeTable:
    table = NodeTable()
    for name, total in totals.items():
        table.join(NodeName(name), total, {"zone": name})
    return table


def load_of(table: NodeTable, node: str) -> ResourceSet:
    return table.resources_of(NodeName(node)).load


def first(count: int) -> int:
    assert count > 0
    return 0


def chosen(*places: int):
    answers: Iterator[int] = iter(places)
    return lambda count: next(answers) % count


def test_s28_the_first_pass_uses_availability_less_load():
    table = table_of(busy=some(cpu=4), promised=some(cpu=4), idle=some(cpu=4))
    table.promise(table.row(NodeName("busy")), table.vector(some(cpu=4)))
    table.start(table.row(NodeName("busy")), table.vector(some(cpu=4)))
    table.promise(table.row(NodeName("promised")), table.vector(some(cpu=4)))
    placed = schedule([task("a", some(cpu=1))], table, first)
    assert (placed.nodes, placed.waiting) == ({"a": "idle"}, frozenset())


def test_s28_the_second_pass_takes_nodes_by_their_total():
    table = table_of(small=some(cpu=1), large=some(cpu=4))
    table.promise(table.row(NodeName("large")), table.vector(some(cpu=3)))
    placed = schedule([task("a", some(cpu=2))], table, first)
    assert (placed.nodes, placed.waiting, placed.infeasible) == ({"a": "large"}, {"a"}, ())


def test_s28_load_is_charged_at_once_for_later_decisions():
    table = table_of(one=some(cpu=1), two=some(cpu=1))
    placed = schedule([task(name, some(cpu=1)) for name in "abc"], table, first)
    assert placed.nodes == {"a": "one", "b": "two", "c": "one"}
    assert placed.waiting == {"c"}
    assert (load_of(table, "one"), load_of(table, "two")) == (some(cpu=2), some(cpu=1))


def test_s28_what_fits_no_empty_node_is_infeasible():
    table = table_of(one=some(cpu=1))
    placed = schedule([task("a", some(gpu=1)), task("b", some(cpu=1), zone="elsewhere")], table, first)
    assert (placed.nodes, placed.infeasible) == ({}, ("a", "b"))
    assert load_of(table, "one") == NOTHING


def test_s28_chance_picks_among_the_nodes_found():
    table = table_of(one=some(cpu=2), full=some(cpu=1), two=some(cpu=2))
    table.promise(table.row(NodeName("full")), table.vector(some(cpu=1)))
    placed = schedule([task(name, some(cpu=1)) for name in "abc"], table, chosen(1, 0, 1))
    assert placed.nodes == {"a": "two", "b": "one", "c": "two"}


def test_a_task_that_requests_nothing_fits_any_node():
    assert schedule([task("a", NOTHING)], table_of(one=some(cpu=1)), first).nodes == {"a": "one"}
    assert schedule([task("a", NOTHING)], NodeTable(), first).infeasible == ("a",)


def test_s28_a_new_node_retries_infeasible_and_one_ready_task():
    table = table_of(new=some(cpu=8, gpu=2))
    infeasible = [task("g1", some(gpu=1)), task("g4", some(gpu=4)), task("g2", some(gpu=1))]
    ready = [task("r1", some(cpu=16)), task("r2", some(cpu=1)), task("r3", some(cpu=1))]
    assert spill_over(infeasible, ready, table, NEW) == ("g1", "g2", "r2")
    assert load_of(table, "new") == some(cpu=1, gpu=2)


def test_s28_a_node_that_grew_gets_what_was_infeasible_before():
    table = table_of(new=some(cpu=1))
    demand = task("a", some(licence=2))
    assert spill_over([demand], [], table, NEW) == ()
    table.update_resource(NEW, "licence", 30_000)
    assert spill_over([demand], [], table, NEW) == ("a",)


def test_s28_a_spilled_load_is_seen_by_the_next_schedule():
    table = table_of(new=some(cpu=1), other=some(cpu=1))
    spill_over([task("a", some(cpu=1))], [], table, NEW)
    assert schedule([task("b", some(cpu=1))], table, first).nodes == {"b": "other"}


def test_labels_bind_what_is_spilled():
    table = table_of(new=some(cpu=4))
    assert spill_over([task("a", some(cpu=1), zone="!new"), task("b", some(cpu=1), zone="in(new, old)")], [], table, NEW) == ("b",)


def test_nothing_is_spilled_to_an_unknown_node():
    with pytest.raises(LedgerError):
        spill_over([], [], table_of(one=some(cpu=1)), NEW)
