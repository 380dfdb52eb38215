"""Validation of requests on arrival, so that nothing invalid is ever queued."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import lru_cache

from mesh.core.ids import TaskId
from mesh.core.labels import check_selector
from mesh.core.near_names import near_resource
from mesh.core.node_instances import UNIT_INSTANCE_RESOURCES, is_possible
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TaskRequest, TaskState, Weights
from mesh.errors import MeshError
from mesh.placement.feasibility import impossible
from mesh.tasks.events import LabelConfigured
from mesh.tasks.settings import SettingError
from mesh.tasks.state import MeshState

STRATEGIES = frozenset({"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"})


def find_problem(state: MeshState, request: TaskRequest) -> tuple[Reason, str] | None:
    """Return why the task can never be queued here; None when it can."""
    if request.pool not in state.pools.pools:
        return Reason.POOL_UNKNOWN, f"there is no pool {request.pool}; pools: {', '.join(state.pools.pools) or 'none'}"
    failed = _failed_need(state, request) if request.after else None
    if failed is not None:
        return Reason.UPSTREAM_FAILED, f"it depends on {failed}, which is {state.ended[failed].value}"
    if request.strategy not in STRATEGIES:
        return Reason.REQUEST_INVALID, f"strategy must be one of {', '.join(sorted(STRATEGIES))}, got {request.strategy!r}"
    if isinstance(request.priority, bool) or not isinstance(request.priority, (int, float)) or not math.isfinite(request.priority):
        return Reason.REQUEST_INVALID, f"priority must be finite, got {request.priority!r}"
    if request.max_restarts < -1:
        return Reason.REQUEST_INVALID, f"max_restarts must be -1 (always) or at least 0, got {request.max_restarts}"
    if request.task in request.after:
        return Reason.REQUEST_INVALID, f"{request.task} depends on itself; remove it from `after`"
    if wrong := (find_gang_problem(state, request) if request.gang else "") or _impossible_amount(request):
        return Reason.REQUEST_INVALID, wrong
    try:
        check_selector(request.selector)
        if request.policy:
            state.catalogue.policy(request.policy)
    except MeshError as wrong:
        return Reason.REQUEST_INVALID, str(wrong)
    return None


def _failed_need(state: MeshState, request: TaskRequest) -> TaskId | None:
    """Return the first dependency that ended without success; None if there is none."""
    return next((need for need in request.after if state.ended.get(need) in (TaskState.FAILED, TaskState.CANCELLED)), None)


def _impossible_amount(request: TaskRequest) -> str:
    """Return a message about a unit-instance resource of which no run can have that much; empty when there is none."""
    wrong = _impossible_among(request.resources)
    for bundle in request.bundles:
        wrong = wrong or _impossible_among(bundle)
    return wrong


@lru_cache(maxsize=4_096)
def _impossible_among(amounts: ResourceSet) -> str:
    """Return `_impossible_amount` of one set; tasks are many, and their demands few."""
    for name, units in amounts.items():
        if name in UNIT_INSTANCE_RESOURCES and not is_possible(units):
            return impossible(name, units)
    return ""


def find_gang_problem(state: MeshState, request: TaskRequest) -> str:
    """Return a message if the gang has no size, or another member of the gang has a different one; empty when they agree."""
    if not request.gang:
        return ""
    if request.gang_size < 1:
        return f"gang {request.gang} has no size; set gang_size to its number of tasks"
    members = state.relations.members(request.gang) or [task for task, kept in state.records.items() if kept.request.gang == request.gang]
    other = next((task for task in members if task != request.task), None)
    size = state.records[other].request.gang_size if other is not None else request.gang_size
    if size == request.gang_size:
        return ""
    return (
        f"gang_size of {request.task} is {request.gang_size}, but {size} for {other} of the same gang {request.gang}; "
        "give all members the same size, or use another gang"
    )


def misspelt_resource(state: MeshState, amounts: ResourceSet) -> str:
    """Return a message about a resource that no node has and whose name resembles a known one; empty when there is none.

    Only close names count as misspelt: nodes with a custom resource may join after the pool is configured.
    """
    known = _known_resources(state)
    close = {name: _like(name, known) for name in amounts if name not in known}
    return next((f"no node has a resource {name!r}{meant}" for name, meant in close.items() if meant), "")


def unknown_resource(state: MeshState, amounts: ResourceSet) -> str:
    """Return a message about a resource that no node has and no pool counts; empty when there is none.

    A task with such a resource stays INFEASIBLE until a pool has capacity of it, whatever nodes join. So the pool must be configured
    first.
    """
    known = _known_resources(state) | {name for pool in state.pools.pools.values() for name in pool.spec.capacity}
    unknown = next((name for name in amounts if name not in known), None)
    if unknown is None:
        return ""
    there = f"known: {', '.join(sorted(known))}; for another one, first give a pool capacity of it"
    return f"no node or pool has a resource {unknown!r}{_like(unknown, known)}; {there}"


def _known_resources(state: MeshState) -> set[str]:
    """Return the resources of the nodes and those that every mesh knows."""
    table = state.table
    return {"cpu", "gpu", "memory"} | {name for column, name in enumerate(table.resources) if table.total[: len(table.names), column].any()}


def _like(name: str, known: set[str]) -> str:
    meant = near_resource(name, known)
    return f"; did you mean {meant}?" if meant is not None else ""


def check_pool(state: MeshState, spec: PoolSpec) -> None:
    """Check a pool before anything changes.

    Raises:
        MeshError: Names the invalid value.
    """
    check_selector(spec.selector)
    state.catalogue.policy(spec.policy)
    _at_least(0, target_agents=spec.target_agents)
    if spec.groups is not None:
        _at_least(0, max_dynamic=spec.groups.max_dynamic, min_idle=spec.groups.min_idle, idle_ms=spec.groups.idle_ms)
        for shape in spec.groups.reserved:
            if shape.strategy not in STRATEGIES:
                raise SettingError(f"strategy must be one of {', '.join(sorted(STRATEGIES))}, got {shape.strategy!r}")
            if not shape.amounts <= spec.capacity:
                raise SettingError(f"a reserved group of {shape.amounts} exceeds the pool's capacity, {spec.capacity}")


def check_label(state: MeshState, rules: LabelConfigured) -> None:
    """Check the rules of a label before anything changes.

    Raises:
        MeshError: Names the invalid value.
    """
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
            raise SettingError(f"{name} must be finite, got {value!r}")


def _at_least(least: int, **numbers: float) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise SettingError(f"{name} must be at least {least}, got {value!r}")
