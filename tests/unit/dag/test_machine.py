"""Run machine, driven by messages that the tests write by hand."""

from __future__ import annotations

import copy

import pytest
from machine_bed import HOLDER, NOW_MS, Driven, value

from dag.run.dead_letters import MESSAGE_CHARS_MAX
from dag.run.events import CancelRequested, MeshClosed, MeshGone, NodesPlaced, Placement, SignalSent, StartsAllowed
from dag.run.machine import RunMachine
from dag.run.retrying import RETRY_RULES
from dag.run.run_status import shown_state
from dag.run.runs import ForgetRun, RunChange, SendStage
from dag.run.state_writer import StateWriter
from dag.run.states import NODE_ENDS, NODE_TRANSITIONS, RUN_TRANSITIONS, STAGE_TRANSITIONS, NodeState, RunState, StageState
from dag.spec.control import SIGNAL
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.values import Encoding, StoredValue
from mesh.errors import IllegalTransition
from mesh.preemption.stage_preemption import PreemptionPolicy
from mesh.stages.messages import (
    Failure,
    InputLost,
    NodeFailed,
    NodesSucceeded,
    NodeStarted,
    NodeSucceeded,
    StageEnded,
    StageResized,
    StageWaiting,
)

MUCH_LATER_MS = NOW_MS + 10 * RETRY_RULES.wait_max_ms
LOSSES_MAX = RETRY_RULES.losses_max
PREVIOUS_HOLDER = 70


# -- placing and sending ---------------------------------------------------------------------------------------------------


def test_a_fresh_run_waits_for_its_places():
    run = Driven("a:", "b: a")
    assert run.machine.unplaced(MUCH_LATER_MS) == ("a", "b")
    assert (run.record.state, run.states()) == (RunState.PENDING, ["WAITING", "WAITING"])


@pytest.mark.parametrize(
    ("sent", "is_traced", "has_context"),
    [("", False, False), ("", True, True), (f"00-{'a' * 32}-{'b' * 16}-01", False, True)],
    ids=["nobody traces", "the root traces", "the caller traces"],
)
def test_stage_has_the_trace_context_of_a_traced_run(sent, is_traced, has_context):
    run = Driven("a:")
    run.record.traceparent = sent
    run.machine = RunMachine(run.record, run.machine.plans, runtime_env={}, on_error="fail_fast", is_traced=is_traced)
    run.place(a="east")
    (send,) = [decision for decision in run.decisions if isinstance(decision, SendStage)]
    assert send.spec.traceparent == (run.record.trace.header if has_context else "")


def test_what_was_placed_together_on_one_mesh_goes_as_one_stage():
    run = Driven("a:", "b: a", "c: ~b", outputs="c")
    run.place(a_b_c="east")
    assert run.sent() == [("east", ["a", "b", "c"])]
    assert run.record.state is RunState.RUNNING
    assert run.machine.unplaced(MUCH_LATER_MS) == ()
    assert run.states() == ["ASSIGNED"] * 3
    assert run.stage("a").why_here == "why east"


def test_a_sent_stage_has_the_inputs_and_size_of_its_tasks():
    run = Driven(
        "a0:",
        "a:",
        "b: a ~a0",
        a={"resources": ResourceSet.of({"cpu": 2}), "priority": 3},
        b={"resources": ResourceSet.of({"gpu": 1}), "args": ({"$ref": "a"},), "kwargs": {"x": 1}, "ray_options": {"max_retries": 2}},
        outputs="b",
    )
    run.place(a_b_a0="east")
    (sent,) = run.decisions
    spec = sent.spec
    assert (spec.slot, spec.priority, spec.width, spec.runtime_env) == (ResourceSet.of({"cpu": 2, "gpu": 1}), 3, 2, {"pip": []})
    (task,) = [task for task in spec.tasks if task.node == "b"]
    assert (task.args, task.kwargs, task.ray_options) == (({"$ref": "a"},), {"x": 1}, {"max_retries": 2})
    assert (task.inputs, task.after, task.export, task.attempt) == (("a",), ("a0",), True, 1)
    assert [task.export for task in spec.tasks if task.node != "b"] == [False, False]


def test_only_values_read_by_other_meshes_are_exported():
    run = Driven("a:", "b:", "c: a", "d: b")
    run.place(a_b_d="east", c="west")
    (sent,) = [each for each in run.decisions if each.mesh == "east"]
    assert {task.node: task.export for task in sent.spec.tasks} == {"a": True, "b": False, "d": False}
    assert run.machine.value_at("a") is None
    assert run.machine.value_at("b") == "east"


def relayed(*more, on_error="fail_fast", **fields):
    """Return a run: `a` is sent to the east; `b`, which reads it, and `c`, which does not, are one stage in the west."""
    run = Driven("a:", "b: a", "c:", *more, on_error=on_error, **fields)
    run.place(a="east")
    run.place(b_c="west")
    return run


def test_no_stage_is_sent_while_an_input_of_it_waits_in_a_queue():
    run = relayed()
    assert run.sent() == []  # b would hold a slot while a has none yet.
    assert run.stage("b").state is StageState.PLANNED


def test_a_stage_is_sent_early_if_one_of_its_nodes_can_start():
    run = relayed()
    run.start("a")
    assert run.sent() == [("west", ["b", "c"])]
    run.start("b")
    run.take(run.begun("a"), run.done("a"))
    assert run.delivered() == [(run.node("b").stage, "a", True)]


def test_a_stage_of_which_nothing_can_start_waits_for_the_value():
    run = Driven("a:", "b: a")
    run.place(a="east", b="west")
    run.start("a")
    assert run.sent() == []
    run.take(run.begun("a"), run.done("a"))
    assert run.sent() == [("west", ["b"])]
    assert run.delivered() == [(run.node("b").stage, "a", True)]


def test_an_order_edge_across_meshes_delays_and_passes_no_value():
    run = Driven("a:", "b: ~a", outputs="b")
    run.place(a="east", b="west")
    assert run.sent() == [("east", ["a"])]
    assert not run.node("a").exported
    run.start("a")
    run.take(run.begun("a"))
    assert run.sent() == []
    run.take(run.done("a"))
    assert run.sent() == [("west", ["b"])]
    (task,) = run.decisions[0].spec.tasks
    assert (task.after, task.inputs) == ((), ())
    assert run.delivered() == []


def test_an_order_between_two_stages_of_one_mesh_is_kept_too():
    run = Driven("a:", "m: a", "b: ~m")
    run.place(a_b="east", m="west")
    run.finish("a")
    run.finish("m")
    assert run.sent() == [("east", ["b"])]


def test_a_blocked_node_has_its_reason_until_a_mesh_accepts_it():
    run = Driven("a:", "b: a")
    run.block("a", Reason.LABEL_MISMATCH, "no gpu")
    assert (run.states("a"), run.node("a").reason, run.node("a").detail) == (["BLOCKED"], Reason.LABEL_MISMATCH, "no gpu")
    assert run.machine.unplaced(MUCH_LATER_MS) == ("a", "b")
    run.place(a_b="east")
    assert run.states() == ["ASSIGNED", "ASSIGNED"]
    assert run.node("a").reason is None


def test_a_blockage_is_recorded_once_and_a_new_one_again():
    run = Driven("a:")
    run.block("a")
    assert run.block("a").events == ()
    (event,) = run.block("a", detail="nobody at all").events
    assert (event.before, event.after, event.detail) == ("BLOCKED", "BLOCKED", "nobody at all")


# -- the straight way ------------------------------------------------------------------------------------------------------


def test_a_run_ends_with_its_last_stage_not_its_last_node():
    run = Driven("a:", "b: a", outputs="b")
    run.place(a_b="east")
    run.finish("a", "b")
    assert (run.record.state, run.states()) == (RunState.RUNNING, ["SUCCEEDED", "SUCCEEDED"])
    run.take(run.ended("a"))
    assert (run.record.state, run.record.ended_ms) == (RunState.SUCCEEDED, NOW_MS)
    assert run.decisions == [ForgetRun(meshes=("east",), keep=(value("b").sha256,))]


