"""Evict victims for a task or a whole gang, and hold what they free for the preemptor.

Everything that a victim frees is held until the preemptor starts: quota under a name derived from the preemptor, node resources
as a promise, and a placement group as HELD. Otherwise a faster task could take the capacity that a victim freed for the
preemptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mesh.core.ids import GroupId, NodeName, PoolName, TaskId
from mesh.core.nodes import Units
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING
from mesh.core.task_spec import TaskRequest, TaskState
from mesh.placement.groups import GroupRecord, GroupState, Layer, covers
from mesh.preemption.rules import Candidate, PreemptionRules, Preemptor, Scored, eligible, evaluate
from mesh.preemption.victims import PreemptionPlan, PreemptionRefused, free_rows, plan
from mesh.tasks.decisions import StopTask
from mesh.tasks.gang_placement import demands_of
from mesh.tasks.gang_victims import Gives, plan_together
from mesh.tasks.records import Bucket, Eviction, TaskRecord
from mesh.tasks.reserving import had_room
from mesh.tasks.state import MeshState

#: Limit on victim searches per pass: each search scores every running task.
SEARCHES_MAX = 8


def check_targets(state: MeshState, request: TaskRequest, now_ms: int) -> tuple[Scored, ...]:
    """Return every running task, with its eligibility as victim of this one. Changes nothing, so it also serves the dry run."""
    candidates = [_as_seen_by(state, request, candidate) for candidate in _running_tasks(state)]
    return evaluate(
        _preemptor(state, request),
        candidates,
        _rules(state),
        now_ms,
        recent_preemptions=state.evictions.recent_by_label(now_ms),
        scorer=state.scorer,
    )


def _eligible(state: MeshState, request: TaskRequest) -> tuple[Scored, ...]:
    """Return the eligible victims only. The list of running tasks is built once per pass."""
    found = state.evictions.candidates
    if found is None:
        found = state.evictions.keep_candidates(_running_tasks(state))
    candidates = [_as_seen_by(state, request, candidate) for candidate in found if _still_runs(state, candidate.task)]
    recent_preemptions = state.evictions.recent_by_label(state.now_ms)
    return eligible(
        _preemptor(state, request), candidates, _rules(state), state.now_ms, recent_preemptions=recent_preemptions, scorer=state.scorer
    )


def _still_runs(state: MeshState, task: TaskId) -> bool:
    record = state.records.get(task)
    return record is not None and record.stopping is None and record.node is not None


def _rules(state: MeshState) -> PreemptionRules:
    protected = frozenset(name for name, pool in state.pools.pools.items() if pool.spec.is_protected)
    return replace(state.settings.rules, protected_pools=state.settings.rules.protected_pools | protected)


def dry_run(
    state: MeshState, request: TaskRequest, now_ms: int, count: int = 1
) -> tuple[tuple[Scored, ...], PreemptionPlan | PreemptionRefused]:
    """Return every running task scored, and the preemption plan, as if this task came now and did not fit. Changes nothing.

    Args:
        count: Size of the gang of such tasks that arrives at once.
    """
    scored = check_targets(state, request, now_ms)
    if count > 1 or len(request.bundles) > 1:
        members = tuple([replace(request, task=TaskId(f"{request.task}.{index}")) for index in range(count)])
        return scored, plan_together_for(state, members, scored, now_ms)
    spec = state.pools.pool(request.pool).spec.groups
    at_limit = spec is not None and state.groups.dynamic_count(request.pool) >= spec.max_dynamic
    return scored, plan_for(state, request, scored, now_ms, at_group_limit=at_limit)


def plan_for(
    state: MeshState, request: TaskRequest, scored: tuple[Scored, ...], now_ms: int, *, at_group_limit: bool
) -> PreemptionPlan | PreemptionRefused:
    """Return the victims that would free capacity for this task, or why there are none. Changes nothing.

    In a pool at its limit of groups, free capacity alone does not help: one of its groups has to serve the task or be removed.
    """
    if at_group_limit:
        dynamic = {group.group for group in state.groups.of_pool(request.pool) if group.layer is Layer.DYNAMIC}
        owners = [found for found in scored if found.candidate.group in dynamic]
        plans = [_plan(state, request, (owner,), now_ms, must_stop=owner) for owner in owners if owner.is_eligible]
        cheapest = min((plan for plan in plans if isinstance(plan, PreemptionPlan)), key=lambda plan: plan.cost, default=None)
        return cheapest or PreemptionRefused(
            reason=Reason.NO_PREEMPTION_CANDIDATES, detail="no group of the pool would come free and serve the task"
        )
    return _plan(state, request, scored, now_ms)


def least(state: MeshState, members: Sequence[TaskRequest]) -> TaskRequest:
    """Return the gang member with the lowest priority: a victim of that member may be a victim of all members."""
    return min(members, key=lambda member: (state.shapes.base_priority(member), member.task))


def plan_together_for(
    state: MeshState, members: Sequence[TaskRequest], scored: Sequence[Scored], now_ms: int
) -> PreemptionPlan | PreemptionRefused:
    """Return the victims that would free capacity for all members at once, or why there are none. Changes nothing."""
    preemptor = _preemptor(state, least(state, members))
    demand = demands_of(state, members) if all(member.label == preemptor.label for member in members) else None
    if demand is None:
        return PreemptionRefused(reason=Reason.NO_PREEMPTION_CANDIDATES, detail="the members of the gang belong to several pools or labels")
    pool, gangs = state.pools.pool(demand.pool), {member.gang for member in members if member.gang}
    scored = [found for found in scored if state.records[found.candidate.task].request.gang not in gangs]
    gives = {found.candidate.task: _gives(state, demand.pool, found.candidate) for found in scored if found.is_eligible}
    limit = demand.groups + state.groups.dynamic_count(demand.pool) - (pool.spec.groups.max_dynamic if pool.spec.groups else 0)
    return plan_together(
        demand,
        free=state.table.left_for(unit.vector for unit in demand.placement_units),
        quota_short=pool.short_of(demand.quota),
        groups_short=max(0, limit) if pool.spec.groups is not None and demand.groups else 0,
        scored=scored,
        gives={task: given for task, given in gives.items() if given is not None},
        preemptor=preemptor,
        rules=state.settings.rules,
        recent_preemptions=state.evictions.recent_by_label(now_ms),
    )


def _gives(state: MeshState, pool: PoolName, candidate: Candidate) -> Gives | None:
    """Return what the task frees when it stops; None if it uses a reserved group, which stays."""
    group = state.groups.records.get(candidate.group) if candidate.group is not None else None
    if group is None:
        own = state.records[candidate.task].request.resources
        rooms: tuple[tuple[int, Units], ...] = ((candidate.row, state.table.vector(own)),)
    elif group.layer is Layer.RESERVED:
        return None
    else:
        there = [(node, wanted) for node, wanted in zip(group.nodes, group.shape.bundles, strict=True) if node in state.table]
        rooms = tuple((state.table.row(node), state.table.vector(wanted)) for node, wanted in there)
    if candidate.pool != pool:
        return Gives(rooms=rooms)
    is_dynamic = group is not None and group.layer is Layer.DYNAMIC
    return Gives(rooms=rooms, quota=state.pools.held_by(candidate.task), groups=int(is_dynamic))


def _plan(
    state: MeshState, request: TaskRequest, scored: tuple[Scored, ...], now_ms: int, *, must_stop: Scored | None = None
) -> PreemptionPlan | PreemptionRefused:
    bucket = state.shapes.bucket_for(request)
    found = plan(
        bucket.candidates.wanted,
        pool=request.pool,
        pool_short=state.pools.pool(request.pool).short_of(bucket.amounts),
        free_by_row=free_rows(state.table, bucket.candidates.feasible_rows().tolist()),
        scored=scored,
        preemptor=_preemptor(state, request),
        rules=state.settings.rules,
        recent_preemptions=state.evictions.recent_by_label(now_ms),
        reusable=frozenset(group.group for group in state.groups.of_pool(request.pool) if _serves(bucket, group)),
        finds_instances=_finds_instances(state, bucket),
    )
    if must_stop is None or isinstance(found, PreemptionRefused) or found.victims:
        return found
    cost = -must_stop.score - (1.0 if _serves_group(state, bucket, must_stop.candidate.group) else 0.0)
    return replace(found, victims=(must_stop.candidate,), cost=cost)


def _finds_instances(state: MeshState, bucket: Bucket) -> Callable[[int, Sequence[Candidate]], bool] | None:
    """Return a test whether the bucket's demand finds its instances on a row once candidates are gone; None: it needs none."""
    table, wanted = state.table, bucket.candidates.vector
    if not table.instance_needs(wanted):
        return None

    def finds(row: int, victims: Sequence[Candidate]) -> bool:
        return table.fits_without(row, wanted, [victim.group or victim.task for victim in victims if victim.resources])

    return finds


