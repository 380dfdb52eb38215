"""Nomination of one workload on a snapshot: its flavors and victims, at full size or as large as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from federation.quota.flavors import Assignment, FlavorAssigner, Mode
from federation.quota.preemption.candidates import Victim
from federation.quota.preemption.choice import victims_for
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import Workload, shrunk_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """An assignment, and the victims that it needs."""

    workload: Workload
    assignment: Assignment
    victims: tuple[Victim, ...] = ()

    @property
    def is_possible(self) -> bool:
        """The workload fits, or will fit when the victims are gone."""
        return self.assignment.mode is Mode.FIT or bool(self.victims)


def nominate(snapshot: QuotaSnapshot, workload: Workload, earlier: Nomination | None = None) -> Nomination:
    """Return the best nomination for the workload; the snapshot is unchanged afterwards.

    With `earlier`, its flavors and counts are kept and only checked again.
    """
    if earlier is not None:
        only = {one.name: {name: choice.flavor for name, choice in one.flavors.items()} for one in earlier.assignment.sets}
        assigner = FlavorAssigner(snapshot, workload, only)
        return _with_victims(snapshot, workload, assigner, [one.count for one in earlier.assignment.sets])
    assigner = FlavorAssigner(snapshot, workload)
    full = _with_victims(snapshot, workload, assigner, None)
    if full.is_possible:
        return full
    return _shrunk(snapshot, workload, assigner) or full


def _with_victims(snapshot: QuotaSnapshot, workload: Workload, assigner: FlavorAssigner, counts: Sequence[int] | None) -> Nomination:
    assignment = assigner.assign(counts)
    if assignment.mode is not Mode.PREEMPT:
        return Nomination(workload=workload, assignment=assignment)
    node = snapshot.forest.index[workload.queue]
    ask = Ask(workload=workload, node=node, amounts=assignment.amounts, needed=assignment.needed)
    return Nomination(workload=workload, assignment=assignment, victims=victims_for(snapshot, ask))


def _shrunk(snapshot: QuotaSnapshot, workload: Workload, assigner: FlavorAssigner) -> Nomination | None:
    """Return the nomination with as many copies as possible, by bisection over the copies that all replica sets can spare together.

    None if even the fewest do not fit. A shrunk workload may preempt. Source: Kueue `flavorassigner/podset_reducer.go`.
    """
    low, high = 0, sum(one.can_spare for one in workload.replica_sets) + 1
    most, best = high - 1, None
    while low < high and most:
        middle = (low + high) // 2
        tried = _with_victims(snapshot, workload, assigner, shrunk_counts(workload.replica_sets, middle))
        if tried.is_possible:
            best, high = tried, middle
        else:
            low = middle + 1
    return best
