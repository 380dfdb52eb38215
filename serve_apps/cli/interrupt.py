"""What SIGINT and SIGTERM do to a stack that this process starts: they end the start between two steps, and what follows anywhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class Interrupt:
    """Asked for by a signal, once it has been told to `listen`.

    Args:
        say: Told once that everything is being stopped, as soon as somebody asks whether the start is wanted.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._came, self._raises, self._is_told = threading.Event(), threading.Event(), threading.Event()

    @property
    def came(self) -> bool:
        """Whether there was one."""
        return self._came.is_set()

    def listen(self) -> None:
        """Take both signals, from the main thread."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def is_wanted(self) -> bool:
        """Whether a start may go on; from any thread."""
        if self.came:
            self.tell()
        return not self.came

    def raise_from_now_on(self) -> None:
        """The start is over: a signal becomes a KeyboardInterrupt at once. Before, that might come between the start of a part and the
        note that there is one."""
        self._raises.set()

    def tell(self) -> None:
        """Say what is going on; once."""
        if not self._is_told.is_set():
            self._is_told.set()
            self._say("\ninterrupted: stopping everything that was started …")

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._came.set()
        if self._raises.is_set():
            raise KeyboardInterrupt


def ignore_signals() -> None:
    """All is being stopped already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
