"""Guard of a program, on real processes: however its worker ends, nothing of the program is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import eventually

from mesh.ray.programs import guard

#: Starts the guard as a worker does, and waits.
WORKER = """
import subprocess, sys
watched = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[1]], stdin=subprocess.PIPE)
watched.stdin.write(sys.argv[2].encode() + b"\\n")
watched.stdin.flush()
sys.exit(watched.wait())
"""


def started(folder: Path, command: list[str]) -> subprocess.Popen[bytes]:
    """Return a worker whose program runs in the folder."""
    folder.mkdir()
    order = {"command": command, "cwd": str(folder), "env": dict(os.environ), "folder": str(folder)}
    return subprocess.Popen([sys.executable, "-c", WORKER, guard.__file__, json.dumps(order)])


def processes_with(mark: str) -> list[psutil.Process]:
    """Return the processes but workers whose command holds the text."""
    found: list[Any] = list(psutil.process_iter(["cmdline"]))
    return [one for one in found if mark in " ".join(one.info["cmdline"] or []) and "subprocess" not in " ".join(one.info["cmdline"])]


@pytest.mark.parametrize("is_forced", [False, True], ids=["alone", "after its children, as Ray does by force"])
def test_nothing_outlives_a_killed_worker(tmp_path, is_forced):
    mark, folder = f"mark-{tmp_path.name}", tmp_path / "program"
    worker = started(folder, ["/bin/sh", "-c", f"trap '' TERM; setsid sh -c 'sleep 1000; echo {mark}' & sleep 1000; echo {mark}"])
    eventually(lambda: len(processes_with(mark)) >= 2)
    for child in psutil.Process(worker.pid).children() if is_forced else []:
        child.kill()
    worker.kill()
    worker.wait()
    eventually(lambda: processes_with(mark) == [])
    eventually(lambda: not folder.exists())


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 7", 7),
        ("kill -9 $$", guard.SIGNALLED + signal.SIGKILL),
        ("kill -TERM $PPID; exec sleep 1000", guard.SIGNALLED + signal.SIGTERM),
    ],
    ids=["its own", "a signal", "asked by SIGTERM"],
)
def test_the_exit_code_comes_through(tmp_path, command, code):
    worker = started(tmp_path / "program", ["/bin/sh", "-c", command])
    assert worker.wait(60) == code


def test_a_stopped_stub_stops_its_program(tmp_path):
    worker = started(tmp_path / "program", ["/bin/sh", "-c", "exec sleep 1000"])
    eventually(lambda: (tmp_path / "program").exists() and len(psutil.Process(worker.pid).children(recursive=True)) == 3)
    (stub,) = psutil.Process(worker.pid).children()
    stub.terminate()
    assert worker.wait(60) == guard.SIGNALLED + signal.SIGTERM