def _running_tasks(state: MeshState) -> list[Candidate]:
    """Return every running task that is not already being stopped."""
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
        priority=state.shapes.base_priority(request),
        resources=group.shape.bundles[0] if group is not None else request.resources,
        row=state.table.row(record.node),
        started_ms=record.started_ms,
        kept_ms=record.kept_ms,
        estimated_ms=request.estimated_ms,
        group=record.group,
        preemptible=request.preemptible,
    )


def _as_seen_by(state: MeshState, request: TaskRequest, candidate: Candidate) -> Candidate:
    """Return the candidate as it is useful to the request. A reserved group of another shape keeps its node and quota, so the candidate
    frees nothing.
    """
    group = state.groups.records.get(candidate.group) if candidate.group is not None else None
    if group is None or group.layer is not Layer.RESERVED or _serves(state.shapes.bucket_for(request), group):
        return candidate
    return replace(candidate, resources=NOTHING)


def _serves(bucket: Bucket, group: GroupRecord) -> bool:
    """Return whether tasks of the bucket can use the group unchanged once its holder has left."""
    key = bucket.key
    if group.pool != key.pool or group.state is not GroupState.TAKEN:
        return False
    return group.shape == key.shape if group.layer is Layer.DYNAMIC else key.is_urgent and covers(group.shape, key.shape)


