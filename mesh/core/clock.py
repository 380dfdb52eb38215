"""Clocks that are passed in, and times as RFC 3339 text, like `2026-01-31T09:00:00.250Z`."""

import re
import time
from datetime import date, datetime, timedelta, timezone
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)
#: Fraction of a second. Python 3.10 reads three or six digits only.
_FRACTION = re.compile(r"\.(\d+)")
#: Characters of a wrong text in its error.
_SHOWN = 80
#: The last millisecond that RFC 3339 can name; a later time is written as this one.
LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=timezone.utc) - _EPOCH) // _MS


class Clock(Protocol):
    """Clock in milliseconds: `monotonic_ms` for deadlines, `wall_ms` for people."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary moment; never decreases."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch; jumps when the clock is set."""
        ...


class SystemClock:
    """This machine's clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class EnduringClock:
    """Clock for deadlines that must also pass while the machine sleeps: the larger elapsed time of the boot and the wall clock.

    The boot clock counts a suspended machine; only the wall clock shows the pause of a virtual one. A wall clock that is set
    forward makes deadlines come early, which is safe; one that is set back has no effect.
    """

    def __init__(self) -> None:
        self._elapsed_ns = 0
        self._boot_ns, self._wall_ns = _boot_ns(), time.time_ns()

    def monotonic_ms(self) -> int:
        """Return milliseconds since this clock was made."""
        boot_ns, wall_ns = _boot_ns(), time.time_ns()
        self._elapsed_ns += max(0, boot_ns - self._boot_ns, wall_ns - self._wall_ns)
        self._boot_ns, self._wall_ns = boot_ns, wall_ns
        return self._elapsed_ns // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def _boot_ns() -> int:
    """Return nanoseconds since boot, including time asleep where the system reports it (Linux)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns()


class ManualClock:
    """Clock that moves only by `advance`, for tests and simulation."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def rfc3339(at_ms: int) -> str:
    """Return the text of a time, in UTC with milliseconds."""
    return (_EPOCH + min(at_ms, LAST_MS) * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(at_ms: int) -> str:
    """Return a time of day in words for people: `09:00:00Z`."""
    return rfc3339(at_ms)[11:19] + "Z"


def moment(at_ms: int) -> str:
    """Return a day and time in words for people: `2026-01-31 09:00:00Z`."""
    return f"{rfc3339(at_ms)[:10]} {clock_time(at_ms)}"


def ms_of(text: str) -> int:
    """Return the time of a text, cut to milliseconds.

    Raises:
        ValueError: It is no time, or has no offset from UTC.
    """
    whole = _FRACTION.sub(lambda found: f".{found[1]:0<6.6}", text.upper().replace("Z", "+00:00"))
    try:
        time = datetime.fromisoformat(whole)
    except ValueError:
        raise ValueError(f"{text[:_SHOWN]!r} is no time; write it like 2026-01-31T09:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC; write it like 2026-01-31T09:00:00Z")
    return (time - _EPOCH) // _MS


def date_of(text: str) -> date:
    """Return the day of a text like `2026-01-31`. Raises ValueError if it is none."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:_SHOWN]!r} is no day; write it like 2026-01-31") from None
