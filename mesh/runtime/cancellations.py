"""Stages that were asked to stop, and when their workers are killed if they do not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from mesh.ids import StageId

#: How long after a cancellation a stage that has not ended loses its placement group, and with it its workers.
EVICT_AFTER_S = 5.0


class Cancellations:
    """Has no lock of its own: every call is made under the owner's.

    Args:
        evict: Called in a thread of its own, without the lock, when a stage has not ended in time.
    """

    def __init__(self, evict: Callable[[StageId], None]) -> None:
        self._evict = evict
        self._stages: set[StageId] = set()
        self._evictions: dict[StageId, threading.Timer] = {}

    def __contains__(self, stage: StageId) -> bool:
        return stage in self._stages

    def add(self, stages: Iterable[StageId]) -> None:
        """They were asked to stop."""
        self._stages.update(stages)

    def evict_later(self, stage: StageId) -> None:
        """Begin to count, unless it has ended, or was cancelled before."""
        if stage not in self._stages or stage in self._evictions:
            return
        eviction = threading.Timer(EVICT_AFTER_S, self._evict, (stage,))
        eviction.daemon = True
        self._evictions[stage] = eviction
        eviction.start()

    def begin_eviction(self, stage: StageId) -> None:
        """Its time has come: nothing is left to be called off."""
        self._evictions.pop(stage, None)

    def forget(self, stage: StageId) -> None:
        """The stage is over."""
        self._stages.discard(stage)
        eviction = self._evictions.pop(stage, None)
        if eviction is not None:
            eviction.cancel()

    def forget_all(self) -> None:
        """Everything was stopped."""
        for stage in tuple(self._evictions):
            self.forget(stage)
        self._stages.clear()
