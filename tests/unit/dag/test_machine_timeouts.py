"""Time limits that the run machine keeps: of a wait, of a node, of the run."""

from __future__ import annotations

import pytest
from machine_bed import NOW_MS, Driven

from dag.run.machine import RunMachine
from dag.run.runs import CancelStage, StopNode
from dag.run.states import RunState
from dag.spec.retry_options import Backoff, NodeTimeouts
from mesh.core.reasons import Reason

LIMIT_MS = 5_000


def to_start(limit_ms=LIMIT_MS):
    return {"timeouts": NodeTimeouts(schedule_to_start_ms=limit_ms)}


def to_close(limit_ms=LIMIT_MS, **fields):
    return {"timeouts": NodeTimeouts(schedule_to_close_ms=limit_ms), **fields}


def with_deadline(*nodes, **fields):
    run = Driven(*nodes, **fields)
    run.record.created_ms = NOW_MS
    run.machine = RunMachine(run.record, run.machine.plans, runtime_env={}, on_error="continue", deadline_ms=LIMIT_MS)
    return run


def test_a_node_that_waits_in_a_queue_too_long_fails_by_name():
    run = Driven("a:", "b:", "c: a", on_error="continue", a=to_start())
    run.place(a_b_c="east")
    assert run.machine.next_timer_ms() == NOW_MS + LIMIT_MS
    run.take(after_ms=LIMIT_MS - 1)
    assert run.states("a") == ["ASSIGNED"]
    run.take(after_ms=LIMIT_MS)
    assert run.states() == ["FAILED", "WAITING", "SKIPPED"]
    failure = run.node("a").failure
    assert failure.reason is Reason.SCHEDULE_TO_START_TIMEOUT
    assert "waited 5.0 s to start, 5 s at most (last: WAITING_IN_QUEUE" in failure.message


def test_a_node_that_is_blocked_too_long_fails_with_reason():
    run = Driven("a:", a=to_start())
    run.block("a", Reason.POOL_BUSY, "all full")
    run.take(after_ms=LIMIT_MS)
    assert (run.states(), run.record.state) == (["FAILED"], RunState.FAILED)
    assert "POOL_BUSY, all full" in run.node("a").failure.message


def test_a_late_node_of_a_running_stage_is_stopped_alone():
    run = Driven("a:", "b:", on_error="continue", b=to_start())
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("a"))
    stage = run.node("b").stage
    run.take(after_ms=LIMIT_MS)
    assert run.states() == ["RUNNING", "FAILED"]
    assert run.decisions == [StopNode(stage=stage, node="b")]


def test_what_waits_for_inputs_or_runs_is_not_late_to_start():
    run = Driven("a:", "b: a", a=to_start(), b=to_start())
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("a"))
    assert run.machine.next_timer_ms() is None
    run.take(after_ms=10 * LIMIT_MS)
    assert run.states() == ["RUNNING", "ASSIGNED"]
    run.take(run.done("a"), after_ms=10 * LIMIT_MS)
    assert run.machine.next_timer_ms() == NOW_MS + 11 * LIMIT_MS


def test_all_attempts_of_a_node_together_have_a_limit():
    run = Driven("a:", "b: a", b=to_close(retries=50, backoff=Backoff(initial_ms=1, factor=1, jitter=0)))
    run.place(a_b="east")
    run.start("a")
    assert run.machine.next_timer_ms() is None
    run.take(run.begun("a"), run.done("a"), after_ms=1_000)
    assert run.machine.next_timer_ms() == NOW_MS + 1_000 + LIMIT_MS
    run.take(run.begun("b"), run.failed("b"), after_ms=2_000)
    run.take(run.ended("a"), after_ms=2_001)
    run.place(b="east")
    run.start("b")
    run.take(run.begun("b"), after_ms=2_010)
    stage = run.node("b").stage
    run.take(after_ms=1_000 + LIMIT_MS)
    assert run.states() == ["SUCCEEDED", "FAILED"]
    failure = run.node("b").failure
    assert failure.reason is Reason.SCHEDULE_TO_CLOSE_TIMEOUT
    assert "within 5 s and 2 attempts; last: builtins.ValueError: no" in failure.message
    assert CancelStage(stage=stage) in run.decisions


