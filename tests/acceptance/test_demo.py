"""The demo as a newcomer starts it: to its end, and interrupted by Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.ray

REPOSITORY = Path(__file__).parents[2]
DEMO = [sys.executable, "-m", "serve_apps.cli", "demo"]


#: Limit of an interrupted start, which finishes and then ends everything it started.
END_S_MAX = 240.0


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if lives(process)]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # It ended in between.
        return False


def test_demo_shows_its_result_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO, "--out", str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=END_S_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("mesh east: joined", "mesh west: joined", "where each stage ran", "what each tenant held", "all processes have stopped"):
        assert words in done.stdout
    assert (tmp_path / "confusion-matrix.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "moment",
    [
        "cluster local: starting",  # The cheapest moment: `make test` interrupts here, `make faults` later too.
        pytest.param("root: deploying", marks=[pytest.mark.faults, pytest.mark.slow]),
        pytest.param("root: answers at", marks=[pytest.mark.faults, pytest.mark.slow]),
    ],
)
def test_ctrl_c_at_any_point_of_the_demo_ends_everything(tmp_path: Path, moment: str) -> None:
    command = [*DEMO, "--out", str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        try:
            assert demo.stdout is not None
            for line in demo.stdout:
                if line.startswith(moment):
                    break
            started = psutil.Process(demo.pid).children(recursive=True)
            demo.send_signal(signal.SIGINT)
            rest, _ = demo.communicate(timeout=END_S_MAX)
        finally:
            demo.kill()
    assert demo.returncode == 130
    assert "all processes have stopped" in rest
    assert living(started) == []