def test_the_end_lists_meshes_files_and_kept_values():
    file = StoredValue(sha256="f" * 64, size_bytes=9, encoding=Encoding.JSON, uri="file:///big")
    kept = StoredValue(sha256="e" * 64, size_bytes=9, encoding=Encoding.JSON, uri="file:///result")
    run = Driven("a:", "b: a", outputs="b")
    run.place(a="west", b="east")
    run.start("a")
    run.take(run.begun("a"), run.done("a", file))
    run.start("b")
    run.take(run.begun("b"), run.done("b", kept), StageEnded(stage="r.1"), StageEnded(stage="r.2"))
    assert run.decisions == [ForgetRun(meshes=("east", "west"), uris=("file:///big",), keep=("e" * 64,))]


def test_a_value_is_delivered_once_to_each_reading_stage():
    run = Driven("a:", "b: a", "c: a", "k:", "d: a", "e: a", "l:")
    run.place(a="east")
    run.start("a")
    run.place(b_c_k="west", e_l="north", d="east")
    assert run.sent() == [("west", ["b", "c", "k"]), ("north", ["e", "l"])]
    run.start("b")
    run.take(run.begun("a"), run.done("a"))
    assert run.delivered() == [(run.node("b").stage, "a", True), (run.node("e").stage, "a", True)]
    assert run.sent() == [("east", ["d"])]


def test_a_value_is_not_delivered_to_its_own_holder():
    run = Driven("a:", "m: a", "b: a m", outputs="b")
    run.place(a_b="east", m="west")
    run.finish("a", "m")
    assert run.sent() == [("east", ["b"])]
    assert run.delivered() == [(run.node("b").stage, "m", True)]
    run.start("b")
    assert run.delivered() == []


def test_a_stage_under_another_holder_is_given_what_was_stored():
    run = Driven("a:", "m: a", "b: a m", outputs="b")
    run.place(a_b="east", m="west")
    run.start("a", PREVIOUS_HOLDER)
    run.take(run.begun("a"), run.done("a"))
    run.finish("m")
    run.start("b")
    assert run.delivered() == [(run.node("b").stage, "a", True)]


def test_a_waiting_stage_says_why_until_it_starts():
    run = Driven("a:")
    run.place(a="east")
    assert run.stage("a").reason is Reason.WAITING_IN_QUEUE
    run.take(StageWaiting(stage=run.node("a").stage, reason=Reason.QUOTA_EXHAUSTED, detail="0 of 3 left"))
    assert (run.stage("a").reason, run.stage("a").detail) == (Reason.QUOTA_EXHAUSTED, "0 of 3 left")
    run.start("a")
    assert (run.stage("a").reason, run.stage("a").detail) == (None, "")


def test_a_stage_that_runs_waits_for_ray_until_a_node_begins():
    run = Driven("a:")
    run.place(a="east")
    run.start("a")
    run.take(StageWaiting(stage=run.node("a").stage, reason=Reason.WAITING_FOR_GROUP, detail="held by others"))
    assert (run.stage("a").state.value, run.stage("a").reason, run.stage("a").detail) == (
        "RUNNING",
        Reason.WAITING_FOR_GROUP,
        "held by others",
    )
    run.take(run.begun("a"))
    assert (run.stage("a").reason, run.stage("a").detail) == (None, "")


def test_a_stage_that_grows_or_shrinks_says_so_once():
    run = Driven("a:")
    run.place(a="east")
    run.take(StageResized(stage=run.node("a").stage, slots=3))
    assert run.stage("a").slots == 0  # It has not begun: no slot is known.
    run.start("a")
    for slots in (3, 3, 2):
        run.take(StageResized(stage=run.node("a").stage, slots=slots))
    assert (run.stage("a").slots, run.stage("a").state.value) == (2, "RUNNING")
    assert [event.detail for event in run.events if "instead of" in event.detail] == ["3 slots instead of 1", "2 slots instead of 3"]


def test_a_task_that_was_never_seen_to_start_may_succeed():
    run = Driven("a:")
    run.place(a="east")
    run.start("a")
    run.take(run.done("a"))
    assert run.states() == ["SUCCEEDED"]


# -- many ends in one message ----------------------------------------------------------------------------------------------


def many_ends(run, *tasks, **columns):
    started = tuple(10 * place for place in range(len(tasks)))
    fields = {"since_ms": 100, "started": started, "took": (3,) * len(tasks), "workers": ("host:1", "host:2"), **columns}
    return NodesSucceeded(stage=run.stage("a").stage, tasks=tasks, **fields)


def test_many_ends_start_and_end_each_node_at_its_own_time():
    run = Driven("a:", "b: a", "c: a", "d: a", outputs="c")
    run.place(a_b_c_d="east")
    run.start("a")
    run.take(run.begun("a"))
    before = len(run.events)
    run.take(many_ends(run, 0, 2, 3, worker=(0, 1, 0), stored={1: value("c")}))
    assert [(event.node, event.after, event.at_ms, event.detail) for event in run.events[before:]] == [
        ("a", "SUCCEEDED", 103, "host:1"),
        ("c", "RUNNING", 110, ""),
        ("c", "SUCCEEDED", 113, "host:2"),
        ("d", "RUNNING", 120, ""),
        ("d", "SUCCEEDED", 123, "host:1"),
    ]
    assert run.states() == ["SUCCEEDED", "ASSIGNED", "SUCCEEDED", "SUCCEEDED"]
    assert (run.node("c").started_ms, run.node("c").finished_ms, run.node("c").stored) == (110, 113, value("c"))
    assert (run.node("c").incarnation, run.node("d").stored) == (HOLDER, None)


def test_many_ends_count_once_under_the_present_attempt():
    run = Driven("a:", "b:", "c:", a={"retries": 1})
    run.place(a_b_c="east")
    run.start("a")
    run.take(many_ends(run, 1, 1, 9))
    assert run.states() == ["ASSIGNED", "SUCCEEDED", "ASSIGNED"]
    unchanged(run, many_ends(run, 1), many_ends(run, 0, 2, attempts=(2, 2)))


def test_an_end_that_restarts_its_node_recalls_later_ends():
    run = Driven("a:", "b: a", "c:", "d: a", "e: c")
    run.place(a_b_c="east", d_e="west")
    run.start("a")
    run.take(many_ends(run, 2, stored={0: value("c")}))
    run.start("d")
    stage = run.stage("a").stage
    run.take(many_ends(run, 0, 1))  # The value of `a` is not stored, so `d` cannot get it.
    assert run.states() == ["WAITING", "WAITING", "SUCCEEDED", "WAITING", "ASSIGNED"]
    assert [run.node(node).attempt for node in "ab"] == [2, 2]
    assert run.record.stages[stage].state is StageState.RUNNING


def test_many_ends_are_delivered_to_a_reader_elsewhere():
    run = Driven("a:", "b:", "c: a b")
    run.place(a_b="east", c="west")
    run.start("a")
    run.start("c")
    run.take(many_ends(run, 0, 1, stored={0: value("a"), 1: value("b")}))
    assert [node for _, node, comes in run.delivered() if comes] == ["a", "b"]


# -- late and foreign words ------------------------------------------------------------------------------------------------


def unchanged(run, *events):
    """Assert that these events change nothing at all."""
    before = copy.deepcopy(run.record)
    change = run.take(*events)
    assert change == RunChange()
    assert run.record == before


