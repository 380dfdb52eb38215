"""The garbage collector of a mesh: it has what the code of a stage has created in Ray removed when the stage is over.

It has a thread of its own. Ray's control service may be slow, or frozen, and some of Ray's calls have no time limit: orders of a mesh
wait for a removal `ORDERS_WAIT_S` at most, and not at all while an earlier one still goes on.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog

from mesh.ids import MeshId
from mesh.runtime.user_code.sweep import Swept

log = structlog.get_logger(__name__)

#: How long the next stage waits for the placement group of one that has ended, which it may get as it stands.
ORDERS_WAIT_S = 1.0
#: When something is left, or Ray does not answer, it is tried again after so many seconds.
RETRY_S = 1.0
REMEDY = "it is tried again until it is; look whether the head of the Ray cluster answers"


@dataclass(slots=True)
class _Ended:
    """A stage that is over."""

    group: str | None
    then: Callable[[bool], None]
    is_late: bool = False
    is_done: threading.Event = field(default_factory=threading.Event)


class GarbageCollector:
    """Of one mesh. Safe to use from several threads.

    Args:
        sweep: Removes what is to be removed; see `Sweep`. It is called until nothing is left.
        retry_s: See `RETRY_S`.
    """

    def __init__(self, mesh: MeshId, sweep: Callable[[Collection[str]], Swept], *, retry_s: float = RETRY_S) -> None:
        self._mesh = mesh
        self._sweep = sweep
        self._retry_s = retry_s
        self._asked: queue.SimpleQueue[_Ended | None] = queue.SimpleQueue()
        self._is_late = False  #: A call of `clear` was left alone, and nothing has come of it yet.
        self._is_failing = False
        self._thread = threading.Thread(target=self._work, name="garbage", daemon=True)
        self._thread.start()

    def collect(self) -> None:
        """Sweep soon."""
        self.clear(None, lambda _: None, wait_s=0.0)

    def clear(self, group: str | None, then: Callable[[bool], None], *, wait_s: float = ORDERS_WAIT_S) -> None:
        """A stage is over: sweep, then call `then` from the collector's thread. Returns after that, or when it takes long.

        Args:
            group: The stage's placement group, by Ray's id.
            then: Told whether the group is clean: nothing was left in it, and nobody has gone on without it.
            wait_s: See `ORDERS_WAIT_S`.
        """
        ended = _Ended(group, then)
        self._asked.put(ended)
        if wait_s and not self._is_late and not ended.is_done.wait(wait_s):
            self._is_late = True
        ended.is_late = not ended.is_done.is_set()

    def close(self, wait_s: float) -> None:
        """End after what was asked for so far, tried once. Waits so long at most."""
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
            swept = self._sweep([ended.group for ended in asked if ended.group is not None])
            self._is_failing = False
        except Exception as away:  # noqa: BLE001  Ray has many ways to say that its control service is away
            if not self._is_failing:
                log.warning("what stages have left in Ray could not be removed", mesh=self._mesh, error=str(away), remedy=REMEDY)
            self._is_failing = True
        self._is_late = False
        for ended in asked:
            try:
                ended.then(swept is Swept.CLEAN and not ended.is_late)
            except Exception:  # the next stages' groups have to be given back all the same
                log.exception("a placement group could not be given back", mesh=self._mesh)
            ended.is_done.set()
        return swept
