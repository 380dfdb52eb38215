"""What the system knows of processes: whose child cannot outlive whom, and which one a number still names."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import psutil

# 1: PR_SET_PDEATHSIG. The parent may have ended before the kernel was asked; then this process has another one.
_BIND = """\
import ctypes, os, sys
parent, number, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(number))
if os.getppid() != int(parent):
    sys.exit("the process that started this one is gone")
os.execv(command[0], command)
"""
_PROC = Path("/proc")
#: Of `/proc/PID/stat`, counted behind the process' name, which may hold spaces and brackets: the 22nd of all.
_START_FIELD = 19


def bound_to_parent(command: Sequence[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """The command, to be started as a child to which the kernel, on Linux, sends this signal when the thread that started it ends.

    The thread, not the process: start such children from a thread that lives as long as they should. Elsewhere it is the command
    itself, and an orphan is ended by `schedulemesh down`.

    A small program does it and then becomes the command. A `preexec_fn` would do the same between fork and exec, where the child of a
    process with threads can wait for ever for a lock that one of them held, and whoever started it with it.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _BIND, str(os.getpid()), str(int(number)), *command]


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
