"""SIGINT and SIGTERM for a process that starts a stack: they end the start between two steps, and raise at once after the start."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class Interrupt:
    """Whether SIGINT or SIGTERM has arrived since `listen`.

    Args:
        say: Called once with a message, when the start next checks `is_wanted` after a signal.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._came, self._raises, self._is_shown = threading.Event(), threading.Event(), threading.Event()

    @property
    def came(self) -> bool:
        """Whether a signal has arrived."""
        return self._came.is_set()

    def listen(self) -> None:
        """Install both signal handlers; only from the main thread."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def is_wanted(self) -> bool:
        """Return whether the start may continue; safe in any thread."""
        if self.came:
            self.post()
        return not self.came

    def raise_from_now_on(self) -> None:
        """Raise KeyboardInterrupt at once for signals from now on.

        During the start an exception could fall between the start of a part and its registration, and the part would keep running.
        """
        self._raises.set()

    def post(self) -> None:
        """Print once that everything is being stopped."""
        if not self._is_shown.is_set():
            self._is_shown.set()
            self._say("\ninterrupted: stopping everything that was started …")

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._came.set()
        if self._raises.is_set():
            raise KeyboardInterrupt


def ignore_signals() -> None:
    """Ignore both signals, because the stack is already stopping."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
