"""Measures how long calls of an agent wait, with a periodic call of the agent's own, at no cost to callers."""

from __future__ import annotations

import time
from typing import Any


class QueueProbe:
    """Sends probe calls to one agent.

    Args:
        actor: Handle of the agent; its method `probe` is in the concurrency group that is measured.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._sent_s: float | None = None
        self._last_ms = 0

    def send(self, *, is_wanted: bool) -> None:
        """Send the next probe, unless the last one still waits. Nothing is measured while no calls come."""
        if not is_wanted:
            self._sent_s, self._last_ms = None, 0
        elif self._sent_s is None:
            self._sent_s = time.monotonic()
            self._actor.probe.remote()

    def arrived(self) -> None:
        """Record that the probe has begun."""
        if self._sent_s is not None:
            self._last_ms = int((time.monotonic() - self._sent_s) * 1000)
            self._sent_s = None

    @property
    def queue_ms(self) -> int:
        """Waiting time of the last probe, or of the current one if longer."""
        sent_s = self._sent_s
        waited_ms = 0 if sent_s is None else int((time.monotonic() - sent_s) * 1000)
        return max(self._last_ms, waited_ms)
