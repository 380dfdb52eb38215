"""Task payloads, processes and results: bytes on disk, one folder per task.

The scheduler knows nothing of code and values. The supervisor only stores these bytes and never unpickles a user's. They are
written before the scheduler gets the task, so that a recovered supervisor can carry out every open order.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from mesh.core.ids import TaskId

#: `work`: code and arguments; `process`: the agent process; `address`: where others reach the object; `result`: its end.
Part = Literal["work", "process", "address", "result"]


class PayloadStore:
    """A folder of task parts. Each part is written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._root = folder, f"{folder}/"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep(self, task: TaskId, part: Part, content: bytes) -> None:
        """Write a part, replacing an earlier one."""
        path = self._path(task, part)
        draft = f"{path}.draft"
        try:
            sink = open(draft, "wb")  # noqa: PTH123, SIM115 - pathlib costs as much as the file, several times a task
        except FileNotFoundError:
            self._folder_of(task).mkdir(mode=0o700)
            sink = open(draft, "wb")  # noqa: PTH123, SIM115 - as above
        with sink:
            sink.write(content)
        os.replace(draft, path)  # noqa: PTH105 - as above

    def read(self, task: TaskId, part: Part) -> bytes | None:
        """Return the part; None when there is none."""
        try:
            with open(self._path(task, part), "rb") as kept:  # noqa: PTH123 - as above
                return kept.read()
        except FileNotFoundError:
            return None

    def drop(self, task: TaskId, *parts: Part) -> None:
        """Remove these parts; without any, the whole task."""
        if not parts:
            shutil.rmtree(self._folder_of(task), ignore_errors=True)
        for part in parts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(task, part))  # noqa: PTH108 - as above

    def tasks(self) -> list[TaskId]:
        """Return all tasks that have parts."""
        return [TaskId(unquote(folder.name)) for folder in sorted(self._folder.iterdir()) if folder.is_dir()]

    def _folder_of(self, task: TaskId) -> Path:
        return self._folder / _quoted(task)

    def _path(self, task: TaskId, part: Part) -> str:
        return f"{self._root}{_quoted(task)}/{part}"


def _quoted(task: TaskId) -> str:
    return quote(task, safe="").replace(".", "%2E") or "%"
