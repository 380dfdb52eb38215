"""Placement of single tasks on nodes and placement groups.

Tasks are taken from the queue by priority. If a task does not fit, its whole bucket is skipped for this round, since all tasks of a
bucket are alike; other buckets are still tried. The refusal is stored on the bucket, and the bucket is not tried again until something
has become free.

In a pool with placement groups a task gets, in this order: a reserved group if it is urgent, an idle group of its shape, a new group.
Idle groups that block a task are removed, since unused resources must not make a task wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mesh.core.counting import counted
from mesh.core.ids import PoolName
from mesh.core.labels import matches
from mesh.core.pools import Pool
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet, format_units
from mesh.core.shapes import GroupPoolSpec, GroupShape
from mesh.placement.feasibility import in_parts
from mesh.placement.groups import GroupRecord, GroupState, Layer
from mesh.placement.two_pass import Found, find
from mesh.tasks.decisions import CreateGroup, GiveGroup, StartTask
from mesh.tasks.records import Bucket, BucketKey, TaskRecord
from mesh.tasks.state import MeshState

Refusal = tuple[Reason, str]

#: For a task with several bundles in a pool without placement groups: its group is created for it and not reused.
AD_HOC_GROUPS = GroupPoolSpec(max_dynamic=1_000_000, reuse=False)


def place(state: MeshState, record: TaskRecord, at: tuple[int, ...] = ()) -> Refusal | None:
    """Bind the queued task to a node or group and order its start; or return the refusal and change nothing.

    Args:
        at: A row for each bundle, used if they have the capacity; empty: the policy chooses.
    """
    bucket = _bucket(record)
    pool = state.pools.pools.get(record.request.pool)
    if pool is None or pool.is_closing:
        return Reason.POOL_CLOSING, f"pool {record.request.pool} is being deleted"
    if pool.spec.groups is None and len(bucket.key.shape.bundles) == 1 and record.request.has_agent:
        return _on_node(state, record, bucket, pool, at)
    return _on_group(state, record, bucket, pool, pool.spec.groups or AD_HOC_GROUPS, at)


def _on_node(state: MeshState, record: TaskRecord, bucket: Bucket, pool: Pool, at: tuple[int, ...]) -> Refusal | None:
    refusal = _short_of_quota(pool, bucket.amounts)
    if refusal is not None:
        return refusal
    found = Found(at[0]) if at and _have_room(state, bucket, at) else find(bucket.candidates, state.random_stream.draw)
    if found.row is None:
        _evict_groups_on_a_node(state, bucket)
        return _no_node(bucket, len(found.feasible))
    state.bind_to_node(record, found.row, bucket.amounts)
    order_start(state, record, Reason.PLACED)
    return None


def _on_group(state: MeshState, record: TaskRecord, bucket: Bucket, pool: Pool, spec: GroupPoolSpec, at: tuple[int, ...]) -> Refusal | None:
    if bucket.key.is_urgent:
        group = _standing(state, record, bucket, Layer.RESERVED)
        if group is not None:
            _take(state, record, group, Reason.RESERVED_LAYER)
            return None
    refusal = _short_of_quota(pool, bucket.amounts)
    if refusal is not None:
        return refusal
    group = _standing(state, record, bucket, Layer.DYNAMIC)
    if group is not None:
        _take(state, record, group, Reason.GROUP_REUSED)
        return None
    if state.groups.dynamic_count(pool.spec.pool) >= spec.max_dynamic:
        _evict_group_of_pool(state, pool.spec.pool)
        return Reason.GROUPS_AT_LIMIT, f"pool {pool.spec.pool} has {spec.max_dynamic} placement groups, the limit (max_dynamic)"
    rows = at if at and _have_room(state, bucket, at) else rows_for(state, bucket)
    if rows is None:
        _evict_groups_on_a_node(state, bucket)
        single = len(bucket.key.shape.bundles) == 1
        return _no_node(bucket, len(bucket.candidates.feasible_rows()) if single else _feasible_for_all(state, bucket))
    made = state.bind_to_new_group(record, bucket.key.shape, rows)
    state.order(CreateGroup(version=state.version, group=made.group, pool=made.pool, shape=made.shape, nodes=made.nodes))
    return None


def _take(state: MeshState, record: TaskRecord, group: GroupRecord, reason: Reason) -> None:
    state.bind_to_group(record, group)
    order_start(state, record, reason)


def order_start(state: MeshState, record: TaskRecord, reason: Reason) -> None:
    """Order the start of a bound task's agent, or hand over its group."""
    request = record.request
    if not request.has_agent and record.group is not None:
        state.start(record)
        state.order(GiveGroup(version=state.version, task=request.task, group=record.group, reason=reason))
        return
    assert record.agent is not None  # noqa: S101  it has been bound
    assert record.node is not None  # noqa: S101
    state.order(
        StartTask(
            version=state.version,
            task=request.task,
            attempt=record.attempt,
            agent=record.agent,
            node=record.node,
            group=record.group,
            resources=request.resources,
            reason=reason,
            resume=record.resume,
        )
    )


