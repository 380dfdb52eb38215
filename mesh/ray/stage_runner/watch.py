"""Waits for reports of tasks: one by one while they are few, in bulk when they are many.

A callback of Ray reports at once, and costs about a sixth of a small task: Ray's thread and the engine's compete for the interpreter. A
query for a thousand reports at once costs 0.4 ms (measured on two cores). So while few tasks are submitted each has a callback. When
many are, one query covers them all, a few times a second or, when that is cheap, every 20 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import ray

#: Up to this number of submitted tasks each has a callback.
CALLBACKS_MAX = 48
#: Pause between two queries for many tasks: at least the first, plus the second per task, so that queries take a few per cent of a
#: core; seconds.
SWEEP_S, SWEEP_S_EACH = 0.02, 0.00001

Key = TypeVar("Key", bound=Hashable)
#: A report, or the error in its place.
Outcome = Any


class ReportWatch(Generic[Key]):
    """Reports that are awaited. Not thread-safe: one owner makes all calls.

    Args:
        send: Called with key and outcome of one report, from a thread of Ray's.
    """

    def __init__(self, send: Callable[[Key, Outcome], None]) -> None:
        self._send = send
        self._called_back: set[Key] = set()
        self._swept: dict[Key, Any] = {}
        self._due = 0.0  #: Seconds, monotonic.

    def add(self, key: Key, report: Any) -> None:
        """Await a report."""
        if self._swept or len(self._called_back) >= CALLBACKS_MAX:
            if not self._swept:
                self._set_due()
            self._swept[key] = report
        else:
            self._call_back(key, report)

    def done(self, key: Key) -> None:
        """Record that the owner has handled a report that came by callback."""
        self._called_back.discard(key)

    def pause_s(self) -> float | None:
        """Seconds until the next `sweep` is due; None: there is nothing to sweep."""
        return max(0.0, self._due - time.monotonic()) if self._swept else None

    def sweep(self) -> list[tuple[Key, Outcome]]:
        """Return the reports that have come without a callback, when a query is due; the last few tasks get callbacks."""
        if not self._swept or time.monotonic() < self._due:
            return []
        keys = {report: key for key, report in self._swept.items()}
        ready, _ = ray.wait(list(keys), num_returns=len(keys), timeout=0)
        outcomes = _get(ready)
        come = [(keys[report], outcome) for report, outcome in zip(ready, outcomes, strict=True)]
        for key, _ in come:
            del self._swept[key]
        if len(self._swept) + len(self._called_back) <= CALLBACKS_MAX:
            for key, report in self._swept.items():
                self._call_back(key, report)
            self._swept.clear()
        self._set_due()
        return come

    def _set_due(self) -> None:
        self._due = time.monotonic() + max(SWEEP_S, SWEEP_S_EACH * len(self._swept))

    def _call_back(self, key: Key, report: Any) -> None:
        self._called_back.add(key)
        report.future().add_done_callback(lambda future: self._send(key, future.exception() or future.result()))


def _get(reports: list[Any]) -> list[Outcome]:
    try:
        return ray.get(reports) if reports else []
    except Exception:  # noqa: BLE001 - one of them is an error, of any class: get each by itself
        return [_get_one(report) for report in reports]


def _get_one(report: Any) -> Outcome:
    try:
        return ray.get(report)
    except Exception as error:  # noqa: BLE001 - the error is the outcome
        return error
