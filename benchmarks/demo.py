"""`schedulemesh demo` as a user starts it: in its own process, from prompt to prompt."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time

from benchmarks.bed import ROOT
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of

#: Times that the demo prints.
_OWN_TIMES = re.compile(r"start (?P<start>[\d.]+) s, run (?P<run>[\d.]+) s.*total (?P<all>[\d.]+) s", re.DOTALL)
DEMO_S_MAX = 180.0
STOP_S_MAX = 60.0


def measure(turns: int) -> Result:
    """Measure the demo. The first run, with cold files, is the warm-up."""
    return result_of(
        "demo", "schedulemesh demo after set-up, from the prompt to the prompt", in_turns({"demo": _once}, warm_ups=1, turns=turns)
    )


def _once() -> Sample:
    with tempfile.TemporaryDirectory(prefix="schedulemesh-bench-") as out:
        command = [sys.executable, "-m", "serve_apps.cli", "demo", str(ROOT / "configs" / "quickstart.yaml"), "--out", out]
        begun = time.perf_counter()
        described = _output_of(command)
        wall_ms = (time.perf_counter() - begun) * 1000
    own = _OWN_TIMES.search(described)
    if own is None:
        raise AssertionError(f"the demo did not print its times:\n{described}")
    start_ms, run_ms, all_ms = (float(own[name]) * 1000 for name in ("start", "run", "all"))
    return {WALL: wall_ms, "import": wall_ms - all_ms, "start": start_ms, "run": run_ms, "stop": all_ms - start_ms - run_ms}


def _output_of(command: list[str]) -> str:
    """Return the output of the command. An interrupt of this process ends the command in order, so that it stops its children."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            described, _ = process.communicate(timeout=DEMO_S_MAX)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=STOP_S_MAX)
            raise
    if process.returncode != 0:
        raise AssertionError(f"the demo ended with {process.returncode}:\n{described}")
    return described