def test_words_of_an_old_attempt_change_nothing():
    run = Driven("a:", a={"retries": 1})
    run.place(a="east")
    run.start("a")
    late = [run.begun("a"), run.done("a"), run.failed("a")]
    run.take(run.failed("a"), run.ended("a"))
    run.place(a="east")
    run.start("a")
    unchanged(run, *late)
    old_attempt_in_the_new_stage = NodeSucceeded(
        stage=run.node("a").stage, node="a", attempt=1, started_ms=1, finished_ms=2, worker="host:1"
    )
    unchanged(run, old_attempt_in_the_new_stage)


def test_words_of_a_lost_stage_change_nothing():
    run = Driven("a:", "b: a")
    run.place(a_b="east")
    run.start("a")
    late = [run.started("a"), run.begun("a"), run.done("a"), run.failed("b"), run.ended("a"), run.lost("a")]
    waiting = StageWaiting(stage=run.node("a").stage, reason=Reason.POOL_BUSY)
    run.take(run.lost("a"))
    unchanged(run, *late, waiting)


def test_a_stage_does_not_start_twice():
    run = Driven("a:")
    run.place(a="east")
    run.start("a")
    unchanged(run, run.started("a", holder=99))


def test_a_node_does_not_finish_twice():
    run = Driven("a:", "b:")
    run.place(a_b="east")
    run.start("a")
    success, failure = run.done("a"), run.failed("a")
    run.take(success)
    unchanged(run, success, failure)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(StageEnded(stage="r.9"), id="a stage that was never planned"),
        pytest.param(NodeStarted(stage="r.1", node="zzz", attempt=1, started_ms=1), id="a node that is not in the graph"),
        pytest.param(NodeStarted(stage="r.1", node="b", attempt=1, started_ms=1), id="a node of another stage"),
        pytest.param(InputLost(stage="r.1", node="zzz"), id="an input that is not in the graph"),
        pytest.param(InputLost(stage="r.1", node="b"), id="an input that was never computed"),
        pytest.param(MeshGone(mesh="nowhere"), id="a mesh that has nothing of the run"),
    ],
)
def test_words_about_what_is_not_there_change_nothing(event):
    run = Driven("a:", "b: a")
    run.place(a="east", b="west")
    run.start("a")
    unchanged(run, event)


def test_nothing_changes_a_run_that_has_ended():
    run = Driven("a:")
    run.place(a="east")
    run.finish("a")
    late = [run.done("a"), run.lost("a"), CancelRequested(detail="late"), MeshGone(mesh="east")]
    run.take(run.ended("a"))
    unchanged(run, *late, NodesPlaced(placements={"a": Placement(mesh="west", why="")}))
    assert run.machine.unplaced(MUCH_LATER_MS) == ()


def test_the_machine_is_deterministic():
    run, twin = Driven("a:", "b: a", outputs="b"), Driven("a:", "b: a", outputs="b")
    placed = NodesPlaced(placements={node: Placement(mesh="east", why="") for node in "ab"})
    assert run.take(placed) == twin.take(placed)
    events = (run.started("a"), run.begun("a"), run.done("a"), run.failed("b"))
    assert run.take(*events) == twin.take(*events)
    assert run.record == twin.record


def test_a_machine_goes_on_from_a_stored_record():
    run = Driven("a:", "b: a", outputs="b")
    run.place(a="east", b="west")
    run.finish("a")
    copied = RunMachine(copy.deepcopy(run.record), run.machine.plans, runtime_env={"pip": []}, on_error="fail_fast")
    events = (run.started("b"), run.begun("b"), run.done("b"), run.ended("a"), run.ended("b"))
    assert copied.handle(events, NOW_MS) == run.machine.handle(events, NOW_MS)
    assert copied.record.state is RunState.SUCCEEDED


# -- failures and retries --------------------------------------------------------------------------------------------------


def test_an_error_is_retried_exactly_as_often_as_allowed():
    run = Driven("a:", a={"retries": 2})
    for attempt in (1, 2, 3):
        run.place(a="east")
        run.start("a")
        assert run.node("a").attempt == attempt
        run.take(run.begun("a"), run.failed("a", message=f"number {attempt}"), run.ended("a") if attempt < 3 else run.begun("a"))
    assert (run.states(), run.node("a").retries_used) == (["FAILED"], 2)
    run.take(run.ended("a"))
    assert (run.record.state, run.record.reason) == (RunState.FAILED, Reason.USER_ERROR)
    assert run.record.detail == "a: builtins.ValueError: number 3"


def test_a_retried_node_takes_back_what_was_sent_to_wait_for_it():
    run = relayed("d: b", a={"retries": 1})
    run.start("a")
    run.place(d="west")
    waiting = run.node("b").stage
    run.take(run.begun("a"), run.failed("a"))
    assert run.delivered() == [(waiting, "a", False)]
    assert run.states() == ["WAITING", "WAITING", "ASSIGNED", "WAITING"]
    assert [run.node(node).attempt for node in "abcd"] == [2, 2, 1, 1]
    assert run.machine.unplaced(MUCH_LATER_MS) == ("a", "b", "d")


def test_an_input_is_refused_to_a_stage_once():
    run = Driven("a:", "b: a", "c:", "d: a", a={"retries": 1})
    run.place(a="east")
    run.place(b_c_d="west")
    run.start("a")
    stage = run.node("b").stage
    run.take(run.failed("a"))
    assert run.delivered() == [(stage, "a", False)]
    assert run.record.stages[stage].delivered == ("a",)


def test_fail_fast_stops_the_run_and_skips_what_was_not_begun():
    run = Driven("a:", "b: a", "c:", "d: c", "e:")
    run.place(a_b="east", c="west", d="east", e="north")
    run.start("a")
    run.start("c")
    run.take(run.begun("a"), run.begun("c"), run.failed("a"))
    assert run.states() == ["FAILED", "SKIPPED", "RUNNING", "SKIPPED", "ASSIGNED"]
    assert run.cancelled() == [run.node(node).stage for node in "ace"]
    assert run.node("d").roots == ("a",)
    assert run.machine.unplaced(MUCH_LATER_MS) == ()
    run.take(run.ended("a"), run.failed("c", Reason.CANCELLED_BY_USER), run.ended("c"))
    assert run.record.state is RunState.RUNNING
    run.take(run.ended("e"))
    assert run.states() == ["FAILED", "SKIPPED", "SKIPPED", "SKIPPED", "SKIPPED"]
    assert run.record.state is RunState.FAILED
    assert all(run.node(node).roots == ("a",) for node in "bcde")


def test_what_finishes_while_the_run_stops_counts():
    run = Driven("a:", "b:")
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("b"), run.failed("a"), run.done("b"), run.ended("a"))
    assert run.states() == ["FAILED", "SUCCEEDED"]


@pytest.mark.parametrize(
    ("kind", "reason", "state"),
    [
        pytest.param(OSError, Reason.USER_ERROR, "WAITING", id="a class that was named"),
        pytest.param(ConnectionError, Reason.USER_ERROR, "WAITING", id="one below it"),
        pytest.param(KeyError, Reason.USER_ERROR, "FAILED", id="another one"),
        pytest.param(Exception, Reason.USER_ERROR, "FAILED", id="one above it"),
        pytest.param(ValueError, Reason.CODE_UNAVAILABLE, "WAITING", id="what is not the function's own error"),
    ],
)
def test_only_the_errors_that_were_named_are_retried(kind, reason, state):
    run = Driven("a:", a={"retries": 1, "retry_exceptions": frozenset({"builtins.OSError"})})
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.failed("a", reason, kind=kind))
    assert run.states() == [state]


def test_retries_leave_no_records_of_unsent_stages():
    run = Driven("a:", "b: a", "c: b", a={"retries": 30})
    run.place(a_c="east", b="west")
    planned = len(run.record.stages)
    for _ in range(30):
        run.start("a")
        run.take(run.begun("a"), run.failed("a"))
        run.place(a_c="east", b="west")
    sent = [stage for stage in run.record.stages.values() if stage.sent_ms]
    assert (planned, len(sent), len(run.record.stages)) == (3, 31, 33)
    assert len({run.node(node).stage for node in "abc"}) == 3
    run.finish("a", "b", "c")
    assert run.states() == ["SUCCEEDED"] * 3