def _serves_group(state: MeshState, bucket: Bucket, group: GroupId | None) -> bool:
    record = state.groups.records.get(group) if group is not None else None
    return record is not None and _serves(bucket, record)


def evict_for(state: MeshState, record: TaskRecord, reason: Reason, together: Sequence[TaskRecord] = ()) -> Reason | None:
    """Order victims to stop, so that the task fits.

    Args:
        reason: Why it does not fit.
        together: Gang members that must start together with it; victims are searched for all of them.

    Returns:
        WAITING_FOR_VICTIMS when victims have been ordered to stop, now or before. Otherwise the reason that a joint search found none, or
        None.
    """
    request = record.request
    if eviction_of(state, record) is not None:
        return Reason.WAITING_FOR_VICTIMS
    members = tuple(member.request for member in together) or (request,)
    if not all(_worth_looking(state, member) for member in members) or state.evictions.searches >= SEARCHES_MAX:
        return None  # Other tasks are tried in the next pass.
    state.evictions.count_search()
    if together or len(request.bundles) > 1:
        return _evict_together(state, record, members)
    found = plan_for(state, request, _eligible(state, request), state.now_ms, at_group_limit=reason is Reason.GROUPS_AT_LIMIT)
    if isinstance(found, PreemptionRefused) or not found.victims:
        return None
    # A task that had a reservation holds it on: other tasks could not use it until the victims are gone.
    places = {request.task: (state.table.name(found.row),)} if had_room(state, record) else {}
    _evict(state, request, found.victims, members, places)
    return Reason.WAITING_FOR_VICTIMS


def _evict_together(state: MeshState, record: TaskRecord, members: tuple[TaskRequest, ...]) -> Reason | None:
    """Like `evict_for`, for several places at once. Also hold the part that is free now, or it would be gone when the last victim stops."""
    if any(group.state is GroupState.REMOVING for group in state.groups.records.values()):
        return None  # Capacity is already being freed.
    found = plan_together_for(state, members, _eligible(state, least(state, members)), state.now_ms)
    if isinstance(found, PreemptionRefused) or not found.victims:
        return found.reason if isinstance(found, PreemptionRefused) else None
    gang = record.request.gang if len(members) > 1 or not record.in_admitted_gang else ""
    places = {task: tuple(map(state.table.name, rows)) for task, rows in found.places}
    _evict(state, record.request, found.victims, members, places, gang)
    return Reason.WAITING_FOR_VICTIMS


