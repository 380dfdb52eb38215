"""Retries of a run: chosen failures, waits, growing memory, and the past attempts that are shown."""

from __future__ import annotations

import pytest
from machine_bed import NOW_MS, Driven

from dag.run.node_facts import PAST_MAX
from dag.run.states import RunState
from dag.spec.retry_options import Backoff, NodeTimeouts
from dag.store.node_rows import changed_rows, table_of
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

LATER_MS = 10**9


def running(**fields):
    """Return a run of one node that has begun."""
    run = Driven("a:", a=fields)
    begin(run)
    return run


def begin(run):
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"))


def fail_again(run, reason=Reason.USER_ERROR, **failure):
    run.take(run.failed("a", reason, **failure))
    run.take(run.ended("a")) if run.node("a").stage else None
    run.place(a="east")
    run.start("a")


@pytest.mark.parametrize(
    ("options", "kind", "reason", "state"),
    [
        pytest.param(
            {"never_on": {"builtins.OSError"}}, ConnectionError, Reason.USER_ERROR, "FAILED", id="a subclass of one never retried"
        ),
        pytest.param({"never_on": {"builtins.OSError"}}, ValueError, Reason.USER_ERROR, "WAITING", id="another class"),
        pytest.param(
            {"retry_exceptions": {"builtins.OSError"}, "never_on": {"builtins.ConnectionError"}},
            ConnectionError,
            Reason.USER_ERROR,
            "FAILED",
            id="never beats on",
        ),
        pytest.param({"never_on": {"WORKER_LOST"}}, ValueError, Reason.WORKER_LOST, "FAILED", id="a dead worker that is never retried"),
        pytest.param({"never_on": {"OUT_OF_MEMORY"}}, ValueError, Reason.OUT_OF_MEMORY, "FAILED", id="no memory, never retried"),
        pytest.param(
            {"retry_exceptions": {"builtins.OSError"}}, ValueError, Reason.START_TO_CLOSE_TIMEOUT, "FAILED", id="an unnamed timeout"
        ),
        pytest.param(
            {"retry_exceptions": {"START_TO_CLOSE_TIMEOUT"}}, ValueError, Reason.START_TO_CLOSE_TIMEOUT, "WAITING", id="a named one"
        ),
        pytest.param({}, ValueError, Reason.START_TO_CLOSE_TIMEOUT, "WAITING", id="a timeout among all errors"),
        pytest.param({}, ValueError, Reason.RESULT_UNSERIALIZABLE, "FAILED", id="a value that no attempt can write"),
    ],
)
def test_options_decide_which_failures_are_retried(options, kind, reason, state):
    run = running(retries=2, **{name: frozenset(names) for name, names in options.items()})
    run.take(run.failed("a", reason, kind=kind))
    assert run.states() == [state]


def test_a_node_waits_as_its_own_backoff_says():
    run = running(retries=4, backoff=Backoff(initial_ms=100, factor=3, max_ms=500, jitter=0))
    waits = []
    for _ in range(4):
        run.take(run.failed("a"))
        waits.append(run.node("a").not_before_ms - NOW_MS)
        begin(run)
    assert waits == [100, 300, 500, 500]


def test_a_wait_before_a_retry_holds_no_stage_and_no_worker():
    run = running(retries=1)
    run.take(run.failed("a"), run.ended("a"))
    assert (run.node("a").stage, run.sent(), run.machine.unplaced(NOW_MS)) == (None, [], ())
    assert run.machine.next_timer_ms() == run.node("a").not_before_ms
    run.take(after_ms=run.machine.next_timer_ms() - NOW_MS)
    assert (run.machine.next_timer_ms(), run.machine.unplaced(NOW_MS)) == (None, ("a",))


def test_running_out_of_memory_asks_for_more_each_time():
    run = running(retries=2, memory_growth=1.5, resources=ResourceSet.of({"cpu": 1, "memory": "100MiB"}))
    for mebibytes in (150, 225):
        fail_again(run, Reason.OUT_OF_MEMORY)
        (stage,) = [each for each in run.decisions if hasattr(each, "spec")] or [None]
        assert run.machine.plans["a"].task.resources == ResourceSet.of({"cpu": 1, "memory": f"{mebibytes}MiB"})
        assert stage is None or stage.spec.slot["memory"] == mebibytes * 2**20
    assert [past.reason for past in run.node("a").past] == [Reason.OUT_OF_MEMORY] * 2
    assert "asks for 225 MiB of memory" in run.node("a").past[-1].detail


def test_without_retries_lack_of_memory_is_a_dead_worker():
    run = running()
    run.take(run.failed("a", Reason.OUT_OF_MEMORY))
    node = run.node("a")
    assert (run.states(), node.kills, node.retries_used) == (["WAITING"], 1, 0)


def test_past_attempts_are_kept_with_times_and_causes():
    run = running(retries=20, backoff=Backoff(initial_ms=0))
    for number in range(12):
        run.take(run.failed("a", message=f"number {number}"), after_ms=number)
        begin(run)
    past = run.node("a").past
    assert [each.attempt for each in past] == list(range(3, 13))
    assert len(past) == PAST_MAX
    last = past[-1]
    assert (last.mesh, last.reason, last.type_name, last.detail) == ("east", Reason.USER_ERROR, "builtins.ValueError", "number 11")
    assert last.ended_ms == NOW_MS + 11


def test_a_stored_run_goes_on_with_its_timers_and_attempts():
    run = Driven("a:", a={"retries": 1, "timeouts": NodeTimeouts(schedule_to_close_ms=60_000)})
    rows = changed_rows(run.record.nodes, run.place(a="east").nodes)
    for step in ([run.started("a")], [run.failed("a")]):
        rows.update(changed_rows(run.record.nodes, run.take(*step).nodes))
    assert table_of(run.record.nodes.names, rows) == run.record.nodes
    assert len(run.node("a").timers) == 2


def test_a_late_result_of_the_attempt_before_is_refused():
    run = running(retries=1, backoff=Backoff(initial_ms=0))
    late = run.done("a")
    run.take(run.failed("a"))
    begin(run)
    run.take(late)
    assert (run.states(), run.node("a").attempt, run.record.state) == (["RUNNING"], 2, RunState.RUNNING)
