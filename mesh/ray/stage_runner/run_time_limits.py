"""Running tasks whose run time is limited, and when each is to be stopped. Times are seconds, monotonic."""

from __future__ import annotations

import heapq

from mesh.core.ids import NodeId, StageId

#: A running attempt: its stage and node. A stage runs a node once.
_Task = tuple[StageId, NodeId]


class RunTimeLimits:
    """Limits of the tasks that run. The owner checks whether a task still runs when its time has come."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, _Task]] = []

    def begin(self, stage: StageId, node: NodeId, due_s: float) -> None:
        """Note that the task runs, and when it is to be stopped."""
        heapq.heappush(self._heap, (due_s, (stage, node)))

    def pause_s(self, now_s: float) -> float | None:
        """Return the seconds until the next limit is reached; None: there is none."""
        return max(0.0, self._heap[0][0] - now_s) if self._heap else None

    def take_due(self, now_s: float) -> list[_Task]:
        """Remove and return the tasks whose limit is reached, the earliest first."""
        due: list[_Task] = []
        while self._heap and self._heap[0][0] <= now_s:
            due.append(heapq.heappop(self._heap)[1])
        return due
