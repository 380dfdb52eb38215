"""The state of the scheduler, the task index and the processes as answers for people: reads only."""

from __future__ import annotations

from collections import Counter

from mesh.actors.members import GroupMember, labels_of
from mesh.core.ids import AgentId, PoolName, TaskId
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import TERMINAL, TaskRequest, TaskState
from mesh.preemption.victims import PreemptionPlan
from mesh.ray.local.status_values import (
    AgentSeen,
    CandidateStatus,
    GroupStatus,
    NodeStatus,
    PoolStatus,
    TaskStatus,
)
from mesh.ray.local.store.task_index import TaskEntry, TaskIndex
from mesh.ray.local.supervision_errors import PoolUnknown, SubmissionError
from mesh.ray.local.supervisor.agent_client import AgentProcess
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.local.supervisor.standbys import Standbys
from mesh.tasks.evicting import dry_run
from mesh.tasks.explaining import explain_task
from mesh.tasks.request_validation import unknown_resource
from mesh.tasks.state import MeshState


def task_status(state: MeshState, task_index: TaskIndex, task: TaskId, row: TaskEntry) -> TaskStatus:
    """Return one task, with its position in the queue."""
    request = row.request
    queued = explain_task(state, task, state.now_ms) if task in state.queues else None
    where = state_of(state, task, row)
    reason, detail = (queued.reason, queued.detail) if queued is not None else (row.reason, row.detail)
    if where is TaskState.WAITING:
        reason, detail = Reason.WAITING_FOR_INPUTS, _needs(state, task_index, request)
    if row.state_lost:
        detail = "; ".join(filter(None, (detail, state_lost(row.state_lost))))
    return TaskStatus(
        task=task,
        pool=request.pool,
        state=where,
        is_ending=is_ending(state, task),
        reason=reason,
        detail=detail,
        label=request.label,
        tenant=request.tenant,
        priority=request.priority,
        resources=request.resources,
        attempt=row.attempt,
        agent=row.agent,
        node=row.node,
        group=row.group,
        submitted_ms=row.submitted_ms,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
        preemptions=row.preemptions,
        lost_ms=row.lost_ms,
        position=queued.position if queued is not None else None,
        estimate_ms=queued.estimate_ms if queued is not None else None,
    )


def state_of(state: MeshState, task: TaskId, row: TaskEntry) -> TaskState:
    """Return the scheduler's state of the task, which is more detailed than the index's while the task is not over."""
    return row.state if row.state in TERMINAL or task not in state.tasks else state.tasks.state_of(task)


def is_ending(state: MeshState, task: TaskId) -> bool:
    """Return whether the task was asked to stop and will not resume."""
    record = state.records.get(task)
    return record is not None and record.stopping is not None and not record.requeue


def state_lost(why: str) -> str:
    """Return a text about a failed state handler and its effect on the task."""
    return f"{why}; the default state is used: arguments, progress and last checkpoint"


def _needs(state: MeshState, task_index: TaskIndex, request: TaskRequest) -> str:
    rows = [(need, task_index.tasks.get(need)) for need in request.after]
    missing = [f"{need} (not submitted yet)" if row is None else f"{need} ({state_of(state, need, row).value})" for need, row in rows]
    return f"it waits for {', '.join(missing)}"


def check_pool(state: MeshState, pool: PoolName, *amounts: ResourceSet) -> None:
    """Raise `PoolUnknown` if the pool does not exist, `SubmissionError` for a resource that neither a node nor a pool has."""
    if pool not in state.pools.pools:
        raise PoolUnknown(pool, tuple(state.pools.pools))
    for each in amounts:
        unknown = unknown_resource(state, each)
        if unknown:
            raise SubmissionError(unknown)


def pool_statuses(state: MeshState, task_index: TaskIndex) -> list[PoolStatus]:
    """Return all pools, in the order of their creation."""
    open_rows = [(task, row) for task, row in task_index.tasks.items() if row.state not in TERMINAL]
    queued = Counter(row.request.pool for task, row in open_rows if task in state.queues)
    agents = Counter(row.request.pool for _, row in open_rows if row.agent is not None)
    return [
        PoolStatus(
            pool=name,
            capacity=pool.capacity,
            used=pool.used,
            reserved=pool.reserved,
            free=pool.free,
            target_agents=pool.target_agents,
            agents=agents[name],
            queued=queued[name],
            labels=dict(pool.spec.selector),
            policy=pool.spec.policy,
            groups=len(state.groups.of_pool(name)),
            is_closing=pool.is_closing,
        )
        for name, pool in state.pools.pools.items()
    ]


def group_statuses(state: MeshState) -> list[GroupStatus]:
    return [
        GroupStatus(
            group=record.group,
            pool=record.pool,
            shape=record.shape,
            nodes=record.nodes,
            state=record.state.value,
            layer=record.layer.value,
            holder=record.holder,
            reuse_count=record.reuse_count,
        )
        for record in state.groups.records.values()
    ]


def node_statuses(state: MeshState, standbys: Standbys) -> list[NodeStatus]:
    table = state.table
    return [
        NodeStatus(
            node=name,
            total=table.amounts(table.total[row]),
            used=table.amounts(table.used[row]),
            load=table.amounts(table.load[row]),
            labels=dict(table.labels[row]),
            standbys=standbys.count(name),
        )
        for row, name in enumerate(table.names)
        if name is not None
    ]


def agent_seen(process: AgentProcess, driver: Driver, task_index: TaskIndex, *, is_warm: bool) -> AgentSeen:
    task = process.task if process.task is not None and driver.hosts.get(process.task) is process else None
    row = task_index.tasks.get(task) if task is not None else None
    group = task_index.groups.get(process.group) if process.group is not None else None
    return AgentSeen(
        agent=row.agent if row is not None else None,
        task=task,
        pool=row.request.pool if row is not None else group.pool if group is not None else None,
        process=process.name,
        node=process.node,
        group=process.group,
        holds=process.holds,
        is_warm=is_warm,
        state=row.state if row is not None else None,
    )


def member(rank: int, task: TaskId, row: TaskEntry, process: AgentProcess) -> GroupMember:
    """Return an agent as a member of an actor group, with its task's label and its pool's name."""
    request = row.request
    labels = {**request.selector, **(labels_of(request.label) if request.label else {}), "pool": str(request.pool)}
    return GroupMember(
        agent=row.agent or AgentId(process.name),
        handle=process.handle,
        rank=rank,
        labels=labels,
        task=task,
        attempt=row.attempt,
        priority=request.priority,
    )


def candidate_statuses(state: MeshState, request: TaskRequest, now_ms: int) -> list[CandidateStatus]:
    """Return every preemption candidate for this task, the likeliest first (dry run)."""
    scored, plan = dry_run(state, request, now_ms, max(1, request.gang_size))
    victims = {victim.task for victim in plan.victims} if isinstance(plan, PreemptionPlan) else set()
    statuses = [
        CandidateStatus(
            task=each.candidate.task,
            score=each.score,
            verdict=each.verdict,
            detail=each.words,
            would_stop=each.candidate.task in victims,
        )
        for each in scored
    ]
    return sorted(statuses, key=lambda status: (not status.would_stop, -status.score))
