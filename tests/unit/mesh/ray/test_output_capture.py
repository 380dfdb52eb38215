"""Capture of a worker's output from its files, without Ray."""

from __future__ import annotations

import subprocess
from concurrent.futures import Future

import pytest

from mesh.core.reasons import Reason
from mesh.ray.user_code.node_output import READ_BYTES, OutputCapture, OutputFile, take_unread
from mesh.ray.user_code.output_lines import LAST_BYTES, NODE_BURST_BYTES
from mesh.ray.user_code.output_relay import LAST_LINES_MAX, OutputRelay, with_last_lines
from mesh.stages.messages import Failure, NodeOutput


class Worker:
    """A worker's two files, and what its capture has sent."""

    def __init__(self, folder):
        self.folder = folder
        self.paths = {stream: folder / f"{stream}.log" for stream in ("stdout", "stderr")}
        for path in self.paths.values():
            path.write_text("of an earlier node\n")
        self.capture = OutputCapture([OutputFile(stream, str(path)) for stream, path in self.paths.items()], folder)
        self.sent = []

    def of(self, node, attempt=1):
        return self.capture.of(self.send, "s", node, attempt)

    def send(self, lines):
        self.sent += lines
        answer = Future()
        answer.set_result(None)
        return answer

    def write(self, text, stream="stdout"):
        with self.paths[stream].open("a") as file:
            file.write(text)

    @property
    def lines(self):
        return [(each.node, each.stream, line) for each in self.sent for line in each.lines]


@pytest.fixture
def worker(tmp_path):
    return Worker(tmp_path)


def test_a_silent_node_sends_nothing(worker):
    with worker.of("a"):
        worker.capture.look()
    worker.capture.flush()
    assert worker.sent == []


def test_lines_are_sent_live_and_the_rest_with_a_flush(worker):
    with worker.of("a"):
        worker.write("one\ntw")
        worker.capture.look()
        assert worker.lines == [("a", "stdout", "one")]
        worker.write("o\nno end")
    worker.capture.flush()
    assert worker.lines == [("a", "stdout", "one"), ("a", "stdout", "two"), ("a", "stdout", "no end")]
    assert [each.number for each in worker.sent] == [1, 2]


def test_nodes_in_turn_keep_their_lines_and_both_streams(worker):
    for node in ("a", "b"):
        with worker.of(node):
            worker.write(f"{node} out\n")
            worker.write(f"{node} err\n", "stderr")
        worker.write("between nodes\n")
    worker.capture.flush()
    assert worker.lines == [(node, stream, f"{node} {stream[3:]}") for node in ("a", "b") for stream in ("stdout", "stderr")]
    assert [each.number for each in worker.sent] == [1, 2, 1, 2]


def test_a_flood_keeps_both_ends_and_counts_the_lines_between(worker):
    numbers = 4 * READ_BYTES
    with worker.of("a"):
        worker.write("".join(f"{number}\n" for number in range(1, numbers + 1)))
    worker.capture.flush()
    found = [(each.number + place, line) for each in worker.sent for place, line in enumerate(each.lines)]
    assert all(line == str(number) for number, line in found)
    assert (found[0], found[-1]) == ((1, "1"), (numbers, str(numbers)))


def test_an_attempt_without_budget_still_has_its_last_lines(worker):
    with worker.of("a"):
        while sum(len(line) for *_, line in worker.lines) < NODE_BURST_BYTES // 2:
            worker.write("some text that is printed again and again\n" * 1_000)
            worker.capture.look()
        worker.write("x\n" * 5_000 + "the end\n")
    worker.capture.flush()
    assert worker.lines[-1][2] == "the end"


def test_an_emptied_file_is_read_from_its_beginning(worker):
    with worker.of("a"):
        worker.paths["stdout"].write_text("new\n")
    worker.capture.flush()
    assert worker.lines == [("a", "stdout", "new")]


def test_unread_lines_of_a_dead_worker_are_found_once(worker):
    never_left = worker.of("a", attempt=2)
    never_left.__enter__()
    worker.write("read\n")
    worker.capture.look()
    worker.write("not read\nno end")
    worker.write("an error\n", "stderr")
    assert take_unread(worker.folder, "s", "a", 1) == []
    unread = take_unread(worker.folder, "s", "a", 2)
    assert [(each.number, each.stream, each.lines) for each in unread] == [
        (2, "stdout", ("not read", "no end")),
        (4, "stderr", ("an error",)),
    ]
    assert take_unread(worker.folder, "s", "a", 2) == []


def test_a_node_that_has_ended_leaves_no_unread_lines(worker):
    with worker.of("a"):
        worker.write("read at its end\n")
    assert take_unread(worker.folder, "s", "a", 1) == []


def test_a_new_worker_removes_empty_marks_of_dead_workers(worker, tmp_path):
    with subprocess.Popen(["/bin/true"]) as dead:
        dead.wait()
    (mark,) = (tmp_path / "o").iterdir()
    (tmp_path / "o" / str(dead.pid)).write_bytes(mark.read_bytes())
    Worker(tmp_path)
    assert list((tmp_path / "o").iterdir()) == [mark]


def output(*lines, node="a", attempt=1, number=1):
    return NodeOutput(stage="s", node=node, attempt=attempt, number=number, at_ms=0, stream="stdout", lines=lines)


def test_a_relay_knows_the_last_lines_of_an_attempt():
    passed = []
    relay = OutputRelay(passed.append)
    relay.take([output(*map(str, range(100))), output("b's", node="b"), output("a new attempt", attempt=2)], 0.0)
    assert len(passed) == 3
    assert relay.last_lines("s", "a", 2, 0.0) == ("a new attempt",)
    assert relay.last_lines("s", "a", 2, 0.0) == ()
    relay.take([output(*map(str, range(100)))], 0.0)
    assert relay.last_lines("s", "a", 1, 0.0) == tuple(map(str, range(100 - LAST_LINES_MAX, 100)))


def test_a_relay_forgets_returned_nodes_and_ended_stages():
    relay = OutputRelay(lambda _: None)
    relay.take([output("a"), output("b", node="b")], 0.0)
    relay.forget("s", ("a",))
    assert relay.last_lines("s", "a", 1, 0.0) == ()
    relay.end("s")
    assert relay.last_lines("s", "b", 1, 0.0) == ()


def test_a_relay_numbers_lines_of_several_processes_in_a_row():
    passed = []
    relay = OutputRelay(passed.append)
    relay.take([output("a", "b"), output("of another process"), output("later", number=9), output("a new attempt", attempt=2)], 0.0)
    assert [(each.attempt, each.number) for each in passed] == [(1, 1), (1, 3), (1, 9), (2, 1)]


def test_a_relay_passes_no_more_than_its_budget():
    passed = []
    relay = OutputRelay(passed.append)
    many = [output("x" * LAST_BYTES) for _ in range(1_000)]
    relay.take(many, 0.0)
    assert 0 < len(passed) < 1_000
    before = len(passed)
    relay.take(many, 1.0)
    assert before < len(passed) < 2 * before


def test_last_lines_follow_those_that_a_failure_has():
    failure = Failure(reason=Reason.WORKER_LOST, type_name="T", message="it died")
    assert with_last_lines(failure, ()) == failure
    once = with_last_lines(failure, ["a"])
    assert once.traceback == "T: it died\nThe last lines of its output:\n  a"
    assert with_last_lines(once, ["b"]).traceback == f"{once.traceback}\n  b"
