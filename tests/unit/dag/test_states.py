"""Tables of the states of runs, stages and nodes, and of the nodes of a run."""

from __future__ import annotations

import pytest

from dag.run.node_facts import PART_ROWS
from dag.run.node_table import NodeTable
from dag.run.states import (
    NODE_ENDS,
    NODE_TRANSITIONS,
    RUN_ENDS,
    RUN_TRANSITIONS,
    STAGE_ENDS,
    STAGE_TRANSITIONS,
    NodeState,
    RunState,
    StageState,
)

SHOWN_ONLY = {RunState.WAITING, RunState.BLOCKED}

TABLES = [
    pytest.param(set(RunState) - SHOWN_ONLY, RUN_TRANSITIONS, RunState.PENDING, RUN_ENDS, id="runs"),
    pytest.param(StageState, STAGE_TRANSITIONS, StageState.PLANNED, STAGE_ENDS, id="stages"),
    pytest.param(NodeState, NODE_TRANSITIONS, NodeState.WAITING, NODE_ENDS, id="nodes"),
]


def reachable(table, start):
    found, pending = {start}, [start]
    while pending:
        fresh = table[pending.pop()] - found
        found |= fresh
        pending.extend(fresh)
    return found


@pytest.mark.parametrize(("kind", "table", "start", "ends"), TABLES)
def test_every_state_has_a_row_and_can_be_reached(kind, table, start, ends):
    assert set(table) == set(kind)
    assert reachable(table, start) == set(kind)


@pytest.mark.parametrize(("kind", "table", "start", "ends"), TABLES)
def test_every_state_leads_to_an_end_and_no_end_leads_on(kind, table, start, ends):
    for state in kind:
        assert reachable(table, state) & ends
    assert all(reachable(table, end) == {end} for end in ends)


@pytest.mark.parametrize(("kind", "table", "start", "ends"), TABLES)
def test_no_state_is_a_move_of_its_own(kind, table, start, ends):
    assert all(state not in after for state, after in table.items())


def test_the_ends_are_those_that_people_know():
    assert {state.value for state in RUN_ENDS} == {"SUCCEEDED", "FAILED", "CANCELLED"}
    assert {state.value for state in STAGE_ENDS} == {"ENDED", "STOPPED", "LOST"}
    assert {state.value for state in NODE_ENDS} == {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"}


@pytest.mark.parametrize("kind", [RunState, StageState, NodeState])
def test_the_word_on_the_wire_is_the_name(kind):
    assert all(state.value == state.name for state in kind)


@pytest.mark.parametrize(
    ("before", "parts"),
    [
        pytest.param(3, {0}, id="in a part"),
        pytest.param(PART_ROWS, set(), id="behind a whole part"),
        pytest.param(PART_ROWS + 1, {1}, id="in the second part"),
    ],
)
def test_nodes_that_are_added_change_a_partial_part(before, parts):
    table = NodeTable(f"n{number}" for number in range(before))
    table.take_changes()
    table.add(["more"])
    changes = table.take_changes()
    assert (changes.has_grown, changes.parts) == (True, parts)
