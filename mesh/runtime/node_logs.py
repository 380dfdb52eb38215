"""Why a process of Ray ended itself, from its logs: a node that did not come up, a worker that aborted."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

#: Ray's own logs of a cluster, below its folder.
_LOGS = "session_latest/logs"
#: Logs of the parts that end a whole node.
_OF_NODES = ("raylet*", "gcs_server*")
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
        for log in sorted((folder / _LOGS).glob(pattern)):
            told = next((line for line in _end_of(log, since_s).splitlines() if _FATAL in line), None)
            if told is not None:
                return told[told.index(_FATAL) :].strip()
    return None


def last_word_of(pid: int, logs: Path) -> str | None:
    """Why the worker process aborted, in its own words; None when it has not said so, as when it was killed.

    Args:
        logs: Of the Ray session that it belonged to, on its node.
    """
    for log in sorted((*logs.glob(f"python-core-worker-*_{pid}.log"), *logs.glob(f"worker-*-{pid}.err"))):
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
        if (folder / _LOGS).is_dir():
            shutil.copytree(folder / _LOGS, kept_in / "ray", ignore_dangling_symlinks=True)


def _end_of(log: Path, since_s: float = 0.0) -> str:
    try:
        with log.open("rb") as file:
            if log.stat().st_mtime < since_s:
                return ""
            file.seek(max(0, log.stat().st_size - _END_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
