"""Groups of nodes, and their bars."""

from __future__ import annotations

import numpy as np
import pytest

import dag
from dag.client.compiling import compile_columns
from dag.progress.bars import bar_lines
from dag.progress.groups import NodeGroup, NodeNames, failed_first, groups_of
from dag.run.array_states import ArrayElements, arrays_in
from dag.run.node_table import NodeTable
from dag.run.states import NodeState
from dag.spec.plans import plans_of
from dag.spec.spec import parse_columns

DONE, RUNNING, FAILED, WAITING = NodeState.SUCCEEDED, NodeState.RUNNING, NodeState.FAILED, NodeState.WAITING


def groups_in(states, progress=None):
    """Return the groups of nodes with these states."""
    table = NodeTable(states)
    for node, state in states.items():
        table[node].state = state
    for node, part in (progress or {}).items():
        table[node].progress = part
    return groups_of(table, NodeNames.of(tuple(states)), ())


def group(name, total=10, part=0.0, **counts):
    return NodeGroup(name=name, total=total, part=part, counts={NodeState(state.upper()): count for state, count in counts.items()})


def test_nodes_named_alike_are_one_group_in_order_of_the_graph():
    found = groups_in({"load": DONE, "train": DONE, "train-2": RUNNING, "train-3": WAITING, "report": WAITING})
    assert [(each.name, each.total, dict(each.counts)) for each in found] == [
        ("load", 1, {DONE: 1}),
        ("train", 3, {WAITING: 1, RUNNING: 1, DONE: 1}),
        ("report", 1, {WAITING: 1}),
    ]


def test_a_single_node_keeps_its_number():
    assert [each.name for each in groups_in({"step-2": WAITING})] == ["step-2"]


def test_progress_of_running_nodes_counts_as_part_of_the_group():
    (found,) = groups_in({"fit": DONE, "fit-2": RUNNING, "fit-3": RUNNING}, {"fit-2": 0.5, "fit-3": 0.25})
    assert (found.part, found.done) == (0.75, 1.75)


def test_progress_of_an_ended_node_does_not_count_twice():
    (found,) = groups_in({"fit": DONE}, {"fit": 0.9})
    assert found.done == 1


def test_no_node_is_counted_twice_or_left_out():
    states = {f"f-{number}": list(NodeState)[number % 8] for number in range(1000)}
    (found,) = groups_in(states)
    assert (found.total, sum(found.counts.values())) == (1000, 1000)


def double(number):
    return 2 * number


def test_an_array_is_a_group_of_its_elements():
    spec = parse_columns(compile_columns(dag.map(double, range(10), parts=5)).packed())
    table = NodeTable(plans_of(spec))
    table.move(table.rows(["double@0", "double@1"]), DONE)
    arrays = [ArrayElements(table, spec, array).counts() for array in arrays_in(table, spec)]
    (found,) = groups_of(table, NodeNames.of(spec.calls.ids), arrays)
    assert (found.name, found.is_array, found.total, found.counts[DONE]) == ("double", True, 10, 4)


def test_an_array_that_is_not_listed_is_one_node_of_its_name():
    spec = parse_columns(compile_columns(dag.map(double, range(10), parts=5)).packed())
    table = NodeTable(plans_of(spec))
    table.move(table.rows(["double@0"]), DONE)
    (found,) = groups_of(table, NodeNames.of(spec.calls.ids), ())
    assert (found.name, found.total, dict(found.counts)) == ("double", 1, {RUNNING: 1})


def test_failed_groups_are_first_and_ended_ones_may_be_cut():
    groups = [group("a", succeeded=10), group("b", waiting=10), group("c", running=1, waiting=9), group("d", failed=1, waiting=9)]
    assert [each.name for each in failed_first(groups, 4)] == ["d", "a", "b", "c"]
    assert [each.name for each in failed_first(groups, 2)] == ["d", "c"]


def test_a_bar_shows_what_succeeded_of_all():
    (line,) = bar_lines([group("train", 100, succeeded=37, running=4, waiting=59)])
    assert line.text == "train  37/100  #####-----------  4 running"
    assert line.state is RUNNING


def test_a_running_node_shows_its_own_progress():
    (line,) = bar_lines([group("fit", 1, 0.5, running=1)])
    assert line.text == "fit  0/1  ########--------  running, 50%"


def test_a_pipe_gets_no_bars():
    lines = bar_lines([group("load", 1, succeeded=1), group("train", succeeded=3, failed=1, waiting=6)], with_bars=False)
    assert [line.text for line in lines] == ["load    1/1", "train  3/10  1 failed"]


def test_an_array_of_unknown_length_has_an_empty_bar():
    (line,) = bar_lines([NodeGroup(name="each", is_array=True, total=None, counts={})])
    assert line.text == "each  0/?  ----------------"


@pytest.mark.parametrize("width", [1, 10, 24, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    groups = [group("n" * 300, 10**6, 2.5, succeeded=10**5, failed=3, cancelled=2, skipped=7, blocked=1, running=12), group("f", running=1)]
    assert max(len(line.text) for line in bar_lines(groups, width)) <= width


def test_names_cannot_control_the_terminal():
    (line,) = bar_lines([group("a\x1b[2Jb", succeeded=1)])
    assert "\x1b" not in line.text


def test_common_names_are_numbered_by_their_first_node():
    named = NodeNames.of(("b-1", "a", "b-2"))
    assert (named.names, named.number.tolist()) == (("b", "a"), [0, 1, 0])
    assert named.number.dtype == np.intp
