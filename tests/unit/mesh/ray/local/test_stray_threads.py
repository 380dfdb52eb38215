"""Detection of threads that a task left behind."""

from __future__ import annotations

import subprocess
import sys

from mesh.ray.local.agent.stray_threads import StrayThreads


def test_nothing_new_is_no_newcomer():
    assert StrayThreads.look().newcomers() == ""


def test_a_child_process_that_has_come_since_is_named():
    before = StrayThreads.look()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert before.newcomers() == f"the task left child processes: {child.pid}"
        assert StrayThreads.look().newcomers() == ""
    finally:
        child.communicate(b"\n")


def test_looking_takes_the_end_of_a_child_from_nobody():
    before = StrayThreads.look()
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read()  # It closes at the child's end.
    before.newcomers()
    assert child.wait() == 7
    child.stdout.close()
    assert before.newcomers() == ""
