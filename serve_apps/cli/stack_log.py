"""Log of a stack: printed in the foreground, and with timestamps in `logs/stack.log`."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TextIO

from rich.console import Console

from serve_apps.cli.output import Text

FILE = Path("logs", "stack.log")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


class StackLog:
    """Messages to users and log lines, on the console and in the file; also a stream for loggers.

    A background stack's output already is the file; each line is then written once, with its timestamp.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_output = False
        self._file: TextIO | None = None

    def attach(self, folder: Path) -> None:
        """Write to the file of this state folder from now on, and truncate it first. The caller must own the folder."""
        path = folder / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        self._is_output = _is_output(path)
        if not self._is_output:
            self._file = path.open("w", encoding="utf-8")

    def say(self, words: str, *, style: str = "") -> None:
        """Write a message to users."""
        stamped = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {words.strip()}"
        self._console.print(Text(stamped if self._is_output else words, style), soft_wrap=True)
        self._keep(f"{stamped}\n")

    def write(self, text: str) -> None:
        """Write a logger's line, which has its own timestamp."""
        sys.stderr.write(text)
        self._keep(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _keep(self, text: str) -> None:
        if self._file is not None:
            self._file.write(text)
            self._file.flush()


def without_time(line: str) -> str:
    """Strip the timestamp from a line of the file."""
    return _STAMP.sub("", line, count=1) if _STAMP.match(line) else line


def _is_output(path: Path) -> bool:
    try:
        return path.exists() and os.path.samestat(os.fstat(sys.stdout.fileno()), path.stat())
    except (OSError, ValueError):  # Not a file, as in a test, or closed.
        return False
