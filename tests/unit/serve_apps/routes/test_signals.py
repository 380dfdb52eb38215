"""Signals over HTTP, in Python and through coordinators, on stores in memory."""

import pytest

import dag
from dag.errors import ApiError, GraphTypeError, RunFailed, SignalConflict, UnknownSignal
from dag.run.states import RunState
from mesh.core.reasons import Reason
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld
from serve_apps.routes.signals import SIGNAL_BYTES_MAX


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


@pytest.fixture
def run(world):
    """A run that waits for `approve` first, with the value of the signal as its output."""
    started = world.client().submit(dag.wait_signal("approve"), id="night")
    step(world)
    return started


def step(world):
    """Let a new coordinator do all that is to do, as after the end of the one before."""
    coordinator = world.coordinator()
    coordinator.step(0)
    coordinator.tick()


def test_a_wait_shows_its_reason(world, run):
    line = world.client().ask(f"{run.path}/summary")
    assert (line["state"], line["reason"], line["detail"]) == ("WAITING", "WAITING_FOR_SIGNAL", "signal approve")
    for path in (run.path, f"{run.path}/explain"):
        (waiting,) = world.client().ask(path)["waiting"]
        assert (waiting["reason"], waiting["nodes"]) == ("WAITING_FOR_SIGNAL", ["approve"])


@pytest.mark.parametrize("value", [True, None, 0, "", [], {"by": ["Ada", 1.5]}], ids=repr)
def test_the_value_of_a_signal_is_that_of_its_node(world, run, value):
    assert run.signal("approve", value) == {"id": "night", "signal": "approve", "nodes": ["approve"], "repeated": False}
    step(world)
    assert run.status is RunState.SUCCEEDED
    assert run.result() == value


def test_an_empty_body_is_true(world, run):
    assert world.http().post(f"{run.path}/signals/approve").status_code == 202
    step(world)
    assert run.result() is True


def test_a_signal_before_the_coordinator_begins_is_kept(world):
    run = world.client().submit(dag.wait_signal("approve"), id="night")
    run.signal("approve", "early")
    step(world)
    assert run.result() == "early"


def test_the_same_signal_again_changes_nothing(world, run):
    assert not run.signal("approve", 1)["repeated"]
    assert run.signal("approve", 1)["repeated"]
    step(world)
    assert run.signal("approve", 1)["repeated"]
    assert world.http().post(f"{run.path}/signals/approve", json=1).status_code == 200
    assert run.result() == 1


def test_another_value_than_before_is_a_conflict(world, run):
    run.signal("approve", 1)
    step(world)
    with pytest.raises(SignalConflict, match="with another value before"):
        run.signal("approve", 2)


def test_two_values_at_once_are_a_conflict(world, run):
    run.signal("approve", 1)
    with pytest.raises(SignalConflict, match="with another value before"):
        run.signal("approve", 2)
    step(world)
    assert run.result() == 1


def test_a_name_that_nothing_waits_for_is_refused_with_a_hint(world, run):
    with pytest.raises(UnknownSignal, match="did you mean approve"):
        run.signal("aprove")


def test_a_signal_after_the_end_of_its_nodes_is_refused(world, run):
    run.cancel()
    step(world)
    with pytest.raises(SignalConflict, match="no longer waits"):
        run.signal("approve")


@pytest.mark.parametrize("body", [b"{", b"NaN", b"1 2"])
def test_a_body_that_is_no_json_is_refused(world, run, body):
    assert world.http().post(f"{run.path}/signals/approve", content=body).json()["code"] == "malformed_json"


def test_a_large_value_is_refused(world, run):
    assert world.http().post(f"{run.path}/signals/approve", json="x" * SIGNAL_BYTES_MAX).status_code == 413
    with pytest.raises(GraphTypeError, match="64 KiB"):
        run.signal("approve", "x" * SIGNAL_BYTES_MAX)
    with pytest.raises(GraphTypeError, match="plain JSON data"):
        run.signal("approve", object())


def test_a_sleep_ends_though_coordinators_come_and_go(world):
    run = world.client().submit(dag.sleep(60), id="night")
    step(world)
    assert world.client().ask(f"{run.path}/summary")["reason"] == Reason.SLEEPING.value
    world.clock.advance(59_000)
    step(world)
    assert run.status is RunState.WAITING
    world.clock.advance(1_000)
    step(world)
    assert (run.status, run.result()) == (RunState.SUCCEEDED, None)


def test_a_signal_that_does_not_come_fails_the_run(world):
    run = world.client().submit(dag.wait_signal("approve", timeout=5), id="night")
    step(world)
    world.clock.advance(5_000)
    step(world)
    with pytest.raises(RunFailed, match=r"signal approve did not come within 5 s") as failed:
        run.result()
    assert failed.value.failures[0].reason == "SIGNAL_TIMED_OUT"


def test_an_output_of_a_branch_not_taken_is_none(world):
    answer = dag.wait_signal("approve")
    yes, no = dag.wait_signal("yes"), dag.wait_signal("no")
    run = world.client().submit({"chosen": dag.cond(answer, yes, no), "yes": yes, "no": no}, id="night")
    run.signal("no", "stays")
    step(world)
    run.signal("approve", False)
    step(world)
    assert run.result() == {"chosen": "stays", "no": "stays", "yes": None}


def test_a_cond_that_waits_for_its_own_branch_is_refused(world):
    test, branch = dag.wait_signal("test"), dag.wait_signal("branch")
    with pytest.raises(ApiError, match=r"in a circle: branch -> \[cond-2 decides\] -> \[cond decides\] -> branch"):
        world.client().submit(dag.cond(branch, dag.cond(test, branch)))
    nodes = {name: {"wait_signal": {"name": name}} for name in ("test", "branch")}
    nodes["inner"] = {"cond": {"if": {"$ref": "test"}, "then": {"$ref": "branch"}}}
    nodes["outer"] = {"cond": {"if": {"$ref": "branch"}, "then": {"$ref": "inner"}}}
    body = {"spec": "dag/1", "tenant": RESEARCH, "nodes": nodes, "outputs": {"outer": {"$ref": "outer"}}}
    (problem,) = world.http().post("/v1/runs", json=body).json()["problems"]
    words = "the graph runs in a circle: branch -> [outer decides] -> [inner decides] -> branch"
    assert problem == {"place": "/nodes/branch", "problem": words}


def test_a_cond_that_a_branch_only_reads_is_checked_too(world):
    test, branch = dag.wait_signal("test"), dag.wait_signal("branch")
    reads = dag.after(dag.wait_signal("reads"), dag.cond(test, branch))
    with pytest.raises(ApiError, match=r"in a circle: branch -> \[cond-2 decides\] -> \[cond decides\] -> branch"):
        world.client().submit(dag.cond(branch, reads))


def test_a_branch_of_two_conds_runs_for_either(world):
    first, second, branch = (dag.wait_signal(name) for name in ("first", "second", "branch"))
    run = world.client().submit(dag.cond(first, dag.cond(second, branch), branch), id="night")
    for name, value in (("first", False), ("second", False), ("branch", "taken")):
        run.signal(name, value)
        step(world)
    assert run.result() == "taken"
