r"""Output of a node, read back from the worker's own log files.

Ray directs a worker's standard output and error into files of its session, by file descriptor. So Python's prints, `logging`, C code and
child processes all end there. The capture notes the sizes of the files when a node begins and reads what comes after, so printing costs
the node nothing, nothing blocks, and the lines of a killed worker are still there. Rejected: pipes in place of the files, which block
code that prints while it holds the interpreter, and lose their content with the worker; a replacement of `sys.stdout`, which misses C code
and child processes.

A thread reads while a node runs, and hands on what is new. `flush` hands on the rest, and returns when the runner has it. Lines of one
look have one time, and the two streams are in order within themselves only.

A mark in the watch folder names the node that runs, and where its unread output begins: `take_unread` finds it when the worker is dead.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import psutil
import ray
import structlog

from mesh.core.ids import NodeId, StageId
from mesh.ray.user_code.output_lines import (
    LAST_BYTES,
    LOOK_BYTES_MIN,
    NODE_BURST_BYTES,
    NODE_BYTES_PER_S,
    ByteBudget,
    Kept,
    Stream,
    keep_within,
    lines_in,
    messages_of,
)
from mesh.stages.messages import OUTPUT_CHARS_MAX, NodeOutput

log = structlog.get_logger(__name__)

#: Pause between two looks at the output of a node; seconds.
LOOK_S = 0.3
#: Longest wait for the runner when a node ends; seconds.
FLUSH_S_MAX = 5.0
#: Of more unread output than twice this, only as much from both ends is read; the lines between are only counted. Bytes.
READ_BYTES = 64 << 10
#: Bytes read at once to count lines.
_COUNTED_BYTES = 1 << 20
#: A mark: the paths of the files, then the length of the description of the node, then that.
_PATHS_BYTES, _MARK_BYTES = 2048, 4096
_FOLDER = "o"
#: How long a dead worker's mark is kept; seconds.
MARK_KEPT_S = 3_600

Send = Callable[[list[NodeOutput]], "Future[Any] | None"]


@dataclass(slots=True)
class OutputFile:
    """File that one of the worker's streams is directed to."""

    stream: Stream
    path: str
    offset: int = 0  #: Everything before was read, or is of earlier nodes.
    _file: int = field(init=False)

    def __post_init__(self) -> None:
        self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    def close(self) -> None:
        os.close(self._file)

    def size(self) -> int:
        """Return the size of the file."""
        return os.lseek(self._file, 0, os.SEEK_END)  # Cheaper than `fstat`; `pread` does not use the position.

    def read(self, end: int, allowed_bytes: int, *, is_last: bool) -> Kept | None:
        """Read the new lines up to `end`, an offset. None: there is no whole line yet.

        Args:
            is_last: The node has ended, so a line without an end is read as well.
        """
        if end < self.offset:  # Someone has emptied the file.
            self.offset = 0
        if end - self.offset <= 2 * READ_BYTES:
            data = self._bytes(self.offset, end)
            data = data if is_last else _whole_lines(data)
            if not data:
                return None
            self.offset += len(data)
            return keep_within(lines_in(data), 0, (), allowed_bytes)
        first = self._bytes(self.offset, self.offset + READ_BYTES)
        first = _whole_lines(first) or first
        last = self._bytes(end - READ_BYTES, end)
        last = last if is_last else _whole_lines(last) or last
        left_out = self._count(self.offset + len(first), end - READ_BYTES)
        self.offset = end - READ_BYTES + len(last)
        return keep_within(lines_in(first), left_out, lines_in(last), allowed_bytes)

    def _bytes(self, start: int, end: int) -> bytes:
        return os.pread(self._file, end - start, start)

    def _count(self, start: int, end: int) -> int:
        """Return the number of lines, at least one."""
        pieces = range(start, end, _COUNTED_BYTES)
        return max(1, sum(self._bytes(piece, min(piece + _COUNTED_BYTES, end)).count(b"\n") for piece in pieces))


def _whole_lines(data: bytes) -> bytes:
    """Return the data up to the last end of a line; all of it when it is too long to wait for that end."""
    whole = data.rfind(b"\n") + 1
    return data[:whole] if whole or len(data) < OUTPUT_CHARS_MAX else data


@dataclass(slots=True)
class _Node:
    stage: StageId
    node: NodeId
    attempt: int
    budget: ByteBudget
    number: int = 1  #: Number of the next line.


