"""Waiting for asynchronous effects: the only wait of tests on real clusters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0


def eventually(look: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Return the first true answer; fail if none comes."""
    deadline = time.monotonic() + patience_s
    while True:
        is_last = time.monotonic() >= deadline  # Read before the check: a test that slept through the deadline checks once more.
        answer = look()
        if answer:
            return answer
        if is_last:
            raise AssertionError(f"it did not come about within {patience_s} s; the last answer was {answer!r}")
        time.sleep(0.05)


def gone(look: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    """Wait until nothing is left; fail with the rest."""
    left: list[Any] = []

    def is_empty() -> bool:
        left[:] = [look()]
        return not left[0]

    try:
        eventually(is_empty, patience_s)
    except AssertionError:
        raise AssertionError(f"after {patience_s} s there is still {left[0]!r}") from None
