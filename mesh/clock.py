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


class EnduringClock:
    """Time that has passed, by whichever of this machine's clocks saw more of it: for deadlines that must not be missed asleep.

    The boot clock counts a suspended machine; only the wall clock shows the pause of a virtual one. A wall clock that is set
    forward makes deadlines come early, which is safe; one that is set back has no effect.

    Source: the lease protocol's clock of the holder.
    """

    def __init__(self) -> None:
        self._elapsed_ns = 0
        self._boot_ns, self._wall_ns = _boot_ns(), time.time_ns()

    def monotonic_ms(self) -> int:
        """Milliseconds since this clock was made."""
        boot_ns, wall_ns = _boot_ns(), time.time_ns()
        self._elapsed_ns += max(0, boot_ns - self._boot_ns, wall_ns - self._wall_ns)
        self._boot_ns, self._wall_ns = boot_ns, wall_ns
        return self._elapsed_ns // 1_000_000

    def wall_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000


def _boot_ns() -> int:
    """Since the machine's start, time asleep counted where the system can tell (Linux)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns()


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
