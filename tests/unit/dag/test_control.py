"""Control flow in the run machine: order by outcome, branches, sleeps and signals. Driven by messages that tests write by hand."""

from __future__ import annotations

import hashlib

import pytest
from machine_bed import NOW_MS, Driven

from dag.run.events import SignalSent
from dag.run.node_table import NodeTable
from dag.run.states import RunState
from dag.spec.control import COND, SIGNAL, SLEEP
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.stages.messages import InputLost, StageEnded


def json_value(text):
    data = text.encode()
    return StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.JSON)


def cond(test, then, otherwise=None):
    return {"function": COND, "args": ({"$ref": test}, {"$ref": then}, {"$ref": otherwise} if otherwise else None)}


def branching(**fields):
    """Return a run of a cond: `test` decides between `yes`, which only reads `early`, and `no`."""
    return Driven(
        "start", "test:start", "early:start", "yes:early ~test", "no:start ~test", "join:test yes no",
        outputs=("join",), join=cond("test", "yes", "no"), **fields,
    )  # fmt: skip


def decide(run, text):
    """Let `start` and `test` succeed, the latter with this JSON as its value."""
    run.place(start_test="east")
    run.finish("start")
    run.take(run.begun("test"), run.done("test", json_value(text)))
    run.take(run.ended("test"))


def finish_on(run, mesh, *nodes):
    for node in nodes:
        run.place(**{node: mesh})
        run.finish(node)
        run.take(run.ended(node))


# -- order by outcome --------------------------------------------------------------------------------------------------


def test_cleanup_waits_for_the_end_of_a_failure():
    run = Driven("work", "tidy:~work", outputs=("work",), tidy={"when": "always"})
    assert run.machine.unplaced(NOW_MS) == ("work",)
    run.place(work="east")
    run.start("work")
    run.take(run.failed("work"), run.ended("work"))
    assert run.machine.unplaced(NOW_MS) == ("tidy",)
    finish_on(run, "east", "tidy")
    assert run.record.state is RunState.FAILED
    assert run.states("work", "tidy") == ["FAILED", "SUCCEEDED"]


def test_a_node_on_failure_is_skipped_after_success():
    run = Driven("work", "alarm:~work", "after:alarm", outputs=("work",), alarm={"when": "failure"})
    finish_on(run, "east", "work")
    assert run.record.state is RunState.SUCCEEDED
    assert run.states("alarm", "after") == ["SKIPPED", "SKIPPED"]
    assert run.node("alarm").reason is Reason.BRANCH_NOT_TAKEN
    assert run.node("after").roots == ()


def test_a_node_on_failure_runs_after_a_failure():
    run = Driven("work", "next:work", "alarm:~next", "told:alarm", outputs=("next",), alarm={"when": "failure"})
    run.place(work_next="east")
    run.start("work")
    run.take(run.failed("work"), run.ended("work"))
    finish_on(run, "west", "alarm", "told")
    assert run.states() == ["FAILED", "SKIPPED", "SUCCEEDED", "SUCCEEDED"]
    assert run.record.state is RunState.FAILED


def test_cleanup_on_a_mesh_goes_on_when_the_run_stops():
    run = Driven("make", "tidy:~make", "other", outputs=("other",), tidy={"when": "always"})
    finish_on(run, "east", "make")
    run.place(tidy="east", other="west")
    run.start("tidy")
    run.start("other")
    run.take(run.begun("tidy"))
    run.take(run.failed("other"))
    assert run.cancelled() == [run.stage("other").stage]
    run.take(run.ended("other"))
    run.take(run.done("tidy"), run.ended("tidy"))
    assert run.states() == ["SUCCEEDED", "SUCCEEDED", "FAILED"]
    assert run.record.state is RunState.FAILED


def test_cleanup_runs_after_a_cancel():
    run = Driven("work", "tidy:~work", "alarm:~work", outputs=("work",), tidy={"when": "always"}, alarm={"when": "failure"})
    run.place(work="east")
    run.start("work")
    run.cancel()
    run.take(run.ended("work"))
    assert run.record.state is RunState.CANCELLING
    assert run.states() == ["CANCELLED", "WAITING", "SKIPPED"]
    finish_on(run, "east", "tidy")
    assert (run.record.state, run.states("tidy")) == (RunState.CANCELLED, ["SUCCEEDED"])


