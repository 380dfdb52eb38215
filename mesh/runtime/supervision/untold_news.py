"""News on their way to the scheduler: told in order, and again when they could not be taken, for nobody would ask Ray a second time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from mesh.errors import RuntimeDoorError
from mesh.scheduling.events import Event

log = structlog.get_logger(__name__)

#: Between two tries to tell what could not be told.
TELL_AGAIN_S = 1.0
#: So often news that the scheduler does not understand are told; then each by itself, so that one does not take the others of
#: its batch with it. Those that only the disk did not take are told until it does.
TELLS_MAX = 5


class UntoldNews:
    """Invariant: batches are told oldest first, and none twice that was taken. All methods belong to one event loop.

    Args:
        take: Takes events to the scheduler, at once and on this thread; raises when it does not.
    """

    def __init__(self, take: Callable[..., object]) -> None:
        self._take = take
        self._batches: deque[tuple[Event, ...]] = deque()  #: Oldest first.
        self._tells = 0  #: Of the oldest one.
        self._again: asyncio.TimerHandle | None = None

    def tell(self, *events: Event) -> None:
        """Tell them now; behind those that are still to be told, after the pause, where there are such."""
        self._batches.append(events)
        if self._again is None:  # Else each of them would cost the oldest one of its tries, and all are spent in a moment.
            self._tell_all()

    def _tell_all(self) -> None:
        self._again = None
        while self._batches:
            events = self._batches.popleft()
            try:
                self._take(*events)
            except Exception as error:
                self._tells += 1
                is_last = self._tells >= TELLS_MAX and not isinstance(error, (RuntimeDoorError, OSError))
                kinds = [type(event).__name__ for event in events]
                if not is_last:
                    log.warning("news could not be told, and are told again", events=kinds, error=str(error) or type(error).__name__)
                    self._batches.appendleft(events)
                    self._again = asyncio.get_running_loop().call_later(TELL_AGAIN_S, self._tell_all)
                    return
                if len(events) > 1:
                    self._batches.extendleft((event,) for event in reversed(events))
                else:
                    log.exception("news that the scheduler does not understand are dropped, for those behind them", events=kinds)
            self._tells = 0
