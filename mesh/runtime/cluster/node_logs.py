"""Why a process of Ray ended itself, from its logs: a node that did not come up, a worker that aborted."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO

#: Ray's own files of a cluster, in its folder. A short name: Ray's sockets lie below, and their paths have to be short.
RAY_FOLDER = "r"
#: Ray's link to the folder of the session, in the cluster's folder.
SESSION = f"{RAY_FOLDER}/session_latest"
#: Logs of the parts that end a whole node.
_OF_NODES = ("raylet*", "gcs_server*")
#: Whoever writes Ray's files may be another user. So no link is followed, and no pipe is waited for.
_SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
#: How Ray's C++ begins its reason for ending itself.
_FATAL = "Check failed"
#: And these say that a part of the node had not started in time: 15 s for an agent, 30 s for the raylet, whatever the settings of Ray 2.60.
_TOO_SLOW = ("Timed out waiting for file", "timed out during startup")
#: And so it tells of a signal that ended it.
_SIGNAL = "*** SIG"
#: What is read of the end of one log; a stack of C++ calls follows the reason.
_END_BYTES = 65_536


def fatal_line(folder: Path, since_s: float = 0.0) -> str | None:
    """Why a part of a node ended itself, in its own words; None when none has said so.

    Args:
        folder: Of the cluster.
        since_s: Logs that were last written before are left out; seconds since the epoch.
    """
    for pattern in _OF_NODES:
        for name, log in _logs(folder):
            if fnmatch(name, pattern):
                reported = next((line for line in _end_of(log, since_s).splitlines() if _FATAL in line), None)
                if reported is not None:
                    return reported[reported.index(_FATAL) :].strip()
    return None


def last_word_of(pid: int, logs: Path) -> str | None:
    """Why the worker process aborted, in its own words; None when it has not said so, as when it was killed.

    Args:
        logs: Of the Ray session that it belonged to, on its node.
    """
    for path in sorted((*logs.glob(f"python-core-worker-*_{pid}.log"), *logs.glob(f"worker-*-{pid}.err"))):
        with contextlib.suppress(OSError), _opened(path) as log:
            for line in _end_of(log).splitlines():
                for sign in (_FATAL, _SIGNAL):
                    if sign in line:
                        return line[line.index(sign) :].strip()
    return None


def is_too_slow(fatal: str | None) -> bool:
    """Did the node end because a part of it had not started in time, as on a machine with too much to do?"""
    return fatal is not None and any(words in fatal for words in _TOO_SLOW)


def keep_logs(folder: Path, kept_in: Path) -> None:
    """Copy all logs of the cluster in `folder` to `kept_in`, in place of those of an earlier start. What cannot be copied is left out:
    the failure that is looked into matters more than its traces."""
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
    """Ray's logs of the cluster in `folder`, by their paths below the folder of logs. What is no plain file is left out.

    Of Ray's link to its session only the name counts: each folder is opened within the one before.
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
    """A plain file. Raises OSError when it is none, or a link."""
    with os.fdopen(os.open(path, _SAFELY, dir_fd=within), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no plain file")
        yield file


def _end_of(log: BinaryIO, since_s: float = 0.0) -> str:
    found = os.fstat(log.fileno())
    if found.st_mtime < since_s:
        return ""
    log.seek(max(0, found.st_size - _END_BYTES))
    return log.read(2 * _END_BYTES).decode(errors="replace")
