"""Invariants of a mesh scheduler's state, checked after every step in tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from mesh.core.counting import counted
from mesh.core.ids import NodeName
from mesh.core.nodes import Units
from mesh.core.task_spec import AT_WORK, TaskState
from mesh.placement.groups import GroupState
from mesh.tasks.records import TaskRecord
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.state import MeshState

_HOLDS = frozenset({TaskState.READY, TaskState.SWAP, TaskState.RUNNING, TaskState.BLOCKED})


def violations(scheduler: MeshScheduler) -> list[str]:
    """Return a message per broken invariant; empty when all hold. Cost is linear in the whole state."""
    state = scheduler.state
    return [
        *state.pools.check(),
        *state.groups.check(),
        *state.queues.check(),
        *state.tasks.check(),
        *state.relations.check(state.records),
        *_tasks(state),
        *_rows(state),
        *_quota(state),
        *state.evictions.check(state.records),
        *state.reservations.check(state.queues),
    ]


def _tasks(state: MeshState) -> Iterator[str]:
    for task, record in state.records.items():
        where = state.tasks.state_of(task)
        if (where is TaskState.PLACEABLE) is not (task in state.queues):
            yield f"{task} is {where.value}, and {'is' if task in state.queues else 'is not'} queued"
        if (where in _HOLDS) is (record.node is None):
            yield f"{task} is {where.value}, with node {record.node}"
        group = state.groups.records.get(record.group) if record.group is not None else None
        if record.group is not None and (group is None or group.holder != task):
            yield f"{task} uses group {record.group}, which is held by {group.holder if group else 'nobody'}"
    if len(state.records) != len(state.tasks):
        yield f"{counted(len(state.records), 'task has', 'tasks have')} a record, {len(state.tasks)} have a state"
    found = Counter(
        state.shapes.base_priority(record.request)
        for record in _running(state)
        if record.request.agent is None and record.request.preemptible
    )
    if found != Counter(state.running):
        yield f"running by priority: {dict(found)}, counted: {state.running}"


def _running(state: MeshState) -> Iterator[TaskRecord]:
    yield from (record for task, record in state.records.items() if state.tasks.state_of(task) in AT_WORK)


def _rows(state: MeshState) -> Iterator[str]:
    """Check that each node's use and load equal the sum over groups, tasks, holds and foreign use."""
    table = state.table
    used, load = np.zeros_like(table.used), np.zeros_like(table.load)
    for in_use, node, vector in _shares(state):
        if node in table:
            (used if in_use else load)[table.row(node)][: len(vector)] += vector
    if (used != table.used).any() or (load != table.load).any():
        yield f"nodes use {table.used.tolist()} and promise {table.load.tolist()}, expected {used.tolist()} and {load.tolist()}"
    if (table.left != table.total - table.used - table.load).any():
        yield f"nodes have {table.left.tolist()} left, expected total less used and promised"


def _shares(state: MeshState) -> Iterator[tuple[bool, NodeName, Units]]:
    """Yield each share of a node: whether it is in use or promised, the node, and the amounts."""
    table = state.table
    for group in state.groups.records.values():
        for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
            yield group.group in state.made, node, table.vector(bundle)
    for task, record in state.records.items():
        if record.node is not None and record.group is None and record.request.agent is None:
            yield state.tasks.state_of(task) in AT_WORK, record.node, table.vector(record.request.resources)
    for holds in (state.evictions, state.reservations, state.job_reservations):
        yield from ((False, node, vector) for node, vector in holds.held_rows())
    yield from ((True, node, vector) for node, vector in table.foreign.items())


def _quota(state: MeshState) -> Iterator[str]:
    holders = {holder for pool in state.pools.pools.values() for holder in (*pool.reservations, *pool.uses)}
    for task, record in state.records.items():
        held = task in holders
        if held is (record.node is None) and record.request.agent is None:
            yield f"{task} {'holds' if held else 'holds no'} quota and is on node {record.node}"
    kept = {f"group:{group}" for group, record in state.groups.records.items() if record.state is not GroupState.TAKEN}
    orphans = {holder for holder in holders if holder.startswith("group:")} - kept
    if orphans:
        yield f"quota is held for reserved groups that are gone or taken: {sorted(orphans)}"
    held_for = {*state.evictions.holders(), *state.reservations.holders(), *state.job_reservations.holders()}
    lost = {holder for holder in holders if holder.startswith(("hold:", "place:"))} - held_for
    if lost:
        yield f"quota is held for preemptions, reservations or places that are over: {sorted(lost)}"
