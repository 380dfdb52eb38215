"""What a mesh could use at once, for the ledger: a want for each lease that stages wait for."""

from __future__ import annotations

from federation.balance import LeaseBalance, LeaseKey
from federation.leases import Want
from mesh.admission import StageAdmission, Workload, WorkloadState
from mesh.reasons import Reason

#: Refusals that more quota may lift, and in which order they are looked for. The mesh has no room: who holds it may have borrowed what is
#: the tenant's, and only the root can tell.
_MAY_LIFT = (Reason.QUOTA_EXHAUSTED, Reason.CAPACITY_BUSY)


def wanted(admission: StageAdmission, balance: LeaseBalance) -> tuple[Want, ...]:
    """One want for each lease that stages wait for: that of the most urgent of them, since the ledger keeps no more than one."""
    first: dict[LeaseKey, Want] = {}
    queued = (workload for workload in admission.workloads.values() if _is_next(workload, admission))
    for workload in sorted(queued, key=lambda kept: kept.turn):
        found = _waits_for(workload, admission)
        if found is not None and found[0] not in first:
            first[found[0]] = _want(workload, *found, balance)
    return tuple(first[key] for key in sorted(first))


def _is_next(workload: Workload, admission: StageAdmission) -> bool:
    """What may not start before others of its tenant have has no use for quota yet."""
    return workload.state is WorkloadState.QUEUED and not admission.is_behind(workload)


def _want(workload: Workload, key: LeaseKey, reason: Reason, balance: LeaseBalance) -> Want:
    """Of quota no more than is missing; where the mesh has no room, whole slots, since that is what the root looks for room for."""
    offer = workload.offer
    missing = balance.missing(key, offer.slot, offer.workload) if reason is Reason.QUOTA_EXHAUSTED else offer.slot
    return balance.want(key, missing, offer.width if missing == offer.slot else 1, offer.priority)


def _waits_for(workload: Workload, admission: StageAdmission) -> tuple[LeaseKey, Reason] | None:
    for sought in _MAY_LIFT if workload.offer.slot else ():
        for pool, (reason, _) in workload.refused_by.items():
            if reason is sought:
                return (workload.offer.tenant, admission.ledger.pools[pool].spec.flavor), reason
    return None