def test_no_retry_is_begun_while_the_run_stops():
    run = Driven("a:", "b:", b={"retries": 9})
    run.place(a_b="east")
    run.start("a")
    run.take(run.failed("a"), run.failed("b"))
    assert run.states() == ["FAILED", "FAILED"]


def test_continue_finishes_what_does_not_depend_on_the_failure():
    run = Driven("a:", "b: a", "c:", "d: c", "e: b d", "f: ~a", on_error="continue", outputs="d")
    run.place(a_b_f="east", c_d_e="west")
    run.start("a")
    run.take(run.failed("a"))
    assert run.cancelled() == []
    assert run.states() == ["FAILED", "SKIPPED", "ASSIGNED", "ASSIGNED", "SKIPPED", "SKIPPED"]
    run.take(run.ended("a"))
    run.finish("c", "d")
    run.take(run.ended("c"))
    assert run.states() == ["FAILED", "SKIPPED", "SUCCEEDED", "SUCCEEDED", "SKIPPED", "SKIPPED"]
    assert (run.record.state, run.record.detail) == (RunState.FAILED, "a: builtins.ValueError: no")


@pytest.mark.parametrize("on_error", ["fail_fast", "continue"])
def test_two_parents_that_fail_in_one_batch_are_both_listed(on_error):
    run = Driven("a:", "b:", "c: a b", "d: c", on_error=on_error)
    run.place(a_b_c_d="east")
    run.start("a")
    run.take(run.begun("a"), run.begun("b"), run.failed("a"), run.failed("b"))
    assert run.states() == ["FAILED", "FAILED", "SKIPPED", "SKIPPED"]
    assert run.node("c").roots == run.node("d").roots == ("a", "b")


def test_a_failure_elsewhere_reaches_the_waiting_stage():
    run = relayed(on_error="continue")
    run.start("a")
    run.take(run.failed("a"))
    assert run.delivered() == [(run.node("b").stage, "a", False)]
    assert run.states() == ["FAILED", "SKIPPED", "ASSIGNED"]


def test_a_planned_stage_omits_skipped_nodes_or_is_dropped():
    run = Driven("a:", "k:", "b: a", "c: k", "d: a", on_error="continue")
    run.place(a_k="east", b_c="west", d="north")
    run.start("a")
    run.take(run.failed("a"))
    assert run.sent() == []
    run.take(run.done("k"))
    assert run.sent() == [("west", ["c"])]
    assert {stage.state for stage in run.record.stages.values() if stage.mesh == "north"} == {StageState.ENDED}


def test_pickled_errors_outlive_the_run():
    pickled = StoredValue(sha256="d" * 64, size_bytes=1, encoding=Encoding.PICKLE)
    run = Driven("a:")
    run.place(a="east")
    run.start("a")
    failure = Failure(reason=Reason.USER_ERROR, type_name="E", message="", pickled=pickled)
    run.take(NodeFailed(**run.attempt("a"), started_ms=1, finished_ms=2, failure=failure), run.ended("a"))
    assert run.decisions[-1] == ForgetRun(meshes=("east",), keep=("d" * 64,))


# -- losses ----------------------------------------------------------------------------------------------------------------


def test_what_a_lost_stage_had_not_finished_is_placed_again():
    run = Driven("a:", "b: a", "c:")
    run.place(a_b_c="east")
    run.start("a")
    run.take(run.done("c", value("c")), run.begun("a"), run.lost("a"))
    assert run.states() == ["WAITING", "WAITING", "SUCCEEDED"]
    assert run.machine.unplaced(MUCH_LATER_MS) == ("a", "b")
    assert [run.node(node).attempt for node in "ab"] == [2, 2]
    run.place(a_b="west")
    assert run.sent() == [("west", ["a", "b"])]


@pytest.mark.parametrize(("reason", "losses", "kills"), [(Reason.WORKER_LOST, 0, 1), (Reason.VALUE_LOST, 1, 0)])
def test_a_lost_worker_or_value_costs_no_retry(reason, losses, kills):
    run = Driven("a:")
    run.place(a="east")
    run.start("a")
    run.take(run.failed("a", reason))
    node = run.node("a")
    assert (run.states(), node.losses, node.kills, node.retries_used, node.attempt) == (["WAITING"], losses, kills, 0, 2)


# -- waits, poison, dead letters -------------------------------------------------------------------------------------------


def failing(*nodes, reason=Reason.USER_ERROR, **fields):
    """Return a run whose node `a` has failed once."""
    run = Driven(*nodes, **fields)
    run.place(**{"_".join(run.record.nodes): "east"})
    run.start("a")
    run.take(run.begun("a"), run.failed("a", reason))
    return run


def test_what_failed_waits_and_so_does_all_that_depends_on_it():
    run = failing("a:", "b: a", "c: b", "d:", on_error="continue", a={"retries": 1})
    due_ms = run.node("a").not_before_ms
    assert due_ms == NOW_MS + RETRY_RULES.wait_after_ms("r:a", 1)
    run.take(run.ended("d"))
    assert run.machine.unplaced(due_ms - 1) == ("d",)
    assert run.machine.unplaced(due_ms) == ("a", "b", "c", "d")


def test_what_was_lost_with_its_mesh_waits_for_nothing():
    run = Driven("a:")
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.lost("a"))
    assert run.machine.unplaced(NOW_MS) == ("a",)


def test_each_further_failure_waits_longer():
    run = failing("a:", a={"retries": 3})
    waits = []
    for _ in range(2):
        waits.append(run.node("a").not_before_ms - NOW_MS)
        run.place(a="east")
        run.start("a")
        run.take(run.failed("a"))
    waits.append(run.node("a").not_before_ms - NOW_MS)
    assert waits == [RETRY_RULES.wait_after_ms("r:a", failures) for failures in (1, 2, 3)]


def test_a_node_that_kills_workers_is_poison_not_its_neighbour():
    run = failing("a:", "b:", on_error="continue", reason=Reason.WORKER_LOST)
    run.take(run.begun("b"), run.done("b", value("b")), run.ended("b"))
    for _ in range(RETRY_RULES.kills_max - 1):
        assert run.states() == ["WAITING", "SUCCEEDED"]
        run.place(a="east")
        run.start("a")
        change = run.take(run.begun("a"), run.failed("a", Reason.WORKER_LOST, "exit 139"), run.ended("a"))
    assert run.states() == ["FAILED", "SUCCEEDED"]
    (letter,) = change.dead
    assert (letter.letter, letter.reason, letter.kills, letter.mesh) == ("r:a", Reason.POISON_TASK, RETRY_RULES.kills_max, "east")
    assert "exit 139" in letter.message


def test_a_dead_runner_counts_against_running_nodes_only():
    run = Driven("a:", "b: a", "c:")
    run.place(a_b_c="east")
    run.start("a")
    run.take(run.begun("a"), run.lost("a", Reason.WORKER_LOST))
    assert [(run.node(node).kills, run.node(node).losses) for node in "abc"] == [(1, 0), (0, 0), (0, 1)]


def test_work_that_gave_way_to_others_may_do_so_for_ever():
    run = Driven("a:")
    for _ in range(LOSSES_MAX + 2):
        run.place(a="east")
        run.start("a")
        run.take(run.begun("a"), run.lost("a", Reason.QUOTA_RECLAIMED))
    assert (run.states(), run.node("a").losses) == (["WAITING"], 0)


