"""Functions of the benchmarked tasks, which do as little as possible. Workers import this module by name, on both sides."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def nothing() -> None:
    """Do nothing: the source of the fan, and the single node."""


def one(_source: Any) -> int:
    """Return 1: a node of the fan."""
    return 1


def total(*ones: int) -> int:
    """Sum the values: the reduce, whose value proves that the whole fan ran."""
    return sum(ones)


class Replier:
    """Actor whose first reply shows that it is up."""

    def reply(self) -> int:
        """Return a value, to show that the actor is up."""
        return 1


def moment_ms() -> float:
    """Return the time of the call: milliseconds since the epoch, by the worker's clock."""
    return time.time_ns() / 1_000_000


def wait_for_file(path: str) -> None:
    """Hold the task's room until the file exists."""
    while not Path(path).exists():
        time.sleep(0.005)


def sleep_for(seconds: float) -> None:
    """Sleep, if the time is above 0."""
    if seconds > 0:
        time.sleep(seconds)


def layered(*_ones: Any) -> int:
    """Return 1: a node that reads several."""
    return 1
