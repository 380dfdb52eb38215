"""Resumption of failed and cancelled runs."""

from __future__ import annotations

import pytest
from machine_bed import NOW_MS, Driven, value

from dag.run.events import ForgetDue, ResumeRequested, SignalSent
from dag.run.machine import RunMachine
from dag.run.retrying import RetryRules
from dag.run.runs import ForgetRun
from dag.run.states import RunState
from dag.spec.control import SIGNAL, SLEEP
from mesh.core.reasons import Reason
from mesh.stages.messages import NodeCheckpoint

WINDOW_MS = 60_000


def kept(*nodes, **fields):
    """Return a run whose values are kept for a while after a failure."""
    run = Driven(*nodes, **fields)
    retrying = RetryRules(resume_window_ms=WINDOW_MS)
    run.machine = RunMachine(run.record, run.machine.plans, runtime_env={}, on_error="fail_fast", retrying=retrying)
    return run


def failed(run, *, at="b"):
    """Let the node `at` of a run on one mesh fail, after those before it."""
    names = list(run.record.nodes)
    run.place(**{"_".join(names): "east"})
    run.finish(*names[: names.index(at)])
    run.take(run.begun(at), run.failed(at), run.ended(at))
    assert run.record.state is RunState.FAILED
    return run


def test_a_resumed_run_runs_only_what_is_not_done():
    run = failed(kept("a:", "b: a", "c: b", outputs="c"))
    assert not any(isinstance(each, ForgetRun) for each in run.decisions)
    run.take(ResumeRequested(detail="again"))
    assert (run.record.state, run.states()) == (RunState.RUNNING, ["SUCCEEDED", "WAITING", "WAITING"])
    assert run.machine.unplaced(NOW_MS) == ("b", "c")
    run.place(b_c="east")
    assert run.sent() == [("east", ["b", "c"])]
    run.finish("b", "c")
    run.take(run.ended("c"))
    assert (run.record.state, run.states()) == (RunState.SUCCEEDED, ["SUCCEEDED"] * 3)
    assert [run.node(node).attempt for node in "abc"] == [1, 2, 2]


def test_a_resumed_node_has_all_its_retries_again():
    run = kept("a:", a={"retries": 1})
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.failed("a"), run.ended("a"))
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.failed("a"), run.ended("a"))
    assert run.record.state is RunState.FAILED
    run.take(ResumeRequested())
    node = run.node("a")
    assert (node.retries_used, node.attempt, node.failure, node.not_before_ms) == (0, 3, None, 0)
    assert [past.attempt for past in node.past] == [1, 2]


def test_a_cancelled_run_is_resumed():
    run = kept("a:", "b: a")
    run.place(a_b="east")
    run.finish("a")
    run.cancel()
    run.take(run.failed("b", Reason.CANCELLED_BY_USER), run.ended("b"))
    assert run.record.state is RunState.CANCELLED
    run.take(ResumeRequested())
    assert (run.record.state, run.states()) == (RunState.RUNNING, ["SUCCEEDED", "WAITING"])


def test_values_are_deleted_once_after_the_window():
    run = failed(kept("a:", "b: a"))
    assert run.record.forget_ms == NOW_MS + WINDOW_MS
    run.take(ForgetDue())
    assert run.decisions == [ForgetRun(meshes=("east",))]
    run.take(ForgetDue())
    assert (run.decisions, run.record.forgotten) == ([], True)


def test_deleted_values_are_computed_again_as_far_as_needed():
    run = kept("a:", "b: a", "c: b", "d:", "e: d", "f: c e", outputs="d")
    run.place(a_b_c_d_e_f="east")
    run.finish("a", "b", "c", "d")
    run.take(run.begun("e"), run.failed("e"), run.ended("e"))
    run.take(ForgetDue())
    run.take(ResumeRequested())
    assert run.states() == ["WAITING", "WAITING", "WAITING", "SUCCEEDED", "WAITING", "WAITING"]
    assert run.node("a").reason is Reason.VALUE_LOST
    assert (run.node("d").stored, run.record.forgotten) == (value("d"), False)


