"""Making room for one task by stopping others: who is asked, and how what they free is kept for whom they gave way to.

What a victim frees is held until the preemptor starts: its quota under a name of the preemptor's, its node's room as a promise,
its placement group as HELD. So nobody else, who may be quicker, gets what somebody gave up for another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from mesh.ids import LabelName, NodeName, TaskId
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.scheduling.decisions import StopTask
from mesh.scheduling.groups import GroupRecord, GroupState, Layer
from mesh.scheduling.placing import order_removal
from mesh.scheduling.preemption import Candidate, PreemptionPlan, PreemptionRefused, Preemptor, Scored, evaluate, free_rows, plan
from mesh.scheduling.records import Eviction, TaskRecord
from mesh.scheduling.state import MeshState
from mesh.scheduling.tasks import TaskRequest, TaskState

_MINUTE_MS = 60_000


def candidates(state: MeshState) -> list[Candidate]:
    """Everything that runs and is not being stopped."""
    running = (state.records[task] for task in (*state.tasks.in_state(TaskState.RUNNING), *state.tasks.in_state(TaskState.BLOCKED)))
    return [
        candidate_of(state, record)
        for record in running
        if record.stopping is None and record.node in state.table and record.request.agent is None
    ]


def candidate_of(state: MeshState, record: TaskRecord) -> Candidate:
    """A running task as preemption sees it."""
    request = record.request
    assert record.node is not None  # noqa: S101  it runs
    group = state.groups.records.get(record.group) if record.group is not None else None
    return Candidate(
        task=request.task,
        label=request.label,
        pool=request.pool,
        tenant=request.tenant,
        priority=state.base_priority(request),
        resources=group.shape.bundles[0] if group is not None else request.resources,
        row=state.table.row(record.node),
        started_ms=record.started_ms,
        kept_ms=record.kept_ms,
        estimated_ms=request.estimated_ms,
        group=record.group,
        preemptible=request.preemptible,
    )


def judge(state: MeshState, request: TaskRequest) -> tuple[Scored, ...]:
    """Every running task: may it be asked to give way to this one? Changes nothing, so it is the dry run too."""
    protected = frozenset(name for name, pool in state.pools.pools.items() if pool.spec.is_protected)
    rules = replace(state.settings.rules, protected_pools=state.settings.rules.protected_pools | protected)
    return evaluate(_preemptor(state, request), candidates(state), rules, state.now_ms, given_way=_given_way(state))


def plan_for(state: MeshState, request: TaskRequest, scored: tuple[Scored, ...]) -> PreemptionPlan | PreemptionRefused:
    """The victims that would make room for this task, or why there are none."""
    bucket = state.bucket_for(request)
    pool = state.pools.pool(request.pool)
    suits = frozenset(
        group.group
        for group in state.groups.of_pool(request.pool)
        if group.state is GroupState.TAKEN and group.layer is Layer.DYNAMIC and group.shape == bucket.key.shape
    )
    return plan(
        bucket.candidates.wanted,
        pool=request.pool,
        pool_short=pool.short_of(bucket.amounts),
        free_by_row=free_rows(state.table, bucket.candidates.feasible_rows().tolist()),
        scored=scored,
        preemptor=_preemptor(state, request),
        rules=state.settings.rules,
        given_way=_given_way(state),
        reusable=suits,
    )


def evict_for(state: MeshState, record: TaskRecord) -> bool:
    """Order victims to stop, so that the task fits; False when nobody can be asked."""
    request = record.request
    if request.task in state.evictions or not _worth_looking(state, request):
        return request.task in state.evictions
    found = plan_for(state, request, judge(state, request))
    if isinstance(found, PreemptionRefused) or not found.victims:
        return False
    eviction = Eviction(preemptor=request.task, pool=request.pool, since_ms=state.now_ms, victims=set())
    state.evictions[request.task] = eviction
    for victim in found.victims:
        eviction.victims.add(victim.task)
        state.evicted[victim.task] = request.task
        state.given_way.append((state.now_ms, victim.label))
        order_stop(state, state.records[victim.task], Reason.PREEMPTED, requeue=True, by=request.task)
    return True


def order_stop(
    state: MeshState, record: TaskRecord, reason: Reason, *, keep_state: bool = True, requeue: bool = False, by: TaskId | None = None
) -> None:
    """Stop a running task; once, however often it is asked."""
    if record.stopping is not None:
        record.requeue = record.requeue and requeue  # Who gives way and is then cancelled does not come back.
        return
    record.stopping, record.requeue = reason, requeue
    state.orders.append(
        StopTask(
            version=state.version,
            task=record.request.task,
            attempt=record.attempt,
            keep_state=keep_state,
            grace_ms=state.settings.grace_ms,
            reason=reason,
            by=by,
        )
    )


def order_end_of_stray(state: MeshState, task: TaskId, attempt: int) -> None:
    """An attempt has started that nobody waits for any more: its order was out when the task was taken back."""
    state.orders.append(
        StopTask(version=state.version, task=task, attempt=attempt, keep_state=False, grace_ms=0, reason=Reason.STALE_CHOICE)
    )


def release_victim(state: MeshState, record: TaskRecord) -> TaskId | None:
    """A task has stopped: free what it holds, for the preemptor if it gave way to one. Whose eviction may be complete now."""
    task = record.request.task
    preemptor = state.evicted.pop(task, None)
    eviction = state.evictions.get(preemptor) if preemptor is not None else None
    if eviction is None:
        state.unbind(record)
        return None
    eviction.victims.discard(task)
    node, group, pool = record.node, record.group, record.request.pool
    holder = f"hold:{eviction.preemptor}:{task}"
    if pool == eviction.pool and state.pools.move(task, holder):
        eviction.holders.append(holder)
    state.unbind(record, hold_for=_taker(state, eviction, record))
    kept = state.groups.records.get(group) if group is not None else None
    if kept is not None and kept.layer is Layer.DYNAMIC and kept.state is GroupState.IDLE:
        order_removal(state, kept, Reason.GROUP_IN_THE_WAY)  # Its shape does not serve: its room has to come back first.
        eviction.groups.add(kept.group)
    elif group is None and node is not None:
        _hold_row(state, eviction, node, record.request.resources)
    return eviction.preemptor


def group_came_free(state: MeshState, group: GroupRecord) -> TaskId | None:
    """A group is gone: its room is the preemptor's, if it was removed for one. Whose eviction may be complete now."""
    eviction = next((kept for kept in state.evictions.values() if group.group in kept.groups), None)
    if eviction is None:
        return None
    eviction.groups.discard(group.group)
    for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
        _hold_row(state, eviction, node, bundle)
    return eviction.preemptor


