"""Folder of a watchdog: deadlines and processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mesh.ray.cluster.process import start_mark
from mesh.ray.worker.watch_folder import enlist, registered, workers_of


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    enlist(tmp_path, process.pid)
    yield process
    process.kill()
    process.wait()


def found_in(folder: Path) -> list[int]:
    return [process.pid for process in registered(folder)]


@pytest.mark.parametrize("step_s", [-3_600, -1, 1, 3_600], ids=["an hour back", "a second back", "a second on", "an hour on"])
def test_a_worker_is_known_again_when_the_wall_clock_was_set(
    tmp_path: Path, worker: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """The kernel computes its boot time from the wall clock, so the boot time moves with it."""
    before = psutil.boot_time()
    created = psutil.Process(worker.pid).create_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: before + step_s)
    assert psutil.Process(worker.pid).create_time() == pytest.approx(created + step_s)
    assert found_in(tmp_path) == [worker.pid]
    assert [file.name for file in workers_of(tmp_path).iterdir()] == [str(worker.pid)]


def test_the_file_of_a_worker_that_has_ended_goes(tmp_path: Path, worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    worker.wait()
    assert found_in(tmp_path) == []
    assert list(workers_of(tmp_path).iterdir()) == []


def test_a_worker_that_is_dead_and_not_yet_collected_has_ended(tmp_path: Path, worker: subprocess.Popen[bytes]) -> None:
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert found_in(tmp_path) == []


def test_another_process_with_the_number_of_a_worker_is_none(tmp_path: Path, worker: subprocess.Popen[bytes]) -> None:
    (workers_of(tmp_path) / str(worker.pid)).write_text(start_mark(os.getpid()))
    assert found_in(tmp_path) == []


def test_the_mark_of_a_process_stays_and_is_its_own(worker: subprocess.Popen[bytes]) -> None:
    assert start_mark(os.getpid()) == start_mark(os.getpid()) != start_mark(worker.pid)


def test_a_number_that_nobody_has_has_no_mark() -> None:
    with pytest.raises(psutil.NoSuchProcess):
        start_mark(2**22 + 1)


def test_a_watchdog_starts_without_ray() -> None:
    code = "import sys, mesh.ray.stage_runner.watchdog; print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
