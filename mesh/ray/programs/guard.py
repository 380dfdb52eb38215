"""Process between a worker and a program: starts the program, and ends everything that the program has started.

The worker holds one end of the guard's standard input. While it is open, the guard waits for the program. A byte in it asks the program
to stop by SIGTERM. Its end means that the worker has died or has lost patience: the guard kills. So a program never outlives its
worker, however that worker ends.

Processes that the program starts may leave its process group. On Linux they cannot leave the guard, which is their subreaper: a process
whose parent ends becomes the guard's child. Elsewhere the guard knows the process group only.

The guard runs as a script without site packages, since it starts once for each program. Source: `PR_SET_CHILD_SUBREAPER` in prctl(2), as
container runtimes use it.

Ray kills the direct children of a worker before the worker itself when it cancels by force. So the guard is no direct child: the script
forks a stub above it, which passes on its exit code and SIGTERM. The guard outlives the stub, and sees the end of the worker's pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

#: Exit codes of a shell: the command cannot be run, was not found; a signal is added to the third.
CANNOT_RUN, NOT_FOUND, SIGNALLED = 126, 127, 128
#: How long what the program leaves behind may take to stop after the program has ended; seconds.
LEFT_BEHIND_S = 1.0
#: Pause between two looks at what is left; seconds.
LOOK_S = 0.02

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_PARENT = 1  #: Place of the parent's id in /proc/PID/stat, after the name.


def main() -> int:
    """Run the program that the first line of the standard input describes; return its exit code as a shell would."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # Until both processes handle it.
    below = os.fork()
    if below:
        return _as_stub(below)
    os.setsid()  # Nor does the end of the worker's process group end the guard.
    order = json.loads(_first_line())
    _prctl(_SET_CHILD_SUBREAPER, 1)
    wakes, asks = os.pipe()
    os.set_blocking(asks, False)
    signal.set_wakeup_fd(asks, warn_on_full_buffer=False)
    stops = {"asked": False}
    signal.signal(signal.SIGTERM, lambda *_: stops.update(asked=True))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray blocks SIGINT for all processes that it starts.
    try:
        try:
            program = _start(order)
        except OSError as refused:
            sys.stderr.write(f"{order['command'][0]}: {refused.strerror or refused}\n")
            return NOT_FOUND if isinstance(refused, FileNotFoundError) else CANNOT_RUN
        code = _wait(program, wakes, stops)
        kill_at_s = time.monotonic() + LEFT_BEHIND_S
        if code is None:
            _signal_all(program.pid, signal.SIGKILL)
            code, kill_at_s = program.wait(), 0.0
        _end_rest(program.pid, kill_at_s)
        return SIGNALLED - code if code < 0 else code
    finally:
        shutil.rmtree(order["folder"], ignore_errors=True)


def _as_stub(guard: int) -> int:
    """Wait for the guard; return its exit code."""
    os.close(0)  # The guard alone reads it.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(guard, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    code = os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1])
    return SIGNALLED - code if code < 0 else code


def _first_line() -> bytes:
    """Return the first line of the standard input, and read nothing behind it."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 65_536)
        if not part:
            raise SystemExit(CANNOT_RUN)
        line += part
    return line


def _start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    def begin() -> None:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        order["command"],
        cwd=order["cwd"],
        env=order["env"],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=begin,  # noqa: PLW1509  the guard has one thread
    )


def _wait(program: subprocess.Popen[bytes], wakes: int, stops: dict[str, bool]) -> int | None:
    """Return the program's exit code; None: it is to be killed."""
    is_asked = False
    while True:
        code = program.poll()
        if code is not None:
            return code
        ready, _, _ = select.select([0, wakes], [], [], None)
        if wakes in ready:
            os.read(wakes, 4_096)
        if 0 in ready:
            if not os.read(0, 4_096):
                return None
            stops["asked"] = True
        if stops["asked"] and not is_asked:
            is_asked = True
            _signal_all(program.pid, signal.SIGTERM)


def _end_rest(group: int, kill_at_s: float) -> None:
    """Stop what the program has left behind: by SIGTERM, and from `kill_at_s` on by SIGKILL, until nothing is left."""
    _reap()
    if _is_left(group):
        _signal_all(group, signal.SIGTERM)
    while _is_left(group):
        if time.monotonic() >= kill_at_s:
            _signal_all(group, signal.SIGKILL)
        time.sleep(LOOK_S)
        _reap()


def _reap() -> None:
    """Collect processes that have ended. The program itself has been collected before."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _is_left(group: int) -> bool:
    """Return whether a process of the program is left. Without /proc, the group is all that is known."""
    if os.path.isdir("/proc/self"):  # noqa: PTH112  as in `_below`
        return bool(_below(os.getpid()))
    with contextlib.suppress(OSError):
        os.killpg(group, 0)
        return True
    return False


def _signal_all(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)
    for pid in _below(os.getpid()):
        with contextlib.suppress(OSError):
            if os.getpgid(pid) != group:
                os.kill(pid, number)


def _below(above: int) -> list[int]:
    """Return the descendants of a process, as far as /proc shows them."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208  pathlib takes a third of the guard's start
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123  as above
                state, parent = file.read().rpartition(b")")[2].split()[: _PARENT + 1]
                if state != b"Z":
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    pending = [above]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _prctl(option: int, value: int) -> None:
    """Set an attribute of this process; without effect where the system has no prctl."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
