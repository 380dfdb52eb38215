"""Checkpoints and progress of nodes in the run machine."""

from __future__ import annotations

import pytest
from machine_bed import Driven, value

from dag.run.runs import DropValue, ForgetRun, SendStage
from dag.run.states import NodeState
from mesh.core.reasons import Reason
from mesh.stages.messages import CheckpointRefused, NodeCheckpoint, NodeProgress


def saved(run, node, number, stored=None):
    return NodeCheckpoint(**run.attempt(node), number=number, stored=stored or value(f"{node}#{number}"))


def running(**options):
    run = Driven("a:", outputs="a", **options)
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"))
    return run


def dropped(run):
    return [decision.value for decision in run.decisions if isinstance(decision, DropValue)]


def sent_checkpoint(run):
    (task,) = next(decision.spec.tasks for decision in run.decisions if isinstance(decision, SendStage))
    return task.checkpoint


def test_a_first_attempt_has_no_checkpoint():
    run = Driven("a:", outputs="a")
    run.place(a="east")
    assert sent_checkpoint(run) is None


@pytest.mark.parametrize("reason", [Reason.QUOTA_RECLAIMED, Reason.LEASE_EXPIRED, Reason.WORKER_LOST])
def test_the_next_attempt_gets_the_newest_checkpoint(reason):
    run = running()
    run.take(saved(run, "a", 1), saved(run, "a", 2))
    assert dropped(run) == [value("a#1")]
    run.take(run.lost("a", reason))
    assert dropped(run) == []
    run.place(a="west")
    assert sent_checkpoint(run) == value("a#2")
    assert run.node("a").attempt == 2


def test_a_retry_after_an_error_goes_on_too():
    run = running(a={"retries": 1})
    run.take(saved(run, "a", 1), run.failed("a"), run.ended("a"))
    run.place(a="east")
    assert sent_checkpoint(run) == value("a#1")


@pytest.mark.parametrize("reason", [Reason.VALUE_LOST, Reason.WORKER_LOST])
def test_a_checkpoint_outlives_a_storage_or_runner_away(reason):
    run = running()
    run.take(saved(run, "a", 1), run.failed("a", reason), run.ended("a"))
    assert (dropped(run), run.node("a").retries_used) == ([], 0)
    run.place(a="east")
    assert sent_checkpoint(run) == value("a#1")


def test_a_checkpoint_outlives_attempts_that_save_none():
    run = running()
    run.take(saved(run, "a", 5))
    for mesh in ("west", "east"):
        run.take(run.lost("a"))
        run.place(a=mesh)
        assert sent_checkpoint(run) == value("a#5")
        run.start("a")


def test_a_new_attempt_counts_from_one_again():
    run = running()
    run.take(saved(run, "a", 5))
    run.take(run.lost("a"))
    run.place(a="west")
    run.start("a")
    run.take(saved(run, "a", 1))
    assert dropped(run) == [value("a#5")]
    assert run.node("a").checkpoint.stored == value("a#1")


def test_a_checkpoint_of_an_older_attempt_is_refused():
    run = running()
    late = saved(run, "a", 3)
    run.take(saved(run, "a", 2))
    run.take(run.lost("a"))
    run.take(late)
    assert dropped(run) == [value("a#3")]
    run.place(a="west")
    run.start("a")
    run.take(late)
    assert (dropped(run), run.node("a").checkpoint.stored) == ([value("a#3")], value("a#2"))


def test_a_checkpoint_that_is_reported_twice_stays():
    run = running()
    first, second = saved(run, "a", 1), saved(run, "a", 2)
    run.take(first, second)
    run.take(second)
    assert dropped(run) == []
    run.take(run.lost("a"))
    run.take(first, second)
    assert dropped(run) == [value("a#1")]
    assert run.node("a").checkpoint.stored == value("a#2")


def test_success_deletes_the_checkpoint():
    run = running()
    run.take(saved(run, "a", 1))
    run.take(run.done("a"), run.ended("a"))
    assert dropped(run) == [value("a#1")]
    assert run.node("a").checkpoint is None


def test_the_end_of_a_cancelled_run_keeps_no_checkpoint():
    run = running()
    run.take(saved(run, "a", 1))
    run.cancel()
    run.take(run.ended("a"))
    (forget,) = [decision for decision in run.decisions if isinstance(decision, ForgetRun)]
    assert forget.keep == ()


def test_progress_stays_with_the_checkpoint():
    run = running()
    assert run.node("a").progress is None
    run.take(NodeProgress(**run.attempt("a"), progress=5_000))
    assert run.node("a").progress == 0.5
    run.take(run.lost("a"))
    assert run.node("a").progress is None
    run.place(a="west")
    run.start("a")
    run.take(NodeProgress(**run.attempt("a"), progress=2_500), saved(run, "a", 1))
    run.take(run.lost("a"))
    assert run.node("a").progress == 0.25


def test_a_refused_checkpoint_is_an_event():
    run = running()
    run.take(CheckpointRefused(**run.attempt("a"), reason=Reason.VALUE_LOST, detail="it starts anew"))
    event = run.events[-1]
    assert (event.node, event.before, event.after) == ("a", NodeState.RUNNING.value, NodeState.RUNNING.value)
    assert (event.reason, event.detail) == (Reason.VALUE_LOST, "it starts anew")
