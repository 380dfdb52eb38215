"""Bars that a script prints while it waits."""

from __future__ import annotations

import io

from dag.progress.groups import NodeGroup
from dag.run.states import NodeState
from dag.store.progress_display import BARS_SHOWN, ProgressDisplay


class Terminal(io.StringIO):
    def isatty(self):
        return True


def group(name, done, total):
    return NodeGroup(name=name, total=total, counts={NodeState.SUCCEEDED: done, NodeState.WAITING: total - done})


def test_a_terminal_is_redrawn_in_place():
    out = Terminal()
    shown = ProgressDisplay(out, columns=80)
    shown.show([group("load", 1, 1), group("train", 0, 4)])
    assert out.getvalue() == "load   1/1  ################\ntrain  0/4  ----------------\n"
    out.truncate(0)
    out.seek(0)
    shown.show([group("load", 1, 1), group("train", 2, 4)])
    assert out.getvalue() == "\x1b[2F\x1b[Jload   1/1  ################\ntrain  2/4  ########--------\n"


def test_a_pipe_gets_plain_lines_of_what_has_changed():
    out = io.StringIO()
    shown = ProgressDisplay(out, columns=80)
    for done in (0, 0, 2):
        shown.show([group("load", 1, 1), group("train", done, 4)])
    assert out.getvalue() == "load   1/1\ntrain  0/4\ntrain  2/4\n"


def test_a_dozen_lines_within_the_terminal_are_shown():
    out = Terminal()
    ProgressDisplay(out, columns=40).show([group(f"{'n' * 90}{letter}", 1, 2) for letter in "abcdefghijklmnopqrst"])
    lines = out.getvalue().splitlines()
    assert (len(lines), max(map(len, lines)) < 40) == (BARS_SHOWN, True)


def test_nothing_is_printed_before_there_are_nodes():
    out = Terminal()
    ProgressDisplay(out, columns=80).show([])
    assert out.getvalue() == ""
