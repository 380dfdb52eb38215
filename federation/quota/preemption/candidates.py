"""Candidates for preemption, and their order.

The order: work that is stopping anyway; other queues before the own; lower priority; (mesh rules) less lost work; newest quota; id. The
order is total, so the same state gives the same victims.
Source: Kueue `preemption/common`; lost work is ADR 0018's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from federation.quota.policies import PreemptionMode
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import Running, Workload
from mesh.core.reasons import Reason

VictimKey = tuple[bool, bool, int, int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """Running work that is preempted, and the reason."""

    running: Running
    reason: Reason


def allows(policy: PreemptionMode, by: Workload, victim: Workload) -> bool:
    """Return whether the policy lets one workload preempt the other."""
    if policy is PreemptionMode.NEVER:
        return False
    if policy is PreemptionMode.ANY:
        return True
    if victim.priority == by.priority and policy is PreemptionMode.LOWER_OR_NEWER:
        return by.created_ms < victim.created_ms
    return victim.priority < by.priority


def victim_order(snapshot: QuotaSnapshot, queue: str) -> Callable[[Running], VictimKey]:
    """Return the sort key for candidates of a preemption by work of `queue`."""
    weighs, now_ms = snapshot.rules.weighs_lost_work, snapshot.now_ms

    def key(running: Running) -> VictimKey:
        work = running.workload
        lost_ms = running.lost_ms(now_ms) if weighs else 0
        return not running.is_leaving, work.queue == queue, work.priority, lost_ms, -running.since_ms, work.workload

    return key


def protection(snapshot: QuotaSnapshot, running: Running) -> Reason | None:
    """Return why the work may not be evicted now; None if it may. Work that is stopping anyway is not protected."""
    if running.is_leaving:
        return None
    if not running.workload.is_preemptible:
        return Reason.NOT_PREEMPTIBLE
    min_run_ms = snapshot.rules.min_run_of(snapshot.settings.get(snapshot.node_of(running)))
    return Reason.BELOW_MIN_RUN_TIME if max(0, snapshot.now_ms - running.since_ms) < min_run_ms else None


def candidates_in(snapshot: QuotaSnapshot, ask: Ask, queue: int, policy: PreemptionMode) -> Iterable[Running]:
    """Yield the unprotected work of a queue that uses a needed resource and that the policy lets `ask` preempt."""
    if policy is PreemptionMode.NEVER:
        return
    for running in snapshot.running.get(queue, {}).values():
        if running.amounts.keys() & ask.needed and allows(policy, ask.workload, running.workload) and protection(snapshot, running) is None:
            yield running


def has_displaced(snapshot: QuotaSnapshot, ask: Ask, running: Running) -> bool:
    """Return whether the running work evicted the asking work before, so that it may not be evicted in return. Stopping work always may.

    Callers skip this check where a queue reclaims its own quota.
    """
    return snapshot.rules.ends_loops and not running.is_leaving and snapshot.displaces(ask.workload, running.workload)


def is_within_own(snapshot: QuotaSnapshot, ask: Ask, *, with_request: bool) -> bool:
    """Return whether the asking queue is within its nominal quota for the needed resources; `with_request` includes the request."""
    ledger = snapshot.ledger
    if with_request:
        return all(not ledger.would_borrow(ask.node, key, ask.amounts.get(key, 0)) for key in ask.needed)
    return all(ledger.excess(ask.node, key) < 0 for key in ask.needed)


def fill_back(snapshot: QuotaSnapshot, victims: list[Victim], fits: Callable[[], bool]) -> list[Victim]:
    """Spare victims while the request still fits, the latest but one first; the last victim was needed."""
    spared: set[int] = set()
    for place in range(len(victims) - 2, -1, -1):
        mark = snapshot.mark()
        snapshot.add(victims[place].running)
        if fits():
            spared.add(place)
        else:
            snapshot.undo(mark)
    return [victim for place, victim in enumerate(victims) if place not in spared]
