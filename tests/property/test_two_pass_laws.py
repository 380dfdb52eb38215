"""Laws of the node table, of feasibility and of the two passes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.ids import NodeName, PoolName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.random_stream import RandomStream
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest
from mesh.errors import LedgerError
from mesh.placement.feasibility import NodeFit, available_rows, explain, feasible_rows
from mesh.placement.two_pass import schedule, spill_over

sixty = settings(max_examples=60)

NAMES = ["cpu", "gpu", "licence"]
sets = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4)).map(ResourceSet)
labels = st.dictionaries(st.sampled_from(["zone", "gpu"]), st.sampled_from(["a", "b"]))
selectors = st.dictionaries(st.sampled_from(["zone", "gpu"]), st.sampled_from(["a", "!a", "!", "in(a, b)", "!in(a,b)"]))
nodes = st.lists(st.tuples(sets, labels), max_size=5)
demands = st.lists(st.tuples(sets, selectors), max_size=8)


def table_of(written: list[tuple[ResourceSet, dict[str, str]]]) -> NodeTable:
    table = NodeTable()
    for number, (total, said) in enumerate(written):
        table.join(NodeName(f"n{number}"), total, said)
    return table


def tasks_of(written: list[tuple[ResourceSet, dict[str, str]]], prefix: str = "t") -> list[TaskRequest]:
    return [
        TaskRequest(task=TaskId(f"{prefix}{number}"), pool=PoolName("p"), resources=wanted, selector=selector)
        for number, (wanted, selector) in enumerate(written)
    ]


@sixty
@given(nodes, demands, st.integers(0, 2**32))
def test_tasks_are_placed_waiting_or_infeasible_and_charged(written, demand, seed):
    table, tasks = table_of(written), tasks_of(demand)
    placed = schedule(tasks, table, RandomStream(seed).draw)
    assert {*placed.nodes, *placed.infeasible} == {task.task for task in tasks}
    assert placed.waiting <= placed.nodes.keys()
    for node in (name for name in table.names if name is not None):
        stands = table.resources_of(node)
        load = sum((task.resources for task in tasks if placed.nodes.get(task.task) == node), start=ResourceSet())
        at_once = sum(
            (task.resources for task in tasks if placed.nodes.get(task.task) == node and task.task not in placed.waiting),
            start=ResourceSet(),
        )
        assert stands.load == load
        assert at_once <= stands.total


@sixty
@given(nodes, demands, st.integers(0, 2**32))
def test_the_same_chance_gives_the_same_places(written, demand, seed):
    tasks = tasks_of(demand)
    assert schedule(tasks, table_of(written), RandomStream(seed).draw) == schedule(tasks, table_of(written), RandomStream(seed).draw)


@sixty
@given(nodes, sets, selectors, st.lists(sets, max_size=3))
def test_the_words_and_the_masks_agree(written, wanted, selector, promised):
    table = table_of(written)
    for row, amounts in zip(range(len(written)), promised, strict=False):
        table.queue_for(row, table.vector(amounts))
    vector = table.vector(wanted)
    feasible = feasible_rows(table, vector, selector)
    available = available_rows(table, vector, feasible)
    for verdict in explain(table, wanted, selector):
        row = table.row(verdict.node)
        assert (verdict.fit is not NodeFit.INFEASIBLE) == bool(feasible[row])
        assert (verdict.fit is NodeFit.AVAILABLE) == bool(available[row])
        assert (verdict.words == "") == (verdict.fit is NodeFit.AVAILABLE)


@sixty
@given(sets, demands, demands)
def test_a_node_retries_infeasible_tasks_and_one_ready_task(total, infeasible, ready):
    table = table_of([(total, {})])
    stuck, waiting = tasks_of(infeasible, "i"), tasks_of(ready, "r")
    spilled = spill_over(stuck, waiting, table, NodeName("n0"))
    fit = {task.task for task in stuck if not explain_one(table, task)}
    assert {task for task in spilled if task.startswith("i")} == fit
    assert len([task for task in spilled if task.startswith("r")]) == min(1, sum(not explain_one(table, task) for task in waiting))


def explain_one(table: NodeTable, task: TaskRequest) -> bool:
    """Explain a node that could never run the task."""
    (verdict,) = explain(table, task.resources, task.selector)
    return verdict.fit is NodeFit.INFEASIBLE


@sixty
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["join", "leave", "update", "promise", "start", "withdraw", "finish"]),
            st.integers(0, 3),
            st.sampled_from(NAMES),
            st.integers(0, 4),
        ),
        max_size=40,
    )
)
def test_no_order_of_events_makes_a_negative_or_a_lost_amount(events):
    table = NodeTable()
    used: dict[str, ResourceSet] = {}
    load: dict[str, ResourceSet] = {}
    for verb, number, name, units in events:
        node, amounts = NodeName(f"n{number}"), ResourceSet({name: units})
        try:
            if verb == "join":
                table.join(node, amounts, {})
                used.setdefault(node, ResourceSet())
                load.setdefault(node, ResourceSet())
            elif verb == "leave":
                table.leave(node)
                del used[node], load[node]
            elif verb == "update":
                table.update_resource(node, name, units)
            else:
                getattr(table, verb)(table.row(node), table.vector(amounts))
                used[node] = used[node] + amounts if verb == "start" else used[node] - amounts if verb == "finish" else used[node]
                load[node] = (
                    load[node] + amounts if verb == "promise" else load[node] - amounts if verb in ("start", "withdraw") else load[node]
                )
        except LedgerError:
            continue
    assert (np.minimum.reduce([table.total, table.used, table.load]) >= 0).all()
    for node, amounts in used.items():
        row = table.row(NodeName(node))
        assert table.amounts(table.used[row]) == amounts
        assert table.amounts(table.load[row]) == load[node]
    assert sorted(name for name in table.names if name is not None) == sorted(used)
