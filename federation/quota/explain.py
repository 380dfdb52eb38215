"""Explanation of why a workload waits, in numbers: position, reason, needed changes, estimated start, possible victims.

All is computed on the scheduler's own snapshot and undone, so an explanation changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from federation.estimates import overrun_ms
from federation.quota.cycle import worst_reason
from federation.quota.flavors import Assignment, Mode, Refusal, assignment_without
from federation.quota.ledger import QuotaLedger
from federation.quota.limits import Gate, queue_gate, running_gate
from federation.quota.nomination import nominate
from federation.quota.preemption.candidates import Victim
from federation.quota.scheduler import QuotaScheduler
from federation.quota.snapshot import QuotaSnapshot
from federation.quota.workloads import Running, Workload
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName
from mesh.core.reasons import Reason

AHEAD_MAX = 64  #: Workloads of the own queue that an estimate starts first; behind more of them there is no estimate.


class Lever(str, Enum):
    """Kind of change that would help."""

    FREE = "free"  #: So much has to come free in the tenant's tree.
    NOMINAL = "nominal"  #: The tenants below this one bring too little, even with nothing in use.
    BORROWING_LIMIT = "borrowing_limit"  #: The limit is too low, even with nothing in use.
    BORROWED = "borrowed"  #: The tenant borrows already; so much has to come free there, or its limit has to rise.


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One obstacle, and its size."""

    lever: Lever
    tenant: str
    flavor: str
    resource: str
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadExplanation:
    """Explanation of a workload that waits, or would wait."""

    workload: str
    reason: Reason | None  #: None: the workload would start in the next round.
    position: int  #: Number of workloads of its queue that go first.
    ahead: tuple[str, ...] = ()  #: These workloads, the next one first.
    is_parked: bool = False
    gate: Gate | None = None
    refusals: tuple[Refusal, ...] = ()
    changes: tuple[Change, ...] = ()  #: For the flavor that needs least; all of them together would do.
    start_ms: int | None = None  #: Estimate from expected run times; None: unknown.
    overdue_ms: int = 0  #: Work that has to end first overruns by so much (`overrun_ms`), and counts as ending now.
    assignment: Assignment | None = None  #: The flavors and amounts that it would get.
    victims: tuple[Victim, ...] = ()  #: The work that would be preempted for it.


@dataclass(frozen=True, slots=True, kw_only=True)
class _EarliestStart:
    """Future assignment of a workload, and its start."""

    start_ms: int
    assignment: Assignment
    ended: tuple[Running, ...]  #: Work that should have ended by then.


def explain(scheduler: QuotaScheduler, workload: str, first: Collection[str] = ()) -> WorkloadExplanation:
    """Explain why a workload waits.

    Args:
        first: Workloads before it that have to start before it does.

    Raises:
        LedgerError: No workload has this id.
    """
    work = scheduler.find(workload)
    ahead = []
    for other in scheduler.waiting(work.queue):
        if other.workload == workload:
            break
        ahead.append(other)
    explanation = _explained(scheduler, work, ahead, first)
    waited = scheduler.waits.get(workload)
    if workload in scheduler.holds:
        explanation = replace(explanation, reason=Reason.WAITING_FOR_VICTIMS, start_ms=None)
    elif explanation.reason is None and waited is not None:
        explanation = replace(explanation, reason=waited.reason)
    return replace(explanation, is_parked=scheduler.is_parked(workload))


def dry_run(scheduler: QuotaScheduler, workload: Workload, first: Collection[str] = ()) -> WorkloadExplanation:
    """Explain a workload as if it were submitted now; `first` as in `explain`. Raises UnknownTenant."""
    node = scheduler.queue_node(workload.queue)
    work = workload._replace(queue=scheduler.forest.names[node])
    place = (-work.priority, work.created_ms, work.workload)
    ahead = [one for one in scheduler.waiting(work.queue) if (-one.priority, one.created_ms, one.workload) < place]
    return _explained(scheduler, work, ahead, first)


def _explained(scheduler: QuotaScheduler, work: Workload, ahead: list[Workload], first: Collection[str]) -> WorkloadExplanation:
    snapshot, node = scheduler.snapshot, scheduler.forest.index[work.queue]
    gate = queue_gate(scheduler.forest, scheduler.settings, node, snapshot.now_ms) or running_gate(
        scheduler.counts, scheduler.settings, work
    )
    mark = snapshot.mark()
    hold = scheduler.holds.get(work.workload)
    if hold is not None:  # The workload's own hold is no obstacle.
        snapshot.discharge(node, hold.assignment.amounts)
    one = nominate(snapshot, work)
    is_fit = one.assignment.mode is Mode.FIT
    reason = gate.reason if gate else None if one.is_possible else worst_reason(one)
    if reason is None and ahead and scheduler.settings[node].is_strict:
        reason = Reason.BEHIND_HEAD
    changes = () if is_fit else _least(snapshot.ledger, node, one.assignment.refusals)
    start_ms, overdue_ms = _estimate(scheduler, work, ahead, first) if gate is None or gate.opens_ms is not None else (None, 0)
    if start_ms is not None and gate is not None and gate.opens_ms is not None:
        start_ms, overdue_ms = max(start_ms, gate.opens_ms), 0
    snapshot.undo(mark)
    return WorkloadExplanation(
        workload=work.workload,
        reason=reason,
        position=len(ahead),
        ahead=tuple(one.workload for one in ahead),
        gate=gate,
        refusals=one.assignment.refusals,
        changes=changes,
        start_ms=start_ms,
        overdue_ms=overdue_ms,
        assignment=one.assignment,
        victims=one.victims,
    )


