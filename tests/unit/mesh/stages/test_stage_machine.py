"""State machine of a stage: inputs, submissions, failures and ends of its tasks."""

from __future__ import annotations

from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_machine import StageMachine, StageTaskState


def machine(*tasks, arrived=()):
    """Start a machine and submit what is ready. Return both. A task: `name: needs`; a need with `~` is only waited for."""
    kept = unfed(*tasks, arrived=arrived)
    return kept, submitted(kept)


def unfed(*tasks, arrived=()):
    specs = []
    for text in tasks:
        node, _, needs = text.partition(":")
        after = tuple(need[1:] for need in needs.split() if need.startswith("~"))
        inputs = tuple(need for need in needs.split() if not need.startswith("~"))
        specs.append(TaskSpec(node=node, attempt=1, function="call:m:f", inputs=inputs, after=after))
    kept = StageMachine(StageSpec(stage="s", run="r", tenant="t", tasks=tuple(specs), slot={}, width=1))
    kept.begin(arrived)
    return kept


def submitted(kept):
    """Submit all ready tasks, and return them."""
    nodes = []
    while (task := kept.next_ready()) is not None:
        kept.submit(task.node)
        nodes.append(task.node)
    return nodes


def test_tasks_without_needs_are_ready_at_once_in_spec_order():
    kept, out = machine("a:", "b:", "c: a b", "d: ~c")
    assert out == ["a", "b"]
    assert kept.running() == ("a", "b")


def test_a_task_is_ready_when_the_last_of_its_needs_succeeds():
    kept, _ = machine("a:", "b:", "c: a ~b")
    kept.succeed("a")
    assert submitted(kept) == []
    kept.succeed("b")
    assert submitted(kept) == ["c"]


def test_ready_tasks_go_out_in_the_order_of_the_spec():
    kept, _ = machine("a: x", "b: y", "c: x")
    kept.arrive("y")
    kept.arrive("x")
    assert submitted(kept) == ["a", "b", "c"]


def test_a_ready_task_stays_ready_until_it_is_submitted():
    kept = unfed("a:", "b:")
    assert kept.next_ready() is kept.next_ready() is kept.task("a")
    assert (kept.state("a"), kept.running(), kept.ready) == (StageTaskState.READY, (), 2)


def test_a_task_that_was_taken_back_is_ready_again_in_its_place():
    kept = unfed("a:", "b:")
    kept.submit("a")
    kept.take_back("a")
    assert (kept.ready, submitted(kept), kept.ready) == (2, ["a", "b"], 0)


def test_tasks_behind_a_missing_input_wait():
    kept, out = machine("a: x", "b: a", "c:", "d: c")
    assert out == ["c"]
    assert kept.awaits("x")
    kept.arrive("x")
    assert submitted(kept) == ["a"]
    assert not kept.awaits("x")


def test_a_task_with_two_outside_inputs_waits_for_both():
    kept, _ = machine("a: x ~y")
    kept.arrive("y")
    assert submitted(kept) == []
    kept.arrive("x")
    assert submitted(kept) == ["a"]


def test_an_input_counts_once_however_often_it_comes():
    kept, _ = machine("a: x y")
    kept.arrive("x")
    kept.arrive("x")
    assert submitted(kept) == []
    kept.arrive("y")
    assert submitted(kept) == ["a"]


def test_inputs_that_are_there_from_the_start_hold_up_nothing():
    assert machine("a: x", "b: x", arrived=["x", "unheard-of"])[1] == ["a", "b"]


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
    kept.arrive("x")
    assert submitted(kept) == []
    assert kept.running() == ("c",)


def test_an_input_that_has_come_cannot_be_missed_any_more():
    kept, _ = machine("a: x")
    kept.arrive("x")
    assert kept.miss("x") == ()
    assert submitted(kept) == ["a"]


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
    kept = unfed("a:", "b: a", "c: x", "d:")
    kept.submit("a")
    assert kept.stop() == ("a",)
    assert [kept.state(node) for node in "bcd"] == [StageTaskState.DROPPED] * 3
    assert (kept.next_ready(), kept.ready) == (None, 0)
    assert kept.leave("a") == ("a",)
    assert kept.is_ended


def test_a_stopped_stage_makes_nothing_ready():
    kept, _ = machine("a:", "b: a")
    kept.stop()
    kept.succeed("a")
    assert (kept.next_ready(), kept.is_ended) == (None, True)


def test_a_stage_ends_when_its_last_task_is_over():
    kept, _ = machine("a:", "b: a")
    kept.succeed("a")
    assert not kept.is_ended
    submitted(kept)
    kept.succeed("b")
    assert kept.is_ended


def test_a_stage_without_tasks_has_ended():
    assert machine()[0].is_ended


def test_a_long_chain_goes_out_task_by_task():
    kept, _ = machine("n0: x", *(f"n{index}: n{index - 1}" for index in range(1, 10_000)), arrived=["x"])
    for index in range(9_999):
        kept.succeed(f"n{index}")
        assert submitted(kept) == [f"n{index + 1}"]


def test_a_part_is_ready_when_its_elements_are_handed_out():
    kept, _ = machine("list:", "other:", "a: list other", "b: list")
    assert kept.hand_out("b", "list")
    assert submitted(kept) == ["b"]
    assert kept.hand_out("a", "list")
    assert submitted(kept) == []
    kept.succeed("other")
    assert submitted(kept) == ["a"]
    assert kept.succeed("b")
    kept.succeed("list")
    kept.succeed("a")
    assert kept.is_ended


def test_elements_that_come_too_late_are_dropped():
    kept, _ = machine("list:", "a: list", "b: list")
    assert kept.hand_out("a", "list")
    assert not kept.hand_out("a", "list")
    kept.succeed("list")
    assert not kept.hand_out("b", "list")
    assert submitted(kept) == ["a", "b"]


def test_parts_that_run_outlive_the_failure_of_their_list():
    kept, _ = machine("list:", "a: list", "b: list", "c: list", "all: a b c")
    kept.hand_out("a", "list")
    assert submitted(kept) == ["a"]
    kept.hand_out("b", "list")
    assert kept.fail("list") == ("b", "c", "all")
    assert kept.running() == ("a",)
    kept.succeed("a")
    assert kept.is_ended
