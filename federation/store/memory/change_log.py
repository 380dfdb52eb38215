"""The log of changes in one process: for tests, and a federation in one process."""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from federation.change_log import KEPT_MAX, Change, NumberedChange, log_of


class MemoryChangeLog:
    """`ChangeLog` in this process; thread-safe.

    Args:
        kept_max: Entries of one log that are kept.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._logs: defaultdict[str, deque[NumberedChange]] = defaultdict(lambda: deque(maxlen=kept_max))

    def append(self, change: Change) -> None:
        with self._lock:
            self._last += 1
            self._logs[log_of(change.tenant)].append(NumberedChange(self._last, change))

    def last(self) -> int:
        with self._lock:
            return self._last

    def logs(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._logs))

    def newest(self, log: str, below: int | None, limit: int) -> tuple[NumberedChange, ...]:
        with self._lock:
            entries = reversed(self._logs[log]) if log in self._logs else ()
            return tuple(entry for entry in entries if below is None or entry.number < below)[:limit]

    def following(self, log: str, after: int, limit: int) -> tuple[NumberedChange, ...]:
        with self._lock:
            return tuple(entry for entry in self._logs.get(log, ()) if entry.number > after)[:limit]