def test_a_value_whose_readers_are_done_is_not_computed_again():
    run = failed(kept("a:", "b: a", "c: b", "d: c", outputs="b"), at="d")
    run.take(ForgetDue())
    run.take(ResumeRequested())
    assert run.states() == ["SUCCEEDED", "SUCCEEDED", "WAITING", "WAITING"]


def test_a_resumed_run_may_fail_and_be_resumed_again():
    run = failed(kept("a:", "b: a"))
    for attempt in (2, 3):
        run.take(ResumeRequested(), after_ms=attempt)
        run.place(b="east")
        run.start("b")
        run.take(run.begun("b"), run.failed("b"), run.ended("b"))
        assert (run.record.state, run.node("b").attempt, run.states("a")) == (RunState.FAILED, attempt, ["SUCCEEDED"])


@pytest.mark.parametrize("event", [ResumeRequested(), ForgetDue()])
def test_a_run_that_goes_on_or_has_succeeded_is_not_resumed(event):
    run = kept("a:")
    run.place(a="east")
    run.take(event)
    assert run.states() == ["ASSIGNED"]
    run.finish("a")
    run.take(run.ended("a"))
    run.take(event)
    assert (run.record.state, run.decisions) == (RunState.SUCCEEDED, [])


def test_the_deadline_of_a_resumed_run_begins_anew():
    run = kept("a:")
    run.record.created_ms = NOW_MS
    run.machine = RunMachine(run.record, run.machine.plans, runtime_env={}, on_error="fail_fast", deadline_ms=5_000)
    run.take(after_ms=5_000)
    assert run.record.reason is Reason.RUN_DEADLINE_EXCEEDED
    run.take(ResumeRequested(), after_ms=8_000)
    assert run.record.state is RunState.RUNNING
    assert run.machine.next_timer_ms() == NOW_MS + 13_000


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["in the window", "after the window"])
def test_a_resumed_run_has_the_signal_that_came_early(is_forgotten):
    wait = {"function": SIGNAL, "args": ("go", None)}
    run = kept("a:", "go:~a", "c: go", outputs="c", go=wait)
    run.take(SignalSent(name="go", value=value("yes")))
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.failed("a"), run.ended("a"))
    assert run.states() == ["FAILED", "SKIPPED", "SKIPPED"]
    if is_forgotten:
        run.take(ForgetDue())
        assert value("yes").sha256 in run.decisions[0].keep
    run.take(ResumeRequested())
    run.place(a="east")
    run.finish("a")
    assert (run.states("go"), run.node("go").stored) == (["SUCCEEDED"], value("yes"))


def test_waits_that_have_ended_are_not_waited_for_again():
    run = kept("go:", "nap:", "c: go nap", go={"function": SIGNAL, "args": ("go", None)}, nap={"function": SLEEP, "args": (1,)})
    run.take(SignalSent(name="go", value=value("yes")))
    run.take(after_ms=1_000)
    assert run.states() == ["SUCCEEDED", "SUCCEEDED", "WAITING"]
    run.place(c="east")
    run.start("c")
    run.take(run.begun("c"), run.failed("c"), run.ended("c"))
    run.take(ForgetDue())
    run.take(ResumeRequested())
    assert run.states() == ["SUCCEEDED", "SUCCEEDED", "WAITING"]
    assert run.node("go").stored == value("yes")


def test_a_deleted_checkpoint_is_not_named_again():
    run = kept("a:", "b:")
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("b"), NodeCheckpoint(**run.attempt("b"), number=1, stored=value("saved")))
    run.cancel()
    run.take(run.ended("b"))
    assert run.node("b").checkpoint is not None
    run.take(ForgetDue())
    run.take(ResumeRequested())
    assert run.node("b").checkpoint is None
