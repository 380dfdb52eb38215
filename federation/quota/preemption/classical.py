"""Preemption by priority and nominal quota, without shares.

Candidates outside the queue are found below nodes that use more than their own quota. Going up from the queue, a level has *advantage*
once a node below it on the path could hold the request within its own quota: the queue then reclaims what it is entitled to. Without
advantage a queue reclaims only in a pass that does not borrow, or, if the policy says so, from lower priorities.
Source: Kueue `preemption/classical`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from federation.quota.policies import Policies, PreemptionMode
from federation.quota.preemption.candidates import (
    Victim,
    allows,
    candidates_in,
    fill_back,
    has_displaced,
    is_within_own,
    queues_with_candidates,
    victim_order,
)
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import Running, Workload
from mesh.core.reasons import Reason


class _Right(IntEnum):
    """Right by which a candidate may be preempted, in the order of the groups."""

    ADVANTAGE = 0
    RECLAIM = 1  #: Only in a pass that does not borrow.
    RECLAIM_BORROWING = 2
    OWN_QUEUE = 3


_REASONS = {
    _Right.ADVANTAGE: Reason.QUOTA_RECLAIMED,
    _Right.RECLAIM: Reason.QUOTA_RECLAIMED,
    _Right.RECLAIM_BORROWING: Reason.QUOTA_RECLAIMED_BORROWING,
    _Right.OWN_QUEUE: Reason.PREEMPTED_WITHIN_TENANT,
}


@dataclass(frozen=True, slots=True)
class _Candidate:
    running: Running
    right: _Right
    between: tuple[int, ...]  #: From the candidate's queue up to right below the common ancestor.


def classical_victims(snapshot: QuotaSnapshot, ask: Ask) -> tuple[Victim, ...]:
    """Return the victims so that the request fits; minimal by inclusion, empty if no preemption helps.

    The snapshot is unchanged afterwards.
    """
    policies = snapshot.settings[ask.node].policies
    order = victim_order(snapshot, ask.workload.queue)
    others = list(_outside(snapshot, ask, policies))
    own_queue = candidates_in(snapshot, ask, ask.node, policies.within_queue)
    own = [_Candidate(running, _Right.OWN_QUEUE, ()) for running in own_queue if not has_displaced(snapshot, ask, running)]
    groups = {_Right.ADVANTAGE: 0, _Right.RECLAIM: 1, _Right.RECLAIM_BORROWING: 1, _Right.OWN_QUEUE: 2}
    ordered = sorted((*others, *own), key=lambda one: (not one.running.is_leaving, groups[one.right], order(one.running)))
    for borrows in _passes(snapshot, ask, policies, others):
        mark = snapshot.mark()
        victims = _one_pass(snapshot, ask, ordered, borrows)
        snapshot.undo(mark)
        if victims:
            return tuple(victims)
    return ()


def _outside(snapshot: QuotaSnapshot, ask: Ask, policies: Policies) -> Iterator[_Candidate]:
    """Yield the candidates of other queues of the tree."""
    forest, ledger = snapshot.forest, snapshot.ledger
    path = forest.paths[ask.node]
    if len(path) == 1 or policies.reclaim is PreemptionMode.NEVER:
        return
    advantage = _advantages(snapshot, ask)
    own_path = frozenset(path)
    only_borrows = policies.borrow is PreemptionMode.NEVER and not is_within_own(snapshot, ask, with_request=False)
    for queue in sorted(queues_with_candidates(snapshot, ask)):
        between: list[int] = []
        for step in forest.paths[queue]:
            if step in own_path:
                break
            between.append(step)
        if not all(ledger.is_over(step, ask.needed) for step in between):
            continue
        has_advantage = advantage[forest.parents[between[-1]]]
        if only_borrows and not has_advantage:
            continue  # No pass could take these.
        for running in candidates_in(snapshot, ask, queue, policies.reclaim):
            right = _Right.ADVANTAGE if has_advantage else _right(ask.workload, running.workload, policies)
            if right is not _Right.RECLAIM_BORROWING or not has_displaced(snapshot, ask, running):
                yield _Candidate(running, right, tuple(between))


def _advantages(snapshot: QuotaSnapshot, ask: Ask) -> dict[int, bool]:
    """Return for each ancestor whether a node below it on the path could hold the request within its own quota."""
    ledger, path = snapshot.ledger, snapshot.forest.paths[ask.node]
    rest, found, has_advantage = dict(ask.amounts), {}, False
    for step, above in pairwise(path):
        has_advantage = has_advantage or not any(ledger.would_borrow(step, key, units) for key, units in rest.items())
        found[above] = has_advantage
        rest = {key: max(0, units - ledger.local_room(step, key)) for key, units in rest.items()}
    return found


def _right(by: Workload, victim: Workload, policies: Policies) -> _Right:
    """Return the right without advantage."""
    maximum = policies.borrow_priority_max
    is_low = allows(PreemptionMode.LOWER_PRIORITY, by, victim) and (maximum is None or victim.priority <= maximum)
    return _Right.RECLAIM_BORROWING if policies.borrow is not PreemptionMode.NEVER and is_low else _Right.RECLAIM


def _passes(snapshot: QuotaSnapshot, ask: Ask, policies: Policies, others: list[_Candidate]) -> tuple[bool, ...]:
    """Return for each pass whether the queue may end up borrowing."""
    forbidden = policies.borrow is PreemptionMode.NEVER
    if not others or (forbidden and not is_within_own(snapshot, ask, with_request=False)):
        return (True,)
    if forbidden and not any(one.right is _Right.ADVANTAGE for one in others):
        return False, True
    return True, False


def _one_pass(snapshot: QuotaSnapshot, ask: Ask, ordered: list[_Candidate], borrows: bool) -> list[Victim]:
    """Return as few victims as possible so that the request fits; empty if it never does. The caller undoes the changes."""

    def fits() -> bool:
        stays = borrows or not any(snapshot.ledger.would_borrow(ask.node, key, units) for key, units in ask.amounts.items())
        return stays and snapshot.fits(ask)

    victims: list[Victim] = []
    for candidate in ordered:
        if borrows and candidate.right is _Right.RECLAIM:
            continue
        if not all(snapshot.ledger.is_over(step, ask.needed) for step in candidate.between):
            continue  # Earlier victims brought the node within its own quota again.
        snapshot.remove(candidate.running)
        victims.append(Victim(running=candidate.running, reason=_REASONS[candidate.right]))
        if fits():
            return fill_back(snapshot, victims, lambda _spared: fits())
    return []
