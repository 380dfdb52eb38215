"""The journal of one mesh on disk: a snapshot, and the lines since.

    folder/snapshot-00000007.json   the state at the begin of the journal of the same number; absent before the first
    folder/journal-00000007.jsonl   one line per batch since then
    folder/lock                     held by the one process that writes here

A line costs one `write`, whatever the queue's length. It then survives the death of this process. With `fsync` it also
survives the death of the machine, once `sync` has returned; many lines can share one `sync` (group commit).

A snapshot replaces a journal in this order: write a draft, sync and rename it; open a new journal; remove older files. A crash
between any two steps leaves either the old pair or the new snapshot with an empty journal. A line that the process was writing
when it died is cut off at the next start: its decisions had not been carried out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from mesh.errors import RuntimeAdapterError
from mesh.tasks.journal import SCHEDULING, Batch, JournalError, Kinds, encode, is_whole, read

#: Lines or bytes from which a snapshot is cheaper than the replay that it saves.
LINES_MAX = 10_000
BYTES_MAX = 16 * 2**20
_REMEDY = "restore the file, or move the folder aside to start a new mesh"
_NUMBERED = re.compile(r"^(?P<what>snapshot|journal)-(?P<number>\d{8})\.jsonl?$")


class JournalFile:
    """The journal of one folder: appended by one process at a time, and read by it once, at its start.

    Args:
        folder: Created for this user alone if missing. When it cannot be opened, created files are removed.
        fsync: Whether `sync` waits for the disk.
    Raises:
        RuntimeAdapterError: Another process writes here, or the folder cannot be used.
    """

    def __init__(
        self, folder: Path, *, fsync: bool = False, lines_max: int = LINES_MAX, bytes_max: int = BYTES_MAX, kinds: Kinds = SCHEDULING
    ) -> None:
        self._folder = folder
        self._kinds = kinds
        self._fsync = fsync
        self._lines_max, self._bytes_max = lines_max, bytes_max
        self._syncing = threading.Lock()
        self._file = self._lock = -1  #: File descriptors: the journal, open for appending; the file `lock`, held.
        self._size = self._lines = self._synced = 0  #: Bytes and lines of the journal, and the number of its lines on disk.
        self._lines_kept = self._bytes_kept = 0  #: Lines and bytes at the last snapshot that failed; 0: none since the last one.
        self.was_torn = False  #: True: the last process died while it wrote a line.
        is_new = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            before = frozenset(folder.iterdir())
            self._lock = _locked(folder / "lock")
            try:
                self._open()
            except BaseException:
                self._unmake(before, is_new=is_new)
                raise
        except OSError as error:
            raise RuntimeAdapterError(
                f"the journal in {folder} cannot be opened: {error}; check the folder's owner and the free disk space"
            ) from error

    def _open(self) -> None:
        self._number = self._newest()
        self._remove_others()
        self.was_torn = self._cut_torn_end()
        self._file = _opened(self._path("journal"))
        self._take(self._file, size=self._path("journal").stat().st_size, lines=sum(1 for _ in self.lines()))
        if self._fsync:
            _sync_folder(self._folder)  # Else a power cut could lose the file's name, with all lines synced into it.

    def _unmake(self, before: frozenset[Path], *, is_new: bool) -> None:
        """Remove everything that this opening has created; release the lock last."""
        for path in frozenset(self._folder.iterdir()) - before:
            path.unlink(missing_ok=True)
        if self._file >= 0:
            os.close(self._file)
        os.close(self._lock)
        self._file = self._lock = -1
        if is_new:
            with contextlib.suppress(OSError):  # Another process may have created files.
                self._folder.rmdir()

    def snapshot_kept(self) -> bytes | None:
        """Return the last snapshot; None: the journal begins with a new mesh."""
        path = self._path("snapshot")
        return path.read_bytes() if path.exists() else None

    def damaged(self, words: object) -> JournalError:
        """Return the error for a snapshot that cannot be read."""
        return JournalError(f"{self._path('snapshot')} is damaged: {words}; {_REMEDY}")

    def lines(self) -> Iterator[bytes]:
        """Yield the lines since the snapshot."""
        with self._path("journal").open("rb") as kept:
            yield from kept

    def batches(self) -> Iterator[Batch]:
        """Yield the decoded lines since the snapshot.

        Raises:
            JournalError: A line is damaged or unknown; the message names the file and the line.
        """
        try:
            yield from read(self.lines(), kinds=self._kinds)
        except JournalError as error:
            raise JournalError(f"{self._path('journal')}, {error}; {_REMEDY}") from error

    def append(self, version: int, events: Iterable[Any], decisions: Iterable[Any]) -> int:
        """Append one batch. Return the line number, for `sync` before the decisions are carried out.

        Raises:
            JournalError: The batch cannot be encoded.
            RuntimeAdapterError: The disk refuses the line, and nothing of it is left in the file; or the journal is closed.
        """
        self._check_open()
        line = encode(version, events, decisions, self._kinds)
        try:
            _write_all(self._file, line)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise RuntimeAdapterError(f"{self._path('journal')} cannot be written: {error}; free disk space") from error
        self._size += len(line)
        self._lines += 1
        return self._lines

    def sync(self, line: int | None = None) -> None:
        """Wait until the line, by default the last, is on disk. Returns at once without `fsync`, or when another call synced it."""
        if not self._fsync:
            return
        wanted = self._lines if line is None else line
        with self._syncing:
            if self._synced >= wanted:
                return
            written = self._lines
            os.fsync(self._file)
            self._synced = written

    def needs_snapshot(self) -> bool:
        """Return whether the journal is long enough to be replaced by a snapshot."""
        return self._lines >= self._lines_kept + self._lines_max or self._size >= self._bytes_kept + self._bytes_max

    def postpone_snapshot(self) -> None:
        """After a snapshot that failed: wait until the journal has grown as much again."""
        self._lines_kept, self._bytes_kept = self._lines, self._size

    def snapshot(self, state: bytes) -> None:
        """Replace all lines so far by `state`.

        Raises:
            RuntimeAdapterError: The disk refuses the snapshot, and the journal continues as before; or the journal is closed.
        """
        self._check_open()
        path, journal = self._path("snapshot", self._number + 1), self._path("journal", self._number + 1)
        draft, opened = path.with_suffix(".draft"), -1
        try:
            opened = _opened(journal)
            _write_synced(draft, state)
            draft.replace(path)
            _sync_folder(self._folder)
        except OSError as error:
            if opened >= 0:
                os.close(opened)
            for made in (path, draft, journal):  # Snapshot first: without it the old journal counts again.
                made.unlink(missing_ok=True)
            raise RuntimeAdapterError(f"{path} cannot be written: {error}; free disk space") from error
        with self._syncing:
            os.close(self._file)
            self._number += 1
            self._take(opened, size=0, lines=0)
        self._remove_others()

    def close(self) -> None:
        """Sync, and release the folder for another process. Idempotent."""
        if self._lock < 0:
            return
        self.sync()
        os.close(self._file)
        os.close(self._lock)
        self._file = self._lock = -1  # A later append must not write to another file that got the same descriptor.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._lock < 0:  # Another process may write here by now.
            raise RuntimeAdapterError(f"the journal in {self._folder} is closed")

    def _path(self, what: str, number: int | None = None) -> Path:
        suffix = "json" if what == "snapshot" else "jsonl"
        return self._folder / f"{what}-{self._number if number is None else number:08}.{suffix}"

    def _numbered(self) -> Iterator[tuple[str, int, Path]]:
        for path in self._folder.iterdir():
            match = _NUMBERED.match(path.name)
            if match is not None:
                yield match["what"], int(match["number"]), path

    def _newest(self) -> int:
        """Return the newest snapshot's number. A journal of a higher number is empty, because its snapshot was not finished."""
        return max((number for what, number, _ in self._numbered() if what == "snapshot"), default=0)

    def _remove_others(self) -> None:
        for _, number, path in tuple(self._numbered()):
            if number != self._number:
                path.unlink(missing_ok=True)
        for draft in self._folder.glob("snapshot-*.draft"):
            draft.unlink(missing_ok=True)

    def _cut_torn_end(self) -> bool:
        path = self._path("journal")
        if not path.exists():
            return False
        kept = path.read_bytes()
        end = kept.rfind(b"\n") + 1
        begin = kept.rfind(b"\n", 0, end - 1) + 1 if end else 0
        if end == len(kept) and not is_whole(kept[begin:end]):
            end = begin
        if end == len(kept):
            return False
        with path.open("rb+") as file:
            file.truncate(end)
            os.fsync(file.fileno())
        return True

    def _take(self, file: int, *, size: int, lines: int) -> None:
        self._file = file
        self._size, self._lines, self._synced = size, lines, 0
        self._lines_kept = self._bytes_kept = 0


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_there = os.fstat(lock).st_nlink > 0  # False when the last owner removed the file meanwhile; the next opening creates another.
    except BlockingIOError:
        is_there = False
    if not is_there:
        os.close(lock)
        raise RuntimeAdapterError(f"another process writes the journal in {path.parent}; stop it, or give this mesh a folder of its own")
    return lock


def _write_all(file: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