def is_complete(state: MeshState, preemptor: TaskId) -> bool:
    """Nobody is still stopping for it, and no room is still to come."""
    eviction = state.evictions.get(preemptor)
    return eviction is not None and not eviction.victims and not eviction.groups


def end_eviction(state: MeshState, preemptor: TaskId) -> None:
    """Let go of what is held for the task. A group that is kept for it stays so until it has started or is over."""
    eviction = state.evictions.pop(preemptor, None)
    if eviction is None:
        return
    for victim in eviction.victims:
        state.evicted.pop(victim, None)
    for holder in eviction.holders:
        state.pools.release(holder)
    for node, vector in eviction.rows:
        if node in state.table:
            state.table.withdraw(state.table.row(node), vector)
    state.room_came()


def let_group_go(state: MeshState, task: TaskId) -> None:
    """Nobody waits for the group that is kept for the task: it is idle for all."""
    group = state.groups.held_by(task)
    if group is not None and group.state is GroupState.HELD:
        state.groups.give_back(group.group, state.now_ms)
        state.room_came()


def _hold_row(state: MeshState, eviction: Eviction, node: NodeName, amounts: ResourceSet) -> None:
    if node not in state.table:
        return
    row = state.table.row(node)
    vector = np.minimum(state.table.vector(amounts), state.table.free(slice(row, row + 1))[0])
    state.table.promise(row, vector)
    eviction.rows.append((node, vector))


def _taker(state: MeshState, eviction: Eviction, record: TaskRecord) -> TaskId | None:
    """For whom the victim's group is held: the preemptor, when the group serves it as it stands and it has none yet."""
    group = state.groups.records.get(record.group) if record.group is not None else None
    preemptor = state.records.get(eviction.preemptor)
    if group is None or preemptor is None or preemptor.bucket is None or state.groups.held_by(eviction.preemptor) is not None:
        return None
    return eviction.preemptor if group.shape == preemptor.bucket.key.shape and group.pool == eviction.pool else None


def _worth_looking(state: MeshState, request: TaskRequest) -> bool:
    """Does anything run whose priority is lower? Asked each time that something does not fit, so it has to cost nothing."""
    return bool(state.running) and min(state.running) < state.base_priority(request)


def _preemptor(state: MeshState, request: TaskRequest) -> Preemptor:
    return Preemptor(
        task=request.task, label=request.label, pool=request.pool, priority=state.base_priority(request), tenant=request.tenant
    )


def _given_way(state: MeshState) -> Counter[LabelName]:
    while state.given_way and state.given_way[0][0] <= state.now_ms - _MINUTE_MS:
        state.given_way.popleft()
    return Counter(label for _, label in state.given_way)
