"""Child processes that cannot outlive their parent."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """For `preexec_fn`: on Linux the kernel sends SIGTERM to this process when the thread that started it ends.

    The thread, not the process: start such children from a thread that lives as long as they should. Elsewhere this
    does nothing, and an orphan is ended by `schedulemesh down`.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
