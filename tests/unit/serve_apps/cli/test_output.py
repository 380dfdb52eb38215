"""Output of commands: in a terminal as wide as it is, in a pipe in whole lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Group

from serve_apps.cli.output import RoomyTable, SafeConsole, Text
from serve_apps.cli.progress_render import ProgressBars
from serve_apps.cli.render import failure_summary
from serve_apps.schemas.results import NoResultView
from serve_apps.schemas.runs import FailureView, GroupView

LONG = "raise ValueError(" + "x" * 200 + ")"


def printed(*objects, is_terminal=False):
    out = io.StringIO()
    SafeConsole(file=out, width=80, force_terminal=is_terminal, color_system=None, legacy_windows=False).print(*objects)
    return out.getvalue().splitlines()


def a_failure(traceback):
    failure = FailureView(node="a", attempt=1, mesh="east", reason="USER_ERROR", type="ValueError", message="no", traceback=traceback)
    return failure_summary(
        NoResultView(
            type="urn:x", title="", status=409, detail="the run failed", code="run_failed", request_id="", id="r", state="FAILED",
            reason=None, run_detail="", failures=[failure], skipped=[],
        )
    )  # fmt: skip


def a_table():
    table = RoomyTable(box=None, pad_edge=False)
    table.add_column("word", overflow="fold")
    table.add_row("y" * 100)
    return table


@pytest.mark.parametrize(
    "renderable",
    [
        pytest.param(LONG, id="text"),
        pytest.param(Text(LONG, overflow="ellipsis", no_wrap=True), id="text that a terminal cuts"),
        pytest.param(Group(Text(LONG), Text("z")), id="text beside other text"),
        pytest.param(Group(a_table(), Group(Text(LONG))), id="text below a table"),
        pytest.param(a_failure(f"Traceback\n  {LONG}"), id="a traceback"),
    ],
)
def test_a_pipe_gets_whole_lines(renderable):
    assert LONG in [line.strip() for line in printed(renderable)]
    assert max(map(len, printed(renderable, is_terminal=True))) <= 80


def test_a_pipe_gets_whole_lines_of_progress():
    groups = [GroupView(name="n" * 100, is_array=False, total=1, counts={"FAILED": 1}, part=0.0)]
    assert any("n" * 100 in line for line in printed(ProgressBars(groups, {"FAILED": "red"})))


def test_a_table_in_a_pipe_folds_its_cells():
    assert max(map(len, printed(a_table()))) == 80


def test_a_group_has_the_same_lines_in_a_pipe_as_in_a_terminal():
    shown = Group(Text("a"), Text(), a_table(), Text("b"))
    assert [line.rstrip() for line in printed(shown)] == [line.rstrip() for line in printed(shown, is_terminal=True)]