def test_only_a_cancel_that_says_so_stops_cleanup():
    run = Driven("work", "tidy:~work", outputs=("work",), tidy={"when": "always"})
    run.place(work="east")
    run.start("work")
    run.cancel()
    run.take(run.ended("work"))
    run.place(tidy="east")
    run.start("tidy")
    stage = run.stage("tidy").stage
    run.cancel()
    assert (run.cancelled(), run.states("tidy")) == ([], ["ASSIGNED"])
    run.cancel(also_cleanup=True)
    assert run.cancelled() == [stage]
    run.take(run.ended("tidy"))
    assert (run.record.state, run.states()) == (RunState.CANCELLED, ["CANCELLED", "CANCELLED"])


def test_the_first_cancel_may_stop_cleanup_too():
    run = Driven("work", "tidy:~work", outputs=("work",), tidy={"when": "always"})
    run.place(work="east")
    run.start("work")
    run.cancel(also_cleanup=True)
    run.take(run.ended("work"))
    assert (run.record.state, run.states()) == (RunState.CANCELLED, ["CANCELLED", "CANCELLED"])


def test_cleanup_that_reads_a_lost_value_is_skipped():
    run = Driven("make", "work", "tidy:make ~work", outputs=("work",), tidy={"when": "always"})
    run.place(make_work="east")
    run.finish("make")
    run.take(run.begun("work"))
    run.take(run.failed("work"))
    run.take(run.ended("work"))
    run.place(tidy="west")
    run.start("tidy")
    run.take(InputLost(stage=run.stage("tidy").stage, node="make"))
    run.take(run.ended("tidy"))
    assert run.record.state is RunState.FAILED
    assert (run.states(), run.node("tidy").reason) == (["SUCCEEDED", "FAILED", "SKIPPED"], Reason.VALUE_LOST)


def test_two_failures_at_once_are_one_skip_with_both_roots():
    run = Driven("a", "b", "both:a b", "leaf:both", outputs=("leaf",), on_error="continue")
    run.place(a_b_both_leaf="east")
    run.start("a")
    run.take(run.begun("a"), run.begun("b"))
    run.take(run.failed("a"), run.failed("b"), run.ended("a"))
    assert run.node("both").roots == run.node("leaf").roots == ("a", "b")
    assert [event.node for event in run.events if event.after == "SKIPPED"] == ["both", "leaf"]


def test_independent_branches_finish_beside_a_failure():
    run = Driven("a", "b:a", "c:b", "x", "y:x", outputs=("c", "y"), on_error="continue")
    run.place(a_b_c_x_y="east")
    run.start("a")
    run.take(run.begun("a"), run.failed("a"))
    run.finish("x", "y")
    run.take(run.ended("x"))
    assert run.states() == ["FAILED", "SKIPPED", "SKIPPED", "SUCCEEDED", "SUCCEEDED"]
    assert (run.node("c").roots, run.record.state) == (("a",), RunState.FAILED)


# -- branches ----------------------------------------------------------------------------------------------------------


def test_only_the_branch_taken_runs():
    run = branching()
    assert run.machine.unplaced(NOW_MS) == ("start", "test")
    decide(run, "false")
    assert run.machine.unplaced(NOW_MS) == ("no",)
    assert run.states("early", "yes") == ["SKIPPED", "SKIPPED"]
    finish_on(run, "west", "no")
    assert run.record.state is RunState.SUCCEEDED
    assert run.node("join").stored == run.node("no").stored


def test_what_only_the_branch_taken_needs_runs_with_it():
    run = branching()
    decide(run, "true")
    assert run.machine.unplaced(NOW_MS) == ("early", "yes")
    finish_on(run, "east", "early", "yes")
    assert (run.record.state, run.states("no")) == (RunState.SUCCEEDED, ["SKIPPED"])


