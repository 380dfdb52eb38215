"""Calls of user functions with a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned in time."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised in time."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Hangs:
    """The function timed out; its thread still runs."""


def call_bounded(function: Callable[[], Any], *, timeout_s: float, name: str) -> Returned | Raised | Hangs:
    """Call the function on its own thread and wait at most `timeout_s`. Python cannot end a thread, so a hanging one stays."""
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
