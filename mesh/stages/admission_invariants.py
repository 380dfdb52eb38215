"""Invariants of stage admission, checked after every step."""

from mesh.core.ids import StageId
from mesh.core.resources import NOTHING
from mesh.stages.admission import StageAdmission
from mesh.stages.reserved_groups import holder_of
from mesh.stages.workloads import WorkloadState


def violations(scheduler: StageAdmission) -> list[str]:
    """Describe every broken invariant; empty when all hold."""
    found = []
    for name, pool in scheduler.ledger.pools.items():
        total = sum((*pool.reservations.values(), *pool.uses.values()), start=NOTHING)
        if not total <= pool.spec.capacity:
            found.append(f"pool {name} has reserved {total} of {pool.spec.capacity}")
        asking = _in_state(scheduler, WorkloadState.RESERVED) | _in_state(scheduler, WorkloadState.GATHERING)
        running = _in_state(scheduler, WorkloadState.RUNNING)
        asking |= {StageId(f"{stage}+") for stage, workload in scheduler.workloads.items() if workload.asked}
        asking |= {holder_of(group.group) for group in scheduler.reserved.groups(name)}
        idle = pool.reservations.keys() - asking
        found.extend(f"pool {name} has reserved room for {holder}, which has not requested any" for holder in idle)
        found.extend(f"pool {name} counts {holder} as running, which it is not" for holder in pool.uses.keys() - running)
    found.extend(scheduler.placement.check())
    found.extend(scheduler.reserved.check())
    found.extend(
        f"{stage} has reserved groups of pool {workload.pool}, which serve other priorities"
        for stage, workload in scheduler.workloads.items()
        if scheduler.reserved.groups_of(stage) and workload.pool not in workload.kind.reserves
    )
    found.extend(scheduler.check())
    found.extend(
        f"{stage} gathers more than one slot"
        for stage in _in_state(scheduler, WorkloadState.GATHERING)
        if not scheduler.ledger.held_by(stage) <= scheduler.workloads[stage].offer.slot
    )
    found.extend(
        f"{stage} is {workload.state.value} with pool {workload.pool}"
        for stage, workload in scheduler.workloads.items()
        if (workload.state is WorkloadState.QUEUED) is not (workload.pool is None)
    )
    return found


def _in_state(scheduler: StageAdmission, state: WorkloadState) -> set[StageId]:
    return {stage for stage, workload in scheduler.workloads.items() if workload.state is state}