def test_values_lost_with_preempted_work_are_no_loss():
    run = Driven("a:", "x:", "b: a x")
    for _ in range(LOSSES_MAX + 2):
        run.place(a_b_x="east")
        run.finish("a")
        run.take(run.lost("x", Reason.QUOTA_RECLAIMED))
    assert (run.states(), run.node("a").losses) == (["WAITING"] * 3, 0)


def test_a_stage_that_took_too_long_is_a_loss_that_waits():
    run = Driven("a:")
    run.place(a="east")
    run.start("a")
    run.take(run.begun("a"), run.lost("a", Reason.DEADLINE_EXCEEDED))
    assert (run.node("a").losses, run.node("a").reason) == (1, Reason.DEADLINE_EXCEEDED)
    assert run.machine.unplaced(NOW_MS) == ()


def test_final_failures_are_dead_letters_and_skipped_nodes_not():
    run = Driven("a:", "b: a")
    run.place(a_b="east")
    run.start("a")
    change = run.take(run.failed("a", message="x" * 3 * MESSAGE_CHARS_MAX))
    (letter,) = change.dead
    assert (letter.run, letter.node, letter.tenant, letter.reason, letter.attempts) == ("r", "a", "acme", Reason.USER_ERROR, 1)
    assert (letter.at_ms, len(letter.message)) == (NOW_MS, MESSAGE_CHARS_MAX)
    assert run.take().dead == ()


def test_a_value_lost_with_its_holder_is_recomputed():
    run = Driven("a:", "b: a", "m:", "c: b ~m", "x:")
    run.place(a_b_c_x="east", m="west")
    run.finish("a", "b")
    run.take(run.lost("x"))
    assert run.states() == ["WAITING", "WAITING", "ASSIGNED", "WAITING", "WAITING"]
    assert [run.node(node).attempt for node in "abmcx"] == [2, 2, 1, 1, 2]
    assert (run.node("a").reason, run.node("b").reason) == (Reason.VALUE_LOST, Reason.VALUE_LOST)


def test_values_kept_by_the_mesh_are_lost_on_others_only():
    run = Driven("a:", "b:", "c: a b")
    run.place(a_b_c="east")
    run.finish("a")
    run.take(run.lost("c", Reason.WORKER_LOST, keeps_values=True))
    assert run.states() == ["SUCCEEDED", "WAITING", "WAITING"]
    run.place(b_c="east")
    run.start("c")  # Under the same holder.
    assert run.states() == ["SUCCEEDED", "ASSIGNED", "ASSIGNED"]
    run.take(run.lost("c", Reason.WORKER_LOST, keeps_values=True))
    run.place(b_c="west")
    run.start("c", holder=99)
    assert (run.states("a"), run.node("a").reason) == (["WAITING"], Reason.VALUE_LOST)


def test_a_large_value_is_lost_alone():
    run = Driven("a:", "b: a", "c: b")
    run.place(a_b_c="east")
    run.finish("a", "b")
    run.take(run.lost("c", Reason.WORKER_LOST, keeps_values=True))
    assert run.states() == ["SUCCEEDED", "SUCCEEDED", "WAITING"]
    run.place(c="east")
    run.start("c")
    run.take(InputLost(stage=run.node("c").stage, node="b"))  # The runner has inherited `a`.
    assert run.states("a", "b") == ["SUCCEEDED", "WAITING"]
    assert run.node("b").reason == Reason.VALUE_LOST
    run.place(b="east")
    run.start("b")
    assert run.states("a", "b") == ["SUCCEEDED", "ASSIGNED"]
    run.take(InputLost(stage=run.node("b").stage, node="a"))  # It was large too.
    assert run.states("a", "b") == ["WAITING", "WAITING"]


def test_a_value_that_was_stored_is_not_computed_again():
    run = Driven("a:", "x:", "b: a")
    run.place(a_x="east", b="west")
    run.finish("a")
    run.take(run.lost("x"))
    assert run.states() == ["SUCCEEDED", "WAITING", "ASSIGNED"]


def test_a_lost_value_without_readers_is_not_recomputed():
    run = Driven("a:", "b: a", "x:", outputs="b")
    run.place(a_b_x="east")
    run.finish("a", "b")
    run.take(run.lost("x"))
    assert run.states() == ["SUCCEEDED", "SUCCEEDED", "WAITING"]


def test_values_of_another_holder_of_the_mesh_survive():
    run = Driven("a:", "m: ~a", "b: a ~m", "x: ~m")
    run.place(a="east", m="west")
    run.finish("a")
    run.take(run.ended("a"))
    run.finish("m")
    run.place(x="east")
    run.start("x", holder=99)
    run.take(run.lost("x"))
    assert run.states("a", "x") == ["SUCCEEDED", "WAITING"]


def test_a_reader_under_a_new_holder_misses_the_old_value():
    run = Driven("a:", "m: ~a", "b: a ~m")
    run.place(a_b="east", m="west")
    run.start("a", PREVIOUS_HOLDER)
    run.take(run.done("a"), run.ended("a"))
    run.finish("m")
    assert run.states("b") == ["ASSIGNED"]
    stage = run.node("b").stage
    run.start("b")
    assert run.states("a", "b") == ["WAITING", "WAITING"]
    assert run.delivered() == [(stage, "a", False)]


def test_a_value_from_another_holder_is_recomputed():
    run = Driven("a:", "m:", "b: a ~m", "c: ~m")
    run.place(a_b_c="east", m="west")
    run.start("a", PREVIOUS_HOLDER)
    run.finish("m")
    assert run.sent() == [("east", ["b", "c"])]
    stage = run.node("b").stage
    run.start("b")
    run.take(run.done("a"))
    assert run.states("a", "b", "c") == ["WAITING", "WAITING", "ASSIGNED"]
    assert run.delivered() == [(stage, "a", False)]


def test_an_input_that_the_runner_lost_is_computed_again():
    run = Driven("a:", "m: ~a", "b: a ~m")
    run.place(a_b="east", m="west")
    run.finish("a", "m")
    stage = run.node("b").stage
    run.start("b")
    run.take(InputLost(stage=stage, node="a"))
    assert run.states("a", "b") == ["WAITING", "WAITING"]
    assert run.delivered() == [(stage, "a", False)]


def test_a_stored_input_that_the_runner_lost_is_delivered():
    run = Driven("a:", "m: a", "b: a ~m")
    run.place(a_b="east", m="west")
    run.finish("a", "m")
    stage = run.node("b").stage
    run.start("b")
    run.take(InputLost(stage=stage, node="a"))
    assert run.states("a", "b") == ["SUCCEEDED", "ASSIGNED"]
    assert run.delivered() == [(stage, "a", True)]


def test_a_stored_value_that_cannot_be_read_is_recomputed():
    run = Driven("a:", "b: a")
    run.place(a="east", b="west")
    run.finish("a")
    stage = run.node("b").stage
    run.start("b")
    run.take(InputLost(stage=stage, node="a"), run.failed("b", Reason.VALUE_LOST))
    assert run.states() == ["WAITING", "WAITING"]
    assert run.node("a").stored is None
    run.place(a="east", b="west")
    run.finish("a")
    assert run.delivered() == [(run.node("b").stage, "a", True)]


def test_a_late_complaint_does_not_cost_the_new_value():
    run = relayed(a={"retries": 1})
    run.start("a")
    complaint = InputLost(stage=run.node("b").stage, node="a")
    run.take(run.failed("a"))
    run.place(a_b="north")
    run.finish("a")
    run.node("a").stored = value("a")
    run.take()
    unchanged(run, complaint)


def test_a_value_stuck_on_its_mesh_is_recomputed_for_a_reader():
    run = Driven("a:", "b: a")
    run.place(a_b="east")
    run.start("a")
    run.take(run.done("a"), run.failed("b", Reason.WORKER_LOST), run.ended("a"))
    run.place(b="west")
    assert run.states("a", "b") == ["WAITING", "WAITING"]
    run.take()
    run.place(a="east", b="west")
    assert run.sent() == [("east", ["a"])]
    assert run.node("a").exported


