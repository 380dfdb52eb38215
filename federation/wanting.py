"""What a mesh could use at once, for the ledger: a want for each lease that stages wait for."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from federation.balance import LeaseBalance
from federation.leases import Want
from mesh.admission import StageAdmission, WorkloadState
from mesh.ids import StageId
from mesh.reasons import Reason


def still_unmet(unmet: Mapping[StageId, Want], admission: StageAdmission) -> dict[StageId, Want]:
    """Of what was refused, that which is waited for yet."""
    return {stage: want for stage, want in unmet.items() if stage in _queued(admission)}


def wanted(unmet: Mapping[StageId, Want], admission: StageAdmission, balance: LeaseBalance) -> tuple[Want, ...]:
    """One want for each lease that stages wait for; `unmet` is what was refused to them."""
    crowded_out = _crowded_out(_queued(admission) - unmet.keys(), admission, balance)
    first = {(want.tenant, want.flavor): want for want in reversed([*unmet.values(), *crowded_out.values()])}
    return tuple(first[key] for key in sorted(first))


def _queued(admission: StageAdmission) -> set[StageId]:
    return {name for name, workload in admission.workloads.items() if workload.state is WorkloadState.QUEUED}


def _crowded_out(queued: AbstractSet[StageId], admission: StageAdmission, balance: LeaseBalance) -> dict[StageId, Want]:
    """Stages for which the mesh has no room: who holds it may have borrowed what is theirs, and only the root can tell."""
    found: dict[StageId, Want] = {}
    workloads = (admission.workloads[stage] for stage in sorted(queued))
    for workload in sorted(workloads, key=lambda kept: (-kept.offer.priority, kept.arrival)):
        offer = workload.offer
        busy = [pool for pool, (reason, _) in workload.refused_by.items() if reason is Reason.CAPACITY_BUSY]
        if busy and offer.slot:
            key = (offer.tenant, admission.ledger.pools[busy[0]].spec.flavor)
            found[offer.workload] = balance.want(key, offer.slot, offer.width, offer.priority)
    return found
