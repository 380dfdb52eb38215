"""The local scheduler of a mesh: events in, decisions out; the only writer of its state.

A batch of events is taken in one by one; then the queue is gone through once (`placing`), and whoever does not fit may ask
others to give way (`evicting`). Each answer that comes from outside carries the attempt that it is about: an answer about
an earlier one is late, and changes nothing.

Source:
    Seed §5.1, §6.4, §6.5; ADR 0002, ADR 0013. The shape is dask's `WorkerState.handle_stimulus`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from mesh.chance import Chance
from mesh.errors import MeshError
from mesh.ids import TaskId
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.scheduling import events as happened
from mesh.scheduling import snapshot
from mesh.scheduling.decisions import AnswerSlot, Decision, EndTask, ExplainWaiting, RemoveGroup, RequestCapacity
from mesh.scheduling.evicting import (
    end_eviction,
    evict_for,
    group_came_free,
    is_complete,
    let_group_go,
    order_end_of_stray,
    order_stop,
    release_victim,
)
from mesh.scheduling.gangs import admit_gang
from mesh.scheduling.groups import GroupState
from mesh.scheduling.placing import expire_groups, order_removal, order_start, place, refill_reserved
from mesh.scheduling.plain import form_of
from mesh.scheduling.records import LabelRules, TaskRecord
from mesh.scheduling.settings import SchedulerSettings
from mesh.scheduling.state import ENDED_KEPT, MeshState
from mesh.scheduling.tasks import TaskState

_QUEUED = frozenset({TaskState.PLACEABLE, TaskState.WAITING, TaskState.WAITING_FOR_ACTOR_CREATION, TaskState.INFEASIBLE})
_AT_WORK = frozenset({TaskState.RUNNING, TaskState.BLOCKED})
_NEVER = frozenset({Reason.POOL_TOO_SMALL, Reason.NO_NODE_FITS})
_CAN_PREEMPT = frozenset({Reason.POOL_BUSY, Reason.NODES_BUSY, Reason.GROUPS_AT_LIMIT})

_FORM = form_of(snapshot.MeshSnapshot)


class MeshScheduler:
    """One mesh's local scheduler. `state` may be read by anyone; only `handle` writes it."""

    def __init__(self, settings: SchedulerSettings | None = None, *, seed: int = 0) -> None:
        self.state = MeshState(settings or SchedulerSettings(), Chance(seed))
        self._told: dict[TaskId, tuple[Reason, str]] = {}
        self._demands: tuple[ResourceSet, ...] = ()
        self._demands_at = 0

    def to_snapshot(self) -> object:
        """All of the state, as plain JSON values; taken between two calls of `handle`.

        What is not kept (scores, what was last said) is forgotten here too: so this scheduler and one made from the snapshot
        decide alike from now on, and a journal that goes on from the snapshot replays.
        """
        kept = snapshot.take(self.state)
        self.state = snapshot.restore(kept)
        self._told.clear()
        self._demands, self._demands_at = (), 0
        return _FORM.encode(kept)

    @classmethod
    def from_snapshot(cls, kept: object) -> MeshScheduler:
        """A scheduler that goes on as that one did. Raises `PlainValueError` when it is no such snapshot."""
        scheduler = cls()
        scheduler.state = snapshot.restore(_FORM.decode(kept))
        return scheduler

    def handle(self, *events: happened.Event) -> list[Decision]:
        """Take the events in; return what must be done, in order.

        Pure: the same events on the same state give the same decisions, so a journal can be replayed.

        Args:
            events: Oldest first; `at_ms` is milliseconds on this mesh's clock.
        Raises:
            IllegalTransition: No row in `TRANSITIONS`; carries the task's story.
            MeshError: An event of an unknown kind.
        """
        state = self.state
        state.version += 1
        state.orders = []
        for event in events:
            state.now_ms = max(state.now_ms, event.at_ms)
            handler = self._HANDLERS.get(type(event))
            if handler is None:
                raise MeshError(f"the mesh scheduler does not know events of the kind {type(event).__name__}")
            handler(self, event)
        refill_reserved(state)
        self._admit()
        self._tell_demand()
        state.trim()
        return state.orders

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _node_joined(self, event: happened.NodeJoined) -> None:
        self.state.table.join(event.node, event.total, event.labels)
        self._try_infeasible()

    def _node_use_seen(self, event: happened.NodeUseSeen) -> None:
        if event.node in self.state.table:
            self.state.table.see_foreign(event.node, self.state.table.vector(event.foreign))
            self.state.room_came()

    def _node_left(self, event: happened.NodeLeft) -> None:
        state = self.state
        if event.node not in state.table:
            return
        state.table.leave(event.node)
        for group in state.groups.on_node(event.node):
            self._lose_group(group.group)
        for task in [record.request.task for record in state.records.values() if record.node == event.node and record.group is None]:
            self._lose(state.records[task], f"node {event.node} left")

    # -- configuration -------------------------------------------------------------------------------------------------

    def _pool_configured(self, event: happened.PoolConfigured) -> None:
        state = self.state
        state.pools.configure(event.spec)
        for group in state.groups.surplus_reserved(event.spec.pool, event.spec.groups):
            order_removal(state, group, Reason.GROUP_DISCARDED)
        state.rebuild_buckets()
        self._try_infeasible()

    def _pool_deleted(self, event: happened.PoolDeleted) -> None:
        state = self.state
        for task in [task for task, record in state.records.items() if record.request.pool == event.pool]:
            self._cancel(state.records[task], happened.TaskCancelled(at_ms=event.at_ms, task=task, destroy_group=True), Reason.POOL_CLOSING)
        for group in state.groups.of_pool(event.pool):
            if group.state in (GroupState.IDLE, GroupState.HELD):
                order_removal(state, group, Reason.GROUP_DISCARDED)
        state.pools.delete(event.pool)

    def _settings_changed(self, event: happened.SettingsChanged) -> None:
        state = self.state
        state.settings = state.settings.changed(event.settings)
        state.queues.configure(None, state.label_settings_of_others())
        for label in state.labels:
            state.queues.configure(label, state.label_settings(label))
        state.rebuild_buckets()

    def _label_configured(self, event: happened.LabelConfigured) -> None:
        state = self.state
        state.labels[event.label] = LabelRules(
            priority=event.priority, aging_per_s=event.aging_per_s, weights=dict(event.weights), policy=event.policy
        )
        state.queues.configure(event.label, state.label_settings(event.label))
        state.rebuild_buckets()

    # -- tasks come ----------------------------------------------------------------------------------------------------

    def _task_submitted(self, event: happened.TaskSubmitted) -> None:
        state, request = self.state, event.request
        if request.task in state.records or (request.task in state.ended and not event.resume):
            return
        earlier = state.ended.pop(request.task, None)
        if request.pool not in state.pools.pools:
            known = ", ".join(state.pools.pools) or "none"
            self._forget(request.task, TaskState.FAILED)
            self._order_end(request.task, Reason.POOL_UNKNOWN, f"there is no pool {request.pool}; there is {known}")
            return
        state.arrivals += 1
        record = TaskRecord(request=request, since_ms=event.at_ms, arrival=state.arrivals, resume=event.resume and earlier is not None)
        record.attempt = event.first_attempt
        state.records[request.task] = record
        waits_for = self._open_needs(record)
        if waits_for:
            state.tasks.add(request.task, TaskState.WAITING, request.resources, request.job)
        elif request.agent is not None:
            self._wait_for_agent(record)
        else:
            state.tasks.add(request.task, TaskState.PLACEABLE, request.resources, request.job)
            self._queue(record, event.version)

    def _open_needs(self, record: TaskRecord) -> bool:
        state = self.state
        needs = [need for need in record.request.after if state.ended.get(need) is not TaskState.SUCCEEDED]
        for need in needs:
            state.readers.setdefault(need, set()).add(record.request.task)
        return bool(needs)

    def _wait_for_agent(self, record: TaskRecord) -> None:
        state, request = self.state, record.request
        assert request.agent is not None  # noqa: S101  a call names its agent
        if request.task not in state.tasks:
            state.tasks.add(request.task, TaskState.WAITING_FOR_ACTOR_CREATION, request.resources, request.job, request.agent)
        state.callers.setdefault(request.agent, []).append(request.task)
        if request.agent in state.agents:
            self._agent_came(request.agent)

    def _queue(self, record: TaskRecord, version: int | None = None) -> None:
        state, request = self.state, record.request
        if version is not None and request.node is not None and version < state.node_versions.get(request.node, 0):
            record.request = state.without_node(request)
            self._explain(record, Reason.STALE_CHOICE, f"node {request.node} has changed since version {version}")
        state.enqueue(record)
        if request.gang:
            members = state.gangs.setdefault(request.gang, [])
            if request.task not in members:
                members.append(request.task)

    # -- tasks go on ---------------------------------------------------------------------------------------------------

    def _task_started(self, event: happened.TaskStarted) -> None:
        state, record = self.state, self._current(event.task, event.attempt)
        if record is None:
            order_end_of_stray(state, event.task, event.attempt)
            return
        if state.tasks.state_of(event.task) is not TaskState.SWAP:
            return
        state.start(record)
        state.tasks.move(event.task, TaskState.RUNNING)
        record.started_ms = record.kept_ms = state.now_ms
        record.refusals = 0
        state.note_start(record)
        end_eviction(state, event.task)
        self._told.pop(event.task, None)
        if record.request.agent is None:
            state.agents[event.agent] = event.task
            self._agent_came(event.agent)

    def _agent_came(self, agent: Any) -> None:
        """Calls that waited for the agent can go to it."""
        state = self.state
        owner = state.records[state.agents[agent]]
        for task in state.callers.pop(agent, []):
            record = state.records.get(task)
            if record is None:
                continue
            record.attempt += 1
            record.agent, record.node = agent, owner.node
            state.tasks.move(task, TaskState.SWAP)
            order_start(state, record, Reason.PLACED)

    def _task_refused(self, event: happened.TaskRefused) -> None:
        state, record = self.state, self._current(event.task, event.attempt)
        if record is None or state.tasks.state_of(event.task) is not TaskState.SWAP:
            return
        record.refusals += 1
        if event.final or record.refusals >= state.settings.start_tries:
            self._end(record, TaskState.FAILED, event.reason if event.final else Reason.START_FAILED, event.detail)
        elif record.stopping is not None:
            self._stopped(record)
        else:
            self._requeue(record, Reason.START_FAILED, event.detail)

    def _task_blocked(self, event: happened.TaskBlocked) -> None:
        state = self.state
        if event.task in state.records and state.tasks.state_of(event.task) in _AT_WORK:
            to = TaskState.BLOCKED if event.blocked else TaskState.RUNNING
            if state.tasks.state_of(event.task) is not to:
                state.tasks.move(event.task, to)

    def _checkpoint_kept(self, event: happened.CheckpointKept) -> None:
        record = self._current(event.task, event.attempt)
        if record is not None:
            record.kept_ms, record.resume = self.state.now_ms, True

    def _task_ended(self, event: happened.TaskEnded) -> None:
        record = self._current(event.task, event.attempt)
        if record is None or self.state.tasks.state_of(event.task) not in {*_AT_WORK, TaskState.SWAP}:
            return
        state = TaskState.FAILED if event.error else TaskState.SUCCEEDED
        self._end(record, state, Reason.USER_ERROR if event.error else Reason.FINISHED, event.error)

    def _task_cancelled(self, event: happened.TaskCancelled) -> None:
        record = self.state.records.get(event.task)
        if record is not None:
            self._cancel(record, event, Reason.CANCELLED_BY_USER)

    def _cancel(self, record: TaskRecord, event: happened.TaskCancelled, reason: Reason) -> None:
        state = self.state
        record.destroy_group = event.destroy_group
        where = state.tasks.state_of(record.request.task)
        if where in _QUEUED:
            if not event.requeue:
                self._end(record, TaskState.CANCELLED, reason)
        elif where is TaskState.READY or not record.request.has_agent:
            if event.requeue:
                self._requeue(record, reason, "")
            else:
                self._end(record, TaskState.CANCELLED, reason)
        else:
            order_stop(state, record, reason, keep_state=event.keep_state, requeue=event.requeue)

    def _task_stopped(self, event: happened.TaskStopped) -> None:
        record = self._current(event.task, event.attempt)
        if record is not None and record.stopping is not None:
            self._stopped(record)

    def _stopped(self, record: TaskRecord) -> None:
        """Nothing of it runs any more: it goes back to its place, or is over."""
        if not record.requeue:
            self._end(record, TaskState.CANCELLED, record.stopping or Reason.CANCELLED_BY_USER)
            return
        state, task = self.state, record.request.task
        preemptor = self._let_go(record)
        if state.tasks.state_of(task) in _AT_WORK:
            state.tasks.move(task, TaskState.PREEMPTED)
        state.tasks.move(task, TaskState.PLACEABLE)
        record.resume, record.stopping, record.requeue = True, None, False
        state.enqueue(record)
        self._explain(record, Reason.PREEMPTED, f"it gave way to {preemptor}" if preemptor else "")
        self._continue_eviction(preemptor)

    # -- agents and placement groups -----------------------------------------------------------------------------------

    def _agent_lost(self, event: happened.AgentLost) -> None:
        record = self._current(event.task, event.attempt)
        if record is not None and self.state.tasks.state_of(event.task) in {*_AT_WORK, TaskState.SWAP}:
            self._lose(record, event.detail)

    def _lose(self, record: TaskRecord, detail: str) -> None:
        """What ran it is gone. Being stopped, it is stopped; else it starts again as often as it may."""
        where = self.state.tasks.state_of(record.request.task)
        if where in _QUEUED:
            return
        if record.stopping is not None:
            self._stopped(record)
        elif where is TaskState.READY or where is TaskState.SWAP:
            record.refusals += 1
            self._requeue(record, Reason.START_FAILED, detail)
        elif record.request.max_restarts < 0 or record.restarts < record.request.max_restarts:
            record.restarts += 1
            self._requeue(record, Reason.AGENT_LOST, detail)
        else:
            self._end(record, TaskState.FAILED, Reason.AGENT_LOST, detail)

    def _group_ready(self, event: happened.GroupReady) -> None:
        state, group = self.state, self.state.groups.records.get(event.group)
        if group is None:
            state.orders.append(RemoveGroup(version=state.version, group=event.group, reason=Reason.GROUP_DISCARDED))
            return
        if group.state is not GroupState.CREATING:
            return
        for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
            state.table.start(state.table.row(node), state.table.vector(bundle))
        state.groups.ready(group.group, state.now_ms)
        state.made.add(group.group)
        record = state.records.get(group.holder) if group.holder is not None else None
        if record is None:
            state.room_came()
            return
        state.tasks.move(record.request.task, TaskState.SWAP)
        order_start(state, record, Reason.GROUP_CREATED)

    def _group_failed(self, event: happened.GroupFailed) -> None:
        state, group = self.state, self.state.groups.records.get(event.group)
        if group is None:
            return
        record = state.records.get(group.holder) if group.holder is not None else None
        if record is None:
            state.lose_group(group)
            return
        record.refusals += 1
        if record.refusals >= state.settings.start_tries:
            self._end(record, TaskState.FAILED, Reason.START_FAILED, event.detail)
        else:
            self._requeue(record, Reason.START_FAILED, event.detail)
        self._lose_group(event.group)

    def _group_gone(self, event: happened.GroupGone) -> None:
        self._lose_group(event.group)

    def _lose_group(self, group_id: Any) -> None:
        state, group = self.state, self.state.groups.records.get(group_id)
        if group is None:
            return
        holder = state.records.get(group.holder) if group.state in (GroupState.TAKEN, GroupState.CREATING) and group.holder else None
        state.lose_group(group)
        preemptor = group_came_free(state, group)
        if holder is not None:
            self._lose(holder, f"placement group {group.group} is gone")
        self._continue_eviction(preemptor)

    # -- room without an agent -----------------------------------------------------------------------------------------

    def _slot_asked(self, event: happened.SlotAsked) -> None:
        state, pool = self.state, self.state.pools.pools.get(event.pool)
        refused: tuple[Reason | None, str] = (None, "")
        if pool is None or pool.is_closing:
            refused = Reason.POOL_UNKNOWN, f"there is no pool {event.pool}"
        elif state.pools.held_by(event.slot):
            refused = None, "it is held already"
        elif not event.resources <= pool.capacity:
            refused = Reason.POOL_TOO_SMALL, f"pool {event.pool} has {pool.capacity} in all"
        elif not pool.fits(event.resources):
            refused = Reason.POOL_BUSY, f"pool {event.pool} has {pool.free} free"
        else:
            state.pools.reserve(event.pool, event.slot, event.resources)
        state.orders.append(AnswerSlot(version=state.version, slot=event.slot, refused=refused[0], detail=refused[1]))

    def _slot_committed(self, event: happened.SlotCommitted) -> None:
        state = self.state
        held = next((name for name, pool in state.pools.pools.items() if event.slot in pool.reservations), None)
        if held is not None:
            state.pools.commit(held, event.slot)
        known = held is not None or bool(state.pools.held_by(event.slot))
        refused = (None, "") if known else (Reason.SLOT_UNKNOWN, f"nothing is set aside under {event.slot}")
        state.orders.append(AnswerSlot(version=state.version, slot=event.slot, refused=refused[0], detail=refused[1]))

    def _slot_released(self, event: happened.SlotReleased) -> None:
        if self.state.pools.release(event.slot):
            self.state.room_came()

    def _ticked(self, event: happened.Ticked) -> None:
        state = self.state
        expire_groups(state)
        for eviction in [kept for kept in state.evictions.values() if event.at_ms - kept.since_ms > state.settings.hold_ms]:
            end_eviction(state, eviction.preemptor)
            let_group_go(state, eviction.preemptor)
        state.room_came()  # Who was too young to give way may be old enough now.

    # -- what they share -----------------------------------------------------------------------------------------------

    def _current(self, task: TaskId, attempt: int) -> TaskRecord | None:
        record = self.state.records.get(task)
        return record if record is not None and record.attempt == attempt else None

    def _let_go(self, record: TaskRecord) -> TaskId | None:
        """Free what the task holds; for whom, if it gave way to somebody."""
        state = self.state
        group, agent = record.group, record.agent
        preemptor = release_victim(state, record)
        if agent is not None and state.agents.get(agent) == record.request.task:
            del state.agents[agent]
        kept = state.groups.records.get(group) if group is not None else None
        spec = state.pools.pool(record.request.pool).spec.groups
        wanted = kept is not None and (spec is not None and spec.reuse) and not record.destroy_group
        if kept is not None and kept.state is GroupState.IDLE and not wanted:
            order_removal(state, kept, Reason.GROUP_DISCARDED)
        record.agent = None
        return preemptor

    def _requeue(self, record: TaskRecord, reason: Reason, detail: str) -> None:
        """Roll everything back; the task gets its old place in the queue."""
        state, task = self.state, record.request.task
        preemptor = self._let_go(record)
        record.stopping = None
        if record.request.agent is not None:
            state.tasks.move(task, TaskState.WAITING_FOR_ACTOR_CREATION)
            state.callers.setdefault(record.request.agent, []).append(task)
        else:
            state.tasks.move(task, TaskState.PLACEABLE)
            state.enqueue(record)
        self._explain(record, reason, detail)
        self._continue_eviction(preemptor)

    def _end(self, record: TaskRecord, to: TaskState, reason: Reason, detail: str = "") -> None:
        state, task = self.state, record.request.task
        state.queues.remove(task)
        end_eviction(state, task)
        let_group_go(state, task)
        preemptor = self._let_go(record)
        state.tasks.move(task, to)
        state.tasks.remove(task)
        del state.records[task]
        state.refusals += 1
        self._forget(task, to)
        self._order_end(task, reason, detail)
        self._end_readers(task, to)
        self._end_gang(record, to)
        self._continue_eviction(preemptor)

    def _forget(self, task: TaskId, to: TaskState) -> None:
        self._told.pop(task, None)
        ended = self.state.ended
        ended[task] = to
        while len(ended) > ENDED_KEPT:
            del ended[next(iter(ended))]

    def _end_readers(self, task: TaskId, to: TaskState) -> None:
        """Those that come after it may start, or never will."""
        state = self.state
        for reader in sorted(state.readers.pop(task, ())):
            record = state.records.get(reader)
            if record is None or state.tasks.state_of(reader) is not TaskState.WAITING:
                continue
            if to is not TaskState.SUCCEEDED:
                self._end(record, TaskState.FAILED, Reason.UPSTREAM_FAILED, f"{task} is {to.value}")
            elif not any(reader in others for others in state.readers.values()):
                state.tasks.move(reader, TaskState.PLACEABLE if record.request.agent is None else TaskState.WAITING_FOR_ACTOR_CREATION)
                if record.request.agent is None:
                    self._queue(record)
                else:
                    self._wait_for_agent(record)

    def _end_gang(self, record: TaskRecord, to: TaskState) -> None:
        """A gang whose member failed is of no use to the others."""
        state, gang = self.state, record.request.gang
        if not gang:
            return
        members = state.gangs.get(gang, [])
        if record.request.task in members:
            members.remove(record.request.task)
        if not members:
            state.gangs.pop(gang, None)
        elif to is TaskState.FAILED:
            for task in tuple(members):
                other = state.records.get(task)
                if other is not None:
                    self._cancel(other, happened.TaskCancelled(at_ms=state.now_ms, task=task), Reason.GANG_BROKEN)

    def _continue_eviction(self, preemptor: TaskId | None) -> None:
        """All victims are gone: whom they gave way to is placed now, before anybody else is looked at."""
        state = self.state
        if preemptor is None or not is_complete(state, preemptor):
            return
        end_eviction(state, preemptor)
        record = state.records.get(preemptor)
        if record is not None and preemptor in state.queues:
            self._try(record)

    # -- admission -----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """One pass over the queue, best first."""
        state = self.state
        heads = state.queues.round(state.now_ms)
        while (head := heads.next()) is not None:
            bucket: Any = head[0]
            if bucket.tried_at != state.room_epoch and self._try(state.records[head[1]]):
                heads.again(bucket)

    def _try(self, record: TaskRecord) -> bool:
        state, bucket, request = self.state, record.bucket, record.request
        assert bucket is not None  # noqa: S101  it is queued
        refusal = admit_gang(state, record) if request.gang else place(state, record)
        bucket.tried_at = -1 if refusal is None else state.room_epoch
        if (refusal is None) is not (bucket.refused is None):
            state.refusals += 1
        bucket.refused = refusal
        if refusal is None:
            return True
        if refusal[0] in _NEVER:
            self._put_aside(record, refusal)
            return True
        if refusal[0] in _CAN_PREEMPT and not request.gang and evict_for(state, record):
            bucket.refused = refusal = Reason.WAITING_FOR_VICTIMS, "others keep their state and give way"
        self._explain(record, *refusal)
        return False

    def _put_aside(self, record: TaskRecord, refusal: tuple[Reason, str]) -> None:
        """No node or pool could ever hold it: it is not looked at again before one joins or grows."""
        self.state.refusals += 1
        self.state.queues.remove(record.request.task)
        self.state.tasks.move(record.request.task, TaskState.INFEASIBLE)
        self._explain(record, *refusal)

    def _try_infeasible(self) -> None:
        """A node or a pool has come or grown: everything that fitted nowhere is looked at again (Ray's spill-over)."""
        state = self.state
        for task in state.tasks.in_state(TaskState.INFEASIBLE):
            state.tasks.move(task, TaskState.PLACEABLE)
            state.enqueue(state.records[task])
            state.refusals += 1
        state.room_came()

    def _explain(self, record: TaskRecord, reason: Reason, detail: str) -> None:
        task = record.request.task
        if self._told.get(task) != (reason, detail):
            self._told[task] = (reason, detail)
            self.state.orders.append(ExplainWaiting(version=self.state.version, task=task, reason=reason, detail=detail))

    def _order_end(self, task: TaskId, reason: Reason, detail: str) -> None:
        self.state.orders.append(EndTask(version=self.state.version, task=task, reason=reason, detail=detail))

    def _tell_demand(self) -> None:
        if self._demands_at == self.state.refusals:
            return
        self._demands_at = self.state.refusals
        demands = self.state.unmet_demands()
        if demands != self._demands:
            self._demands = demands
            self.state.orders.append(RequestCapacity(version=self.state.version, demands=demands))

    #: What each kind of event does.
    _HANDLERS: ClassVar[Mapping[type[happened.Event], Callable[[MeshScheduler, Any], None]]] = {
        happened.NodeJoined: _node_joined,
        happened.NodeUseSeen: _node_use_seen,
        happened.NodeLeft: _node_left,
        happened.PoolConfigured: _pool_configured,
        happened.PoolDeleted: _pool_deleted,
        happened.SettingsChanged: _settings_changed,
        happened.LabelConfigured: _label_configured,
        happened.TaskSubmitted: _task_submitted,
        happened.TaskStarted: _task_started,
        happened.TaskRefused: _task_refused,
        happened.TaskBlocked: _task_blocked,
        happened.CheckpointKept: _checkpoint_kept,
        happened.TaskEnded: _task_ended,
        happened.TaskCancelled: _task_cancelled,
        happened.TaskStopped: _task_stopped,
        happened.AgentLost: _agent_lost,
        happened.GroupReady: _group_ready,
        happened.GroupFailed: _group_failed,
        happened.GroupGone: _group_gone,
        happened.SlotAsked: _slot_asked,
        happened.SlotCommitted: _slot_committed,
        happened.SlotReleased: _slot_released,
        happened.Ticked: _ticked,
    }
