"""Snapshot of the scheduler's state as one frozen value, and its restoration.

Only what cannot be derived is saved. The node table is rebuilt from groups, tasks and holds; scores, buckets and indexes are computed
again. This leaves as little redundancy as possible that could be inconsistent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mesh.core.ids import AgentId, GroupId, LabelName, NodeName, PoolName, TaskId
from mesh.core.node_instances import InstanceHolding
from mesh.core.pools import PoolSpec
from mesh.core.random_stream import RandomStream
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import TaskRequest, TaskState
from mesh.placement.groups import GroupRecord, GroupState, Layer
from mesh.policies.catalogue import Catalogue
from mesh.preemption.rules import Scorer
from mesh.tasks.records import Eviction, JobReservation, LabelRules, NodeReservation, TaskRecord
from mesh.tasks.settings import SchedulerSettings
from mesh.tasks.state import MeshState


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    node: NodeName
    total: ResourceSet
    labels: Mapping[str, str]
    foreign: ResourceSet
    instances: tuple[InstanceHolding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """Pool with its ledger entries."""

    spec: PoolSpec
    is_closing: bool
    reservations: Mapping[str, ResourceSet]
    uses: Mapping[str, ResourceSet]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    group: GroupId
    pool: PoolName
    shape: GroupShape
    layer: Layer
    nodes: tuple[NodeName, ...]
    state: GroupState
    holder: TaskId | None
    reuse_count: int
    idle_since_ms: int | None
    last_holder: TaskId | None
    was_made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSnapshot:
    """Task that is not over."""

    request: TaskRequest
    state: TaskState
    since_ms: int
    arrival: int
    attempt: int
    agent: AgentId | None
    node: NodeName | None
    group: GroupId | None
    started_ms: int
    kept_ms: int
    restarts: int
    refusals: int
    resume: bool
    stopping: Reason | None
    destroy_group: bool
    requeue: bool
    needs: tuple[TaskId, ...]
    in_admitted_gang: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSnapshot:
    """Eviction in progress."""

    preemptor: TaskId
    pool: PoolName
    since_ms: int
    victims: tuple[TaskId, ...]
    groups: tuple[GroupId, ...]
    rows: tuple[tuple[NodeName, ResourceSet], ...]
    holders: tuple[str, ...]
    gang: str = ""
    places: Mapping[TaskId, tuple[NodeName, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationSnapshot:
    """Reservation for a task that has waited too long."""

    task: TaskId
    pool: PoolName
    since_ms: int
    rows: tuple[tuple[NodeName, ResourceSet], ...]
    quota: ResourceSet
    needs: Mapping[NodeName, ResourceSet]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSnapshot:
    """The whole state."""

    settings: SchedulerSettings
    random_stream: int
    version: int
    now_ms: int
    arrivals: int
    groups_made: int
    labels: Mapping[LabelName, LabelRules]
    nodes: tuple[NodeSnapshot, ...]
    pools: tuple[PoolSnapshot, ...]
    groups: tuple[GroupSnapshot, ...]
    tasks: tuple[TaskSnapshot, ...]
    evictions: tuple[EvictionSnapshot, ...]
    ended: Mapping[TaskId, TaskState]
    recent_preemptions: tuple[tuple[int, LabelName], ...]
    starts: Mapping[PoolName, tuple[int, ...]]
    reservations: tuple[ReservationSnapshot, ...] = ()
    job_reservations: tuple[JobReservation, ...] = ()


def take(state: MeshState) -> MeshSnapshot:
    """Return the state as it is between two calls of `handle`."""
    table = state.table
    return MeshSnapshot(
        settings=state.settings,
        random_stream=state.random_stream.position,
        version=state.version,
        now_ms=state.now_ms,
        arrivals=state.task_ledger.arrivals,
        groups_made=state.capacity.groups_made,
        labels=dict(state.shapes.labels),
        nodes=tuple(
            NodeSnapshot(
                node=name,
                total=table.amounts(table.total[row]),
                labels=dict(table.labels[row]),
                foreign=table.amounts(table.foreign[name]) if name in table.foreign else ResourceSet(),
                instances=table.holdings(row),
            )
            for row, name in enumerate(table.names)
            if name is not None
        ),
        pools=tuple(
            PoolSnapshot(spec=pool.spec, is_closing=pool.is_closing, reservations=dict(pool.reservations), uses=dict(pool.uses))
            for pool in state.pools.pools.values()
        ),
        groups=tuple(_group(state, record) for record in state.groups.records.values()),
        tasks=tuple(_task(state, record) for record in state.records.values()),
        evictions=tuple(_eviction(state, eviction) for eviction in state.evictions.values()),
        ended=dict(state.ended),
        recent_preemptions=state.evictions.recent,
        starts={pool: tuple(times) for pool, times in state.task_ledger.starts.items()},
        reservations=tuple(_reservation(state, kept) for kept in state.reservations.values()),
        job_reservations=tuple(replace(places) for places in state.job_reservations.values()),
    )


def restore(kept: MeshSnapshot, catalogue: Catalogue, scorer: Scorer) -> MeshState:
    """Return a state that continues from the snapshot."""
    state = MeshState(kept.settings, RandomStream(kept.random_stream), catalogue, scorer)
    state.restore_counters(kept.version, kept.now_ms, kept.groups_made)
    state.task_ledger.restore_past(kept.arrivals, kept.ended, kept.starts)
    state.restore_labels(kept.labels)
    for node in kept.nodes:
        _restore_node(state, node)
    for pool in kept.pools:
        state.capacity.restore_pool(pool.spec, pool.reservations, pool.uses, is_closing=pool.is_closing)
    for group in kept.groups:
        _restore_group(state, group)
    for task in kept.tasks:
        _restore_task(state, task)
    for eviction in kept.evictions:
        _restore_eviction(state, eviction)
    state.evictions.restore_recent(kept.recent_preemptions)
    for reservation in kept.reservations:
        _restore_reservation(state, reservation)
    for places in kept.job_reservations:
        state.job_reservations.restore(replace(places))
    state.capacity.forget_remembered()
    return state


def _group(state: MeshState, record: GroupRecord) -> GroupSnapshot:
    return GroupSnapshot(
        group=record.group,
        pool=record.pool,
        shape=record.shape,
        layer=record.layer,
        nodes=record.nodes,
        state=record.state,
        holder=record.holder,
        reuse_count=record.reuse_count,
        idle_since_ms=record.idle_since_ms,
        last_holder=record.last_holder,
        was_made=state.capacity.is_created(record.group),
    )


def _task(state: MeshState, record: TaskRecord) -> TaskSnapshot:
    return TaskSnapshot(
        request=record.request,
        state=state.tasks.state_of(record.request.task),
        since_ms=record.since_ms,
        arrival=record.arrival,
        attempt=record.attempt,
        agent=record.agent,
        node=record.node,
        group=record.group,
        started_ms=record.started_ms,
        kept_ms=record.kept_ms,
        restarts=record.restarts,
        refusals=record.refusals,
        resume=record.resume,
        stopping=record.stopping,
        destroy_group=record.destroy_group,
        requeue=record.requeue,
        needs=tuple(sorted(record.needs)),
        in_admitted_gang=record.in_admitted_gang,
    )


def _eviction(state: MeshState, eviction: Eviction) -> EvictionSnapshot:
    return EvictionSnapshot(
        preemptor=eviction.preemptor,
        pool=eviction.pool,
        since_ms=eviction.since_ms,
        victims=tuple(sorted(eviction.victims)),
        groups=tuple(sorted(eviction.groups)),
        rows=tuple((node, state.table.amounts(vector)) for node, vector in eviction.rows),
        holders=tuple(eviction.holders),
        gang=eviction.gang,
        places=dict(eviction.places),
    )


def _reservation(state: MeshState, kept: NodeReservation) -> ReservationSnapshot:
    return ReservationSnapshot(
        task=kept.task,
        pool=kept.pool,
        since_ms=kept.since_ms,
        rows=tuple((node, state.table.amounts(vector)) for node, vector in kept.rows),
        quota=kept.quota,
        needs=dict(kept.needs),
    )


def _restore_node(state: MeshState, kept: NodeSnapshot) -> None:
    state.capacity.add_node(kept.node, kept.total, kept.labels)
    state.capacity.remember_instances(kept.node, kept.instances)
    if kept.foreign:
        state.capacity.set_foreign_use(kept.node, kept.foreign)


def _restore_group(state: MeshState, kept: GroupSnapshot) -> None:
    state.capacity.restore_group(
        GroupRecord(
            group=kept.group,
            pool=kept.pool,
            shape=kept.shape,
            layer=kept.layer,
            nodes=kept.nodes,
            state=kept.state,
            holder=kept.holder,
            reuse_count=kept.reuse_count,
            idle_since_ms=kept.idle_since_ms,
            last_holder=kept.last_holder,
        ),
        was_created=kept.was_made,
    )


def _restore_task(state: MeshState, kept: TaskSnapshot) -> None:
    record = TaskRecord(
        request=kept.request,
        since_ms=kept.since_ms,
        arrival=kept.arrival,
        attempt=kept.attempt,
        agent=kept.agent,
        node=kept.node,
        group=kept.group,
        started_ms=kept.started_ms,
        kept_ms=kept.kept_ms,
        restarts=kept.restarts,
        refusals=kept.refusals,
        resume=kept.resume,
        stopping=kept.stopping,
        destroy_group=kept.destroy_group,
        requeue=kept.requeue,
        needs=set(kept.needs),
        in_admitted_gang=kept.in_admitted_gang,
    )
    state.restore_task(record, kept.state)


def _restore_eviction(state: MeshState, kept: EvictionSnapshot) -> None:
    state.evictions.restore(
        Eviction(
            preemptor=kept.preemptor,
            pool=kept.pool,
            since_ms=kept.since_ms,
            victims=set(kept.victims),
            groups=set(kept.groups),
            rows=[(node, state.table.vector(amounts)) for node, amounts in kept.rows],
            holders=list(kept.holders),
            gang=kept.gang,
            places=dict(kept.places),
        )
    )


def _restore_reservation(state: MeshState, kept: ReservationSnapshot) -> None:
    rows = [(node, state.table.vector(amounts)) for node, amounts in kept.rows]
    state.reservations.restore(
        NodeReservation(task=kept.task, pool=kept.pool, since_ms=kept.since_ms, rows=rows, quota=kept.quota, needs=dict(kept.needs))
    )