def _standing(state: MeshState, record: TaskRecord, bucket: Bucket, layer: Layer) -> GroupRecord | None:
    key, selector = bucket.key, dict(bucket.key.selector)

    def accepts(group: GroupRecord) -> bool:
        return may_stand_on(state, key, selector, group)

    return state.groups.match(key.pool, key.shape, layer=layer, task=record.request.task, accepts=accepts)


def may_stand_on(state: MeshState, key: BucketKey, selector: Mapping[str, str], group: GroupRecord) -> bool:
    """Return whether the group satisfies the task's node and labels."""
    if key.node is not None and key.node not in group.nodes and not key.soft:
        return False
    return all(matches(selector, state.table.labels[state.table.row(node)]) for node in group.nodes)


def _have_room(state: MeshState, bucket: Bucket, at: tuple[int, ...]) -> bool:
    """Return whether each row has enough free now for its bundle."""
    if len(at) == 1:
        return state.table.fits(at[0], state.table.vector(bucket.key.shape.bundles[0]))
    left = state.table.left_for(map(state.table.vector, bucket.key.shape.bundles))
    free = {row: left[row].copy() for row in at}
    for wanted, row in zip(bucket.key.shape.bundles, at, strict=True):
        vector = state.table.vector(wanted)
        free[row] -= vector
        if (free[row][vector > 0] < 0).any():
            return False
    return True


def rows_for(state: MeshState, bucket: Bucket) -> tuple[int, ...] | None:
    """Return a row for each bundle of the shape, free now; None when a greedy search finds none."""
    shape = bucket.key.shape
    if len(shape.bundles) == 1:
        row = find(bucket.candidates, state.random_stream.draw).row
        return None if row is None else (row,)
    rows: list[int] = []
    with state.capacity.trial() as promise:
        for bundle in range(len(shape.bundles)):
            row = _row_for(state, bucket, bundle, rows)
            if row is None:
                return None
            promise(row, shape.bundles[bundle])
            rows.append(row)
    return tuple(rows)


def _row_for(state: MeshState, bucket: Bucket, bundle: int, rows: list[int]) -> int | None:
    candidates, draw, strategy = state.shapes.candidates_of(bucket.key, bundle=bundle), state.random_stream.draw, bucket.key.shape.strategy
    if strategy == "STRICT_PACK":
        return candidates.pick(draw, only=rows) if rows else _row_for_all(state, bucket)
    if strategy == "STRICT_SPREAD":
        return candidates.pick(draw, without=rows)
    first = candidates.pick(draw, only=rows) if strategy == "PACK" and rows else None
    first = candidates.pick(draw, without=rows) if strategy == "SPREAD" else first
    return first if first is not None else candidates.pick(draw)


def _row_for_all(state: MeshState, bucket: Bucket) -> int | None:
    """Return a row for a shape whose bundles must share one node."""
    whole = replace(bucket.key, shape=GroupShape((bucket.key.shape.amounts,)))
    return state.shapes.candidates_of(whole).pick(state.random_stream.draw)


def _short_of_quota(pool: Pool, amounts: ResourceSet) -> Refusal | None:
    if pool.fits(amounts):
        return None
    ever = amounts <= pool.capacity
    room = pool.free if ever else pool.capacity
    short = next(name for name in amounts if amounts[name] > room[name])
    has = f"{format_units(short, room[short])} {short} {'free' if ever else 'in total'}"
    return (
        Reason.POOL_BUSY if ever else Reason.POOL_TOO_SMALL,
        f"pool {pool.spec.pool} has {has}, {format_units(short, amounts[short])} requested",
    )


