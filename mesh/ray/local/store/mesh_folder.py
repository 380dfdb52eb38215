"""The folder of one mesh's persistent state; a failed start leaves the folder as it was."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from mesh.errors import RuntimeAdapterError


class MeshFolder:
    """The folder, created if missing, for this user alone.

    Raises:
        RuntimeAdapterError: The folder cannot be created or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._answering():
            self._made = [folder for folder in (path, *path.parents) if not folder.exists()]  #: Innermost first.
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._before = frozenset(path.iterdir())
        self._is_first = self._counter not in self._before

    def count_start(self) -> int:
        """Return the number of supervisor starts in this folder, this one included; names of processes contain it."""
        with self._answering():
            count = int(self._counter.read_text()) + 1 if self._counter.exists() else 1
            draft = self._counter.with_suffix(".draft")
            draft.write_text(str(count))
            draft.replace(self._counter)
        return count

    def forget_first(self) -> None:
        """Remove what this start has written, if the mesh never started before. The caller holds the journal's lock."""
        if self._is_first:
            for path in frozenset(self.path.iterdir()) - self._before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def unmake(self) -> None:
        """Remove the folders that this start created, if they are empty."""
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    @property
    def _counter(self) -> Path:
        return self.path / "incarnation"

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as refused:
            raise RuntimeAdapterError(
                f"state_dir {self.path} cannot be used: {refused}; name a folder on the head node that this user can write"
            ) from refused
