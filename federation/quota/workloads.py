"""Workloads, waiting and running."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from federation.quota.ledger import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """Equal copies; all of them or, with `count_min`, fewer."""

    name: str
    count: int
    amounts: Mapping[str, int]  #: Resource to units of one copy.
    count_min: int | None = None  #: None: all copies are needed.

    @property
    def can_spare(self) -> int:
        """Number of copies that the set can do without."""
        return 0 if self.count_min is None else max(0, self.count - self.count_min)


NO_COUNTS: Mapping[str, int] = MappingProxyType({})


class Workload(NamedTuple):
    """Unit of admission. A named tuple, as `Running`: a planner's round makes thousands, and frozen dataclasses take four times as long."""

    workload: str  #: Id; among equals the smaller one goes first.
    queue: str  #: Name of the leaf of the forest that queues it.
    created_ms: int
    replica_sets: tuple[ReplicaSet, ...] = ()
    priority: int = 0
    user: str = ""
    flavors: tuple[str, ...] = ()  #: The only flavors that it can use; empty: all.
    expected_run_ms: int | None = None
    is_preemptible: bool = True

    @property
    def shape(self) -> object:
        """Key that is equal for workloads with the same needs."""
        sets = tuple((one.count, one.count_min, tuple(sorted(one.amounts.items()))) for one in self.replica_sets)
        return self.queue, self.flavors, sets


class Running(NamedTuple):
    """A workload that holds quota."""

    workload: Workload
    amounts: Amounts
    since_ms: int  #: When it got its quota.
    saved_ms: int | None = None  #: When its state was last saved; None: never.
    is_leaving: bool = False  #: It was asked to stop, and still holds its quota.
    counts: Mapping[str, int] = NO_COUNTS  #: Replica set to admitted copies.
    mesh: str = ""  #: Mesh whose room it takes; empty: none is known.
    claim: int = 0  #: Token of its claim; 0: no stage.
    granted_ms: int | None = None  #: Start of its minimum run time; None: `since_ms`.
    is_protected: bool = False  #: Only work on its own mesh preempts it within its queue.
    is_divisible: bool = False  #: Idle quota of a lease: any part of it can be returned.

    def lost_ms(self, now_ms: int) -> int:
        """Return how much of its work would be lost if it stopped now, in milliseconds of its run."""
        return max(0, now_ms - max(self.since_ms, self.saved_ms if self.saved_ms is not None else self.since_ms))

    @property
    def ends_ms(self) -> int | None:
        """When it should end by its user's estimate; None: unknown."""
        expected = self.workload.expected_run_ms
        return None if expected is None else self.since_ms + expected


def shrunk_counts(sets: Iterable[ReplicaSet], step: int) -> tuple[int, ...]:
    """Return the copies of each set when the workload gives up `step` of all copies that it can spare, in proportion."""
    listed = tuple(sets)
    total = sum(one.can_spare for one in listed)
    return tuple(one.count - (one.can_spare * step // total if total else 0) for one in listed)
