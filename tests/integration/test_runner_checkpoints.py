"""Checkpoints of a stage's tasks on a real cluster: saved, read by the next attempt, and the request to stop."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import signal
import sys
import time
from pathlib import Path

import cloudpickle
import pytest
import ray
from patience import eventually

import mesh
from mesh.core.reasons import Reason
from mesh.core.values import Encoding, StoredValue
from mesh.ray.worker.exporting import import_value
from mesh.stages.messages import CheckpointRefused, NodeCheckpoint, NodeProgress, NodeSucceeded

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray


def count_to(goal, gate, size=0):
    """Count up from the checkpoint, past each number for which the gate has a file; return the first number and the goal."""
    task = mesh.current_task()
    first, _ = task.last_checkpoint() or (0, b"")
    for number in range(first, goal):
        while not Path(gate, str(number)).exists():
            task.stop_if_asked()
            time.sleep(0.01)
        task.save_checkpoint((number + 1, os.urandom(size)))
        task.report_progress(number + 1, of=goal)
    return [first, goal]


def ask_and_return(value):
    task = mesh.current_task()
    task.report_progress(0.5)
    while not task.should_stop():
        time.sleep(0.01)
    task.save_checkpoint(value)
    return "no result"


def never_ask():
    return 1


@pytest.fixture
def gate(tmp_path):
    def open_up_to(number):
        for each in range(number):
            (tmp_path / str(each)).touch()
        return str(tmp_path)

    return open_up_to


def saved(runner_log, stage, number):
    """Return the checkpoint of this count, once it is reported."""

    def is_it(message):
        return isinstance(message, NodeCheckpoint) and value_of(message, runner_log)[0] == number

    return runner_log.until(stage, is_it)


def value_of(message, runner_log):
    return import_value(message.stored, runner_log.blobs.get(message.stored.sha256))


def result_of(message, runner_log):
    assert isinstance(message, NodeSucceeded), message
    return value_of(message, runner_log)


def counting(runner_log, task, gate, goal=4, **options):
    return task("a", runner_log.function(count_to), goal, gate, options.pop("size", 0), export=True, **options)


def next_attempt(runner_log, task, gate, message, **options):
    """Start the second attempt from the reported checkpoint, as the root does."""
    data = runner_log.blobs.get(message.stored.sha256)
    if data is not None:
        runner_log.code[message.stored.sha256] = data
    return runner_log.start(counting(runner_log, task, gate, attempt=2, checkpoint=message.stored, **options), run="count")


@pytest.mark.parametrize("size", [0, 200_000], ids=["in the control store", "in a file"])
def test_a_later_attempt_goes_on_from_the_checkpoint(runner_log, task, gate, size):
    stage = runner_log.start(counting(runner_log, task, gate(2), size=size), run="count")
    message = saved(runner_log, stage, 2)
    assert (message.stored.uri is not None) == bool(size)
    runner_log.actor.cancel.remote(stage, 600.0)
    assert runner_log.end(stage)["a"].failure.reason is Reason.CANCELLED_BY_USER
    again = next_attempt(runner_log, task, gate(4), message)
    assert result_of(runner_log.end(again)["a"], runner_log) == [2, 4]


def test_the_last_checkpoint_is_reported_before_the_failure(runner_log, task):
    def fail_after_saving():
        mesh.current_task().save_checkpoint((7, b""))
        raise OSError

    stage = runner_log.start(task("a", runner_log.function(fail_after_saving)), run="fails")
    assert runner_log.end(stage)["a"].failure.reason is Reason.USER_ERROR
    kinds = [message.kind for message in runner_log.messages[stage]]
    assert kinds.index("node_checkpoint") < kinds.index("node_failed")


def test_a_killed_worker_loses_nothing_that_was_reported(runner_log, task, gate):
    def count_and_tell(folder):
        Path(folder, "pid").write_text(str(os.getpid()))
        return count_to(4, folder)

    folder = gate(3)
    stage = runner_log.start(task("a", runner_log.function(count_and_tell), folder, export=True), run="killed")
    message = saved(runner_log, stage, 3)
    os.kill(int(Path(folder, "pid").read_text()), signal.SIGKILL)
    assert runner_log.end(stage)["a"].failure.reason is Reason.WORKER_LOST
    again = next_attempt(runner_log, task, gate(4), message)
    assert result_of(runner_log.end(again)["a"], runner_log) == [3, 4]


def test_a_retry_by_ray_itself_goes_on_too(runner_log, task, gate):
    def count_and_die_once(folder):
        task = mesh.current_task()
        if task.last_checkpoint() is None:
            task.save_checkpoint((2, b""))
            Path(folder, "pid").write_text(str(os.getpid()))
            time.sleep(600)
        return count_to(4, folder)

    folder = gate(4)
    node = task("a", runner_log.function(count_and_die_once), folder, export=True, ray_options={"max_retries": 1})
    stage = runner_log.start(node, run="retried")
    saved(runner_log, stage, 2)
    os.kill(int(Path(folder, "pid").read_text()), signal.SIGKILL)
    assert result_of(runner_log.end(stage)["a"], runner_log) == [2, 4]


@pytest.mark.parametrize("harm", ["gone", "garbage"])
def test_a_damaged_checkpoint_is_reported_and_starts_anew(runner_log, task, gate, harm):
    stage = runner_log.start(counting(runner_log, task, gate(2)), run="count")
    message = saved(runner_log, stage, 2)
    runner_log.actor.cancel.remote(stage, 600.0)
    runner_log.end(stage)
    data = runner_log.blobs.pop(message.stored.sha256)
    if harm == "garbage":
        runner_log.blobs[message.stored.sha256] = data[:-1]
    again = next_attempt(runner_log, task, gate(4), message)
    assert result_of(runner_log.end(again)["a"], runner_log) == [0, 4]
    (refused,) = [each for each in runner_log.messages[again] if isinstance(each, CheckpointRefused)]
    assert refused.reason is Reason.VALUE_LOST
    assert "starts anew" in refused.detail


def test_code_that_is_asked_to_stop_may_save_and_return(runner_log, task):
    stage = runner_log.start(task("a", runner_log.function(ask_and_return), "the end", export=True), run="asked")
    runner_log.until(stage, lambda message: isinstance(message, NodeProgress))
    runner_log.actor.cancel.remote(stage, 600.0)
    assert runner_log.end(stage)["a"].failure.reason is Reason.CANCELLED_BY_USER
    (message,) = [each for each in runner_log.messages[stage] if isinstance(each, NodeCheckpoint)]
    assert value_of(message, runner_log) == "the end"


def test_code_that_does_not_stop_is_interrupted_after_the_grace(runner_log, task, tmp_path):
    def listen_and_go_on(folder):
        mesh.current_task().should_stop()
        try:
            Path(folder, "started").touch()
            while True:
                time.sleep(0.01)
        finally:
            Path(folder, "stopped").touch()

    stage = runner_log.start(task("a", runner_log.function(listen_and_go_on), str(tmp_path)), run="deaf")
    runner_log.until(stage, lambda message: message.kind == "node_started")
    eventually((tmp_path / "started").exists)
    runner_log.actor.cancel.remote(stage, 1.0)
    assert runner_log.end(stage)["a"].failure.reason is Reason.CANCELLED_BY_USER
    eventually((tmp_path / "stopped").exists)


def test_progress_is_reported_while_the_task_runs(runner_log, task, gate):
    stage = runner_log.start(counting(runner_log, task, gate(1)), run="count")
    progress = runner_log.until(stage, lambda message: isinstance(message, NodeProgress))
    assert progress.progress == 2_500
    gate(4)
    runner_log.end(stage)


def test_code_that_never_asks_reports_neither(runner_log, task):
    stage = runner_log.start(task("a", runner_log.function(never_ask)), run="plain")
    runner_log.end(stage)
    assert [message.kind for message in runner_log.messages[stage]] == ["node_succeeded", "stage_ended"]


def test_the_example_of_the_docs_goes_on(runner_log, task):
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"```python\n(import mesh\n[\s\S]*?)```", page)[1], names)  # noqa: S102  this project's own docs
    data = pickle.dumps((1.0, 2))
    stored = StoredValue(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), encoding=Encoding.PICKLE)
    runner_log.code[stored.sha256] = data
    stage = runner_log.start(task("a", runner_log.function(names["train"]), 5, export=True, attempt=2, checkpoint=stored), run="docs")
    assert result_of(runner_log.end(stage)["a"], runner_log) == 1.0 + 3 * 0.5


def test_a_checkpoint_that_cannot_be_written_is_reported(ray_driver, runner_log, task, tmp_path):
    (tmp_path / "file").touch()

    def save_a_lot():
        mesh.current_task().save_checkpoint((1, b"x" * 200_000))
        raise OSError

    ray.get(runner_log.actor.bind.remote(runner_log.tenant, (tmp_path / "file").as_uri(), 64 * 1024, "here"))
    try:
        stage = runner_log.start(task("a", runner_log.function(save_a_lot)), run="unwritable")
        runner_log.end(stage)
        assert [message.kind for message in runner_log.messages[stage]] == ["checkpoint_refused", "node_failed", "stage_ended"]
    finally:
        ray.get(runner_log.actor.bind.remote(runner_log.tenant, runner_log.storage.as_uri(), 64 * 1024, "here"))
