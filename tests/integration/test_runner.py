"""Stage runner on a real cluster."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import psutil
import pytest
import ray
from patience import PATIENCE_S, eventually

from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.core.wire import decode, encode
from mesh.ray.worker.exporting import export, import_value
from mesh.stages.messages import STAGE_MESSAGE, InputLost, NodeFailed, NodeStarted, NodeSucceeded, StageEnded

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray

REF_A = {"$ref": "a"}


class Strange(Exception):
    """Exception of a class that no worker can import."""


def add(*numbers):
    return sum(numbers)


def give(value):
    return value


def fail(text="no"):
    raise ValueError(text)


def return_error():
    return Strange("I am a result")


def wait_for(path, value):
    while not Path(path).exists():
        time.sleep(0.01)
    return value


def wait_in_python(started, stopped):
    try:
        Path(started).touch()
        while True:
            time.sleep(0.01)
    finally:
        Path(stopped).touch()


def wait_in_a_call(call, started, stopped):
    calls = {
        "time.sleep": lambda: time.sleep(600),
        "threading.Event().wait": lambda: threading.Event().wait(600),
        "subprocess.run": lambda: subprocess.run(["sleep", "600"], check=True),
    }
    try:
        Path(started).touch()
        calls[call]()
    finally:
        Path(stopped).touch()


def wait_in_c(started):
    Path(started).write_text(str(psutil.Process().pid))
    Path(started).rename(f"{started}.whole")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # It handles no signal until it returns.


def answer(message, runner_log):
    """Return the value that a message carries."""
    assert isinstance(message, NodeSucceeded), message
    return import_value(message.stored, runner_log.blobs.get(message.stored.sha256))


def delivered(value, tmp_path, run="other", node="x", limit=64 * 1024):
    stored, data = export(value, run=run, node=node, storage_url=tmp_path.as_uri(), inline_limit_bytes=limit)
    return encode(stored), data


# -- values --------------------------------------------------------------------------------------------------------------


def test_values_flow_between_tasks_and_all_arguments_arrive(runner_log, task):
    stage = runner_log.start(
        task("a", runner_log.function(give), {"$tuple": [1, {"$$ref": "plain"}]}),
        task(
            "b",
            runner_log.function(give),
            {"first": REF_A, "part": {"$ref": "a", "path": [1, "$ref"]}, "uri": {"$uri": "s3://x"}},
            inputs=("a",),
        ),
        task("c", runner_log.function(give), [{"$ref": "b"}, runner_log.argument({3, 4}), REF_A], inputs=("b", "a"), export=True),
        run="flow",
    )
    ended = runner_log.end(stage)
    assert answer(ended["c"], runner_log) == [
        {"first": (1, {"$ref": "plain"}), "part": "plain", "uri": "s3://x"},
        {3, 4},
        (1, {"$ref": "plain"}),
    ]
    assert ended["a"].stored is None
    assert ended["a"].started_ms <= ended["a"].finished_ms <= ended["b"].finished_ms


def test_a_large_pickled_argument_and_a_large_value_pass_whole(runner_log, task):
    stage = runner_log.start(
        task("a", runner_log.function(give), runner_log.argument(b"x" * 300_000)),
        task("b", runner_log.function(len), REF_A, inputs=("a",), export=True),
        run="large",
    )
    assert answer(runner_log.end(stage)["b"], runner_log) == 300_000


def test_what_one_reader_does_to_a_value_no_other_sees(runner_log, task):
    def spoil(numbers):
        numbers.clear()
        return len(numbers)

    stage = runner_log.start(
        task("a", runner_log.function(give), [1, 2, 3]),
        task("b", runner_log.function(spoil), REF_A, inputs=("a",)),
        task("c", runner_log.function(len), REF_A, inputs=("a",), after=("b",), export=True),
        run="spoil",
    )
    assert answer(runner_log.end(stage)["c"], runner_log) == 3


def test_a_returned_exception_is_a_value(runner_log, task):
    ended = runner_log.end(runner_log.start(task("a", runner_log.function(return_error), export=True), run="error-value"))
    value = answer(ended["a"], runner_log)
    assert (type(value).__name__, str(value)) == ("Strange", "I am a result")


def test_small_values_are_returned_and_large_ones_stored(runner_log, task):
    stage = runner_log.start(
        task("small", runner_log.function(give), {"n": [1, 2.5, None, True, "ä"]}, export=True),
        task("large", runner_log.function(give), runner_log.argument(bytes(200_000)), export=True),
        run="export",
    )
    ended = runner_log.end(stage)
    assert (ended["small"].stored.encoding.value, ended["small"].stored.uri) == ("json", None)
    assert json.loads(runner_log.blobs[ended["small"].stored.sha256]) == {"n": [1, 2.5, None, True, "ä"]}
    assert ended["large"].stored.uri.startswith(runner_log.storage.as_uri())
    assert answer(ended["large"], runner_log) == bytes(200_000)


@pytest.mark.parametrize("leaves", [pytest.param(True, id="when it leaves the mesh"), pytest.param(False, id="when it stays on the mesh")])
@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(threading.Lock, "lock", id="a lock"),
        pytest.param(lambda: (n for n in range(3)), "generator", id="a generator"),
        pytest.param(lambda: [ray.put(1)], "ObjectRef", id="a reference of Ray's inside a list"),
    ],
)
def test_a_result_that_cannot_be_sent_fails_its_task_alone(runner_log, task, make, named, leaves):
    stage = runner_log.start(
        task("bad", runner_log.function(make), export=leaves),
        task("behind", runner_log.function(give), {"$ref": "bad"}, inputs=("bad",)),
        task("good", runner_log.function(give), 1),
        run=f"bad-{named}-{leaves}",
    )
    ended = runner_log.end(stage)
    assert ended["bad"].failure.reason is Reason.RESULT_UNSERIALIZABLE
    assert named in ended["bad"].failure.message
    assert isinstance(ended["good"], NodeSucceeded)
    assert "behind" not in ended


# -- failures ------------------------------------------------------------------------------------------------------------


def test_no_task_begins_while_many_reports_are_unconfirmed(runner_log_with_small_outbox, task):
    log = runner_log_with_small_outbox
    give_bytes, data = log.function(give), log.argument(b"x" * 50_000)
    names = [f"t{place}" for place in range(5)]
    tasks = [task(name, give_bytes, data, after=names[place - 1 : place] if place else (), export=True) for place, name in enumerate(names)]
    stage = log.start(*tasks, run="unconfirmed")
    log.until(stage, lambda message: isinstance(message, NodeSucceeded) and message.node == "t1")
    assert ray.get(log.actor.next_batch.remote(1.0)) == []
    heard = {stage: 100}  # All that came so far.
    while not any(isinstance(message, StageEnded) for message in log.messages[stage]):
        for stage_id, number, messages, *_ in ray.get(log.actor.next_batch.remote(1.0, 0, heard)):
            log.messages[stage_id] += (decode(STAGE_MESSAGE, message) for message in messages)
            heard = {stage: number}
    assert [message.node for message in log.messages[stage] if isinstance(message, NodeSucceeded)] == names


def test_a_failure_is_reported_once_and_drops_its_dependents(runner_log, task):
    stage = runner_log.start(
        task("a", runner_log.function(fail), "broken pipe"),
        task("b", runner_log.function(give), REF_A, inputs=("a",)),
        task("c", runner_log.function(add), 1, after=("b",)),
        task("d", runner_log.function(add), 2),
        run="fail",
    )
    ended = runner_log.end(stage)
    failure = ended["a"].failure
    assert (failure.reason, failure.type_name, failure.message) == (Reason.USER_ERROR, "builtins.ValueError", "broken pipe")
    assert "raise ValueError(text)" in failure.traceback
    assert "execution.py" not in failure.traceback
    error = pickle.loads(runner_log.blobs[failure.pickled.sha256])  # noqa: S301 - made by this test
    assert (type(error), error.args) == (ValueError, ("broken pipe",))
    assert set(ended) == {"a", "d"}


def test_a_failure_names_the_classes_above_its_own(runner_log, task):
    def refuse():
        raise ConnectionResetError("again, please")

    ended = runner_log.end(runner_log.start(task("a", runner_log.function(refuse)), run="bases"))["a"].failure
    assert (ended.type_name, ended.bases) == (
        "builtins.ConnectionResetError",
        ("builtins.ConnectionError", "builtins.OSError", "builtins.Exception"),
    )


def test_a_worker_leaves_after_its_maximum_of_calls(runner_log, task):
    function = runner_log.function(lambda before: (*before, os.getpid()))
    tasks = [task("n0", function, {"$tuple": []}, ray_options={"max_calls": 1})]
    tasks += [
        task(f"n{place}", function, {"$ref": f"n{place - 1}"}, inputs=(f"n{place - 1}",), export=place == 3, ray_options={"max_calls": 1})
        for place in (1, 2, 3)
    ]
    pids = answer(runner_log.end(runner_log.start(*tasks, run="max-calls"))["n3"], runner_log)
    assert len(set(pids)) == 4


def init_and_shut_down():
    """Call Ray as a script does at its begin and end."""
    ray.init()
    here = ray.init(address="auto", ignore_reinit_error=True).address_info["gcs_address"]
    ray.init(num_cpus=64, namespace="mine")
    ray.shutdown()
    value = ray.get(ray.put(42))  # The connection is the same as before.
    try:
        ray.init("192.0.2.1:6379")
    except RuntimeError as refused:
        return value, here, str(refused)


def test_a_task_may_call_init_and_shutdown_of_ray(runner_log, task, ray_cluster):
    ended = runner_log.end(runner_log.start(task("a", runner_log.function(init_and_shut_down), export=True), run="init"))["a"]
    value, here, refused = answer(ended, runner_log)
    assert (value, here.rpartition(":")[2]) == (42, ray_cluster.address.rpartition(":")[2])
    assert "leave the address out" in refused


@pytest.mark.parametrize(
    ("function", "arg", "reason", "words"),
    [
        pytest.param(lambda _: sys.exit(3), 1, Reason.USER_ERROR, "3", id="a task that exits has failed by itself"),
        pytest.param(lambda _: psutil.Process().kill(), 1, Reason.WORKER_LOST, "died", id="a killed worker is a lost worker"),
        pytest.param("call:no_such_module:f", 1, Reason.CODE_UNAVAILABLE, "no_such_module", id="a module that is not there"),
        pytest.param("call:math:no_such_name", 1, Reason.CODE_UNAVAILABLE, "no_such_name", id="a name that is not there"),
        pytest.param("blob:" + "0" * 64, 1, Reason.CODE_UNAVAILABLE, "did not come", id="code that did not come with the stage"),
        pytest.param(give, {"$blob": "0" * 64}, Reason.VALUE_LOST, "did not come", id="an argument that did not come with the stage"),
        pytest.param(give, {"$oops": 1}, Reason.USER_ERROR, "$oops", id="an unknown argument form"),
    ],
)
def test_each_way_to_fail_has_its_reason(runner_log, task, function, arg, reason, words):
    key = function if isinstance(function, str) else runner_log.function(function)
    ended = runner_log.end(runner_log.start(task("a", key, arg), task("b", runner_log.function(give), REF_A, inputs=("a",)), run="ways"))
    assert set(ended) == {"a"}
    assert ended["a"].failure.reason is reason
    assert words in ended["a"].failure.message


def test_what_ray_refuses_fails_its_task_alone(runner_log, task):
    stage = runner_log.start(
        task("a", runner_log.function(give), 1, ray_options={"no_such_option": 1}),
        task("b", runner_log.function(give), REF_A, inputs=("a",)),
        task("c", runner_log.function(give), 1),
        run="refused",
    )
    ended = runner_log.end(stage)
    assert "no_such_option" in ended["a"].failure.message
    assert set(ended) == {"a", "c"}


def test_functions_are_imported_by_name_remote_ones_as_plain(runner_log, task):
    ended = runner_log.end(
        runner_log.start(task("a", "call:math:hypot", 3, 4, export=True), task("b", runner_log.function(ray.remote(add)), 1, 2), run="call")
    )
    assert answer(ended["a"], runner_log) == 5.0
    assert isinstance(ended["b"], NodeSucceeded)


# -- inputs from outside -------------------------------------------------------------------------------------------------


def test_a_late_input_holds_up_only_what_reads_it(runner_log, task, tmp_path):
    stage = runner_log.start(
        task("late1", runner_log.function(add), {"$ref": "x"}, 1, inputs=("x",)),
        task("late2", runner_log.function(add), {"$ref": "late1"}, 1, inputs=("late1",), export=True),
        task("soon1", runner_log.function(add), 1, 1),
        task("soon2", runner_log.function(add), {"$ref": "soon1"}, 1, inputs=("soon1",)),
        run="lanes",
    )
    runner_log.until(stage, lambda message: isinstance(message, NodeSucceeded) and message.node == "soon2")
    assert {message.node for message in runner_log.messages[stage]} == {"soon1", "soon2"}
    runner_log.actor.deliver.remote(stage, "x", *delivered(40, tmp_path))
    assert answer(runner_log.end(stage)["late2"], runner_log) == 42


@pytest.mark.parametrize("limit", [pytest.param(64 * 1024, id="through the control store"), pytest.param(0, id="through a file")])
def test_an_input_known_at_the_start_reaches_all_readers(runner_log, task, tmp_path, limit):
    value = {"pairs": [(1, 2), (3, 4)]}
    stage = runner_log.start(
        task("a", runner_log.function(give), {"$ref": "x", "path": ["pairs", 0]}, inputs=("x",), export=True),
        task("b", runner_log.function(give), {"$ref": "x"}, inputs=("x",), export=True),
        run=f"inputs-{limit}",
        inputs={"x": delivered(value, tmp_path, limit=limit)},
    )
    ended = runner_log.end(stage)
    assert answer(ended["a"], runner_log) == (1, 2)
    assert answer(ended["b"], runner_log) == value


@pytest.mark.parametrize("harm", [pytest.param("removed", id="the file is gone"), pytest.param("altered", id="the file was altered")])
def test_an_unreadable_input_is_reported_and_fails_its_readers(runner_log, task, tmp_path, harm):
    stored_json, _ = delivered(list(range(1000)), tmp_path, limit=0)
    file = next(path for path in (tmp_path / "other").iterdir())
    file.unlink() if harm == "removed" else file.write_bytes(b"?" * file.stat().st_size)
    stage = runner_log.start(
        task("a", runner_log.function(give), {"$ref": "x"}, inputs=("x",)),
        task("b", runner_log.function(give), 1),
        run=f"harm-{harm}",
        inputs={"x": (stored_json, None)},
    )
    ended = runner_log.end(stage)
    assert isinstance(ended["x"], InputLost)
    assert ended["a"].failure.reason is Reason.VALUE_LOST
    assert isinstance(ended["b"], NodeSucceeded)


def test_an_input_that_will_not_come_drops_what_waits_for_it(runner_log, task):
    stage = runner_log.start(
        task("a", runner_log.function(give), {"$ref": "x"}, inputs=("x",)),
        task("b", runner_log.function(give), REF_A, inputs=("a",)),
        task("c", runner_log.function(give), 1),
        run="withheld",
        inputs={"x": (None, None)},
    )
    assert set(runner_log.end(stage)) == {"c"}


def test_what_only_comes_after_an_outside_node_needs_no_value(runner_log, task):
    missing = StoredValue(sha256="0" * 64, size_bytes=1, encoding=Encoding.JSON, uri="file:///nowhere")
    stage = runner_log.start(task("a", runner_log.function(give), 1, after=("x",)), run="after", inputs={"x": (encode(missing), None)})
    assert isinstance(runner_log.end(stage)["a"], NodeSucceeded)


# -- several stages of a run -----------------------------------------------------------------------------------------------


def test_a_later_stage_reads_values_until_the_run_is_forgotten(runner_log, task):
    runner_log.end(runner_log.start(task("a", runner_log.function(give), 20), run="two"))
    second = runner_log.start(task("b", runner_log.function(add), REF_A, 1, inputs=("a",), export=True), run="two")
    assert answer(runner_log.end(second)["b"], runner_log) == 21
    ray.get(runner_log.actor.forget.remote("two"))
    third = runner_log.start(task("c", runner_log.function(add), REF_A, inputs=("a",)), run="two")
    runner_log.actor.deliver.remote(third, "a", None, None)
    assert runner_log.end(third) == {}


def test_a_stage_waits_for_a_running_task_of_another_stage(runner_log, task, tmp_path):
    gate = tmp_path / "gate"
    first = runner_log.start(task("a", runner_log.function(wait_for), str(gate), 5), run="pair")
    second = runner_log.start(task("b", runner_log.function(add), REF_A, 1, inputs=("a",), export=True), run="pair")
    runner_log.until(first, lambda message: isinstance(message, NodeStarted))
    assert second not in runner_log.messages
    gate.touch()
    assert answer(runner_log.end(second)["b"], runner_log) == 6


def test_forgotten_values_leave_the_object_store(runner_log, task, ray_driver):
    def free_bytes():
        return ray.available_resources().get("object_store_memory", 0)

    before = eventually(free_bytes)
    runner_log.end(runner_log.start(task("a", runner_log.function(bytes), 40_000_000), run="heavy"))
    eventually(lambda: free_bytes() < before - 30_000_000)  # Ray's numbers lag.
    ray.get(runner_log.actor.forget.remote("heavy"))
    eventually(lambda: free_bytes() > before - 10_000_000)


# -- many, long, cancelled -------------------------------------------------------------------------------------------------


def test_each_task_of_a_wide_fan_is_reported_once(runner_log, task):
    wide = [task(f"n{index}", runner_log.function(add), index, 1) for index in range(300)]
    total = [{"$ref": f"n{index}"} for index in range(300)]
    stage = runner_log.start(
        *wide, task("sum", runner_log.function(add), *total, inputs=tuple(f"n{n}" for n in range(300)), export=True), run="fan"
    )
    assert answer(runner_log.end(stage)["sum"], runner_log) == sum(range(300)) + 300
    nodes = [message.node for message in runner_log.messages[stage][:-1] if isinstance(message, NodeSucceeded)]
    assert len(nodes) == len(set(nodes)) == 301


def test_a_long_task_tells_that_it_has_started(runner_log, task, tmp_path):
    gate = tmp_path / "gate"
    stage = runner_log.start(task("a", runner_log.function(wait_for), str(gate), 1), run="long")
    started = runner_log.until(stage, lambda message: isinstance(message, NodeStarted))
    gate.touch()
    assert runner_log.end(stage)["a"].started_ms == started.started_ms


def test_cancel_interrupts_python_code_which_may_clean_up(runner_log, task, tmp_path):
    started, stopped = tmp_path / "started", tmp_path / "stopped"
    stage = runner_log.start(
        task("a", runner_log.function(wait_in_python), str(started), str(stopped)),
        task("b", runner_log.function(give), REF_A, inputs=("a",)),
        run="cancel",
    )
    runner_log.until(stage, lambda message: isinstance(message, NodeStarted))
    eventually(started.exists)  # The start is timed by the clock, even if the code is slow.
    runner_log.actor.cancel.remote(stage, 600.0)
    ended = runner_log.end(stage)
    assert ended["a"].failure.reason is Reason.CANCELLED_BY_USER
    eventually(stopped.exists)  # Ray reports the end a moment before the code has cleaned up.
    assert "b" not in ended


@pytest.mark.parametrize("call", ["time.sleep", "threading.Event().wait", "subprocess.run"])
def test_cancel_interrupts_a_call_that_waits(runner_log, task, tmp_path, call):
    started, stopped = tmp_path / "started", tmp_path / "stopped"
    stage = runner_log.start(task("a", runner_log.function(wait_in_a_call), call, str(started), str(stopped)), run=f"cancel-{call}")
    runner_log.until(stage, lambda message: isinstance(message, NodeStarted))
    eventually(started.exists)
    runner_log.actor.cancel.remote(stage, 600.0)  # Longer than the test may take: no process is killed.
    assert runner_log.end(stage)["a"].failure.reason is Reason.CANCELLED_BY_USER
    eventually(stopped.exists)


def test_cancel_ends_a_task_that_is_inside_a_c_call(runner_log, task, tmp_path):
    started = tmp_path / "started"
    stage = runner_log.start(task("a", runner_log.function(wait_in_c), str(started)), run="cancel-c")
    runner_log.until(stage, lambda message: isinstance(message, NodeStarted))
    eventually((tmp_path / "started.whole").exists)
    worker = psutil.Process(int((tmp_path / "started.whole").read_text()))
    runner_log.actor.cancel.remote(stage, 0.2)
    assert runner_log.end(stage)["a"].failure.reason is Reason.CANCELLED_BY_USER
    assert psutil.wait_procs([worker], timeout=PATIENCE_S)[1] == []


def test_a_runner_survives_the_cancelling_of_new_tasks(runner_log_on_slow_ray, task):
    runner_log = runner_log_on_slow_ray
    runner_log.end(runner_log.start(task("a", runner_log.function(give), 1), run="new"))
    readers = [task(f"n{index}", runner_log.function(give), REF_A, inputs=("a",)) for index in range(60)]
    assert len(runner_log.end(runner_log.start(*readers, run="new", cancelled=True))) < 60


def test_a_task_cancelled_from_outside_is_reported_as_cancelled(runner_log, task):
    def cancel_myself():
        raise KeyboardInterrupt

    ended = runner_log.end(runner_log.start(task("a", runner_log.function(cancel_myself)), run="self"))
    assert isinstance(ended["a"], NodeFailed)
    assert ended["a"].failure.reason is Reason.CANCELLED_BY_USER


def test_a_stage_with_nothing_to_wait_for_ends_on_cancel(runner_log, task):
    stage = runner_log.start(task("a", runner_log.function(give), {"$ref": "x"}, inputs=("x",)), run="idle")
    runner_log.actor.cancel.remote(stage, 5.0)
    assert runner_log.end(stage) == {}


def test_a_stage_of_another_tenant_is_refused(runner_log, task, monkeypatch):
    monkeypatch.setattr(runner_log, "tenant", "acme/strangers")
    with pytest.raises(ValueError, match="acme/strangers"):
        runner_log.start(task("a", runner_log.function(give), 1), run="foreign")
