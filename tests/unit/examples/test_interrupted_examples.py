"""Ctrl-C ends an example with 130, as a shell expects, and without a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
ENDS_S_MAX = 120.0
#: Runs the module of its first argument as `python -m` does; the user presses Ctrl-C while Ray starts.
INTERRUPTED_AT_RAY = """
import runpy, signal, sys, ray
ray.init = lambda *_, **__: signal.raise_signal(signal.SIGINT)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def started(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def complaints_of(example: subprocess.Popen[str]) -> str:
    try:
        return example.communicate(timeout=ENDS_S_MAX)[1]
    finally:
        example.kill()


@pytest.mark.parametrize("module", ["examples.jobs.run", "examples.sharding", "examples.rlhf"])
def test_an_example_interrupted_at_its_start_exits_130(module: str):
    options = ["--address", "127.0.0.1:1"] if module == "examples.rlhf" else []
    with started("-c", INTERRUPTED_AT_RAY, module, *options, RAY_ADDRESS="127.0.0.1:1") as example:
        complaints = complaints_of(example)
    assert example.returncode == 130, complaints
    assert "Traceback" not in complaints


def test_an_example_interrupted_as_it_waits_exits_130():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(ENDS_S_MAX)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with started("-m", "examples.teams.day", SCHEDULEMESH_ADDRESS=address, SCHEDULEMESH_API_KEY="any") as example:
            asking, _ = silent.accept()
            with asking:
                assert asking.recv(1)
                example.send_signal(signal.SIGINT)
                complaints = complaints_of(example)
    assert example.returncode == 130, complaints
    assert "Traceback" not in complaints
