"""What the system knows of processes: whose child cannot outlive whom, and which one a number still names."""

from __future__ import annotations

import ctypes
import signal
import sys
from functools import cache
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_PROC = Path("/proc")
#: Of `/proc/PID/stat`, counted behind the process' name, which may hold spaces and brackets: the 22nd of all.
_START_FIELD = 19


def die_with_parent() -> None:
    """For `preexec_fn`: on Linux the kernel sends SIGTERM to this process when the thread that started it ends.

    The thread, not the process: start such children from a thread that lives as long as they should. Elsewhere this
    does nothing, and an orphan is ended by `schedulemesh down`.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def start_mark(pid: int) -> str:
    """Tells the process from any other that has had, or will get, the same number.

    On Linux the boot and the ticks from there to the process' start: a wall clock that is set does not change them, while
    psutil's `create_time()` is the same ticks on top of a boot time that moves with that clock. Elsewhere the kernel keeps the
    time of the start itself.

    Raises:
        psutil.NoSuchProcess: There is none.
    """
    if sys.platform != "linux":
        return repr(psutil.Process(pid).create_time())
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return f"{_boot()}:{stat.rpartition(')')[2].split()[_START_FIELD]}"


@cache
def _boot() -> str:
    """Names this start of the machine; empty where the kernel does not tell."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
