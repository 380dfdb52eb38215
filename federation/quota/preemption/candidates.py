"""Candidates for preemption, and their order.

The order: idle quota, and work that is stopping anyway; other queues before the own; (mesh rules) old enough to stop at once; lower
priority; (mesh rules) less lost work; newest quota; id. The order is total, so the same state gives the same victims.
Source: Kueue `preemption/common`; lost work is ADR 0018's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from federation.quota.policies import PreemptionMode
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import Running, Workload
from mesh.core.reasons import Reason

VictimKey = tuple[bool, bool, bool, int, int, int, str]


class Victim(NamedTuple):
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
        is_young = running.granted_ms is not None and now_ms - running.since_ms < min_run_ms(snapshot, running)
        is_first = running.is_leaving or running.is_divisible
        return not is_first, work.queue == queue, is_young, work.priority, lost_ms, -running.since_ms, work.workload

    return key


def min_run_ms(snapshot: QuotaSnapshot, running: Running) -> int:
    """Return the minimum run time of the work in milliseconds."""
    return snapshot.rules.min_run_of(snapshot.settings.get(snapshot.node_of(running)))


def protection(snapshot: QuotaSnapshot, running: Running, min_ms: int | None = None) -> Reason | None:
    """Return why the work may not be evicted now; None if it may. Work that is stopping anyway is not protected.

    Args:
        min_ms: `min_run_ms` of the work, if the caller knows it.
    """
    if running.is_leaving:
        return None
    if not running.workload.is_preemptible:
        return Reason.NOT_PREEMPTIBLE
    if not snapshot.protects_young:
        return None
    since_ms = running.since_ms if running.granted_ms is None else running.granted_ms
    min_ms = min_run_ms(snapshot, running) if min_ms is None else min_ms
    return Reason.BELOW_MIN_RUN_TIME if max(0, snapshot.now_ms - since_ms) < min_ms else None


def candidates_in(snapshot: QuotaSnapshot, ask: Ask, queue: int, policy: PreemptionMode) -> list[Running]:
    """Return the unprotected work of a queue that uses what `ask` needs, where it needs it, and that the policy lets it preempt."""
    if policy is PreemptionMode.NEVER:
        return []
    mesh, needed, by, is_own, found = ask.mesh, ask.needed, ask.workload, queue == ask.node, list[Running]()
    min_ms = snapshot.rules.min_run_of(snapshot.settings.get(queue))
    for running in snapshot.work_of(queue, needed):
        if needed.isdisjoint(running.amounts):
            continue
        if mesh and (running.mesh != mesh or running.is_divisible):  # Idle quota takes no room.
            continue
        if is_own and not running.is_leaving and (ask.spares_own or (running.is_protected and running.mesh != ask.home)):
            continue
        if (policy is PreemptionMode.ANY or allows(policy, by, running.workload)) and protection(snapshot, running, min_ms) is None:
            found.append(running)
    return found


def kept_candidates(snapshot: QuotaSnapshot, ask: Ask, queue: int, policy: PreemptionMode) -> list[Running]:
    """Return the candidates of another queue than the asking one, wherever they run, the next one last.

    A snapshot of one moment, without a history of evictions, keeps the list as it is for `ANY` workload: the searches of a round look at
    the same few queues again and again.
    """
    known, key = snapshot.kept_candidates.setdefault(queue, {}), (ask.needed, snapshot.protects_young)
    kept = known.get(key)
    if kept is None:
        found = candidates_in(snapshot, ask, queue, PreemptionMode.ANY)
        if len(found) > 1:
            found.sort(key=victim_order(snapshot, ask.workload.queue), reverse=True)
        kept = snapshot.kept_candidates.setdefault(queue, {})[key] = found
    if policy is PreemptionMode.ANY:
        return kept.copy()
    return [running for running in kept if allows(policy, ask.workload, running.workload)]


def queues_with_candidates(snapshot: QuotaSnapshot, ask: Ask) -> set[int]:
    """Return the other queues of the tree that use more than their own of what `ask` needs and have work, on its mesh if one lacks room."""
    forest, ledger = snapshot.forest, snapshot.ledger
    root = forest.root(ask.node)
    return {
        queue
        for queue in snapshot.queues_with_work(ask.mesh)
        if queue != ask.node and ledger.is_over(queue, ask.needed) and forest.root(queue) == root
    }


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


def fill_back(snapshot: QuotaSnapshot, victims: list[Victim], fits: Callable[[Victim], bool]) -> list[Victim]:
    """Spare victims while the request still fits, the latest but one first; the last victim was needed.

    Args:
        fits: Return whether the request still fits, now that the victim runs on.
    """
    spared: set[int] = set()
    for place in range(len(victims) - 2, -1, -1):
        mark = snapshot.mark()
        snapshot.add(victims[place].running)
        if fits(victims[place]):
            spared.add(place)
        else:
            snapshot.undo(mark)
    return [victim for place, victim in enumerate(victims) if place not in spared]
