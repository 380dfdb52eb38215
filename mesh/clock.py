"""Time as a thing that is passed in."""

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds; `monotonic_ms` for deadlines, `wall_ms` for people."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may be set."""
        ...


class SystemClock:
    """This machine's clocks."""

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves when it is told to, for tests and simulation."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        """Let this much time pass."""
        self.now_ms += by_ms

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        return self.now_ms

    def wall_ms(self) -> int:
        """See `Clock`."""
        return self.now_ms