def test_losses_beyond_the_limit_fail_the_node():
    run = Driven("a:", "b: a")
    for loss in range(1, LOSSES_MAX + 2):
        assert run.states("a") == ["WAITING"]
        run.place(a_b="east")
        run.start("a")
        run.take(run.lost("a"))
        assert run.node("a").losses == loss
    assert run.states() == ["FAILED", "SKIPPED"]
    assert run.node("b").roots == ("a",)
    assert run.node("a").failure.reason is Reason.LEASE_EXPIRED
    assert f"lost {LOSSES_MAX + 1} times" in run.record.detail
    assert run.record.state is RunState.FAILED


def test_losses_at_the_limit_stop_a_fail_fast_run_cleanly():
    run = Driven("a:", "b:", "c:")
    for _ in range(LOSSES_MAX + 1):
        run.place(a_b_c="east")
        run.start("a")
        run.take(run.lost("a"))
    assert run.states() == ["FAILED", "SKIPPED", "SKIPPED"]
    assert run.record.state is RunState.FAILED


def test_with_continue_losses_used_up_leave_the_others_to_go_on():
    run = Driven("a:", "b: a", "c:", on_error="continue")
    for _ in range(LOSSES_MAX + 1):
        run.place(a_b="east")
        run.start("a")
        run.take(run.lost("a"))
    assert run.states() == ["FAILED", "SKIPPED", "WAITING"]
    run.place(c="west")
    run.finish("c")
    run.take(run.ended("c"))
    assert run.states() == ["FAILED", "SKIPPED", "SUCCEEDED"]


def test_what_a_stage_leaves_undone_at_its_end_is_placed_again():
    run = Driven("a:", "b: a")
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("a"), run.ended("a"))
    assert run.states() == ["WAITING", "WAITING"]
    assert [run.node(node).attempt for node in "ab"] == [2, 1]
    assert run.machine.unplaced(MUCH_LATER_MS) == ("a", "b")


# -- meshes that go --------------------------------------------------------------------------------------------------------


def test_a_lost_mesh_loses_unstarted_and_keeps_running_stages():
    run = Driven("a:", "b:", "c: b", "d:")
    run.place(a="gone")
    run.start("a")
    run.place(d="gone", b="east", c="gone")
    queued, planned = run.node("d").stage, run.node("c").stage
    assert run.record.stages[planned].state is StageState.PLANNED
    run.take(MeshGone(mesh="gone"))
    assert run.states() == ["ASSIGNED", "ASSIGNED", "WAITING", "WAITING"]
    assert run.stage("a").state is StageState.RUNNING
    assert (run.record.stages[queued].state, run.record.stages[planned].state) == (StageState.LOST, StageState.ENDED)
    assert run.cancelled() == [queued]
    assert run.machine.unplaced(MUCH_LATER_MS) == ("c", "d")


def test_a_closed_mesh_keeps_sent_stages_and_loses_planned_ones():
    run = Driven("a:", "b: a", "c: b", "d:")
    run.place(d="closed", b="east", c="closed")
    queued, planned = run.node("d").stage, run.node("c").stage
    run.take(MeshClosed(mesh="closed"))
    assert (run.record.stages[queued].state, run.record.stages[planned].state) == (StageState.QUEUED, StageState.ENDED)
    assert run.node("d").state is NodeState.ASSIGNED
    assert run.cancelled() == []
    assert run.machine.unplaced(MUCH_LATER_MS) == ("a", "b", "c")  # Unsent nodes are placed together.


def test_a_second_word_of_the_gone_mesh_changes_nothing():
    run = Driven("a:")
    run.place(a="gone")
    run.take(MeshGone(mesh="gone"))
    unchanged(run, MeshGone(mesh="gone"))


def test_the_rest_of_a_split_is_replanned_with_lost_nodes():
    run = Driven("a:", "b: a", "c: b", "d:")
    run.place(a_c="east", b="west")
    run.place(d="west")
    run.take(run.failed("d", Reason.WORKER_LOST))
    assert run.machine.unplaced(MUCH_LATER_MS) == ("b", "c", "d")
    assert [stage.state for stage in run.record.stages.values() if stage.state is StageState.PLANNED] == []


# -- cancelling ------------------------------------------------------------------------------------------------------------


def test_a_run_that_was_not_placed_is_cancelled_at_once():
    run = Driven("a:", "b: a")
    run.cancel()
    assert (run.record.state, run.record.reason, run.record.detail) == (RunState.CANCELLED, Reason.CANCELLED_BY_USER, "enough")
    assert run.states() == ["CANCELLED", "CANCELLED"]


def test_a_run_with_blocked_nodes_only_is_cancelled_at_once():
    run = Driven("a:", "b: a")
    run.block("a")
    run.cancel()
    assert (run.record.state, run.states()) == (RunState.CANCELLED, ["CANCELLED", "CANCELLED"])


def test_a_run_is_cancelled_once_its_stages_have_stopped():
    run = Driven("a:", "b: a", "c:", "d: c")
    run.place(a_b="east", c="west", d="east")
    run.start("a")
    run.take(run.begun("a"))
    run.cancel()
    assert run.record.state is RunState.CANCELLING
    assert run.cancelled() == [run.node("a").stage, run.node("c").stage]
    assert run.states() == ["RUNNING", "ASSIGNED", "ASSIGNED", "CANCELLED"]
    run.take(run.failed("a", Reason.CANCELLED_BY_USER), run.ended("a"))
    assert run.record.state is RunState.CANCELLING
    run.take(run.ended("c"))
    assert (run.record.state, set(run.states())) == (RunState.CANCELLED, {"CANCELLED"})
    assert isinstance(run.decisions[-1], ForgetRun)


def test_a_second_wish_to_cancel_changes_nothing():
    run = Driven("a:")
    run.place(a="east")
    run.cancel()
    unchanged(run, CancelRequested(detail="now"))


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(lambda run: [run.ended("a")], id="the stage ends without a word about the node"),
        pytest.param(lambda run: [run.lost("a")], id="the stage is lost"),
        pytest.param(lambda run: [run.failed("a"), run.ended("a")], id="the node fails by itself"),
        pytest.param(lambda run: [run.failed("a", Reason.WORKER_LOST), run.ended("a")], id="the worker dies"),
    ],
)
def test_whatever_comes_while_cancelling_nothing_is_begun_again(last):
    run = Driven("a:", "b: a", a={"retries": 5})
    run.place(a="east", b="west")
    run.start("a")
    run.cancel()
    run.take(*last(run))
    assert run.sent() == []
    assert (run.record.state, run.states()) == (RunState.CANCELLED, ["CANCELLED", "CANCELLED"])


def test_a_node_that_finishes_during_a_cancel_keeps_its_success():
    run = Driven("a:", outputs="a")
    run.place(a="east")
    run.start("a")
    run.cancel()
    run.take(run.done("a"), run.ended("a"))
    assert (run.record.state, run.states()) == (RunState.CANCELLED, ["SUCCEEDED"])


def test_a_run_that_stops_at_a_failure_can_be_cancelled():
    run = Driven("a:", "b:")
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("b"), run.failed("a"))
    run.cancel()
    assert run.record.state is RunState.CANCELLING
    run.take(run.ended("a"))
    assert (run.record.state, run.states()) == (RunState.CANCELLED, ["FAILED", "CANCELLED"])


# -- waiting too long ------------------------------------------------------------------------------------------------------


def in_queue(**fields):
    run = Driven("a:", "b: a", **fields)
    run.place(a_b="east")
    run.take(StageWaiting(stage=run.stage("a").stage, reason=Reason.POOL_BUSY, detail="pool general has 0 cpu free"))
    return run


