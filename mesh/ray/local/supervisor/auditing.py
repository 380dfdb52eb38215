"""Audit of all ledgers: against themselves, each other, and Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from mesh.core.ids import GroupId, TaskId
from mesh.core.task_spec import AT_WORK, TERMINAL
from mesh.placement.groups import GroupState
from mesh.ray.local.status_values import MeshAudit
from mesh.ray.local.store.task_index import TaskIndex
from mesh.ray.local.supervisor.agent_client import AgentClient
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.local.supervisor.placement_group_client import GroupSeen, PlacementGroupClient
from mesh.tasks.state import MeshState

_STANDING = frozenset({GroupState.IDLE, GroupState.HELD, GroupState.TAKEN})


async def audit(state: MeshState, task_index: TaskIndex, driver: Driver, agents: AgentClient, groups: PlacementGroupClient) -> MeshAudit:
    """Return every violation as text. Work in progress is none: a group that is being created need not exist yet."""
    names = await asyncio.to_thread(agents.names)
    seen = await groups.seen()
    return MeshAudit(
        violations=(
            *state.pools.check(),
            *state.groups.check(),
            *state.queues.check(),
            *state.tasks.check(),
            *_of_quota(state, task_index),
            *_of_tasks(state, task_index, driver, names),
            *_of_groups(state, seen),
            *(f"Ray has process {name}, which the mesh does not know" for name in names - agents.processes.keys()),
        )
    )


def _of_quota(state: MeshState, task_index: TaskIndex) -> Iterator[str]:
    for name, pool in state.pools.pools.items():
        for holder in (*pool.reservations, *pool.uses):
            row = task_index.tasks.get(TaskId(holder))
            if row is not None and row.state in TERMINAL:
                yield f"task {holder} is over and holds quota of pool {name}"


def _of_tasks(state: MeshState, task_index: TaskIndex, driver: Driver, names: set[str]) -> Iterator[str]:
    for task, record in state.records.items():
        where, request = state.tasks.state_of(task), record.request
        if where not in AT_WORK or not request.has_agent or request.agent is not None:
            continue
        process = driver.hosts.get(task)
        if process is None:
            yield f"task {task} is {where.value}, but no process has it"
        elif process.name not in names:
            yield f"task {task} is on process {process.name}, which Ray does not know"
    for task, process in driver.hosts.items():
        if task not in state.records and task not in task_index.stops:
            yield f"process {process.name} has task {task}, which is over"


def _of_groups(state: MeshState, seen: Mapping[GroupId, GroupSeen]) -> Iterator[str]:
    for group in state.groups.records.values():
        found = seen.get(group.group)
        if group.state in _STANDING and (found is None or found.state != "CREATED"):
            yield f"placement group {group.group} is {group.state.value}, and in Ray {found.state if found is not None else 'absent'}"
    for unknown in seen.keys() - state.groups.records.keys():
        yield f"Ray has placement group {unknown}, which the ledger does not know"
