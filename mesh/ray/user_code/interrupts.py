"""Interrupt a cancelled task that is inside a system call.

Ray cancels by `_thread.interrupt_main()`: the interpreter notes a SIGINT, and raises `KeyboardInterrupt` before its next bytecode.
Nothing reaches the kernel, so `time.sleep`, a lock or a read continues until it returns. A real SIGINT would not help: `ray start`
blocks SIGINT for all processes that it starts (`start_ray_process`), so Ctrl-C in a terminal does not end a cluster.

This module therefore forwards the noted SIGINT as a signal that is not blocked and has no meaning of its own. The system call returns
with EINTR, and the interpreter then raises for the noted SIGINT. Compiled code that never returns to the interpreter is killed after
the grace period.
"""

from __future__ import annotations

import signal
import socket
import threading

#: A process without a handler ignores this signal; Go's runtime uses it in the same way.
KICK = signal.SIGURG
#: A kick may arrive just before the system call that it should interrupt, so it is repeated.
_KICKS, _BETWEEN_S = 10, 0.05


_signals: socket.socket | None = None  #: The interpreter writes noted signals here for the listening thread; None: no thread listens yet.


def listen_for_cancel() -> None:
    """Let a noted SIGINT interrupt a system call of this process' main thread. Harmless when repeated, and no effect on other threads.

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
    """Handle the signal, so that the system call is interrupted: an ignored signal interrupts nothing."""
