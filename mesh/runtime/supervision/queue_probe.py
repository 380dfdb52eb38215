"""How long calls of an agent wait before they begin, measured by a call of its own: callers pay nothing for it."""

from __future__ import annotations

import time
from typing import Any


class QueueProbe:
    """Args: actor: handle of the agent, with the method `probe` in the group whose queue is measured."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._sent_s: float | None = None
        self._last_ms = 0

    def send(self, *, is_wanted: bool) -> None:
        """Send the next one, unless the last one is still waiting. Where no calls come, nothing is measured."""
        if not is_wanted:
            self._sent_s, self._last_ms = None, 0
        elif self._sent_s is None:
            self._sent_s = time.monotonic()
            self._actor.probe.remote()

    def arrived(self) -> None:
        """It was its turn."""
        if self._sent_s is not None:
            self._last_ms = int((time.monotonic() - self._sent_s) * 1000)
            self._sent_s = None

    @property
    def queue_ms(self) -> int:
        """What the last one waited, or this one has waited by now."""
        sent_s = self._sent_s
        waited_ms = 0 if sent_s is None else int((time.monotonic() - sent_s) * 1000)
        return max(self._last_ms, waited_ms)
