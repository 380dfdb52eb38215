"""What a runner has to tell, until somebody asks."""

from __future__ import annotations

import threading
import time

from mesh.ids import StageId
from mesh.messages import NodeFailed, StageEnded, StageMessage
from mesh.wire import encode

#: A stage, its messages as JSON, and the bytes that belong to them by their SHA-256.
Batch = tuple[StageId, list[bytes], dict[str, bytes]]


#: News that follow each other closely are handed out together, at most this much later: each handing out costs as much
#: as several small tasks. The first after a pause, failures and ends are not held up.
GATHER_S = 0.02
_URGENT = (NodeFailed, StageEnded)


class Outbox:
    """Messages in order, by stage. One thread writes, others wait."""

    def __init__(self) -> None:
        self._batches: dict[StageId, Batch] = {}
        self._news = threading.Condition()
        self._is_urgent = False
        self._taken_at = 0.0  #: Seconds, monotonic.

    def put(self, message: StageMessage, blobs: dict[str, bytes] | None = None) -> None:
        """Add a message, and the bytes that must be stored before it is read."""
        data = encode(message)
        with self._news:
            is_first = not self._batches
            _, messages, kept = self._batches.setdefault(message.stage, (message.stage, [], {}))
            messages.append(data)
            if blobs:
                kept.update(blobs)
            if isinstance(message, _URGENT):
                self._is_urgent = True
            if is_first or self._is_urgent:
                self._news.notify()

    def take(self, wait_s: float) -> list[Batch]:
        """All that is there, waiting up to `wait_s` for the first; empty when nothing came."""
        with self._news:
            self._news.wait_for(lambda: bool(self._batches), timeout=wait_s)
            rest_s = self._taken_at + GATHER_S - time.monotonic()
            if self._batches and rest_s > 0:
                self._news.wait_for(lambda: self._is_urgent, timeout=rest_s)
            taken, self._batches, self._is_urgent = list(self._batches.values()), {}, False
            self._taken_at = time.monotonic()
        return taken
