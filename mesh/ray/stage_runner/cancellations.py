"""Cancelled stages, and timers that kill their workers if the stages do not end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from mesh.core.ids import StageId

#: Time from a cancellation until a stage that has not ended loses its placement group, and with it its workers; seconds.
EVICT_AFTER_S = 5.0


class Cancellations:
    """Cancelled stages. Has no lock: the owner calls every method under its own lock.

    Args:
        evict_after_s: See `EVICT_AFTER_S`.
    """

    def __init__(self, evict_after_s: float = EVICT_AFTER_S) -> None:
        self._evict_after_s = evict_after_s
        self._stages: set[StageId] = set()
        self._evictions: dict[StageId, threading.Timer] = {}

    def __contains__(self, stage: StageId) -> bool:
        return stage in self._stages

    def add(self, stages: Iterable[StageId]) -> None:
        """Record that the stages were cancelled."""
        self._stages.update(stages)

    def evict_later(self, stage: StageId, evict: Callable[[StageId], None]) -> None:
        """Start the eviction timer, unless the stage has ended or has a timer.

        Args:
            evict: Called in its own thread, without the lock, when the stage has not ended in time.
        """
        if stage not in self._stages or stage in self._evictions:
            return
        eviction = threading.Timer(self._evict_after_s, evict, (stage,))
        eviction.daemon = True
        self._evictions[stage] = eviction
        eviction.start()

    def begin_eviction(self, stage: StageId) -> None:
        """Drop the timer, which has fired and cannot be cancelled any more."""
        self._evictions.pop(stage, None)

    def forget(self, stage: StageId) -> None:
        """Drop an ended stage and cancel its timer."""
        self._stages.discard(stage)
        eviction = self._evictions.pop(stage, None)
        if eviction is not None:
            eviction.cancel()

    def forget_all(self) -> None:
        """Drop all stages and cancel their timers."""
        for stage in tuple(self._evictions):
            self.forget(stage)
        self._stages.clear()
