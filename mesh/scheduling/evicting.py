"""Making room for one task by stopping others: who is asked, and how what they free is kept for whom they gave way to.

What a victim frees is held until the preemptor starts: its quota under a name of the preemptor's, its node's room as a promise,
its placement group as HELD. So nobody else, who may be quicker, gets what somebody gave up for another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from mesh.ids import GroupId, LabelName, NodeName, TaskId
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.decisions import StopTask
from mesh.scheduling.groups import GroupRecord, GroupState, Layer, covers
from mesh.scheduling.placing import order_removal
from mesh.scheduling.preemption import MINUTE_MS, Candidate, PreemptionRules, Preemptor, Scored, eligible, evaluate
from mesh.scheduling.records import Bucket, Eviction, TaskRecord
from mesh.scheduling.state import MeshState
from mesh.scheduling.tasks import TaskRequest, TaskState
from mesh.scheduling.victims import PreemptionPlan, PreemptionRefused, free_rows, plan

#: How many tasks may look for victims in one pass: each judges everything that runs.
EVALUATIONS_MAX = 8


def judge(state: MeshState, request: TaskRequest, now_ms: int) -> tuple[Scored, ...]:
    """Every running task: may it be asked to give way to this one? Changes nothing, so it is the dry run too."""
    candidates = [_as_seen_by(state, request, candidate) for candidate in _what_runs(state)]
    return evaluate(_preemptor(state, request), candidates, _rules(state), now_ms, given_way=_given_way(state, now_ms), scorer=state.scorer)


def _eligible(state: MeshState, request: TaskRequest) -> tuple[Scored, ...]:
    """Those who may be asked, for whoever wants no more than victims. What runs is looked at once in a pass, whoever asks."""
    if state.may_give_way is None:
        state.may_give_way = tuple(_what_runs(state))
    there = (candidate for candidate in state.may_give_way if _still_runs(state, candidate.task))
    candidates = [_as_seen_by(state, request, candidate) for candidate in there]
    given_way = _given_way(state, state.now_ms)
    return eligible(_preemptor(state, request), candidates, _rules(state), state.now_ms, given_way=given_way, scorer=state.scorer)


def _still_runs(state: MeshState, task: TaskId) -> bool:
    record = state.records.get(task)
    return record is not None and record.stopping is None and record.node is not None


def _rules(state: MeshState) -> PreemptionRules:
    protected = frozenset(name for name, pool in state.pools.pools.items() if pool.spec.is_protected)
    return replace(state.settings.rules, protected_pools=state.settings.rules.protected_pools | protected)


def dry_run(state: MeshState, request: TaskRequest, now_ms: int) -> tuple[tuple[Scored, ...], PreemptionPlan | PreemptionRefused]:
    """Who would give way to this task if it came now and did not fit: every running task judged, and the plan. Changes nothing."""
    scored = judge(state, request, now_ms)
    spec = state.pools.pool(request.pool).spec.groups
    at_limit = spec is not None and state.groups.dynamic_count(request.pool) >= spec.max_dynamic
    return scored, plan_for(state, request, scored, now_ms, at_group_limit=at_limit)


def plan_for(
    state: MeshState, request: TaskRequest, scored: tuple[Scored, ...], now_ms: int, *, at_group_limit: bool
) -> PreemptionPlan | PreemptionRefused:
    """The victims that would make room for this task, or why there are none. Changes nothing.

    Where the pool has as many groups as it may, room alone is of no use: one of its groups has to serve the task, or go.
    """
    if at_group_limit:
        dynamic = {group.group for group in state.groups.of_pool(request.pool) if group.layer is Layer.DYNAMIC}
        owners = [found for found in scored if found.candidate.group in dynamic]
        plans = [_plan(state, request, (owner,), now_ms, must_stop=owner) for owner in owners if owner.is_eligible]
        cheapest = min((plan for plan in plans if isinstance(plan, PreemptionPlan)), key=lambda plan: plan.cost, default=None)
        return cheapest or PreemptionRefused(reason=Reason.NOBODY_GIVES_WAY, detail="no group of the pool would come free and serve it")
    return _plan(state, request, scored, now_ms)


def _plan(
    state: MeshState, request: TaskRequest, scored: tuple[Scored, ...], now_ms: int, *, must_stop: Scored | None = None
) -> PreemptionPlan | PreemptionRefused:
    bucket = state.bucket_for(request)
    found = plan(
        bucket.candidates.wanted,
        pool=request.pool,
        pool_short=state.pools.pool(request.pool).short_of(bucket.amounts),
        free_by_row=free_rows(state.table, bucket.candidates.feasible_rows().tolist()),
        scored=scored,
        preemptor=_preemptor(state, request),
        rules=state.settings.rules,
        given_way=_given_way(state, now_ms),
        reusable=frozenset(group.group for group in state.groups.of_pool(request.pool) if _serves(bucket, group)),
    )
    if must_stop is None or isinstance(found, PreemptionRefused) or found.victims:
        return found
    cost = -must_stop.score - (1.0 if _serves_group(state, bucket, must_stop.candidate.group) else 0.0)
    return replace(found, victims=(must_stop.candidate,), cost=cost)


def _what_runs(state: MeshState) -> list[Candidate]:
    """Everything that runs and is not being stopped."""
    running = (state.records[task] for task in (*state.tasks.in_state(TaskState.RUNNING), *state.tasks.in_state(TaskState.BLOCKED)))
    return [
        _candidate(state, record)
        for record in running
        if record.stopping is None and record.node in state.table and record.request.agent is None
    ]


def _candidate(state: MeshState, record: TaskRecord) -> Candidate:
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


def _as_seen_by(state: MeshState, request: TaskRequest, candidate: Candidate) -> Candidate:
    """A reserved group that does not serve the task stays where it is, with its quota: what it holds is of use to nobody else."""
    group = state.groups.records.get(candidate.group) if candidate.group is not None else None
    if group is None or group.layer is not Layer.RESERVED or _serves(state.bucket_for(request), group):
        return candidate
    return replace(candidate, resources=NOTHING)


def _serves(bucket: Bucket, group: GroupRecord) -> bool:
    """May tasks of the bucket stand on the group as it is, once its holder has left it?"""
    key = bucket.key
    if group.pool != key.pool or group.state is not GroupState.TAKEN:
        return False
    return group.shape == key.shape if group.layer is Layer.DYNAMIC else key.is_urgent and covers(group.shape, key.shape)


def _serves_group(state: MeshState, bucket: Bucket, group: GroupId | None) -> bool:
    record = state.groups.records.get(group) if group is not None else None
    return record is not None and _serves(bucket, record)


def evict_for(state: MeshState, record: TaskRecord, reason: Reason) -> bool:
    """Order victims to stop, so that the task fits; False when nobody can be asked."""
    request = record.request
    if request.task in state.evictions or not _worth_looking(state, request):
        return request.task in state.evictions
    if state.evaluations >= EVALUATIONS_MAX or len(request.bundles) > 1:
        return False  # The rest has its turn in the next pass. For several bundles no set of victims is searched.
    state.evaluations += 1
    found = plan_for(state, request, _eligible(state, request), state.now_ms, at_group_limit=reason is Reason.GROUPS_AT_LIMIT)
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
    kept = state.groups.records.get(group) if group is not None else None
    is_reserved = kept is not None and kept.layer is Layer.RESERVED  # Its quota stays with it, whoever has it.
    if pool == eviction.pool and not is_reserved and state.pools.move(task, holder):
        eviction.holders.append(holder)
    state.unbind(record, hold_for=_taker(state, eviction, record))
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
    return eviction.preemptor if _serves(preemptor.bucket, group) else None


def _worth_looking(state: MeshState, request: TaskRequest) -> bool:
    """Does anything run whose priority is lower? Asked each time that something does not fit, so it has to cost nothing."""
    return bool(state.running) and min(state.running) < state.base_priority(request)


def _preemptor(state: MeshState, request: TaskRequest) -> Preemptor:
    return Preemptor(
        task=request.task, label=request.label, pool=request.pool, priority=state.base_priority(request), tenant=request.tenant
    )


def _given_way(state: MeshState, now_ms: int) -> Counter[LabelName]:
    return Counter(label for at_ms, label in state.given_way if at_ms > now_ms - MINUTE_MS)
