"""Chunks: how many tasks a worker gets, and what becomes of them."""

from __future__ import annotations

import pytest

from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.stages.chunks import (
    FULL_MS,
    IDLE_DEATHS_MAX,
    LATE_MS,
    OVERRUN,
    ROUNDS_MIN,
    SHARE_MS,
    STALL_MS,
    WIDENED_MS,
    ChunkScheduler,
    Habits,
)
from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_machine import StageMachine, StageTaskState

ONE = ResourceSet.of({"cpu": 1})
ANY = "call:m:f"


def scheduler(graph: dict[str, str], took_ms: float | None = None) -> ChunkScheduler:
    """Return a scheduler for a graph: each node with the nodes that it reads, all of one function."""
    tasks = tuple(
        TaskSpec(node=NodeId(node), attempt=1, function=ANY, inputs=tuple(map(NodeId, needs.split())), resources=ONE)
        for node, needs in graph.items()
    )
    machine = StageMachine(StageSpec(stage=StageId("s"), run=RunId("r"), tenant=TenantPath("t"), tasks=tasks, slot=ONE, width=4))
    machine.begin(())
    habits = Habits()
    if took_ms is not None:
        habits.note(ANY, [took_ms])
    return ChunkScheduler(machine, habits)


def independent(count: int) -> dict[str, str]:
    return {f"n{at}": "" for at in range(count)}


def chain(count: int) -> dict[str, str]:
    return {f"n{at}": f"n{at - 1}" if at else "" for at in range(count)}


def fan(count: int) -> dict[str, str]:
    return {"n0": "", **{f"n{at}": "n0" for at in range(1, count)}}


def taken(kept: ChunkScheduler, number: int = 1, slots: int = 4) -> tuple[str, ...]:
    chunk = kept.take(number, slots, lambda _node: True)
    return () if chunk is None else chunk.nodes


