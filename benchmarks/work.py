"""What the benchmarked tasks do: as little as possible. Workers import it by name, on both sides."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def nothing() -> None:
    """The source of the fan, and the single node."""


def one(_source: Any) -> int:
    """One node of the fan."""
    return 1


def total(*ones: int) -> int:
    """The reduce; its value proves that all of the fan ran."""
    return sum(ones)


class Replier:
    """An actor whose first reply shows that it is up."""

    def reply(self) -> int:
        """Says that it is there."""
        return 1


def moment_ms() -> float:
    """When it runs: milliseconds since the epoch, by the clock of the worker's machine."""
    return time.time_ns() / 1_000_000


def wait_for_file(path: str) -> None:
    """Occupies its room until somebody makes the file."""
    while not Path(path).exists():
        time.sleep(0.005)