def changes_for(ledger: QuotaLedger, node: int, key: FlavorResource, units: int) -> Iterator[Change]:
    """Yield the obstacles to `units` more of the (flavor, resource), from the node up to its root."""
    forest, rows = ledger.forest, ledger.forest.rows(key)
    asked_empty = asked = units
    for step in forest.paths[node]:
        own, use, limit = rows.own[step], ledger.use(step, key), rows.borrowing_limit[step]
        is_root = step == forest.root(node)
        most = own if is_root else None if limit is None else own + limit
        tenant = forest.tenant_of(step)
        if most is not None and asked_empty > most:
            lever = Lever.NOMINAL if is_root else Lever.BORROWING_LIMIT
            yield Change(lever=lever, tenant=tenant, flavor=key[0], resource=key[1], units=asked_empty - most)
        elif most is not None and asked and use + asked > most:
            lever = Lever.FREE if is_root else Lever.BORROWED
            yield Change(lever=lever, tenant=tenant, flavor=key[0], resource=key[1], units=use + asked - most)
        kept = rows.kept[step]
        asked = max(0, use + asked - kept) - max(0, use - kept)
        asked_empty = max(0, asked_empty - kept)


def _least(ledger: QuotaLedger, node: int, refusals: tuple[Refusal, ...]) -> tuple[Change, ...]:
    """Return the changes for the flavor that lacks the smallest part of the request; a flavor that could never do comes last."""
    by_flavor: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        if refusal.reason in (Reason.QUOTA_TOO_SMALL, Reason.QUOTA_EXHAUSTED):
            by_flavor.setdefault(refusal.flavor, []).append(refusal)
    if not by_flavor:
        return ()

    def lack(flavor: str) -> tuple[bool, int]:
        several = by_flavor[flavor]
        never = any(refusal.reason is Reason.QUOTA_TOO_SMALL for refusal in several)
        return never, max(1_000_000 * (refusal.wanted - refusal.available) // max(1, refusal.wanted) for refusal in several)

    nearest = min(by_flavor, key=lack)
    wanted: dict[tuple[str, str], Refusal] = {(one.flavor, one.resource): one for one in by_flavor[nearest]}
    return tuple(
        change
        for refusal in wanted.values()
        for change in changes_for(ledger, node, (FlavorName(refusal.flavor), refusal.resource), refusal.wanted)
    )


def _estimate(scheduler: QuotaScheduler, work: Workload, ahead: list[Workload], first: Collection[str]) -> tuple[int | None, int]:
    """Return the estimated start, and by how much the work that has to end first is overdue.

    The estimate assumes that work ends as expected, the workloads before it in its queue go first, and no others come. Workloads before
    it count as holding their room from now on, so the true start may be earlier.
    """
    snapshot = scheduler.snapshot
    if len(ahead) > AHEAD_MAX:
        return None, 0
    latest_ms = snapshot.now_ms
    overdue_ms: dict[str, int] = {}
    for other in ahead:
        found = _earliest_start(snapshot, other)
        if found is None and other.workload in first:
            return None, 0
        if found is None:
            continue  # It cannot start as things are, so it takes nothing from those behind it.
        overdue_ms[other.workload] = _overdue_ms(found, overdue_ms, snapshot.now_ms)
        if other.workload in first:
            latest_ms = max(latest_ms, found.start_ms)
        expected = other.expected_run_ms
        ends = None if expected is None else found.start_ms + expected - snapshot.now_ms
        stand_in = other._replace(expected_run_ms=ends)
        snapshot.add(Running(workload=stand_in, amounts=found.assignment.amounts, since_ms=snapshot.now_ms))
    found = _earliest_start(snapshot, work)
    if found is None:
        return None, 0
    return max(latest_ms, found.start_ms), max(
        _overdue_ms(found, overdue_ms, snapshot.now_ms), *(overdue_ms.get(name, 0) for name in first), 0
    )


def _earliest_start(snapshot: QuotaSnapshot, workload: Workload) -> _EarliestStart | None:
    """Return when the workload would fit if nothing else started and all work ended as expected; None if that is unknown.

    Overdue and stopping work counts as ending now.
    """
    now_ms = snapshot.now_ms
    ending = sorted(
        (max(now_ms, _due_ms(running, now_ms)), running.workload.workload, running)
        for running in snapshot.running_below(snapshot.forest.root(snapshot.forest.index[workload.queue]))
        if running.is_leaving or running.ends_ms is not None
    )
    low, high = 0, len(ending) + 1
    best: Assignment | None = None
    while low < high:
        middle = (low + high) // 2
        assignment = assignment_without(snapshot, workload, [running for _, _, running in ending[:middle]])
        if assignment.mode is Mode.FIT:
            best, high = assignment, middle
        else:
            low = middle + 1
    if best is None:
        return None
    start_ms = now_ms if low == 0 else ending[low - 1][0]
    return _EarliestStart(start_ms=start_ms, assignment=best, ended=tuple(running for _, _, running in ending[:low]))


def _due_ms(running: Running, now_ms: int) -> int:
    return now_ms if running.is_leaving or running.ends_ms is None else running.ends_ms


def _overdue_ms(found: _EarliestStart, known: Mapping[str, int], now_ms: int) -> int:
    """Return by how much the last work that has to end first is overdue; `known` holds the values of workloads that have not started."""
    if not found.ended:
        return 0
    last = found.ended[-1]
    late_ms, expected_ms = now_ms - _due_ms(last, now_ms), last.workload.expected_run_ms or 0
    return known.get(last.workload.workload, overrun_ms(expected_ms + late_ms, expected_ms))
