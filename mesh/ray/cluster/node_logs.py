"""Reasons for which Ray's processes ended themselves, read from their logs: a node that did not come up, a worker that aborted."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO

#: Ray's own files, inside the cluster's folder. The name is short since the paths of Ray's sockets below it must be short.
RAY_FOLDER = "r"
#: Ray's link to the folder of the session, in the cluster's folder.
SESSION = f"{RAY_FOLDER}/session_latest"
#: Logs of the processes whose failure ends a whole node.
_OF_NODES = ("raylet*", "gcs_server*")
#: Another user may write Ray's files, so links are not followed, and reading a pipe does not block.
_SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
#: Ray's C++ code begins its fatal message with these words.
_FATAL = "Check failed"
#: These messages say that a process of the node did not start in time: 15 s for an agent, 30 s for the raylet, fixed in Ray 2.60.
_TOO_SLOW = ("Timed out waiting for file", "timed out during startup")
#: Ray's log line for a fatal signal begins so.
_SIGNAL = "*** SIG"
#: Bytes read from the end of one log; a stack of C++ calls follows the reason.
_END_BYTES = 65_536


def fatal_line(folder: Path, since_s: float = 0.0) -> str | None:
    """Return the message with which a process of a node ended itself; None when no log has one.

    Args:
        folder: Folder of the cluster.
        since_s: Ignore logs that were last written before this time; seconds since the epoch.
    """
    for pattern in _OF_NODES:
        for name, log in _logs(folder):
            if fnmatch(name, pattern):
                fatal_line = next((line for line in _end_of(log, since_s).splitlines() if _FATAL in line), None)
                if fatal_line is not None:
                    return fatal_line[fatal_line.index(_FATAL) :].strip()
    return None


def last_word_of(pid: int, logs: Path) -> str | None:
    """Return the message with which the worker process aborted; None when there is none, as after a kill.

    Args:
        logs: Folder of the logs of the worker's Ray session, on its node.
    """
    for path in sorted((*logs.glob(f"python-core-worker-*_{pid}.log"), *logs.glob(f"worker-*-{pid}.err"))):
        with contextlib.suppress(OSError), _opened(path) as log:
            for line in _end_of(log).splitlines():
                for sign in (_FATAL, _SIGNAL):
                    if sign in line:
                        return line[line.index(sign) :].strip()
    return None


def is_too_slow(fatal: str | None) -> bool:
    """Return whether the node ended because one of its processes did not start in time, as on an overloaded machine."""
    return fatal is not None and any(words in fatal for words in _TOO_SLOW)


def keep_logs(folder: Path, kept_in: Path) -> None:
    """Copy all logs of the cluster in `folder` to `kept_in`, and replace those of an earlier start.

    Logs that cannot be copied are left out, so a copy error does not hide the original failure.
    """
    shutil.rmtree(kept_in, ignore_errors=True)
    with contextlib.suppress(OSError, shutil.Error):
        kept_in.mkdir(parents=True, mode=0o700)
        for log in folder.glob("node-*.log"):
            shutil.copy(log, kept_in)
        for name, source in _logs(folder):
            copy = kept_in / "ray" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            with copy.open("wb") as sink:
                shutil.copyfileobj(source, sink)


def _logs(folder: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Yield Ray's logs of the cluster in `folder`, with their paths relative to the folder of logs. Only plain files count.

    Ray's link to its session gives only a name. Each folder is opened relative to its parent, so no link is followed.
    """
    with contextlib.ExitStack() as opened:
        try:
            at = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, at)
            for part in (RAY_FOLDER, _session_of(folder), "logs"):
                at = os.open(part, _SAFELY | os.O_DIRECTORY, dir_fd=at)
                opened.callback(os.close, at)
        except OSError:
            return
        for below, folders, names, within in os.fwalk(".", dir_fd=at):
            folders.sort()
            for name in sorted(names):
                with contextlib.suppress(OSError), _opened(name, within) as log:
                    yield os.path.normpath(f"{below}/{name}"), log


def _session_of(folder: Path) -> str:
    try:
        return (folder / SESSION).readlink().name
    except OSError:  # No link.
        return Path(SESSION).name


@contextlib.contextmanager
def _opened(path: str | Path, within: int | None = None) -> Iterator[BinaryIO]:
    """Open a plain file. Raises OSError for a link or any other kind of file."""
    with os.fdopen(os.open(path, _SAFELY, dir_fd=within), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a plain file")
        yield file


def _end_of(log: BinaryIO, since_s: float = 0.0) -> str:
    found = os.fstat(log.fileno())
    if found.st_mtime < since_s:
        return ""
    log.seek(max(0, found.st_size - _END_BYTES))
    return log.read(2 * _END_BYTES).decode(errors="replace")
