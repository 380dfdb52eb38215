"""Operating-system processes: children that end with their parents, and a mark that recognizes a process despite pid reuse."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import psutil

# 1: PR_SET_PDEATHSIG. The parent may have ended before this call; this process then has another parent.
_BIND = """\
import ctypes, os, sys
parent, number, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(number))
if os.getppid() != int(parent):
    sys.exit("the process that started this one is gone")
os.execv(command[0], command)
"""
_PROC = Path("/proc")
#: Index of the start time in `/proc/PID/stat` (its 22nd field), counted after the process' name, which may hold spaces and brackets.
_START_FIELD = 19


def bound_to_parent(command: Sequence[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """Return the command wrapped so that, on Linux, the kernel sends it this signal when the thread that started it ends.

    The thread counts, not the process: start such children from a thread that lives as long as they should. Elsewhere the command is
    returned unchanged, and `schedulemesh down` ends an orphan.

    A small program sets the signal and then becomes the command. A `preexec_fn` would run between fork and exec, where the child of a
    process with threads can wait for ever for a lock that one of them held, and its parent waits with it.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _BIND, str(os.getpid()), str(int(number)), *command]


def start_mark(pid: int) -> str:
    """Return a mark that differs between processes that have the same id at different times.

    On Linux the mark is the boot and the process' start in ticks since then. Setting the wall clock does not change it, unlike psutil's
    `create_time()`, which adds the ticks to a boot time that moves with that clock. Elsewhere the kernel keeps the time of the start
    itself.

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
    """Return the id of this boot; empty where the kernel has none."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
