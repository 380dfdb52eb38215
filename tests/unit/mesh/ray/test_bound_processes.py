"""Children that end with their starter, as real programs."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from mesh.ray.cluster.process import bound_to_parent

END_S_MAX = 60.0
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux binds a process to its parent")
#: Starts a child that waits, prints the child's pid, runs the given code, and waits for a line of input.
STARTER = """
import os, subprocess, sys, threading
from mesh.ray.cluster.process import bound_to_parent
{before}
waits = [sys.executable, "-c", "import os, signal; print(os.getpid(), flush=True); signal.pause()"]
child = subprocess.Popen(bound_to_parent(waits), stdout=subprocess.PIPE, text=True, start_new_session=True)
print(child.stdout.readline().strip(), {words}, flush=True)
sys.stdin.read(1)
os._exit(0)
"""


def starter(*, before: str = "", words: str = "''") -> subprocess.Popen[str]:
    program = STARTER.format(before=before, words=words)
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_command_keeps_arguments_env_and_exit_status():
    program = "import os, sys; print(sys.argv[1:], os.environ['WORD']); sys.exit(7)"
    ran = subprocess.run(
        bound_to_parent([sys.executable, "-c", program, "a b", "--c"]), env={"WORD": "yes"}, capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("['a b', '--c'] yes\n", "", 7)


@ON_LINUX
def test_it_ends_with_the_process_that_started_it():
    with starter() as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        child.wait(END_S_MAX)


@ON_LINUX
def test_the_signal_may_be_one_that_nobody_can_refuse():
    assert bound_to_parent(["server"], signal.SIGKILL)[-2:] == ["9", "server"]


@ON_LINUX
def test_an_orphan_at_start_ends_with_a_message():
    command = bound_to_parent([sys.executable, "-c", "print('ran')"])
    ours, number = command.index("15") - 1, str(psutil.Process().parent().pid)
    ran = subprocess.run([*command[:ours], number, *command[ours + 1 :]], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "the process that started this one is gone\n", 1)


@ON_LINUX
def test_the_child_runs_no_code_of_its_starter():
    """Python's fork handlers would run with only one thread left and all locks held."""
    forks = "forks = []; os.register_at_fork(before=lambda: forks.append(1))"
    with starter(before=forks, words="len(forks)") as parent:
        number, text = parent.stdout.readline().split()
        child = psutil.Process(int(number))
        parent.communicate("x")
        assert text == "0"
        child.wait(END_S_MAX)
