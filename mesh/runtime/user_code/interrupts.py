"""Interrupt a cancelled task that is inside a system call.

Ray cancels by `_thread.interrupt_main()`: the interpreter notes a SIGINT, and raises `KeyboardInterrupt` before its next bytecode.
Nothing reaches the kernel, so `time.sleep`, a lock or a read goes on until it returns. A SIGINT of the kernel's own would not help:
`ray start` blocks SIGINT for all that it starts (`start_ray_process`), so that Ctrl-C in a terminal does not end a cluster.

So the noted SIGINT is passed on as a signal that is not blocked and has no meaning of its own: the system call returns with EINTR, the
interpreter looks at what it has noted, and raises. A call that never looks (compiled code in a loop) is killed after the grace.
"""

from __future__ import annotations

import signal
import socket
import threading

#: Ignored by a process that has no handler for it; Go's runtime uses it in the same way.
KICK = signal.SIGURG
#: A kick may come just before the system call that it is meant for.
_KICKS, _BETWEEN_S = 10, 0.05


_signals: socket.socket | None = None  #: Where the listening thread hears of noted signals; None: it does not listen yet.


def listen_for_cancel() -> None:
    """From now on a noted SIGINT ends a system call of this process' main thread. Harmless when repeated, and outside of the main thread.

    Code that sets a wakeup fd of its own (`asyncio` with signal handlers) keeps it.
    """
    global _signals
    if threading.current_thread() is not threading.main_thread():
        return
    if _signals is None:
        reads, _signals = socket.socketpair()
        _signals.setblocking(False)
        signal.signal(KICK, _ignore)
        threading.Thread(target=_pass_on, args=(reads,), name="interrupts", daemon=True).start()
    before = signal.set_wakeup_fd(_signals.fileno(), warn_on_full_buffer=False)
    if before not in (-1, _signals.fileno()):
        signal.set_wakeup_fd(before)


def _pass_on(reads: socket.socket) -> None:
    main, pause = threading.main_thread(), threading.Event()
    while noted := reads.recv(256):
        if signal.SIGINT not in noted:
            continue  # The kick itself is noted as well.
        for _ in range(_KICKS):
            if main.ident is not None:
                signal.pthread_kill(main.ident, KICK)
            pause.wait(_BETWEEN_S)


def _ignore(*_: object) -> None:
    """A handler, so that the system call is interrupted: what is ignored interrupts nothing."""