def test_no_retry_is_waited_for_that_would_come_too_late():
    run = Driven("a:", a=to_close(retries=3, backoff=Backoff(initial_ms=60_000)))
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.failed("a"))
    assert (run.states(), run.node("a").failure.reason) == (["FAILED"], Reason.SCHEDULE_TO_CLOSE_TIMEOUT)
    assert "no time is left for another attempt after: builtins.ValueError: no" in run.node("a").failure.message


def test_a_result_that_comes_with_the_timeout_counts():
    run = Driven("a:", a=to_close())
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.done("a"), after_ms=LIMIT_MS)
    assert run.states() == ["SUCCEEDED"]


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_run_that_reaches_its_deadline_stops_and_fails(has_begun):
    run = with_deadline("a:", "b: a")
    assert run.machine.next_timer_ms() == NOW_MS + LIMIT_MS
    if not has_begun:
        run.take(after_ms=LIMIT_MS)
        assert run.states() == ["SKIPPED", "SKIPPED"]
    else:
        run.place(a_b="east")
        run.start("a")
        run.take(run.begun("a"), after_ms=LIMIT_MS)
        assert (run.states(), run.cancelled()) == (["RUNNING", "ASSIGNED"], [run.node("a").stage])
        run.take(run.failed("a", Reason.CANCELLED_BY_USER), run.ended("a"), after_ms=LIMIT_MS + 1)
        assert run.states() == ["SKIPPED", "SKIPPED"]
    assert (run.record.state, run.record.reason) == (RunState.FAILED, Reason.RUN_DEADLINE_EXCEEDED)
    assert run.record.detail == "the run did not end within 5 s"
    assert run.machine.next_timer_ms() is None


def test_a_run_that_succeeds_at_its_deadline_succeeds():
    run = with_deadline("a:")
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), after_ms=LIMIT_MS)
    run.take(run.done("a"), run.ended("a"), after_ms=LIMIT_MS + 1)
    assert run.record.state is RunState.SUCCEEDED


def test_a_stopping_run_has_no_limits_but_those_of_its_cleanup():
    run = Driven(
        "a:", "b:", on_error="continue", b={"timeouts": NodeTimeouts(schedule_to_start_ms=LIMIT_MS, schedule_to_close_ms=LIMIT_MS)}
    )
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("a"))
    run.cancel()
    assert run.machine.next_timer_ms() == NOW_MS + LIMIT_MS  # The timer to close, which a step takes without effect.
    run.take(after_ms=LIMIT_MS)
    assert run.machine.next_timer_ms() is None
    assert run.states() == ["RUNNING", "ASSIGNED"]


@pytest.mark.parametrize("is_sent", [True, False], ids=["in a queue", "blocked"])
def test_cleanup_of_a_stopping_run_keeps_its_limit_to_start(is_sent):
    run = Driven("a:", "tidy:~a", tidy={"when": "always", **to_start()})
    run.place(a="east")
    run.start("a")
    run.take(run.failed("a"), run.ended("a"))
    run.place(tidy="east") if is_sent else run.block("tidy")
    run.take(after_ms=LIMIT_MS)
    assert run.states() == ["FAILED", "FAILED"]
    assert run.node("tidy").failure.reason is Reason.SCHEDULE_TO_START_TIMEOUT
    assert run.record.state is RunState.FAILED
    assert len(run.cancelled()) == is_sent


def test_cleanup_of_a_stopping_run_keeps_its_limit_to_close():
    run = Driven("a:", "tidy:~a", tidy={"when": "always", **to_close()})
    run.place(a="east")
    run.start("a")
    run.take(run.failed("a"), run.ended("a"))
    run.place(tidy="east")
    run.start("tidy")
    run.take(run.begun("tidy"))
    run.take(after_ms=LIMIT_MS)
    assert run.states() == ["FAILED", "FAILED"]
    assert [decision.node for decision in run.decisions if isinstance(decision, StopNode)] == ["tidy"]


def test_a_deadline_and_a_limit_at_the_same_time_are_one_step():
    run = with_deadline("a:", "tidy:~a", tidy={"when": "always", **to_start()}, a={})
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.failed("a"), run.ended("a"))
    run.block("tidy")
    run.take(after_ms=LIMIT_MS)
    assert run.states() == ["FAILED", "FAILED"]
