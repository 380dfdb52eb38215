"""Store of saved task states, in a folder that outlives every process.

A file is a header line of JSON followed by the pickles, so that the header is read without unpickling a tenant's bytes. A file
is written as a draft, synced, and renamed over the one before: a crash at any moment leaves the old snapshot or the new one. A
damaged file is treated as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mesh.core.counting import counted
from mesh.core.ids import TaskId
from mesh.core.saved_state import Checkpoint, PutResult, SnapshotLevel, StateSnapshot
from mesh.errors import RuntimeAdapterError

BYTES_MAX = 4 * 2**30
RETENTION_MS = 24 * 3600 * 1000
_PARTS = ("checkpoint_bytes", "arguments", "saved_bytes")
_ENDED, _NEW = ".ended", ".new"
_NAME_CHARS_MAX = 150


@dataclass(slots=True)
class _Entry:
    """Facts about a stored snapshot that are known without its bytes."""

    attempt: int
    at_ms: int
    size_bytes: int
    number: int  #: Sequence number of the snapshot in the store.
    ended_ms: int | None = None

    def is_newer_than(self, snapshot: StateSnapshot) -> bool:
        return (self.attempt, self.at_ms) > (snapshot.attempt, snapshot.at_ms)


class FileSnapshots:
    """Saved states from a task's first one until the retention after its end, in one file per task. Thread-safe.

    It finds the snapshots of earlier processes. Beyond its bytes the oldest snapshots are dropped first, those of ended tasks before all
    others.

    Args:
        folder: Created if missing. One process at a time writes to it.
        bytes_max: Limit of all snapshots together.
        retention_ms: Time that the snapshot of an ended task is kept.

    Raises:
        RuntimeAdapterError: The folder cannot be created, read or written. Methods that write raise it too.
    """

    def __init__(self, folder: Path, *, bytes_max: int = BYTES_MAX, retention_ms: int = RETENTION_MS) -> None:
        self._folder, self._bytes_max, self._retention_ms = folder, bytes_max, retention_ms
        self._lock = threading.Lock()
        self._entries: OrderedDict[TaskId, _Entry] = OrderedDict()  #: Oldest snapshot first.
        self._number = 0  #: Sequence number of the last snapshot.
        with self._answering("be opened"):
            folder.mkdir(parents=True, exist_ok=True)
            for file in folder.glob(f"*{_NEW}"):
                file.unlink()  # Left by a crash before the rename.
            found = [_found(file) for file in folder.iterdir() if not file.suffix]
        for task, entry in sorted(filter(None, found), key=lambda one: one[1].number):
            self._entries[task] = entry
            self._number = entry.number

    @property
    def size_bytes(self) -> int:
        """Total size of all snapshots."""
        return sum(entry.size_bytes for entry in self._entries.values())

    def tasks(self) -> tuple[TaskId, ...]:
        """Return the tasks with a snapshot, oldest snapshot first."""
        return tuple(self._entries)

    def put(self, snapshot: StateSnapshot) -> PutResult:
        """Store the snapshot in place of the task's earlier one. A snapshot older than the stored one changes nothing."""
        why = ""
        if snapshot.size_bytes > self._bytes_max:
            why = f"it takes {counted(snapshot.size_bytes, 'byte')}, and the store holds at most {self._bytes_max:,}"
            snapshot = snapshot.without_bytes(why)
        with self._lock:
            known = self._entries.get(snapshot.task)
            if known is not None and known.is_newer_than(snapshot):
                return PutResult(level=snapshot.level, why="a newer snapshot is stored")
            dropped = self._make_room(snapshot)
            self._number += 1
            self._write(snapshot)
            self._entries[snapshot.task] = _Entry(snapshot.attempt, snapshot.at_ms, snapshot.size_bytes, self._number)
            self._entries.move_to_end(snapshot.task)
            return PutResult(level=snapshot.level, dropped=dropped, why=why)

    def get(self, task: TaskId) -> StateSnapshot | None:
        """Return the task's last snapshot; None when there is none, it is damaged, or it was dropped to make room."""
        with self._lock:
            snapshot = self._read(task) if task in self._entries else None
            if snapshot is None:
                self._drop(task)
            return snapshot

    def end(self, task: TaskId, at_ms: int) -> None:
        """Mark the task as ended; its snapshot is dropped after the retention."""
        with self._lock:
            entry = self._entries.get(task)
            if entry is not None and entry.ended_ms is None:
                entry.ended_ms = at_ms
                self._mark_ended(task, at_ms)

    def drop(self, task: TaskId) -> None:
        """Drop the task's snapshot now. Harmless when there is none."""
        with self._lock:
            self._drop(task)

    def sweep(self, now_ms: int) -> tuple[TaskId, ...]:
        """Drop the snapshots of tasks that ended longer ago than the retention; return those tasks."""
        with self._lock:
            over = tuple(
                task
                for task, entry in self._entries.items()
                if entry.ended_ms is not None and now_ms - entry.ended_ms >= self._retention_ms
            )
            for task in over:
                self._drop(task)
            return over

    def _make_room(self, snapshot: StateSnapshot) -> tuple[TaskId, ...]:
        """Drop the oldest until the snapshot fits, ended tasks first; the snapshot that it replaces does not count."""
        others = [(entry.ended_ms is None, task) for task, entry in self._entries.items() if task != snapshot.task]
        size = snapshot.size_bytes + sum(self._entries[task].size_bytes for _, task in others)
        dropped = []
        for _, task in sorted(others, key=lambda one: one[0]):
            if size <= self._bytes_max:
                break
            size -= self._entries[task].size_bytes
            self._drop(task)
            dropped.append(task)
        return tuple(dropped)

    def _drop(self, task: TaskId) -> None:
        if self._entries.pop(task, None) is not None:
            self._remove(task)

    def _write(self, snapshot: StateSnapshot) -> None:
        file = self._file(snapshot.task)
        new = file.with_name(file.name + _NEW)
        with self._answering(f"store the snapshot of {snapshot.task}"):
            with new.open("wb") as sink:
                sink.writelines(_pieces(snapshot, self._number))
                sink.flush()
                os.fsync(sink.fileno())
            new.replace(file)
            file.with_name(file.name + _ENDED).unlink(missing_ok=True)
            _sync_folder(self._folder)

    def _read(self, task: TaskId) -> StateSnapshot | None:
        try:
            with self._file(task).open("rb") as source:
                return _snapshot_of(_Header(**json.loads(source.readline())), source.read())
        except (OSError, ValueError, TypeError):
            return None

    def _mark_ended(self, task: TaskId, at_ms: int) -> None:
        file = self._file(task)
        with self._answering(f"record the end of {task}"):
            file.with_name(file.name + _ENDED).write_text(str(at_ms), encoding="ascii")

    def _remove(self, task: TaskId) -> None:
        file = self._file(task)
        with self._answering(f"drop the snapshot of {task}"):
            file.unlink(missing_ok=True)
            file.with_name(file.name + _ENDED).unlink(missing_ok=True)

    def _file(self, task: TaskId) -> Path:
        """Return a file name that any file system accepts, that is unique to the task, and that stays inside the folder."""
        name = quote(task, safe="").replace("%", "=").replace(".", "=2E").replace("~", "=7E")
        if len(name) > _NAME_CHARS_MAX:
            name = f"{name[:_NAME_CHARS_MAX]}~{hashlib.sha256(task.encode()).hexdigest()[:16]}"
        return self._folder / name

    @contextlib.contextmanager
    def _answering(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as refused:
            raise RuntimeAdapterError(
                f"the snapshots in {self._folder} cannot {what}: {refused}; check the free disk space and the folder's owner"
            ) from refused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """The first line of a file."""

    task: TaskId
    attempt: int
    at_ms: int
    level: str
    progress: float | None
    checkpoint: dict[str, Any] | None
    why: str
    sizes: dict[str, int]  #: Sizes of the pickles, in the order in which they follow.
    sha256: str  #: Hash of everything after the header.
    number: int


def _pieces(snapshot: StateSnapshot, number: int) -> list[bytes]:
    parts = {name: part for name in _PARTS if (part := getattr(snapshot, name)) is not None}
    digest = hashlib.sha256()
    for part in parts.values():
        digest.update(part)
    header = _Header(
        task=snapshot.task,
        attempt=snapshot.attempt,
        at_ms=snapshot.at_ms,
        level=snapshot.level.value,
        progress=snapshot.progress,
        checkpoint=None if snapshot.checkpoint is None else asdict(snapshot.checkpoint),
        why=snapshot.why,
        sizes={name: len(part) for name, part in parts.items()},
        sha256=digest.hexdigest(),
        number=number,
    )
    return [json.dumps(asdict(header)).encode() + b"\n", *parts.values()]


def _snapshot_of(header: _Header, body: bytes) -> StateSnapshot | None:
    """Return the snapshot; None when the body does not match its hash."""
    if hashlib.sha256(body).hexdigest() != header.sha256:
        return None
    parts, at = {}, 0
    for name, size in header.sizes.items():
        parts[name] = body[at : at + size]
        at += size
    return StateSnapshot(
        task=header.task,
        attempt=header.attempt,
        at_ms=header.at_ms,
        level=SnapshotLevel(header.level),
        progress=header.progress,
        checkpoint=None if header.checkpoint is None else Checkpoint(**header.checkpoint),
        why=header.why,
        **parts,
    )


def _found(file: Path) -> tuple[TaskId, _Entry] | None:
    """Read the header of a file of an earlier process; None when it is damaged."""
    try:
        with file.open("rb") as source:
            header = _Header(**json.loads(source.readline()))
    except (ValueError, TypeError):
        return None
    entry = _Entry(header.attempt, header.at_ms, sum(header.sizes.values()), header.number)
    with contextlib.suppress(FileNotFoundError, ValueError):
        entry.ended_ms = int(file.with_name(file.name + _ENDED).read_text(encoding="ascii"))
    return header.task, entry


def _sync_folder(folder: Path) -> None:
    """Sync the folder: without it, a rename may not survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
