"""When runs need a step of the coordinator, because a timer or a time limit of theirs is due."""

from __future__ import annotations

import heapq

from mesh.core.ids import RunId


class Alarms:
    """The next time of each run. A run whose time has become later is returned too early, and its owner sets it again."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, RunId]] = []
        self._due_ms: dict[RunId, int] = {}

    def set(self, run: RunId, due_ms: int | None) -> None:
        """Set when the run needs a step, since the epoch; None: only events concern it."""
        if due_ms is not None and due_ms < self._due_ms.get(run, due_ms + 1):
            self._due_ms[run] = due_ms
            heapq.heappush(self._heap, (due_ms, run))

    def next_ms(self) -> int | None:
        """Return the earliest time; None: there is none."""
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # The run was set to an earlier time since, and that was taken.
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[RunId]:
        """Remove and return the runs whose time has come, the earliest first, each once."""
        due: dict[RunId, None] = {}
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, run = heapq.heappop(self._heap)
            if self._due_ms.get(run) == due_ms:
                del self._due_ms[run]
                due[run] = None
        return list(due)