def at_the_root(**fields):
    run = Driven("a:", "b: a", **fields)
    run.block("a", Reason.MESH_UNREACHABLE, "east is away")
    return run


def at_a_limit(**fields):
    run = Driven("a:", "b: a", **fields)
    run.always = (StartsAllowed(under_way_max=0, reason=Reason.RUNNING_LIMIT, detail="acme runs 1 at a time"),)
    run.take(NodesPlaced(placements={node: Placement(mesh="east", why="") for node in "ab"}))
    return run


@pytest.mark.parametrize(
    ("waiting", "last"),
    [
        pytest.param(in_queue, "POOL_BUSY, pool general has 0 cpu free", id="in the queue of its mesh"),
        pytest.param(at_the_root, "MESH_UNREACHABLE", id="where no mesh takes it"),
        pytest.param(at_a_limit, "RUNNING_LIMIT, acme runs 1 at a time", id="at a limit of its tenant"),
    ],
)
def test_a_wait_beyond_the_maximum_fails_with_time_and_reason(waiting, last):
    run = waiting(a={"retries": 3})
    run.refuse_after(2_000, waited_ms=2_000)
    assert run.states("a") != ["FAILED"]
    change = run.refuse_after(2_000, waited_ms=2_500)
    assert run.states() == ["FAILED", "SKIPPED"]
    assert run.node("a").failure.reason is Reason.WAITED_TOO_LONG
    assert run.node("a").failure.message == f"waited 2.5 s to start; acme allows at most 2 s (last: {last})"
    assert [letter.node for letter in change.dead] == ["a"]


def test_a_refused_queued_stage_ends_the_run_with_the_reason():
    run = in_queue()
    stage = run.stage("a").stage
    run.refuse_after(2_000, waited_ms=2_500)
    assert run.cancelled() == [stage]
    run.take(StageEnded(stage=stage))
    assert (run.record.state, run.record.reason) == (RunState.FAILED, Reason.WAITED_TOO_LONG)


def test_independent_nodes_of_a_refused_stage_are_replanned():
    run = Driven("a:", "b:", "c: a", on_error="continue")
    run.place(a_b_c="east")
    run.node("b").waits_since_ms += 1_000
    run.refuse_after(2_000, waited_ms=2_500)
    assert run.states() == ["FAILED", "WAITING", "SKIPPED"]
    assert len(run.cancelled()) == 1
    assert run.machine.unplaced(MUCH_LATER_MS) == ("b",)


def test_all_that_waits_too_long_in_one_stage_is_refused():
    run = Driven("a:", "b:", on_error="continue")
    run.place(a_b="east")
    run.refuse_after(2_000, waited_ms=2_500)
    assert run.states() == ["FAILED", "FAILED"]
    assert run.record.state is RunState.FAILED


def test_what_runs_is_never_too_late():
    run = in_queue()
    run.start("a")
    run.refuse_after(2_000, waited_ms=9_000)
    assert run.states() == ["ASSIGNED", "ASSIGNED"]


def test_waiting_for_what_it_needs_does_not_count():
    run = Driven("a:", "b: a", on_error="continue")
    run.place(a="east")
    run.block("b")
    run.start("a")
    run.refuse_after(2_000, waited_ms=9_000)
    assert run.states("b") == ["BLOCKED"]
    run.take(run.done("a"), after_ms=9_000)
    run.refuse_after(2_000, waited_ms=10_000)
    assert run.states("b") == ["BLOCKED"]
    run.refuse_after(2_000, waited_ms=11_500)
    assert run.states("b") == ["FAILED"]


def test_waiting_for_an_input_in_a_queue_does_not_count():
    run = Driven("a:", "b1:", "b2: a", on_error="continue", outputs=("a", "b1", "b2"))
    run.place(a="east")
    run.start("a")
    run.place(b1_b2="west")
    run.take(run.done("a"), after_ms=9_000)
    run.refuse_after(2_000, waited_ms=10_000)
    assert run.states("b1", "b2") == ["FAILED", "WAITING"]


def test_time_on_hold_does_not_count():
    run = in_queue()
    run.take(StartsAllowed(under_way_max=0, reason=Reason.TENANT_SUSPENDED, is_shut=True), after_ms=1_500)
    run.block("a", Reason.TENANT_SUSPENDED)
    run.refuse_after(2_000, waited_ms=9_000)
    assert run.states("a") == ["BLOCKED"]


def test_a_wait_goes_on_where_a_mesh_went_away():
    run = in_queue()
    run.take(MeshGone(mesh="east"), after_ms=1_500)
    run.block("a")
    run.refuse_after(2_000, waited_ms=2_500)
    assert run.states("a") == ["FAILED"]


@pytest.mark.parametrize("reason", [Reason.QUOTA_RECLAIMED, Reason.PREEMPTED_WITHIN_TENANT, Reason.MESH_LEFT])
def test_what_gave_way_waits_anew_and_loses_no_attempt(reason):
    run = in_queue()
    run.start("a")
    run.take(run.begun("a"))
    run.take(run.lost("a", reason), after_ms=5_000)
    assert (run.node("a").losses, run.node("a").waits_since_ms) == (0, 0)
    stage = next(iter(run.record.stages.values()))
    assert (stage.state, stage.reason) == (StageState.STOPPED, reason)


def test_a_lost_stage_keeps_the_reason_of_its_loss():
    run = in_queue()
    stage = run.stage("a")
    run.take(StageWaiting(stage=stage.stage, reason=Reason.QUOTA_EXHAUSTED, detail="none left"))
    run.take(MeshGone(mesh="east"))
    assert (stage.state, stage.reason, stage.detail) == (StageState.LOST, Reason.MESH_UNREACHABLE, "")


def test_a_stage_that_ended_in_its_queue_waits_no_more():
    run = in_queue()
    stage = run.stage("a")
    run.cancel()
    run.take(run.ended("a"))
    assert (stage.state, stage.reason) == (StageState.ENDED, None)


def test_a_stage_carries_the_order_of_its_tenant():
    run = Driven("a:")
    rules = PreemptionPolicy(takes=True, min_run_ms=7, reservation_timeout_ms=9)
    run.take(StartsAllowed(preemption=rules), NodesPlaced(placements={"a": Placement(mesh="east", why="")}))
    (sent,) = run.decisions
    assert sent.spec.preemption == rules


# -- the tables ------------------------------------------------------------------------------------------------------------


def drive(*steps, nodes=("a:", "b: a"), on_error="fail_fast", **fields):
    """Return a run after the steps."""
    run = Driven(*nodes, on_error=on_error, **fields)
    for step in steps:
        step(run)
    return run


def placed(run):
    run.place(a_b="east")


def apart(run):
    run.place(a="east", b="west")


def started_a(run):
    run.start("a")


def begun_a(run):
    run.take(run.begun("a"))


def reports(name, *args):
    """Return a step that hands this message of `Driven` to the machine."""
    return lambda run: run.take(getattr(run, name)(*args))


def lose_a_often(run):
    for _ in range(LOSSES_MAX + 1):
        run.place(a_b="east")
        run.start("a")
        run.take(run.lost("a"))


