"""What is wrong with a request in itself: told when it comes, so that nothing that cannot be understood is ever queued."""

from __future__ import annotations

from mesh.errors import MeshError
from mesh.labels import check_selector
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.scheduling.state import MeshState
from mesh.scheduling.tasks import TaskRequest

STRATEGIES = frozenset({"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"})


def what_is_wrong(state: MeshState, request: TaskRequest) -> tuple[Reason, str] | None:
    """Why the task can never be queued here; None when it can."""
    if request.pool not in state.pools.pools:
        return Reason.POOL_UNKNOWN, f"there is no pool {request.pool}; there is {', '.join(state.pools.pools) or 'none'}"
    if request.strategy not in STRATEGIES:
        return Reason.REQUEST_INVALID, f"strategy {request.strategy!r} is none of {', '.join(sorted(STRATEGIES))}"
    if request.gang and request.gang_size < 1:
        return Reason.REQUEST_INVALID, f"gang {request.gang} has no size; say how many tasks it has"
    try:
        check_selector(request.selector)
        if request.policy:
            state.catalogue.policy(request.policy)
    except MeshError as wrong:
        return Reason.REQUEST_INVALID, str(wrong)
    return None


def check_pool(state: MeshState, spec: PoolSpec) -> None:
    """Raises a `MeshError` that names what is wrong, before anything has changed."""
    check_selector(spec.selector)
    state.catalogue.policy(spec.policy)