class OutputCapture:
    """Capture of this process's output, node after node.

    Args:
        files: Files of the streams. None: those that Ray has directed the streams to.
        folder: Folder of the marks. None: no mark is written.
    """

    def __init__(self, files: Sequence[OutputFile] | None = None, folder: Path | None = None) -> None:
        self._files = _files_of_ray() if files is None else tuple(files)
        self._mark: _Mark | None = None
        if folder is not None and self._files:
            with contextlib.suppress(OSError):  # Without a mark only the last lines of a killed worker are missing.
                self._mark = _Mark(folder, self._files)
        self._present: tuple[StageId, NodeId, int, float] | None = None  #: The node that runs, its attempt, and when it began; seconds.
        self._node: _Node | None = None  #: The same node, once it has printed something.
        self._send: Send | None = None
        self._unsent: list[NodeOutput] = []
        self._answer: Future[Any] | None = None
        self._lock = threading.Lock()
        self._has_node = threading.Event()
        if self._files:
            threading.Thread(target=self._look_again, name="output", daemon=True).start()

    @contextlib.contextmanager
    def of(self, send: Send, stage: StageId, node: NodeId, attempt: int) -> Iterator[None]:
        """Capture the output of the node that runs within. Lines that are not sent at its end stay until `flush`.

        Args:
            send: Hands lines to the runner.
        """
        self.begin(send, stage, node, attempt)
        try:
            yield
        finally:
            self.end()

    def begin(self, send: Send, stage: StageId, node: NodeId, attempt: int, *, continues: bool = False) -> None:
        """Capture the output of a node from now on; see `of`.

        Args:
            continues: Another node has just ended, so all output until now was read.
        """
        if not self._files:
            return
        if not continues:
            for file in self._files:
                file.offset = file.size()
        self._send = send
        self._present = stage, node, attempt, time.monotonic()
        if self._mark is not None:
            self._mark.write(stage, node, attempt)
        if not self._has_node.is_set():
            self._has_node.set()

    def end(self) -> None:
        """End the capture of the node's output, and read the rest of it."""
        if not self._files:
            return
        _flush_streams()
        with self._lock:  # The other thread must not see the node again once it has ended.
            try:
                for file in self._files:
                    if file.size() != file.offset:
                        self._read(is_last=True)
                        break
            except Exception:  # The result of the node matters more than its output.
                log.exception("the output of a node cannot be read")
            finally:
                self._node = self._present = None
                if self._mark is not None:
                    self._mark.clear()

    def flush(self) -> None:
        """Hand on all lines, and wait until the runner has them, up to `FLUSH_S_MAX`. Does nothing when there are none."""
        if self._unsent or self._answer is not None:
            with self._lock, contextlib.suppress(Exception):  # A runner that is gone takes its nodes with it.
                self._hand_on()
                if self._answer is not None:
                    answer, self._answer = self._answer, None
                    answer.result(FLUSH_S_MAX)

    def look(self) -> None:
        """Read and hand on what is new."""
        with self._lock:
            if self._present is not None:
                self._read(is_last=False)
            if self._answer is None or self._answer.done():
                self._hand_on()

    def _look_again(self) -> None:
        pause = threading.Event()
        while True:
            self._has_node.wait()
            pause.wait(LOOK_S)
            with contextlib.suppress(Exception):  # Without this thread nothing of a later node would be read before its end.
                self.look()
            if self._present is None:
                self._has_node.clear()
                if self._present is not None:
                    self._has_node.set()

    def _hand_on(self) -> None:
        if self._unsent and self._send is not None:
            unsent, self._unsent = self._unsent, []
            self._answer = self._send(unsent)

    def _read(self, *, is_last: bool) -> None:
        if self._present is None:
            return
        if self._node is None:
            stage, name, attempt, began_s = self._present
            self._node = _Node(stage, name, attempt, ByteBudget(NODE_BURST_BYTES, NODE_BYTES_PER_S, began_s))
        node = self._node
        for file in self._files:
            end = file.size()
            if end == file.offset:
                continue
            now_s = time.monotonic()
            allowed_bytes = node.budget.left(now_s)
            if not is_last and allowed_bytes < LOOK_BYTES_MIN:
                continue
            kept = file.read(end, max(allowed_bytes, LAST_BYTES) if is_last else allowed_bytes, is_last=is_last)
            if kept is None:
                continue
            node.budget.spend(kept.size_bytes)
            at_ms = time.time_ns() // 1_000_000
            self._unsent += messages_of(kept, file.stream, node.stage, node.node, node.attempt, node.number, at_ms)
            node.number += len(kept.first) + kept.left_out + len(kept.last)
            if self._mark is not None and not is_last:
                self._mark.write(node.stage, node.node, node.attempt, node.number)


