"""What waits at one queue: in order, or parked until something changes.

The order: who preempts already, then priority, then who came first, then the id. Who is put back keeps its place. A parked
shape parks all of its kind that are not more urgent, so that thousands of equal workloads cost one look.
Source: Kueue `cache/queue/cluster_queue.go`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from federation.quota.workloads import Workload

_Place = tuple[bool, int, int, str]


@dataclass(slots=True)
class PendingQueue:
    """The waiting workloads of one queue."""

    _order: list[_Place] = field(default_factory=list)
    _workloads: dict[str, Workload] = field(default_factory=dict)  #: In order and parked.
    _parked: dict[str, Workload] = field(default_factory=dict)
    _shapes: dict[object, int] = field(default_factory=dict)  #: Parked shape to the highest priority it was parked with.
    _sticky: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._workloads)

    def __contains__(self, workload: str) -> bool:
        return workload in self._workloads

    def __iter__(self) -> Iterator[Workload]:
        """All of them in the order in which they would go, the parked ones too."""
        return iter(sorted(self._workloads.values(), key=self._place))

    def ready(self) -> Iterator[Workload]:
        """Those that are not parked, in order; the queue may change meanwhile."""
        return (self._workloads[place[3]] for place in tuple(self._order))

    def get(self, workload: str) -> Workload:
        """The workload; it must be here."""
        return self._workloads[workload]

    def is_parked(self, workload: str) -> bool:
        """Does it wait for something to change?"""
        return workload in self._parked

    def add(self, workload: Workload) -> None:
        """It waits at its place."""
        self._workloads[workload.workload] = workload
        if self._shapes and self._shapes.get(workload.shape, workload.priority - 1) >= workload.priority:
            self._parked[workload.workload] = workload
        else:
            insort(self._order, self._place(workload))

    def remove(self, workload: str) -> Workload:
        """It waits no longer; it must be here."""
        gone = self._workloads.pop(workload)
        if self._parked.pop(workload, None) is None:
            del self._order[bisect_left(self._order, self._place(gone))]
        self._sticky.discard(workload)
        return gone

    def make_sticky(self, workload: str) -> None:
        """It goes first from now on: others give way to it."""
        gone = self.remove(workload)
        self._sticky.add(workload)
        insort(self._order, self._place(gone))
        self._workloads[workload] = gone

    def park(self, workload: str, *, with_shape: bool) -> None:
        """It is not looked at until `unpark`, and (with its shape) nothing like it that is as urgent at most."""
        first = self._workloads[workload]
        equals = [first]
        if with_shape:
            self._shapes[first.shape] = max(first.priority, self._shapes.get(first.shape, first.priority))
            equals += [
                one for one in self.ready() if one.workload != workload and one.priority <= first.priority and one.shape == first.shape
            ]
        for one in equals:
            if one.workload not in self._parked:
                del self._order[bisect_left(self._order, self._place(one))]
                self._parked[one.workload] = one

    def unpark(self) -> None:
        """All wait in order again."""
        for one in self._parked.values():
            insort(self._order, self._place(one))
        self._parked.clear()
        self._shapes.clear()

    def _place(self, workload: Workload) -> _Place:
        return workload.workload not in self._sticky, -workload.priority, workload.created_ms, workload.workload
