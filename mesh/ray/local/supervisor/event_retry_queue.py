"""Queue of events to the scheduler: delivered in order, and retried on failure, because Ray does not report an event twice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from mesh.errors import RuntimeAdapterError
from mesh.tasks.events import Event

log = structlog.get_logger(__name__)

#: Seconds between two deliveries of failed events.
SEND_AGAIN_S = 1.0
#: Number of deliveries of a batch that the scheduler refuses; then its events are delivered one by one, so that one cannot block
#: the others. Batches that only the disk refuses are retried without limit.
SENDS_MAX = 5


class EventRetryQueue:
    """Invariant: batches are delivered oldest first, and none again after success. All methods belong to one event loop.

    Args:
        take: Passes events to the scheduler, at once and on this thread; raises on failure.
    """

    def __init__(self, take: Callable[..., object]) -> None:
        self._take = take
        self._batches: deque[tuple[Event, ...]] = deque()  #: Oldest first.
        self._sends = 0  #: Deliveries of the oldest batch.
        self._again: asyncio.TimerHandle | None = None

    def send(self, *events: Event) -> None:
        """Deliver the events now, or after those that wait for a retry."""
        self._batches.append(events)
        if self._again is None:  # Else each call would spend one delivery of the oldest batch at once.
            self._send_all()

    def _send_all(self) -> None:
        self._again = None
        while self._batches:
            events = self._batches.popleft()
            try:
                self._take(*events)
            except Exception as error:
                self._sends += 1
                is_last = self._sends >= SENDS_MAX and not isinstance(error, (RuntimeAdapterError, OSError))
                kinds = [type(event).__name__ for event in events]
                if not is_last:
                    log.warning("events could not be delivered and are retried", events=kinds, error=str(error) or type(error).__name__)
                    self._batches.appendleft(events)
                    self._again = asyncio.get_running_loop().call_later(SEND_AGAIN_S, self._send_all)
                    return
                if len(events) > 1:
                    self._batches.extendleft((event,) for event in reversed(events))
                else:
                    log.exception("events that the scheduler refuses are dropped", events=kinds)
            self._sends = 0
