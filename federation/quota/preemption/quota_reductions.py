"""Evictions after a quota reduction, for queues with `OnQuotaReduction.EVICT`. Other queues only admit nothing until they fit again."""

from __future__ import annotations

from federation.quota.policies import OnQuotaReduction
from federation.quota.preemption.candidates import Victim, victim_order
from federation.quota.snapshot import QuotaSnapshot
from federation.quota.workloads import Running
from mesh.core.reasons import Reason


def reduction_victims(snapshot: QuotaSnapshot) -> tuple[Victim, ...]:
    """Return as few victims as bring every queue with `OnQuotaReduction.EVICT` back within its limits; the snapshot is unchanged
    afterwards.

    A deficit above several such queues falls on the least urgent work among them. Work of other queues continues, and may leave a deficit
    that no eviction here can end.
    """
    evicting = [queue for queue, known in snapshot.settings.items() if known.on_quota_reduction is OnQuotaReduction.EVICT]
    candidates = [running for queue in evicting for running in snapshot.work_of(queue)]
    mark = snapshot.mark()
    victims: list[Victim] = []
    for running in sorted(candidates, key=victim_order(snapshot, "")):
        if _is_over(snapshot, running):
            snapshot.remove(running)
            victims.append(Victim(running=running, reason=Reason.QUOTA_REDUCED))
    needed = [victim for victim in victims if _is_still_needed(snapshot, victim)]
    snapshot.undo(mark)
    return tuple(victim for victim in needed if not victim.running.is_leaving)


def _is_still_needed(snapshot: QuotaSnapshot, victim: Victim) -> bool:
    """Return whether the victim's room is still missing after later victims; otherwise spare the victim."""
    node = snapshot.node_of(victim.running)
    if not snapshot.ledger.fits(node, victim.running.amounts):
        return True
    snapshot.add(victim.running)
    return False


def _is_over(snapshot: QuotaSnapshot, running: Running) -> bool:
    """Return whether the victim's queue exceeds its limits in a resource that the victim uses."""
    node = snapshot.node_of(running)
    return any(units and snapshot.ledger.deficit(node, key) > 0 for key, units in running.amounts.items())
