"""What must hold of a mesh scheduler's state after every step."""

from mesh.scheduler import MeshScheduler, WorkloadState


def violations(scheduler: MeshScheduler) -> list[str]:
    """Every broken invariant, in words; empty when all hold."""
    found = []
    for name, pool in scheduler.ledger.pools.items():
        total = sum((amounts for amounts in (*pool.reserved.values(), *pool.used.values())), start=type(pool.spec.capacity)())
        if not total <= pool.spec.capacity:
            found.append(f"pool {name} has promised {total} of {pool.spec.capacity}")
        for holder in pool.reserved:
            if holder not in scheduler.workloads or scheduler.workloads[holder].state is not WorkloadState.RESERVED:
                found.append(f"pool {name} has room set aside for {holder}, which has not asked")
        for holder in pool.used:
            if holder not in scheduler.workloads or scheduler.workloads[holder].state is not WorkloadState.RUNNING:
                found.append(f"pool {name} counts {holder} as running, which it is not")
    for name, workload in scheduler.workloads.items():
        if (workload.state is WorkloadState.QUEUED) is not (workload.pool is None):
            found.append(f"{name} is {workload.state.value} with pool {workload.pool}")
    return found
