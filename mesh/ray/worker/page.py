"""A worker's page: a few bytes of memory that outlive the worker and that others on its node can read and write.

The worker writes which task it runs, so that the culprit is known when the process dies in it. Its runner writes the number of a chunk
that is to stop; a thread of the worker sees it within milliseconds. Ray does neither: it interrupts no call of an actor.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

_CHUNK, _TASK, _STOP = range(3)
_WORD = struct.Struct("<q")
_BYTES = 3 * _WORD.size
#: No task runs.
NO_TASK = -1


class WorkerPage:
    """The page of this process. All methods take well under a microsecond."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{os.getpid()}.page"
        self.path.write_bytes(_WORD.pack(0) + _WORD.pack(NO_TASK) + _WORD.pack(0))
        with self.path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")

    def begin(self, chunk: int) -> None:
        """Note that no task of the chunk has begun."""
        self._words[_TASK] = NO_TASK
        self._words[_CHUNK] = chunk

    def run(self, task: int) -> None:
        """Note that the chunk's task runs; `NO_TASK`: none does."""
        self._words[_TASK] = task

    @property
    def stop(self) -> int:
        """Number of the chunk that is to stop."""
        return self._words[_STOP]


def culprit(path: Path) -> tuple[int, int] | None:
    """Return the chunk and the task that a dead worker ran last; `NO_TASK`: it ran none. Remove its page. None: there is no page."""
    try:
        data = path.read_bytes()
        path.unlink(missing_ok=True)
        return _WORD.unpack_from(data, 0)[0], _WORD.unpack_from(data, _WORD.size)[0]
    except (OSError, struct.error):
        return None


def ask_to_stop(path: Path, chunk: int) -> bool:
    """Ask the worker to stop the chunk; return whether the page is there. Harmless when the chunk has ended."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        file.seek(_STOP * _WORD.size)
        file.write(_WORD.pack(chunk))
        return True
    return False
