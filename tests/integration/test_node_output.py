# ruff: noqa: T201  the nodes print
"""Output of a stage's tasks on a real cluster: what reaches the runner's mesh, and the last lines of a killed worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cloudpickle
import pytest

from mesh.core.reasons import Reason
from mesh.stages.messages import NodeSucceeded

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Workers cannot import this file.

pytestmark = pytest.mark.ray


def lines_of(runner_log, stage, node="a", stream=None):
    """Return the numbered lines of a node, in the order in which they came."""
    outputs = [each for each in runner_log.output.get(stage, []) if each.node == node and stream in (None, each.stream)]
    return [(output.number + index, line) for output in outputs for index, line in enumerate(output.lines)]


def texts_of(runner_log, stage, node="a", stream=None):
    return [line for _, line in lines_of(runner_log, stage, node, stream)]


def write_everywhere():
    import ctypes
    import logging

    print("printed")
    print("to stderr", file=sys.stderr)
    logging.getLogger("user").warning("logged")
    subprocess.run(["/bin/sh", "-c", "echo from a child; echo child err >&2"], check=True)
    ctypes.CDLL(None).puts(b"from C")
    print("no end of line", end="")


def print_as(name):
    print(f"{name} in {os.getpid()}")
    return name


def flood():
    print("the first line")
    for number in range(200_000):
        print(number)
    print("the last line")


def print_and_wait(gate):
    print("waiting", flush=True)
    Path(gate, "waits").touch()
    while True:
        time.sleep(0.01)


def print_and_die():
    print("printed just before the end")
    os.write(2, b"and this to stderr\n")
    os._exit(3)


def print_and_be_killed(gate):
    print("early", flush=True)
    while not Path(gate, "go").exists():
        time.sleep(0.01)
    print("late", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def until_printed(runner_log, stage, line):
    """Wait until the line has come."""
    while line not in texts_of(runner_log, stage):
        runner_log.take(1.0)


def test_all_that_a_node_writes_is_captured(runner_log, task):
    stage = runner_log.start(task("a", runner_log.function(write_everywhere)), run="writes")
    runner_log.end(stage)
    out, err = (texts_of(runner_log, stage, stream=stream) for stream in ("stdout", "stderr"))
    assert out[:2] == ["printed", "from a child"]
    assert "".join(out[2:]).replace("from C", "") == "no end of line"
    assert err == ["to stderr", "logged", "child err"]
    assert sorted(number for number, _ in lines_of(runner_log, stage)) == list(range(1, len(out) + len(err) + 1))


def test_nodes_in_turn_in_one_process_keep_their_lines(runner_log, task):
    function = runner_log.function(print_as)
    chain = [task(name, function, name, after=(before,) if before else ()) for before, name in (("", "a"), ("a", "b"), ("b", "c"))]
    stage = runner_log.start(*chain, run="in turn")
    ends = runner_log.end(stage)
    assert all(isinstance(ends[name], NodeSucceeded) for name in "abc")
    for name in "abc":
        assert [line.partition(" ")[0] for line in texts_of(runner_log, stage, name)] == [name]


def test_a_silent_node_sends_nothing(runner_log, task):
    stage = runner_log.start(task("a", runner_log.function(os.getpid)), run="silent")
    runner_log.end(stage)
    assert stage not in runner_log.output


def test_a_flood_keeps_its_first_and_last_lines(runner_log, task):
    stage = runner_log.start(task("a", runner_log.function(flood)), run="floods")
    runner_log.end(stage)
    lines = lines_of(runner_log, stage)
    assert lines[0] == (1, "the first line")
    assert lines[-1] == (200_002, "the last line")
    assert sum(len(line) for _, line in lines) < 512 << 10


def test_lines_come_while_the_node_runs_and_after_its_cancel(runner_log, task, tmp_path):
    stage = runner_log.start(task("a", runner_log.function(print_and_wait), str(tmp_path)), run="live")
    until_printed(runner_log, stage, "waiting")
    runner_log.actor.cancel.remote(stage, 600.0)
    runner_log.end(stage)
    assert texts_of(runner_log, stage)[0] == "waiting"


def test_a_worker_that_exits_has_its_last_lines_in_the_failure(runner_log, task):
    stage = runner_log.start(task("a", runner_log.function(print_and_die), ray_options={"max_retries": 0}), run="exits")
    failure = runner_log.end(stage)["a"].failure
    assert failure.reason is Reason.WORKER_LOST
    assert failure.traceback.splitlines()[2:] == ["  printed just before the end", "  and this to stderr"]
    assert texts_of(runner_log, stage) == ["printed just before the end", "and this to stderr"]


def test_a_killed_worker_has_its_last_lines_in_the_failure(runner_log, task, tmp_path):
    node = task("a", runner_log.function(print_and_be_killed), str(tmp_path), ray_options={"max_retries": 0})
    stage = runner_log.start(node, run="is killed")
    until_printed(runner_log, stage, "early")
    (tmp_path / "go").touch()
    failure = runner_log.end(stage)["a"].failure
    assert failure.reason is Reason.WORKER_LOST
    assert failure.traceback.splitlines()[2:4] == ["  early", "  late"]
    assert [number for number, _ in lines_of(runner_log, stage)][:2] == [1, 2]
