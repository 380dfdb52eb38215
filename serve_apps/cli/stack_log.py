"""What a stack says of itself: to whoever sits before it, and with the time in `logs/stack.log`."""

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
    """Words for people, and the log's own lines, in two places at once; also a stream for loggers.

    A stack in the background has the file as its output already; then each line is written once, with its time.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_output = False
        self._file: TextIO | None = None

    def attach(self, folder: Path) -> None:
        """Write to the file of this state folder, from its beginning, from now on; whoever calls owns the folder."""
        path = folder / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        self._is_output = _is_output(path)
        if not self._is_output:
            self._file = path.open("w", encoding="utf-8")

    def say(self, words: str, *, style: str = "") -> None:
        """A line for people."""
        stamped = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {words.strip()}"
        self._console.print(Text(stamped if self._is_output else words, style), soft_wrap=True)
        self._keep(f"{stamped}\n")

    def write(self, text: str) -> None:
        """A logger's line, which has its own time."""
        sys.stderr.write(text)
        self._keep(text)

    def flush(self) -> None:
        """As a stream."""
        sys.stderr.flush()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _keep(self, text: str) -> None:
        if self._file is not None:
            self._file.write(text)
            self._file.flush()


def without_time(line: str) -> str:
    """A line of the file as it was said."""
    return _STAMP.sub("", line, count=1) if _STAMP.match(line) else line


def _is_output(path: Path) -> bool:
    try:
        return path.exists() and os.path.samestat(os.fstat(sys.stdout.fileno()), path.stat())
    except (OSError, ValueError):  # No file at all, as in a test, or closed.
        return False
