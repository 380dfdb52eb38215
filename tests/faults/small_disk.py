"""Really full disks: a file system of a few pages, where this process may mount one.

Elsewhere a limit on file sizes stands in, which fails writes with `EFBIG` and per file.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _mount(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)  # An open file there blocks no one.


def _may_mount() -> bool:
    """Return whether mounting works, checked once before all rows: a container's root often may not mount."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            has = _mount(Path(folder), "size=64k")
        except FileNotFoundError:
            return False
        if has:
            _unmount(Path(folder))
        return has


#: Kinds of full disks available here.
FULL_DISKS = ("a file limit", "a small disk") if _may_mount() else ("a file limit",)


class SmallDisk:
    """Mounted file system of this many bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def grow(self, to_bytes: int) -> None:
        """Enlarge the disk."""
        assert _mount(self.folder, f"remount,size={to_bytes}")


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount the created folder as its own disk."""
    folder.mkdir()
    assert _mount(folder, f"size={size_bytes}")
    try:
        yield SmallDisk(folder)
    finally:
        _unmount(folder)
