"""Real processes that start in milliseconds: forks of one that has imported everything.

    python -m faults.nursery      # JSON lines: {"part": "child", "arguments": […], "log": path} in, {"pid": 123} out

Each process leads its own session and writes its output to its log. The nursery alone ends with its input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]


class Nursery:
    """Starts parts of a federation (`faults.parts`) as processes."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def start(self, part: str, log: Path, *arguments: Any) -> psutil.Process:
        """Start a process that runs the part with these arguments (JSON values)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"part": part, "arguments": arguments, "log": str(log)}) + "\n")
        self._process.stdin.flush()
        return psutil.Process(json.loads(self._process.stdout.readline())["pid"])

    def close(self) -> None:
        """End the nursery; callers end the processes that they started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def main() -> None:
    """Start requested parts until the input ends."""
    from faults import parts  # Heavy: only the forking process needs it.

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # The kernel reaps the dead.
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(getattr(parts, order["part"]), order["arguments"], order["log"])
        print(json.dumps({"pid": pid}), flush=True)  # noqa: T201  the answer to the line


def _become(part: Any, arguments: list[Any], log: str) -> None:
    """Become the part; never returns."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        nothing, said = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for own, stream in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(own, stream)
        part(*arguments)
        status = 0
    except BaseException:  # noqa: BLE001  whatever ends the part is written to its log, and by its status
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