def test_a_failed_branch_fails_the_run():
    run = branching()
    decide(run, "false")
    run.place(no="east")
    run.start("no")
    run.take(run.failed("no"), run.ended("no"))
    assert (run.record.state, run.states("join"), run.node("join").roots) == (RunState.FAILED, ["SKIPPED"], ("no",))


def test_a_missing_branch_has_the_value_null():
    run = Driven("test", "yes:~test", "join:test yes", outputs=("join",), join=cond("test", "yes"))
    run.place(test="east")
    run.start("test")
    run.take(run.begun("test"), run.done("test", json_value("0")), run.ended("test"))
    assert (run.record.state, run.node("join").stored) == (RunState.SUCCEEDED, json_value("null"))


def test_a_test_without_a_truth_fails_the_cond():
    run = branching()
    run.place(start_test="east")
    run.finish("start")
    pickled = StoredValue(sha256="a" * 64, size_bytes=1, encoding=Encoding.PICKLE)
    run.take(run.begun("test"), run.done("test", pickled), run.ended("test"))
    assert (run.record.state, run.node("join").failure.reason) == (RunState.FAILED, Reason.CONDITION_UNDECIDED)
    assert "let it return bool" in run.node("join").failure.message


def test_conds_are_nested():
    run = Driven(
        "a", "b", "deep", "in:deep ~b", "out:~b", "inner:b in out ~a", "else:~a", "outer:a inner else",
        outputs=("outer",), inner=cond("b", "in", "out"), outer=cond("a", "inner", "else"),
    )  # fmt: skip
    assert run.machine.unplaced(NOW_MS) == ("a",)
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.done("a", json_value("true")), run.ended("a"))
    assert run.machine.unplaced(NOW_MS) == ("b",)
    run.place(b="east")
    run.start("b")
    run.take(run.begun("b"), run.done("b", json_value("true")), run.ended("b"))
    assert (run.machine.unplaced(NOW_MS), run.states("out", "else")) == (("deep", "in"), ["SKIPPED", "SKIPPED"])
    finish_on(run, "east", "deep", "in")
    assert (run.record.state, run.node("outer").stored) == (RunState.SUCCEEDED, run.node("in").stored)


def test_a_node_that_both_branches_need_does_not_wait():
    run = Driven("test", "base", "yes:base ~test", "no:base ~test", "join:test yes no", outputs=("join",), join=cond("test", "yes", "no"))
    assert run.machine.unplaced(NOW_MS) == ("test", "base")


# -- sleeps and signals ------------------------------------------------------------------------------------------------


def sleeping(seconds):
    return {"function": SLEEP, "args": (seconds,)}


def waiting(name, timeout_s=None):
    return {"function": SIGNAL, "args": (name, timeout_s)}


def test_a_sleep_ends_after_its_time():
    run = Driven("pause", "work:~pause", outputs=("work",), pause=sleeping(5))
    assert run.machine.next_timer_ms() == 0
    run.take()
    assert (run.record.state, run.node("pause").reason) == (RunState.RUNNING, Reason.SLEEPING)
    assert (run.machine.unplaced(NOW_MS), run.machine.next_timer_ms()) == ((), NOW_MS + 5_000)
    run.take(after_ms=4_999)
    assert run.states("pause") == ["WAITING"]
    run.take(after_ms=5_000)
    assert (run.states("pause"), run.machine.unplaced(NOW_MS)) == (["SUCCEEDED"], ("work",))


def test_a_run_that_only_sleeps_shows_why_it_waits():
    run = Driven("pause", outputs=("pause",), pause=sleeping(5))
    run.take()
    assert (run.record.reason, run.record.detail) == (Reason.SLEEPING, "until 1970-01-01 00:00:06Z")


def test_a_signal_gives_its_value_to_the_node():
    run = Driven("wait", "work:wait", outputs=("work",), wait=waiting("go"))
    run.take()
    assert (run.record.reason, run.record.detail) == (Reason.WAITING_FOR_SIGNAL, "signal go")
    run.take(SignalSent(name="other", value=json_value("1")))
    assert run.states("wait") == ["WAITING"]
    run.take(SignalSent(name="go", value=json_value("2")))
    run.place(work="east")
    assert run.delivered() == [("r.1", "wait", True)]
    assert run.node("wait").stored == json_value("2")


