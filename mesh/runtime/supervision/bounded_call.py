"""A call of a user's function that is not waited for longer than it may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Returned:
    """It returned in time."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """It raised in time."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Hangs:
    """It was left alone; its thread runs still."""


def call_bounded(function: Callable[[], Any], *, timeout_s: float, name: str) -> Returned | Raised | Hangs:
    """Call it on a thread of its own and wait for `timeout_s` seconds. Python cannot end a thread, so a hanging one stays."""
    outcomes: list[Returned | Raised] = []

    def carry() -> None:
        try:
            outcomes.append(Returned(function()))
        except BaseException as error:  # noqa: BLE001 - the caller decides what the user's error means
            outcomes.append(Raised(error))

    thread = threading.Thread(target=carry, name=name, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return outcomes[0] if outcomes else Hangs()