class _Mark:
    """File that names the node that runs. It is mapped, so a write costs no call of the system and survives a killed worker."""

    def __init__(self, folder: Path, files: Sequence[OutputFile]) -> None:
        marks = folder / _FOLDER
        marks.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old(marks)
        self._files = files
        self._path = marks / str(os.getpid())
        with self._path.open("w+b") as file:
            file.write(json.dumps({each.stream: each.path for each in files}).encode().ljust(_PATHS_BYTES)[:_PATHS_BYTES])
            file.truncate(_MARK_BYTES)
            file.flush()
            self._map = mmap.mmap(file.fileno(), _MARK_BYTES)

    def write(self, stage: StageId, node: NodeId, attempt: int, number: int = 1) -> None:
        """Name the node, and its next line; what is in the files from their offsets on is unread."""
        offsets = "\n".join([str(file.offset) for file in self._files])
        data = f"{offsets}\n{number}\n{attempt}\n{stage}\n{node}".encode()
        if len(data) <= _MARK_BYTES - _PATHS_BYTES - 4:
            self._map[_PATHS_BYTES : _PATHS_BYTES + 4 + len(data)] = len(data).to_bytes(4, "little") + data

    def clear(self) -> None:
        self._map[_PATHS_BYTES : _PATHS_BYTES + 4] = b"\0\0\0\0"


def _remove_old(marks: Path) -> None:
    """Remove the marks of dead workers: those that name no node, and those that nobody has asked for in `MARK_KEPT_S`."""
    for path in marks.iterdir():
        with contextlib.suppress(OSError, ValueError):  # Another worker removes it.
            if not psutil.pid_exists(int(path.name)):
                is_old = time.time() - path.stat().st_mtime > MARK_KEPT_S
                if is_old or not int.from_bytes(path.read_bytes()[_PATHS_BYTES : _PATHS_BYTES + 4], "little"):
                    path.unlink()


def take_unread(folder: Path, stage: StageId, node: NodeId, attempt: int) -> list[NodeOutput]:
    """Return the output of a node whose worker is dead, as far as the worker has not read it; and remove its mark.

    Ray's own retries have the attempt's number too: then there are several dead workers, and the last one's output comes last.

    Args:
        folder: Watch folder of the mesh on this node. Nothing is found of workers of other nodes.
    """
    marks, found = folder / _FOLDER, list[tuple[float, list[NodeOutput]]]()
    for path in marks.iterdir() if marks.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, KeyError):  # A worker that begins or ends meanwhile.
            mark = path.read_bytes()
            size = int.from_bytes(mark[_PATHS_BYTES : _PATHS_BYTES + 4], "little")
            if not size:
                continue
            *offsets, number, of_attempt, of_stage, of_node = mark[_PATHS_BYTES + 4 : _PATHS_BYTES + 4 + size].decode().split("\n", 5)
            if (of_stage, of_node, of_attempt) == (stage, node, str(attempt)):
                began_s = path.stat().st_mtime
                path.unlink()
                unread = _Node(stage, node, attempt, ByteBudget(0, 0, 0.0), int(number))
                found.append((began_s, _unread(json.loads(mark[:_PATHS_BYTES]), tuple(map(int, offsets)), unread)))
    return [output for _, of_worker in sorted(found, key=itemgetter(0)) for output in of_worker]


def _unread(paths: dict[Stream, str], offsets: Sequence[int], node: _Node) -> list[NodeOutput]:
    found: list[NodeOutput] = []
    for (stream, path), offset in zip(paths.items(), offsets, strict=True):
        file = OutputFile(stream, path, offset)
        with contextlib.closing(file):
            end = file.size()
            kept = file.read(end, LAST_BYTES, is_last=True) if end > offset else None
        if kept is not None:
            at_ms = time.time_ns() // 1_000_000
            found += messages_of(kept, stream, node.stage, node.node, node.attempt, node.number, at_ms)
            node.number += len(kept.first) + kept.left_out + len(kept.last)
    return found


def _files_of_ray() -> tuple[OutputFile, ...]:
    """Return the files that Ray has directed this worker's streams to; none when they go elsewhere, as with rotated logs."""
    worker = ray._private.worker.global_worker  # noqa: SLF001  Ray has no public name for it
    found: list[OutputFile] = []
    paths: list[tuple[Stream, int, str]] = [("stdout", 1, worker.get_out_file_path()), ("stderr", 2, worker.get_err_file_path())]
    for stream, descriptor, path in paths:
        with contextlib.suppress(OSError, TypeError):
            directed, there = os.fstat(descriptor), Path(path).stat()
            if stat.S_ISREG(directed.st_mode) and (directed.st_dev, directed.st_ino) == (there.st_dev, there.st_ino):
                found.append(OutputFile(stream, str(path)))
    return tuple(found)


@cache
def _c_stdout() -> tuple[Any, Any] | None:
    try:
        libc = ctypes.CDLL(None)
        return libc.fflush, ctypes.c_void_p.in_dll(libc, "stdout")
    except (OSError, ValueError, AttributeError):
        return None


def _flush_streams() -> None:
    """Write what Python and C keep in buffers of the streams."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  cheaper than `contextlib.suppress`; every node comes here
            stream.flush()
        except Exception:  # noqa: BLE001, S110  the code may have replaced or closed it
            pass
    if (of_c := _c_stdout()) is not None:
        flush, stdout = of_c
        flush(stdout)
