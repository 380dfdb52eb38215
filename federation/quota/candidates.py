"""Which running work may be asked to give way, and in which order.

In order: what is leaving anyway; other queues before the own; lower priority; (mesh rules) less work lost; newest quota;
id. The order is total, so the same state gives the same victims.
Source: Kueue `preemption/common`; lost work is ADR 0018's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from federation.quota.policies import Preempt
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import Running, Workload
from mesh.reasons import Reason

VictimKey = tuple[bool, bool, int, int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """Running work that has to give way, and the rule that says so."""

    running: Running
    reason: Reason


def allows(policy: Preempt, by: Workload, victim: Workload) -> bool:
    """Does the policy let one workload take from the other?"""
    if policy is Preempt.NEVER:
        return False
    if policy is Preempt.ANY:
        return True
    if victim.priority == by.priority and policy is Preempt.LOWER_OR_NEWER:
        return by.created_ms < victim.created_ms
    return victim.priority < by.priority


def victim_order(snapshot: QuotaSnapshot, queue: str) -> Callable[[Running], VictimKey]:
    """The key to sort candidates by, when the work of `queue` wants room."""
    weighs, now_ms = snapshot.rules.weighs_lost_work, snapshot.now_ms

    def key(running: Running) -> VictimKey:
        work = running.workload
        lost_ms = running.lost_ms(now_ms) if weighs else 0
        return not running.is_leaving, work.queue == queue, work.priority, lost_ms, -running.since_ms, work.workload

    return key


def protection(snapshot: QuotaSnapshot, running: Running) -> Reason | None:
    """Why nobody may evict it now; None when somebody may. What is leaving anyway is not protected."""
    if running.is_leaving:
        return None
    if not running.workload.is_preemptible:
        return Reason.NOT_PREEMPTIBLE
    min_run_ms = snapshot.rules.min_run_of(snapshot.settings.get(snapshot.node_of(running)))
    return Reason.TOO_YOUNG if max(0, snapshot.now_ms - running.since_ms) < min_run_ms else None


def candidates_in(snapshot: QuotaSnapshot, ask: Ask, queue: int, policy: Preempt) -> Iterable[Running]:
    """What the policy lets `ask` take from a queue: it uses what is needed, and nothing protects it."""
    if policy is Preempt.NEVER:
        return
    for running in snapshot.running.get(queue, {}).values():
        if running.amounts.keys() & ask.needed and allows(policy, ask.workload, running.workload) and protection(snapshot, running) is None:
            yield running


def has_displaced(snapshot: QuotaSnapshot, ask: Ask, running: Running) -> bool:
    """May it not be taken, as it displaced the asking work before? What is leaving anyway may.

    Not asked where a queue takes back what is its own.
    """
    return snapshot.rules.ends_loops and not running.is_leaving and snapshot.displaces(ask.workload, running.workload)


def is_within_own(snapshot: QuotaSnapshot, ask: Ask, *, with_request: bool) -> bool:
    """Is the asking queue within its nominal quota where it needs room, (with the request) even when it has got it?"""
    ledger = snapshot.ledger
    if with_request:
        return all(not ledger.would_borrow(ask.node, key, ask.amounts.get(key, 0)) for key in ask.needed)
    return all(ledger.excess(ask.node, key) < 0 for key in ask.needed)


def fill_back(snapshot: QuotaSnapshot, victims: list[Victim], fits: Callable[[], bool]) -> list[Victim]:
    """Give the earlier victims their room again, latest first, while all still fits; the last one was needed."""
    spared: set[int] = set()
    for place in range(len(victims) - 2, -1, -1):
        mark = snapshot.mark()
        snapshot.add(victims[place].running)
        if fits():
            spared.add(place)
        else:
            snapshot.undo(mark)
    return [victim for place, victim in enumerate(victims) if place not in spared]
