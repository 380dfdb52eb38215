"""What is wrong with a request in itself: told when it comes, so that nothing that cannot be understood is ever queued."""

from __future__ import annotations

import math
from dataclasses import fields

from mesh.errors import MeshError
from mesh.labels import check_selector
from mesh.near_names import near_resource
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.scheduling.events import LabelConfigured
from mesh.scheduling.settings import SettingError
from mesh.scheduling.state import MeshState
from mesh.scheduling.tasks import TaskRequest, TaskState, Weights

STRATEGIES = frozenset({"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"})


def what_is_wrong(state: MeshState, request: TaskRequest) -> tuple[Reason, str] | None:
    """Why the task can never be queued here; None when it can."""
    if request.pool not in state.pools.pools:
        return Reason.POOL_UNKNOWN, f"there is no pool {request.pool}; there is {', '.join(state.pools.pools) or 'none'}"
    failed = next((need for need in request.after if state.ended.get(need) in (TaskState.FAILED, TaskState.CANCELLED)), None)
    if failed is not None:
        return Reason.UPSTREAM_FAILED, f"it comes after {failed}, which is {state.ended[failed].value}"
    if request.strategy not in STRATEGIES:
        return Reason.REQUEST_INVALID, f"strategy {request.strategy!r} is none of {', '.join(sorted(STRATEGIES))}"
    if isinstance(request.priority, bool) or not isinstance(request.priority, (int, float)) or not math.isfinite(request.priority):
        return Reason.REQUEST_INVALID, f"priority is {request.priority!r}; give a finite number"
    if request.max_restarts < -1:
        return Reason.REQUEST_INVALID, f"max_restarts is {request.max_restarts}; give -1 for always, or zero and more"
    if request.task in request.after:
        return Reason.REQUEST_INVALID, f"{request.task} comes after itself"
    wrong_gang = f"gang {request.gang} has no size; say how many tasks it has" if request.gang and request.gang_size < 1 else ""
    if wrong_gang or (wrong_gang := contradiction_in_gang(state, request)):
        return Reason.REQUEST_INVALID, wrong_gang
    try:
        check_selector(request.selector)
        if request.policy:
            state.catalogue.policy(request.policy)
    except MeshError as wrong:
        return Reason.REQUEST_INVALID, str(wrong)
    return None


def contradiction_in_gang(state: MeshState, request: TaskRequest) -> str:
    """What another member of its gang says of the gang's size, where that is something else; empty when they agree."""
    if not request.gang:
        return ""
    members = state.gangs.get(request.gang) or [task for task, kept in state.records.items() if kept.request.gang == request.gang]
    other = next((task for task in members if task != request.task), None)
    size = state.records[other].request.gang_size if other is not None else request.gang_size
    if size == request.gang_size:
        return ""
    return (
        f"gang_size of {request.task} is {request.gang_size}, and {other}, of the same gang {request.gang}, says {size}; "
        "give all members one size, or this one another gang"
    )


def misspelt_resource(state: MeshState, amounts: ResourceSet) -> str:
    """A resource that no node has and that is almost called like a known one, in words; empty when there is none.

    Whoever puts up nodes with a resource of their own may describe the pool first: only what is very near is taken for a slip.
    """
    known = _known_resources(state)
    close = {name: _like(name, known) for name in amounts if name not in known}
    return next((f"no node has a resource {name!r}{meant}" for name, meant in close.items() if meant), "")


def unknown_resource(state: MeshState, amounts: ResourceSet) -> str:
    """A resource that no node has and no pool counts, in words; empty when there is none.

    A task of it would be INFEASIBLE until a pool has a capacity of it, whatever nodes come: so the pool has to be described first.
    """
    known = _known_resources(state) | {name for pool in state.pools.pools.values() for name in pool.spec.capacity}
    unknown = next((name for name in amounts if name not in known), None)
    if unknown is None:
        return ""
    there = f"there is {', '.join(sorted(known))}; for another one, give a pool a capacity of it first"
    return f"no node and no pool has a resource {unknown!r}{_like(unknown, known)}; {there}"


def _known_resources(state: MeshState) -> set[str]:
    """What nodes have, and what every mesh knows."""
    table = state.table
    return {"cpu", "gpu", "memory"} | {name for column, name in enumerate(table.resources) if table.total[: len(table.names), column].any()}


def _like(name: str, known: set[str]) -> str:
    meant = near_resource(name, known)
    return f"; did you mean {meant!r}?" if meant is not None else ""


def check_pool(state: MeshState, spec: PoolSpec) -> None:
    """Raises a `MeshError` that names what is wrong, before anything has changed."""
    check_selector(spec.selector)
    state.catalogue.policy(spec.policy)
    _at_least(0, target_agents=spec.target_agents)
    if spec.groups is not None:
        _at_least(0, max_dynamic=spec.groups.max_dynamic, min_idle=spec.groups.min_idle, idle_ms=spec.groups.idle_ms)
        for shape in spec.groups.reserved:
            if shape.strategy not in STRATEGIES:
                raise SettingError(f"strategy {shape.strategy!r} is none of {', '.join(sorted(STRATEGIES))}")
            if not shape.amounts <= spec.capacity:
                raise SettingError(f"a reserved group of {shape.amounts} is more than the pool's whole capacity, {spec.capacity}")


def check_label(state: MeshState, rules: LabelConfigured) -> None:
    """Raises a `MeshError` that names what is wrong, before anything has changed."""
    if rules.policy:
        state.catalogue.policy(rules.policy)
    known = [kept.name for kept in fields(Weights)]
    numbers = {"priority": rules.priority, **rules.weights}
    if rules.aging_per_s is not None:
        _at_least(0, aging_per_s=rules.aging_per_s)
    for name, value in numbers.items():
        if name != "priority" and name not in known:
            raise SettingError(f"weights has no {name!r}; it has {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise SettingError(f"{name} is {value!r}; give a finite number")


def _at_least(least: int, **numbers: float) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise SettingError(f"{name} is {value!r}; give a number that is {least} or more")
