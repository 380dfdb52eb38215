"""What asks for quota, and what holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from federation.quota.ledger import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """So many equal copies; all of them or, with `count_min`, fewer."""

    name: str
    count: int
    amounts: Mapping[str, int]  #: Of one copy: resource to units.
    count_min: int | None = None  #: None: not to be shrunk.

    @property
    def can_spare(self) -> int:
        """How many copies it can go without."""
        return 0 if self.count_min is None else max(0, self.count - self.count_min)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is admitted as one."""

    workload: str  #: Its id; of equals the smaller one goes first.
    queue: str  #: The leaf of the forest that it is queued at.
    created_ms: int
    replica_sets: tuple[ReplicaSet, ...] = ()
    priority: int = 0
    user: str = ""
    flavors: tuple[str, ...] = ()  #: The only ones that it can use; empty: all.
    expected_run_ms: int | None = None
    is_preemptible: bool = True

    @property
    def shape(self) -> object:
        """Equal for workloads that need the same."""
        sets = tuple((one.count, one.count_min, tuple(sorted(one.amounts.items()))) for one in self.replica_sets)
        return self.queue, self.flavors, sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A workload that holds quota."""

    workload: Workload
    amounts: Amounts
    since_ms: int  #: When it got its quota.
    saved_ms: int | None = None  #: When its state was last kept; None: never.
    is_leaving: bool = False  #: It was told to stop and still holds its quota.
    counts: Mapping[str, int] = field(default_factory=dict)  #: Replica set to copies that were admitted.

    def lost_ms(self, now_ms: int) -> int:
        """How much of its work would be lost if it stopped now, in milliseconds of its run."""
        return max(0, now_ms - max(self.since_ms, self.saved_ms if self.saved_ms is not None else self.since_ms))

    @property
    def ends_ms(self) -> int | None:
        """When it should end by what its user expects."""
        expected = self.workload.expected_run_ms
        return None if expected is None else self.since_ms + expected


def shrunk_counts(sets: Iterable[ReplicaSet], step: int) -> tuple[int, ...]:
    """The copies of each set when the workload goes without `step` of all that it can spare, in proportion."""
    listed = tuple(sets)
    total = sum(one.can_spare for one in listed)
    return tuple(one.count - (one.can_spare * step // total if total else 0) for one in listed)