@pytest.mark.parametrize(
    ("graph", "took_ms", "count"),
    [
        pytest.param(independent(8), None, 2, id="unknown tasks are shared by the slots"),
        pytest.param(independent(8), 1_000.0, 1, id="a long task is alone"),
        pytest.param(independent(80), 1.0, 20, id="as many as each slot gets"),
        pytest.param(independent(400), 1.0, FULL_MS, id="no more than take a while"),
        pytest.param(independent(400), 8.0, SHARE_MS / 8, id="more while many take long"),
        pytest.param(independent(80), 20.0, 80 / 4 / ROUNDS_MIN, id="a part of what each slot gets of them"),
        pytest.param(independent(16), 20.0, FULL_MS // 20, id="few at the end"),
        pytest.param(independent(80), 0.01, 80, id="at least what a call is worth"),
        pytest.param(chain(100), None, FULL_MS, id="a chain grows as long as a chunk may take"),
        pytest.param(chain(300), 0.01, 300, id="a whole chain of short tasks"),
        pytest.param(chain(9), 60.0, 1, id="a chain of long tasks does not grow"),
        pytest.param(fan(100), 1.0, WIDENED_MS, id="a fan leaves tasks to other slots"),
        pytest.param(fan(1_000), 0.01, 1_000, id="a fan that takes no longer than sharing it"),
        pytest.param(independent(1_000), 0.01, 1_000, id="a short stage goes to one slot"),
        pytest.param(fan(10), None, WIDENED_MS, id="a small fan of unknown tasks is shared"),
    ],
)
def test_chunk_is_as_large_as_its_tasks_are_short(graph, took_ms, count):
    assert len(taken(scheduler(graph, took_ms))) == count


@pytest.mark.parametrize(
    ("took_ms", "stall_ms"),
    [
        pytest.param(None, STALL_MS, id="unknown tasks"),
        pytest.param(0.01, STALL_MS, id="short tasks"),
        pytest.param(20.0, OVERRUN * 20.0, id="tasks that take as long as a stall"),
        pytest.param(2 * FULL_MS, STALL_MS, id="long tasks are alone and known to run early"),
    ],
)
def test_task_stalls_when_it_takes_longer_than_expected(took_ms, stall_ms):
    kept = scheduler(independent(400), took_ms)
    chunk = kept.take(1, 2, lambda _node: True)
    assert chunk is not None
    assert (chunk.stall_ms, chunk.late_ms) == (stall_ms, max(LATE_MS, OVERRUN * len(chunk.nodes) * (took_ms or 1.0)))


def test_a_stage_in_which_a_task_was_long_is_shared():
    kept = scheduler(independent(1_000), 0.01)
    first = taken(kept)
    kept.succeed(1, first[:3])
    assert kept.stall(1, first[3])
    assert len(taken(kept, 2)) == -(-996 // 4)


def test_task_joins_when_all_its_needs_are_in_the_chunk():
    kept = scheduler({"a": "", "b": "", "both": "a b", "other": "x", "x": ""}, 0.01)
    kept.machine.submit(NodeId("x"))
    assert taken(kept) == ("a", "b", "both")


def test_task_that_may_not_join_begins_the_next_chunk():
    kept = scheduler(independent(4), 0.01)
    chunk = kept.take(1, 1, lambda node: node != "n2")
    assert chunk is not None
    assert (chunk.nodes, taken(kept, 2)) == (("n0", "n1"), ("n2", "n3"))


def test_function_with_large_values_ends_its_chunk():
    kept = scheduler(chain(3), 0.01)
    kept.habits.note_ending(ANY)
    assert taken(kept) == ("n0",)


def test_one_long_run_does_not_make_a_function_long():
    habits = Habits()
    habits.note(ANY, [0.01, 0.01, 500.0])
    assert habits.of(ANY) == 0.01


def test_tasks_behind_a_long_one_come_back():
    kept = scheduler(chain(3), 0.01)
    taken(kept)
    assert kept.succeed(1, [NodeId("n0")]) == ["n0"]
    assert (kept.stall(1, NodeId("n1")), kept.stall(1, NodeId("n1"))) == (True, False)
    assert [kept.machine.state(NodeId(node)) for node in ("n1", "n2")] == [StageTaskState.SUBMITTED, StageTaskState.WAITING]
    assert kept.succeed(1, [NodeId("n0"), NodeId("n1")]) == ["n1"]
    kept.close(1)
    assert taken(kept, 2) == ("n2",)


def test_unreported_tasks_of_an_ended_chunk_run_again():
    kept = scheduler(independent(3), 0.01)
    taken(kept)
    kept.succeed(1, [NodeId("n0")])
    kept.close(1)
    assert (kept.succeed(1, [NodeId("n1")]), taken(kept, 2)) == ([], ("n1", "n2"))


def test_task_that_ran_fails_with_its_worker_and_others_go_on():
    kept = scheduler(independent(3), 0.01)
    taken(kept)
    assert kept.lose(1, NodeId("n1"), is_known=True) == "n1"
    kept.machine.fail(NodeId("n1"))
    assert taken(kept, 2) == ("n0", "n2")


def test_each_runs_alone_when_nobody_knows_the_culprit():
    kept = scheduler(independent(3), 0.01)
    taken(kept)
    assert kept.lose(1, None, is_known=False) is None
    assert [taken(kept, number) for number in (2, 3, 4)] == [("n0",), ("n1",), ("n2",)]
    assert kept.lose(3, None, is_known=False) == "n1"


def test_workers_that_die_without_a_task_do_not_run_it_for_ever():
    kept = scheduler(independent(1), 0.01)
    ends = []
    for number in range(IDLE_DEATHS_MAX + 1):
        taken(kept, number)
        ends.append(kept.lose(number, None, is_known=True))
    assert ends[-2:] == [None, "n0"]


def test_results_of_other_chunks_do_not_excuse_a_worker():
    kept = scheduler(independent(2), 200.0)
    taken(kept, 0, slots=2)
    kept.succeed(0, ["n0"])
    for number in range(1, IDLE_DEATHS_MAX + 1):
        taken(kept, number)
        kept.lose(number, None, is_known=True)
        kept.succeed(0, ["n0"])  # Reported again.
    taken(kept, 10)
    assert kept.lose(10, None, is_known=True) == "n1"


@pytest.mark.parametrize(
    ("took_ms", "serving", "is_wanted"),
    [
        pytest.param(None, 0, True, id="the first"),
        pytest.param(0.01, 0, True, id="the first for short tasks too"),
        pytest.param(0.01, 1, False, id="one is enough for short tasks"),
        pytest.param(None, 3, True, id="unknown tasks may be long"),
        pytest.param(None, 4, False, id="one for each task is enough"),
        pytest.param(200.0, 3, True, id="long tasks are worth a start"),
    ],
)
def test_worker_is_started_when_the_work_is_worth_it(took_ms, serving, is_wanted):
    assert scheduler(independent(4), took_ms).wants_worker(serving) is is_wanted


def test_no_worker_is_started_for_nothing():
    kept = scheduler(independent(1))
    taken(kept)
    assert not kept.wants_worker(0)
