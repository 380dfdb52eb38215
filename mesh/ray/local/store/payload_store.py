"""Task payloads, processes and results: bytes on disk, one folder per task.

The scheduler knows nothing of code and values. The supervisor only stores these bytes and never unpickles a user's. They are
written before the scheduler gets the task, so that a recovered supervisor can carry out every open order.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from mesh.core.ids import TaskId

#: `work`: code and arguments; `process`: the agent process; `address`: where others reach the object; `result`: its end.
Part = Literal["work", "process", "address", "result"]


class PayloadStore:
    """A folder of task parts. Each part is written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep(self, task: TaskId, part: Part, content: bytes) -> None:
        """Write a part, replacing an earlier one."""
        folder = self._folder_of(task)
        folder.mkdir(exist_ok=True, mode=0o700)
        number, name = tempfile.mkstemp(dir=folder, prefix=".")
        with os.fdopen(number, "wb") as sink:
            sink.write(content)
        Path(name).replace(folder / part)

    def read(self, task: TaskId, part: Part) -> bytes | None:
        """Return the part; None when there is none."""
        try:
            return (self._folder_of(task) / part).read_bytes()
        except FileNotFoundError:
            return None

    def drop(self, task: TaskId, *parts: Part) -> None:
        """Remove these parts; without any, the whole task."""
        if not parts:
            shutil.rmtree(self._folder_of(task), ignore_errors=True)
        for part in parts:
            (self._folder_of(task) / part).unlink(missing_ok=True)

    def tasks(self) -> list[TaskId]:
        """Return all tasks that have parts."""
        return [TaskId(unquote(folder.name)) for folder in sorted(self._folder.iterdir()) if folder.is_dir()]

    def _folder_of(self, task: TaskId) -> Path:
        return self._folder / (quote(task, safe="").replace(".", "%2E") or "%")
