"""Lines of a node's output: cut, counted and limited."""

from __future__ import annotations

import pytest

from mesh.ray.user_code.output_lines import LINE_BYTES, MESSAGE_BYTES_MAX, ByteBudget, Kept, keep_within, lines_in, messages_of
from mesh.stages.messages import OUTPUT_CHARS_MAX, OUTPUT_LINES_MAX


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"a\nb\n", ["a", "b"], id="whole lines"),
        pytest.param(b"a\n\nb", ["a", "", "b"], id="an empty line and one without an end"),
        pytest.param(b"\n", [""], id="only an end of a line"),
        pytest.param(b" 10%\r 20%\r100%\nb\r\n", ["100%", "b"], id="a progress bar keeps its last state"),
        pytest.param("ü\n".encode(), ["ü"], id="UTF-8"),
        pytest.param(b"a\xff\x1b[31m\n", ["a\\xff\x1b[31m"], id="bytes that are no text"),
        pytest.param(b":task_name:f\na\n:job_id:01\n", ["a"], id="lines of Ray are no output"),
    ],
)
def test_bytes_become_lines(data, lines):
    assert lines_in(data) == lines


def test_a_line_that_is_too_long_is_cut():
    (line,) = lines_in(b"x" * 10_000)
    assert len(line) <= OUTPUT_CHARS_MAX
    assert line.endswith("characters left out")


def test_what_exceeds_the_budget_is_left_out_of_the_middle():
    lines = [str(number) for number in range(10)]
    kept = keep_within(lines, 0, (), 4 * (1 + LINE_BYTES))
    assert kept == Kept(("0", "1"), 6, ("8", "9"))


def test_unread_lines_in_the_middle_are_counted():
    kept = keep_within(["a", "b"], 100, ["y", "z"], 2 * (1 + LINE_BYTES))
    assert kept == Kept(("a",), 102, ("z",))


def test_without_budget_all_lines_are_left_out():
    assert keep_within(["a", "b"], 0, (), 0) == Kept((), 2, ())


def test_messages_are_bounded_and_keep_the_numbers():
    kept = Kept(("a",) * (OUTPUT_LINES_MAX + 1), 5, ("x" * 4000,) * 20)
    messages = messages_of(kept, "stdout", "s", "n", 1, 7, at_ms=0)
    assert [(each.number, len(each.lines)) for each in messages[:2]] == [(7, OUTPUT_LINES_MAX), (7 + OUTPUT_LINES_MAX, 1)]
    assert messages[2].number == 7 + OUTPUT_LINES_MAX + 1 + 5
    assert all(sum(map(len, each.lines)) <= MESSAGE_BYTES_MAX for each in messages)
    assert sum(len(each.lines) for each in messages) == OUTPUT_LINES_MAX + 21


def test_a_budget_refills_up_to_its_burst():
    budget = ByteBudget(100, 10, now_s=0.0)
    budget.spend(130)
    assert budget.left(0.0) == -30
    assert budget.left(5.0) == 20
    assert budget.left(60.0) == 100