def test_the_first_signal_is_kept_until_its_node_waits():
    run = Driven("first", "wait:~first", outputs=("wait",), wait=waiting("go"))
    run.take(SignalSent(name="go", value=json_value("1")))
    run.take(SignalSent(name="go", value=json_value("2")))
    finish_on(run, "east", "first")
    assert (run.record.state, run.node("wait").stored) == (RunState.SUCCEEDED, json_value("1"))


@pytest.mark.parametrize("when", ["failure", "always"])
def test_a_signal_that_does_not_come_in_time_is_a_failure(when):
    run = Driven("wait", "alarm:~wait", outputs=("wait",), wait=waiting("go", 2), alarm={"when": when})
    run.take()
    run.take(after_ms=2_000)
    assert (run.states("wait"), run.node("wait").failure.reason) == (["FAILED"], Reason.SIGNAL_TIMED_OUT)
    finish_on(run, "east", "alarm")
    assert (run.record.state, run.states("alarm")) == (RunState.FAILED, ["SUCCEEDED"])


def test_a_cancel_ends_waits():
    run = Driven("wait", "pause", outputs=("wait", "pause"), wait=waiting("go"), pause=sleeping(9))
    run.take()
    run.cancel()
    assert (run.record.state, run.states()) == (RunState.CANCELLED, ["CANCELLED", "CANCELLED"])


def test_a_signal_decides_between_branches():
    run = Driven("ok", "yes:~ok", "no:~ok", "join:ok yes no", outputs=("join",), ok=waiting("go"), join=cond("ok", "yes", "no"))
    run.take(SignalSent(name="go", value=json_value("true")))
    assert (run.machine.unplaced(NOW_MS), run.states("no")) == (("yes",), ["SKIPPED"])


def test_a_wait_of_a_branch_begins_when_the_branch_is_taken():
    run = Driven(
        "test", "ok", "yes:~test ~ok", "no:~test", "join:test yes no",
        outputs=("join",), ok=waiting("go", 2), join=cond("test", "yes", "no"),
    )  # fmt: skip
    assert run.machine.next_timer_ms() is None
    run.place(test="east")
    run.start("test")
    assert run.node("ok").reason is None
    run.take(run.begun("test"), run.done("test", json_value("true")), run.ended("test"), after_ms=9_000)
    assert run.node("ok").reason is Reason.WAITING_FOR_SIGNAL
    assert run.machine.next_timer_ms() == NOW_MS + 11_000


def test_the_next_time_takes_one_look_at_each_branch(monkeypatch):
    looked = []
    look = NodeTable.__getitem__
    monkeypatch.setattr(NodeTable, "__getitem__", lambda table, node: looked.append(node) or look(table, node))

    def looks(count):
        parts = [(f"test{n}:", f"nap{n}:~test{n}", f"cond{n}:test{n} nap{n}") for n in range(count)]
        conds = {f"cond{n}": cond(f"test{n}", f"nap{n}") for n in range(count)}
        run = Driven(*(part for each in parts for part in each), **conds, **{f"nap{n}": sleeping(1) for n in range(count)})
        looked.clear()
        run.take()
        assert run.machine.next_timer_ms() is None
        return len(looked)

    assert looks(40) < 3 * looks(20)


def test_a_lost_value_of_a_branch_is_computed_again():
    run = Driven("test", "yes:~test", "join:test yes", "end:join", outputs=("end",), join=cond("test", "yes"))
    run.place(test="east")
    run.start("test")
    run.take(run.begun("test"), run.done("test", json_value("true")))
    run.take(run.ended("test"))
    finish_on(run, "east", "yes")
    run.place(end="west")
    run.start("end")
    stage = run.stage("end").stage
    run.take(InputLost(stage=stage, node="join"), StageEnded(stage=stage))
    assert run.states() == ["SUCCEEDED", "WAITING", "WAITING", "WAITING"]
    finish_on(run, "east", "yes")
    finish_on(run, "west", "end")
    assert (run.record.state, run.node("join").losses, run.node("yes").losses) == (RunState.SUCCEEDED, 1, 1)