NODE_WAYS = {
    ("WAITING", "BLOCKED"): lambda: drive(lambda run: run.block("a")),
    ("WAITING", "ASSIGNED"): lambda: drive(placed),
    ("WAITING", "FAILED"): lambda: drive(lose_a_often),
    ("WAITING", "SUCCEEDED"): lambda: drive(
        lambda run: run.take(SignalSent(name="go", value=value("a"))), a={"function": SIGNAL, "args": ("go", None)}
    ),
    ("WAITING", "SKIPPED"): lambda: drive(apart, started_a, reports("failed", "a")),
    ("WAITING", "CANCELLED"): lambda: drive(Driven.cancel),
    ("BLOCKED", "WAITING"): lambda: drive(lambda run: run.block("a"), placed),
    ("BLOCKED", "SKIPPED"): lambda: drive(lambda run: run.place(a="east"), lambda run: run.block("b"), started_a, reports("failed", "a")),
    ("BLOCKED", "CANCELLED"): lambda: drive(lambda run: run.block("a"), Driven.cancel),
    ("BLOCKED", "FAILED"): lambda: drive(lambda run: run.block("a"), lambda run: run.refuse_after(10, waited_ms=11)),
    ("ASSIGNED", "WAITING"): lambda: drive(placed, started_a, reports("lost", "a")),
    ("ASSIGNED", "RUNNING"): lambda: drive(placed, started_a, begun_a),
    ("ASSIGNED", "SUCCEEDED"): lambda: drive(placed, started_a, reports("done", "a")),
    ("ASSIGNED", "FAILED"): lambda: drive(placed, started_a, reports("failed", "a")),
    ("ASSIGNED", "SKIPPED"): lambda: drive(placed, started_a, reports("failed", "a")),
    ("ASSIGNED", "CANCELLED"): lambda: drive(placed, Driven.cancel, reports("ended", "a")),
    ("RUNNING", "SUCCEEDED"): lambda: drive(placed, started_a, begun_a, reports("done", "a")),
    ("RUNNING", "FAILED"): lambda: drive(placed, started_a, begun_a, reports("failed", "a")),
    ("RUNNING", "SKIPPED"): lambda: drive(
        lambda run: run.place(a_b="east"), started_a, begun_a, reports("failed", "b"), reports("ended", "a"), nodes=("a:", "b:")
    ),
    ("RUNNING", "CANCELLED"): lambda: drive(placed, started_a, begun_a, Driven.cancel, reports("ended", "a")),
}

STAGE_WAYS = {
    ("PLANNED", "QUEUED"): lambda: drive(placed),
    ("PLANNED", "ENDED"): lambda: drive(apart, Driven.cancel),
    ("QUEUED", "RUNNING"): lambda: drive(placed, started_a),
    ("QUEUED", "ENDED"): lambda: drive(placed, Driven.cancel, reports("ended", "a")),
    ("QUEUED", "LOST"): lambda: drive(placed, lambda run: run.take(MeshGone(mesh="east"))),
    ("RUNNING", "ENDED"): lambda: drive(placed, started_a, reports("ended", "a")),
    ("QUEUED", "STOPPED"): lambda: drive(placed, lambda run: run.take(StartsAllowed(is_shut=True, reason=Reason.TENANT_SUSPENDED))),
    ("RUNNING", "STOPPED"): lambda: drive(placed, started_a, lambda run: run.take(run.lost("a", Reason.MESH_LEFT))),
    ("RUNNING", "LOST"): lambda: drive(placed, started_a, reports("lost", "a")),
}

RUN_WAYS = {
    ("PENDING", "RUNNING"): lambda: drive(placed),
    ("PENDING", "CANCELLED"): lambda: drive(Driven.cancel),
    ("RUNNING", "CANCELLING"): lambda: drive(placed, Driven.cancel),
    ("RUNNING", "SUCCEEDED"): lambda: drive(placed, lambda run: run.finish("a", "b"), reports("ended", "a")),
    ("RUNNING", "FAILED"): lambda: drive(placed, started_a, reports("failed", "a"), reports("ended", "a")),
    ("CANCELLING", "CANCELLED"): lambda: drive(placed, Driven.cancel, reports("ended", "a")),
}


@pytest.mark.parametrize(
    ("ways", "table"),
    [
        pytest.param(NODE_WAYS, NODE_TRANSITIONS, id="nodes"),
        pytest.param(STAGE_WAYS, STAGE_TRANSITIONS, id="stages"),
        pytest.param(RUN_WAYS, RUN_TRANSITIONS, id="runs"),
    ],
)
def test_the_tables_have_the_rows_that_are_taken_and_no_others(ways, table):
    assert set(ways) == {(before.value, after.value) for before, row in table.items() for after in row}


@pytest.mark.parametrize(
    ("kind", "row", "way"),
    [
        pytest.param(kind, row, way, id=f"a {kind} from {row[0]} to {row[1]}")
        for kind, ways in (("node", NODE_WAYS), ("stage", STAGE_WAYS), ("run", RUN_WAYS))
        for row, way in ways.items()
    ],
)
def test_every_row_of_the_tables_is_taken(kind, row, way):
    assert row in {(event.before, event.after) for event in way().events if event.kind == kind}


def _move_node(run, before, after):
    run.node("a").state = before
    StateWriter(run.record).node(run.node("a"), after)


def _move_stage(run, before, after):
    run.stage("a").state = before
    StateWriter(run.record).stage(run.stage("a"), after)


def _move_run(run, before, after):
    run.record.state = before
    StateWriter(run.record).run(after)


@pytest.mark.parametrize(
    ("table", "move"),
    [
        pytest.param(NODE_TRANSITIONS, _move_node, id="nodes"),
        pytest.param(STAGE_TRANSITIONS, _move_stage, id="stages"),
        pytest.param(RUN_TRANSITIONS, _move_run, id="runs"),
    ],
)
def test_every_move_that_is_no_row_is_refused(table, move):
    for before, row in table.items():
        for after in table:
            if after is not before and after not in row:
                run = drive(placed)
                with pytest.raises(IllegalTransition, match=f"cannot go from {before.value} to {after.value}"):
                    move(run, before, after)


def test_a_node_that_ends_stays_ended():
    run = drive(placed, lambda run: run.finish("a", "b"), reports("ended", "a"))
    assert all(node.state in NODE_ENDS for node in run.record.nodes.values())
    assert run.record.nodes["a"].state is NodeState.SUCCEEDED


def test_waiting_on_meshes_that_are_lost_costs_no_attempt():
    run = Driven("a:")
    for _ in range(LOSSES_MAX + 2):
        run.place(a="gone")
        run.take(MeshGone(mesh="gone"))
    assert run.states() == ["WAITING"]
    assert (run.node("a").losses, run.machine.unplaced(MUCH_LATER_MS)) == (0, ("a",))


def too_large(run):
    run.block("b", Reason.NO_NODE_FITS, "east: no node fits")


def away(run):
    run.block("a", Reason.MESH_UNREACHABLE, "east is away")


def in_its_queue(run):
    run.place(a="east")


def refused_in_its_queue(run):
    in_its_queue(run)
    run.take(StageWaiting(stage=run.stage("a").stage, reason=Reason.QUOTA_TOO_SMALL, detail="never"))


def failed_once(run):
    started_a(run)
    run.take(run.failed("a"), run.ended("a"))


@pytest.mark.parametrize(
    ("steps", "state", "reason"),
    [
        pytest.param([], RunState.PENDING, None, id="nothing is planned"),
        pytest.param([too_large], RunState.BLOCKED, Reason.NO_NODE_FITS, id="no mesh will ever fit"),
        pytest.param([too_large, away], RunState.WAITING, Reason.MESH_UNREACHABLE, id="a part may pass"),
        pytest.param([too_large, in_its_queue], RunState.WAITING, None, id="a part has just been sent"),
        pytest.param([too_large, refused_in_its_queue], RunState.BLOCKED, Reason.NO_NODE_FITS, id="its mesh refuses for good too"),
        pytest.param([too_large, in_its_queue, started_a], RunState.RUNNING, Reason.NO_NODE_FITS, id="a part runs"),
        pytest.param([too_large, in_its_queue, failed_once], RunState.WAITING, None, id="a part waits for its retry"),
    ],
)
def test_a_run_is_shown_as_it_is_when(steps, state, reason):
    run = drive(*steps, nodes=("a:", "b:"), on_error="continue", a={"retries": 1})
    assert (shown_state(run.record), run.record.reason) == (state, reason)
