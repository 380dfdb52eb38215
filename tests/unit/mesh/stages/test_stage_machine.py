"""State machine of a stage: starts, inputs, failures and ends of its tasks."""

from __future__ import annotations

from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_machine import StageMachine, StageTaskState


def machine(*tasks, arrived=()):
    """Start a machine and return its first submissions. A task: `name: needs`; a need with `~` is only waited for."""
    specs = []
    for text in tasks:
        node, _, needs = text.partition(":")
        after = tuple(need[1:] for need in needs.split() if need.startswith("~"))
        inputs = tuple(need for need in needs.split() if not need.startswith("~"))
        specs.append(TaskSpec(node=node, attempt=1, function="call:m:f", inputs=inputs, after=after))
    kept = StageMachine(StageSpec(stage="s", run="r", tenant="t", tasks=tuple(specs), slot={}, width=1))
    return kept, nodes(kept.begin(arrived))


def nodes(tasks):
    return [task.node for task in tasks]


def test_a_stage_without_inputs_starts_at_once_in_spec_order():
    kept, out = machine("a:", "b:", "c: a b", "d: ~c")
    assert out == ["a", "b", "c", "d"]
    assert kept.running() == ("a", "b", "c", "d")


def test_tasks_behind_a_missing_input_wait():
    kept, out = machine("a: x", "b: a", "c:", "d: c")
    assert out == ["c", "d"]
    assert kept.awaits("x")
    assert nodes(kept.arrive("x")) == ["a", "b"]
    assert not kept.awaits("x")


def test_a_task_with_two_outside_inputs_waits_for_both():
    kept, out = machine("a: x ~y")
    assert (out, nodes(kept.arrive("y")), nodes(kept.arrive("x"))) == ([], [], ["a"])


def test_an_input_counts_once_however_often_it_comes():
    kept, _ = machine("a: x y")
    assert kept.arrive("x") == kept.arrive("x") == ()
    assert nodes(kept.arrive("y")) == ["a"]


def test_inputs_that_are_there_from_the_start_hold_up_nothing():
    assert machine("a: x", "b: a", arrived=["x", "unheard-of"])[1] == ["a", "b"]


def test_a_failure_drops_what_is_behind_and_nothing_else():
    kept, _ = machine("a:", "b: a", "c: ~b", "d:", "e: d x")
    assert kept.fail("a") == ("b", "c")
    assert kept.running() == ("d",)
    assert kept.state("e") is StageTaskState.WAITING


def test_what_was_dropped_is_not_heard_of_again():
    kept, _ = machine("a:", "b: a")
    kept.fail("a")
    assert kept.fail("b") is None
    assert not kept.succeed("b")
    assert kept.fail("a") is None
    assert kept.state("b") is StageTaskState.DROPPED


def test_an_input_that_will_not_come_drops_its_readers():
    kept, _ = machine("a: x", "b: a", "c:")
    assert kept.miss("x") == ("a", "b")
    assert kept.arrive("x") == ()
    assert kept.running() == ("c",)


def test_an_input_that_has_come_cannot_be_missed_any_more():
    kept, _ = machine("a: x")
    kept.arrive("x")
    assert kept.miss("x") == ()
    assert kept.running() == ("a",)


def test_a_value_is_read_or_only_waited_for():
    kept, _ = machine("a: x", "b: ~y")
    assert (kept.is_read("x"), kept.is_read("y")) == (True, False)
    assert (kept.readers("x"), kept.readers("y")) == (("a",), ())


def test_nothing_is_awaited_for_readers_that_are_gone():
    kept, _ = machine("a:", "b: a x")
    kept.fail("a")
    assert not kept.awaits("x")
    assert kept.is_ended


def test_stopping_drops_what_is_not_out_and_names_what_is():
    kept, _ = machine("a:", "b: a", "c: x")
    assert kept.stop() == ("a", "b")
    assert kept.leave("a") == ("a", "b")
    assert kept.is_ended


def test_a_stage_ends_when_its_last_task_is_over():
    kept, _ = machine("a:", "b: a")
    kept.succeed("a")
    assert not kept.is_ended
    kept.succeed("b")
    assert kept.is_ended


def test_a_stage_without_tasks_has_ended():
    assert machine()[0].is_ended


def test_a_task_has_an_open_need_until_the_need_is_over():
    kept, _ = machine("a:", "b: a x", arrived=["x"])
    assert kept.has_open_need("b")
    kept.succeed("a")
    assert not kept.has_open_need("b")


def test_a_long_chain_goes_out_in_one_sweep():
    _, out = machine("n0: x", *(f"n{index}: n{index - 1}" for index in range(1, 10_000)), arrived=["x"])
    assert out == [f"n{index}" for index in range(10_000)]