def _no_node(bucket: Bucket, feasible: int) -> Refusal:
    """Return why no node has the capacity now; `feasible` nodes could hold the task when empty."""
    wanted = bucket.candidates.wanted
    never = bucket.candidates.refused()
    if never is not None:
        return never.reason, never.detail
    split = bucket.candidates.in_parts() if feasible and len(bucket.key.shape.bundles) == 1 else None
    if split is not None:
        return Reason.INSTANCES_FRAGMENTED, f"{in_parts(*split)} free on no node"
    if feasible and bucket.refused is not None and bucket.refused[0] is Reason.NODES_BUSY:
        return bucket.refused  # Same message; building it would cost more often than it is read.
    if not feasible:
        labels = ", ".join(f"{key}={value}" for key, value in bucket.key.selector)
        return Reason.NO_NODE_FITS, f"no node has {wanted}{f' and the labels {labels}' if labels else ''}, even when empty"
    return Reason.NODES_BUSY, f"{wanted} would fit on {counted(feasible, 'node')} when empty; none has that much free"


def _feasible_for_all(state: MeshState, bucket: Bucket) -> int:
    """Return the number of nodes that could hold the hardest bundle when empty. All bundles together may still not fit."""
    shape = bucket.key.shape
    if shape.strategy == "STRICT_PACK":
        whole = replace(bucket.key, shape=GroupShape((shape.amounts,)))
        return len(state.shapes.candidates_of(whole).feasible_rows())
    return min(len(state.shapes.candidates_of(bucket.key, bundle=bundle).feasible_rows()) for bundle in range(len(shape.bundles)))


def _evict_group_of_pool(state: MeshState, pool: PoolName) -> None:
    """Remove the longest idle group of a pool at its limit, so that a group of another shape can be created."""
    if any(group.state is GroupState.REMOVING for group in state.groups.of_pool(pool)):
        return  # One is already being removed.
    for group in state.groups.idle(pool)[:1]:
        state.remove_group(group, Reason.GROUP_EVICTED)


def _evict_groups_on_a_node(state: MeshState, bucket: Bucket) -> None:
    """Remove idle groups of any pool, oldest first, from the first node where that fits the task."""
    idle = state.groups.idle()
    if not idle or any(group.state is GroupState.REMOVING for group in state.groups.records.values()):
        return
    wanted, feasible = bucket.candidates.wanted, set(bucket.candidates.feasible_rows().tolist())
    rows = dict.fromkeys(state.table.row(node) for group in idle for node in group.nodes)
    for row in rows:
        if row not in feasible:
            continue
        free = np.maximum(state.table.left_for((bucket.candidates.vector,))[row], 0)
        short = _beyond(wanted, state.table.amounts(free))
        groups = state.groups.in_the_way(None, short, state.table.name(row))
        if groups:
            for group in groups:
                state.remove_group(group, Reason.GROUP_EVICTED)
            return


def _beyond(wanted: ResourceSet, free: ResourceSet) -> ResourceSet:
    return ResourceSet({name: max(0, amount - free[name]) for name, amount in wanted.items()})


def refill_reserved(state: MeshState) -> None:
    """Order the missing reserved groups of each pool, as far as quota and node resources allow."""
    if not state.begin_refill():
        return
    for pool in state.pools.pools.values():
        spec = pool.spec.groups
        if spec is None or pool.is_closing or state.capacity.is_paused(pool.spec.pool, state.now_ms):
            continue
        for shape in state.groups.missing_reserved(pool.spec.pool, spec):
            if not shape.amounts <= pool.free:
                continue
            rows = rows_for(state, state.shapes.bucket_of_reserve(pool.spec, shape))
            if rows is None:
                continue
            group = state.capacity.add_reserved_group(pool.spec.pool, shape, rows)
            state.order(
                CreateGroup(
                    version=state.version, group=group.group, pool=group.pool, shape=shape, nodes=group.nodes, warm=spec.warm_agents
                )
            )


def is_kept(state: MeshState, group: GroupRecord) -> bool:
    """Return whether its pool retains the idle group."""
    pool = state.pools.pools.get(group.pool)
    if pool is None or pool.is_closing or pool.spec.groups is None:
        return False
    if group.layer is Layer.DYNAMIC:
        return pool.spec.groups.reuse
    return group not in state.groups.surplus_reserved(group.pool, pool.spec.groups)


def expire_groups(state: MeshState) -> None:
    """Remove groups that have been idle for too long."""
    for pool in state.pools.pools.values():
        if pool.spec.groups is not None:
            for group in state.groups.expired(state.now_ms, pool.spec):
                state.remove_group(group, Reason.GROUP_IDLE)


def _bucket(record: TaskRecord) -> Bucket:
    assert record.bucket is not None  # noqa: S101  only queued tasks are placed, and a call on an agent is never queued
    return record.bucket
