"""Waiting workloads of one queue: in order, or parked until something changes.

The order: preemptors that wait for their victims, then priority, then age, then id. A workload that is put back keeps its place. Parking
a workload also parks all of the same shape that are not more urgent, so thousands of equal workloads cost one nomination.
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
    """Waiting workloads of one queue."""

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
        """Iterate over all workloads in order, parked ones included."""
        return iter(sorted(self._workloads.values(), key=self._place))

    def ready(self) -> Iterator[Workload]:
        """Yield the workloads that are not parked, in order; the queue may change meanwhile."""
        return (self._workloads[place[3]] for place in tuple(self._order))

    def get(self, workload: str) -> Workload:
        """Return the workload, which must be here."""
        return self._workloads[workload]

    def is_parked(self, workload: str) -> bool:
        return workload in self._parked

    def add(self, workload: Workload) -> None:
        """Queue the workload, parked if an equally urgent one of its shape is."""
        self._workloads[workload.workload] = workload
        if self._shapes and self._shapes.get(workload.shape, workload.priority - 1) >= workload.priority:
            self._parked[workload.workload] = workload
        else:
            insort(self._order, self._place(workload))

    def remove(self, workload: str) -> Workload:
        """Remove and return the workload, which must be here."""
        gone = self._workloads.pop(workload)
        if self._parked.pop(workload, None) is None:
            del self._order[bisect_left(self._order, self._place(gone))]
        self._sticky.discard(workload)
        return gone

    def make_sticky(self, workload: str) -> None:
        """Move the workload to the front, since it preempts others."""
        gone = self.remove(workload)
        self._sticky.add(workload)
        insort(self._order, self._place(gone))
        self._workloads[workload] = gone

    def park(self, workload: str, *, with_shape: bool) -> None:
        """Skip the workload until `unpark`; `with_shape` also skips all of its shape that are not more urgent."""
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
        """Put all parked workloads back in order."""
        for one in self._parked.values():
            insort(self._order, self._place(one))
        self._parked.clear()
        self._shapes.clear()

    def _place(self, workload: Workload) -> _Place:
        return workload.workload not in self._sticky, -workload.priority, workload.created_ms, workload.workload
