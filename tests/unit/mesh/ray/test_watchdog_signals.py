"""Signals of the watchdog to workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mesh.core.clock import ManualClock
from mesh.ray.stage_runner.watchdog import Watchdog
from mesh.ray.worker.watch_folder import enlist, registered

LONG_MS = 600_000


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start workers that are registered in the folder."""
    started = []

    def one(*command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command or ["sleep", "600"], start_new_session=True, stdout=subprocess.PIPE)
        started.append(process)
        enlist(tmp_path, process.pid)
        return process

    yield one
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def refuse_signals_to(pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse signals to this process, as to one that was started with `sudo`."""
    real = os.kill

    def kill(to: int, number: int) -> None:
        if to == pid:
            raise PermissionError
        real(to, number)

    monkeypatch.setattr(os, "kill", kill)


def extend_deadline(watchdog: Watchdog, incarnation: int, clock_ms: int) -> dict[str, Any]:
    times = {"stop_after_ms": LONG_MS, "kill_after_ms": LONG_MS}
    return watchdog.answer({"ask": "extend_deadline", "incarnation": incarnation, "clock_ms": clock_ms, **times})


def test_a_process_that_may_not_be_signalled_saves_nobody_else(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = start("/bin/sh", "-c", "sleep 600 & echo $!; wait")
    assert parent.stdout is not None
    protected = int(parent.stdout.readline())
    workers = [parent, *(start() for _ in range(2))]
    refuse_signals_to(protected, monkeypatch)
    watchdog = Watchdog(tmp_path, psutil.Process(), ManualClock())
    clock_ms = watchdog.answer({"ask": "read_clock"})["clock_ms"]
    assert extend_deadline(watchdog, 1, clock_ms)["accepted"]
    assert extend_deadline(watchdog, 2, clock_ms)["accepted"]
    assert [worker.wait(30) for worker in workers] == [-signal.SIGKILL] * 3


def test_a_worker_that_cannot_be_inspected_is_not_forgotten(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start()

    def denied(process: psutil.Process) -> str:
        raise psutil.AccessDenied(process.pid)

    with monkeypatch.context() as refusing:
        refusing.setattr(psutil.Process, "status", denied)
        assert list(registered(tmp_path)) == []
    assert [process.pid for process in registered(tmp_path)] == [worker.pid]