def _evict(
    state: MeshState,
    request: TaskRequest,
    victims: Sequence[Candidate],
    members: Sequence[TaskRequest],
    places: Mapping[TaskId, tuple[NodeName, ...]],
    gang: str = "",
) -> None:
    """Order the victims to stop, and hold what is free already of the places planned for the members."""
    state.evictions.open(request.task, request.pool, state.now_ms, victims, gang=gang, places=places)
    for victim in victims:
        state.order_stop(state.records[victim.task], Reason.PREEMPTED, requeue=True, by=request.task)
    if places:
        state.evictions.hold_free(request.task, {member.task: state.shapes.bucket_for(member).key.shape for member in members})


def eviction_of(state: MeshState, record: TaskRecord) -> Eviction | None:
    """Return the eviction for the task, or for the gang that it starts with."""
    found, gang = state.evictions.of(record.request.task), record.request.gang
    if found is not None or not gang or record.in_admitted_gang:
        return found
    return state.evictions.of_gang(gang)


def order_end_of_stray(state: MeshState, task: TaskId, attempt: int, reason: Reason = Reason.STALE_PLACEMENT) -> None:
    """Stop an attempt at once that is no longer wanted: its task was withdrawn after the start order, or it lost its resources."""
    state.order(StopTask(version=state.version, task=task, attempt=attempt, keep_state=False, grace_ms=0, reason=reason))


def release_victim(state: MeshState, record: TaskRecord) -> TaskId | None:
    """Free what a stopped task holds, or hold it for the preemptor if the task was a victim.

    Returns:
        The preemptor whose eviction may be complete now.
    """
    eviction = state.evictions.victim_stopped(record.request.task)
    if eviction is None:
        state.unbind(record)
        return None
    node, group, preemptor = record.node, record.group, eviction.preemptor
    kept = state.groups.records.get(group) if group is not None else None
    is_reserved = kept is not None and kept.layer is Layer.RESERVED  # A reserved group keeps its quota, whichever task holds it.
    if record.request.pool == eviction.pool and not is_reserved:
        state.evictions.hold_quota(preemptor, record.request.task)
    state.unbind(record, hold_for=_taker(state, eviction, record))
    if kept is not None and kept.layer is Layer.DYNAMIC and kept.state is GroupState.IDLE:
        state.remove_group(kept, Reason.GROUP_EVICTED)  # Its shape does not serve the preemptor: Ray has to free its resources first.
        state.evictions.await_group(preemptor, kept.group)
    elif group is None and node is not None:
        state.evictions.hold_node(preemptor, node, record.request.resources)
    return preemptor


def end_eviction_for(state: MeshState, record: TaskRecord) -> None:
    """End the eviction of a task that has started or is over. If the eviction is for its gang, the whole gang loses it."""
    eviction = eviction_of(state, record)
    if eviction is not None:
        state.end_eviction(eviction.preemptor)


def _taker(state: MeshState, eviction: Eviction, record: TaskRecord) -> TaskId | None:
    """Return the preemptor if the victim's group serves it unchanged and it has no group yet; otherwise None."""
    group = state.groups.records.get(record.group) if record.group is not None else None
    preemptor = state.records.get(eviction.preemptor) if not eviction.gang else None
    if group is None or preemptor is None or preemptor.bucket is None or state.groups.held_by(eviction.preemptor) is not None:
        return None
    return eviction.preemptor if _serves(preemptor.bucket, group) else None


def _worth_looking(state: MeshState, request: TaskRequest) -> bool:
    """Return whether a task of lower priority runs. Called for each task that does not fit, so it must be cheap."""
    return bool(state.task_ledger.running) and min(state.task_ledger.running) < state.shapes.base_priority(request)


def _preemptor(state: MeshState, request: TaskRequest) -> Preemptor:
    return Preemptor(
        task=request.task, label=request.label, pool=request.pool, priority=state.shapes.base_priority(request), tenant=request.tenant
    )
