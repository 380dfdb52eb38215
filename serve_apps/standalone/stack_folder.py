"""State folder of a stack: one owner at a time, and the place where clients find address and key."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from mesh.errors import MeshError
from mesh.ray.cluster.process import start_mark

#: File of `serve_apps.standalone.child_pids`.
CHILDREN_FILE = "children.json"
#: File that `prepare` writes: operators' commands then use the folder without a running stack.
PREPARED_FILE = "prepared.json"


class AlreadyRunning(MeshError):
    """Another stack owns the state folder; the message names it and the remedy."""


class StackFolder:
    """`.schedulemesh` or another folder; only its owner can read its files."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock: int | None = None

    def __enter__(self) -> StackFolder:  # noqa: PYI034  `Self` needs Python 3.11
        """Own the folder until `__exit__`, or until this process ends in any way.

        Raises:
            AlreadyRunning: Another process owns the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            owner = self.read("stack.json")
            raise AlreadyRunning(
                f"a stack already runs in {self.path} (process {owner.get('pid', '?')}, {owner.get('address', 'still starting')}); "
                "stop it with `schedulemesh down`, or give another folder with --state-dir"
            ) from None
        self._lock = descriptor
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name in ("stack.json", "client.json", CHILDREN_FILE):
            (self.path / name).unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, name: str, facts: dict[str, Any]) -> None:
        """Replace a file of facts atomically."""
        temporary = self.path / f".{name}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(facts, file, indent=1)
        temporary.replace(self.path / name)

    def read(self, name: str) -> dict[str, Any]:
        """Return the facts in a file; empty if there is no such file."""
        try:
            facts = json.loads((self.path / name).read_text())
        except (FileNotFoundError, ValueError):  # Not JSON, or not text.
            return {}
        return facts if isinstance(facts, dict) else {}

    @property
    def is_prepared(self) -> bool:
        """Whether the folder is that of a root which Ray Serve deploys."""
        return bool(self.read(PREPARED_FILE))

    def owner(self) -> psutil.Process | None:
        """Return the process that runs the folder's stack, if it is alive."""
        facts = self.read("stack.json")
        try:
            process = psutil.Process(int(facts["pid"]))
            return process if start_mark(process.pid) == facts["started"] else None
        except (KeyError, TypeError, ValueError, psutil.Error):
            return None
