"""A date for a big workload that waits, and smaller ones beside it as long as they do not delay it.

The date is when enough of what runs should have ended, by what its users expect. Until then another workload starts only if

- it goes before the big one in their common queue, or stays within its own queue's quota: nobody's promise takes that away;
- or it should end before the date;
- or the big one would fit at the date in spite of it.

One workload per tree has a date at a time: more of them would shut out all others while each makes room for each. What has
no expected run time is taken never to end. A workload that has waited longer than its queue's `max_wait` needs no date: all
room that comes free in its reach is kept for it.
Source: EASY backfilling (Lifka 1995); `references/quota.md` §14.3, ADR 0018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from federation.quota.flavors import Assignment, FlavorAssigner, Mode
from federation.quota.nomination import Nomination
from federation.quota.snapshot import QuotaSnapshot
from federation.quota.workloads import Running, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a workload will get, and when."""

    workload: Workload
    start_ms: int
    assignment: Assignment
    ended: tuple[Running, ...]  #: What should have ended by then.


def running_below(snapshot: QuotaSnapshot, root: int) -> Iterator[Running]:
    """All running work of one tree."""
    for queue, running in snapshot.running.items():
        if snapshot.forest.root(queue) == root:
            yield from running.values()


def earliest_start(snapshot: QuotaSnapshot, workload: Workload) -> Reservation | None:
    """When the workload would fit if nothing else started and all ended as expected; None when nobody can say.

    The end of work that runs longer than expected, or is leaving, is taken to be now.
    """
    ending = sorted(
        (_end_ms(running, snapshot.now_ms), running.workload.workload, running)
        for running in running_below(snapshot, snapshot.forest.root(snapshot.forest.index[workload.queue]))
        if running.is_leaving or running.ends_ms is not None
    )
    low, high = 0, len(ending) + 1
    best: Assignment | None = None
    while low < high:
        middle = (low + high) // 2
        assignment = _without(snapshot, workload, [running for _, _, running in ending[:middle]])
        if assignment.mode is Mode.FIT:
            best, high = assignment, middle
        else:
            low = middle + 1
    if best is None:
        return None
    start_ms = snapshot.now_ms if low == 0 else ending[low - 1][0]
    return Reservation(workload=workload, start_ms=start_ms, assignment=best, ended=tuple(one for _, _, one in ending[:low]))


def on_empty_tree(snapshot: QuotaSnapshot, workload: Workload) -> Assignment:
    """What it would get if nothing else ran in its tree."""
    root = snapshot.forest.root(snapshot.forest.index[workload.queue])
    return _without(snapshot, workload, list(running_below(snapshot, root)))


def would_delay(snapshot: QuotaSnapshot, reservation: Reservation, one: Nomination) -> bool:
    """Would admitting the nominated workload now make the reserved one late?"""
    work, promised, forest = one.workload, reservation.workload, snapshot.forest
    node, reserved = forest.index[work.queue], forest.index[promised.queue]
    if work.workload == promised.workload or forest.root(node) != forest.root(reserved):
        return False
    if node == reserved:
        if (-work.priority, work.created_ms, work.workload) < (-promised.priority, promised.created_ms, promised.workload):
            return False
    elif one.assignment.level == 0:
        return False
    if work.expected_run_ms is not None and snapshot.now_ms + work.expected_run_ms <= reservation.start_ms:
        return False
    mark = snapshot.mark()
    snapshot.remove_all(reservation.ended)
    snapshot.charge(node, one.assignment.amounts)
    is_late = not snapshot.ledger.fits(reserved, reservation.assignment.amounts)
    snapshot.undo(mark)
    return is_late


def _end_ms(running: Running, now_ms: int) -> int:
    return now_ms if running.is_leaving or running.ends_ms is None else max(now_ms, running.ends_ms)


def _without(snapshot: QuotaSnapshot, workload: Workload, gone: list[Running]) -> Assignment:
    mark = snapshot.mark()
    snapshot.remove_all(gone)
    assignment = FlavorAssigner(snapshot, workload, may_preempt=False).assign()
    snapshot.undo(mark)
    return assignment
