"""Laws of the node table, of feasibility and of the two passes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.ids import NodeName
from mesh.core.nodes import NodeTable
from mesh.core.random_stream import RandomStream
from mesh.core.resources import ResourceSet
from mesh.errors import LedgerError
from mesh.placement.candidates import Candidates
from mesh.placement.feasibility import NodeFit, available_rows, explain, feasible_rows
from mesh.placement.two_pass import find, is_feasible
from mesh.policies.policy import NodeDemand
from mesh.policies.random_node import RANDOM

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


def candidates(table: NodeTable, wanted: ResourceSet, selector: dict[str, str]) -> Candidates:
    return Candidates(table, wanted, selector, RANDOM, NodeDemand(wanted=table.vector(wanted)))


@sixty
@given(nodes, demands, st.integers(0, 2**32))
def test_each_demand_has_room_now_or_later_or_never(written, demand, seed):
    table, draw = table_of(written), RandomStream(seed).draw
    for wanted, selector in demand:
        row, feasible = find(candidates(table, wanted, selector), draw)
        fits = [verdict.fit for verdict in explain(table, wanted, selector)]
        if row is not None:
            assert fits[row] is NodeFit.AVAILABLE
            table.promise(row, table.vector(wanted))
        else:
            assert NodeFit.AVAILABLE not in fits
            assert [number for number, fit in enumerate(fits) if fit is NodeFit.UNAVAILABLE] == feasible.tolist()
    assert (table.load <= table.total).all()


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
@given(nodes, sets, selectors)
def test_a_node_is_feasible_as_its_explanation_says(written, wanted, selector):
    table = table_of(written)
    asked = candidates(table, wanted, selector)
    fits = [verdict.fit is not NodeFit.INFEASIBLE for verdict in explain(table, wanted, selector)]
    assert [is_feasible(asked, row) for row in range(len(written))] == fits
    assert is_feasible(asked) is any(fits)


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
