"""Garbage collector of a mesh: removes Ray resources that a stage's code created once the stage has ended.

The collector has its own thread: Ray's control service may be slow or frozen, and some Ray calls have no time limit. The orders of a
mesh wait at most `ORDERS_WAIT_S` for a removal, and never while an earlier removal is unfinished.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog

from mesh.core.ids import MeshId
from mesh.ray.user_code.sweep import Swept

log = structlog.get_logger(__name__)

#: How long the next stage waits for the placement group of an ended stage, which it may reuse; seconds.
ORDERS_WAIT_S = 1.0
#: Pause before the next try when something is left or Ray does not answer; seconds.
RETRY_S = 1.0
REMEDY = "the removal is retried until it succeeds; check that the head of the Ray cluster answers"


@dataclass(slots=True)
class _Ended:
    groups: Collection[str]
    then: Callable[[bool], None]
    is_late: bool = False
    is_done: threading.Event = field(default_factory=threading.Event)


class GarbageCollector:
    """Removes leftovers of ended stages for one mesh. Safe to use from several threads.

    Args:
        sweep: Removes the leftovers; see `Sweep`. Called until nothing is left.
        retry_s: See `RETRY_S`.
    """

    def __init__(self, mesh: MeshId, sweep: Callable[[Collection[str]], Swept], *, retry_s: float = RETRY_S) -> None:
        self._mesh = mesh
        self._sweep = sweep
        self._retry_s = retry_s
        self._asked: queue.SimpleQueue[_Ended | None] = queue.SimpleQueue()
        self._is_late = False  #: A call of `clear` timed out, and its sweep has not finished.
        self._is_failing = False
        self._thread = threading.Thread(target=self._work, name="garbage", daemon=True)
        self._thread.start()

    def collect(self) -> None:
        """Request a sweep."""
        self.clear((), lambda _: None, wait_s=0.0)

    def clear(self, groups: Collection[str], then: Callable[[bool], None], *, wait_s: float = ORDERS_WAIT_S) -> None:
        """Sweep after the end of a stage, then call `then` from the collector's thread. Returns after that, or after `wait_s`.

        Args:
            groups: The stage's placement groups, by Ray's ids.
            then: Called with whether the groups are clean: no ended stage had created resources, and `clear` still waits.
            wait_s: See `ORDERS_WAIT_S`.
        """
        ended = _Ended(groups, then)
        self._asked.put(ended)
        if wait_s and not self._is_late and not ended.is_done.wait(wait_s):
            self._is_late = True
        ended.is_late = not ended.is_done.is_set()

    def close(self, wait_s: float) -> None:
        """End after one try of the sweeps requested so far. Wait at most `wait_s` seconds."""
        self._asked.put(None)
        self._thread.join(wait_s)

    def _work(self) -> None:
        is_left = is_closing = False
        while not is_closing:
            asked: list[_Ended | None] = []
            with contextlib.suppress(queue.Empty):
                asked.append(self._asked.get(timeout=self._retry_s if is_left else None))
                while True:
                    asked.append(self._asked.get_nowait())
            ended = [one for one in asked if one is not None]
            is_closing = len(ended) < len(asked)
            if ended or not is_closing:
                is_left = self._try(ended) is Swept.LEFT

    def _try(self, asked: list[_Ended]) -> Swept:
        swept = Swept.LEFT
        try:
            swept = self._sweep([group for ended in asked for group in ended.groups])
            self._is_failing = False
        except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
            if not self._is_failing:
                log.warning("resources that ended stages left in Ray could not be removed", mesh=self._mesh, error=str(away), remedy=REMEDY)
            self._is_failing = True
        self._is_late = False
        for ended in asked:
            try:
                ended.then(swept is Swept.CLEAN and not ended.is_late)
            except Exception:  # the groups of the other stages must be returned all the same
                log.exception("a placement group could not be returned", mesh=self._mesh)
            ended.is_done.set()
        return swept
