"""Reservation of a start date for a big waiting workload, and backfilling by smaller ones that do not delay it.

The date is when enough of the running work should have ended, by its users' estimates. Until then another workload starts only if

- it goes before the big one in their common queue, or stays within its own queue's quota, which no reservation takes away;
- or it should end before the date;
- or the big one would fit at the date in spite of it.

One workload per tree has a date at a time: several dates would shut out all other work while each makes room. Work without an expected
run time counts as endless. A workload beyond its queue's `max_wait` needs no date: all room that comes free in its reach is reserved for
it.
Source: EASY backfilling (Lifka 1995); ADR 0018.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from federation.quota.flavors import Assignment, FlavorAssigner, Mode
from federation.quota.nomination import Nomination
from federation.quota.snapshot import QuotaSnapshot
from federation.quota.workloads import Running, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReservation:
    """Future assignment of a workload, and its start."""

    workload: Workload
    start_ms: int
    assignment: Assignment
    ended: tuple[Running, ...]  #: Work that should have ended by then.


def running_below(snapshot: QuotaSnapshot, root: int) -> Iterator[Running]:
    """Yield all running work of one tree."""
    for queue, running in snapshot.running.items():
        if snapshot.forest.root(queue) == root:
            yield from running.values()


def earliest_start(snapshot: QuotaSnapshot, workload: Workload) -> BackfillReservation | None:
    """Return when the workload would fit if nothing else started and all work ended as expected; None if that is unknown.

    Overdue and stopping work counts as ending now.
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
    return BackfillReservation(workload=workload, start_ms=start_ms, assignment=best, ended=tuple(one for _, _, one in ending[:low]))


def on_empty_tree(snapshot: QuotaSnapshot, workload: Workload) -> Assignment:
    """Return the assignment if nothing else ran in the workload's tree."""
    root = snapshot.forest.root(snapshot.forest.index[workload.queue])
    return _without(snapshot, workload, list(running_below(snapshot, root)))


def would_delay(snapshot: QuotaSnapshot, reservation: BackfillReservation, one: Nomination) -> bool:
    """Return whether admitting the nominated workload now would delay the reserved one."""
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
