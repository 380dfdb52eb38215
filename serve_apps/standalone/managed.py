"""One process of the stack: started with a settings file, ready at its ready line, ended by its id and never by its name."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mesh.errors import RuntimeAdapterError
from mesh.ray.cluster.process import bound_to_parent
from serve_apps.processes.process import READY

#: Most characters of a log that an error shows.
LOG_LINES_SHOWN = 15
#: Interval of checks whether a process that is starting is still wanted.
LOOK_S = 0.2


class ManagedProcess:
    """Process `python -m module settings_file`; its log goes to a file, and its first line of output is the ready line."""

    def __init__(self, name: str, module: str, settings: Path, log: Path, *, environment: Mapping[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = log
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                bound_to_parent([sys.executable, "-m", module, str(settings)]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                bufsize=0,  # The selector does not see what a buffer has already read.
                stderr=sink,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        self.facts: dict[str, Any] = {}
        self._is_killed = False

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its session."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def wait_ready(self, limit_s: float, check_wanted: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Wait for the ready line and return its facts. `check_wanted` is called regularly, and may raise.

        Raises:
            RuntimeAdapterError: The process ended, or was not ready in time; the message shows the end of its log.
        """
        output = self._process.stdout
        if output is None:
            raise RuntimeAdapterError(f"{self.name} was started without a pipe")
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while (left_s := deadline - time.monotonic()) > 0:
                check_wanted()
                if not selector.select(timeout=min(left_s, LOOK_S)):
                    continue
                line = output.readline().decode(errors="replace")
                if line.startswith(READY):
                    self.facts = json.loads(line.removeprefix(READY))
                    return self.facts
                if not line:
                    raise RuntimeAdapterError(f"{self.name} ended before it was ready (see {self.log}):\n{self._end_of_log()}")
        raise RuntimeAdapterError(f"{self.name} was not ready within {limit_s:.0f} s (see {self.log}):\n{self._end_of_log()}")

    def _end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM, and after the grace period SIGKILL to the whole session."""
        self.ask_to_stop()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """Send SIGKILL to the whole session at once. Safe to repeat."""
        if not self._is_killed:  # Afterwards the id may belong to another session.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._is_killed = True
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
