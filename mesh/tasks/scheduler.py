"""The local scheduler of a mesh: events in, decisions out; the only writer of its state.

`handle` applies a batch of events one by one and then makes one pass over the queue (`placing`), with preemption for tasks that do not
fit (`evicting`). Each answer from outside carries the attempt it is about; an answer about an earlier attempt is late and changes
nothing.

Source:
    ADR 0002, ADR 0013; after dask's `WorkerState.handle_stimulus`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from mesh.core.json_codec import codec_of
from mesh.core.random_stream import RandomStream
from mesh.core.reasons import Reason
from mesh.core.task_spec import AT_WORK, TaskState
from mesh.errors import MeshError
from mesh.placement.groups import GroupState
from mesh.policies.catalogue import BUILT_INS, Catalogue
from mesh.preemption.rules import Scorer, score
from mesh.tasks import events as happened
from mesh.tasks import snapshot
from mesh.tasks.admitting import admit, order_end, try_infeasible, try_now
from mesh.tasks.decisions import AnswerSlot, Decision, RemoveGroup
from mesh.tasks.evicting import order_end_of_stray
from mesh.tasks.lifecycle import (
    QUEUED,
    agent_came,
    cancel,
    current,
    end,
    lose,
    lose_group,
    queue,
    requeue,
    stopped,
    wait_for_agent,
)
from mesh.tasks.placing import expire_groups, is_kept, order_start, refill_reserved
from mesh.tasks.records import LabelRules
from mesh.tasks.request_validation import check_label, check_pool, find_problem
from mesh.tasks.settings import SchedulerSettings
from mesh.tasks.state import MeshState

#: How long no reserved group is ordered in a pool after Ray has refused one.
_RESERVED_PAUSE_MS = 1_000
_FORM = codec_of(snapshot.MeshSnapshot)


class MeshScheduler:
    """Local scheduler of one mesh. Any caller may read `state`; only `handle` writes it."""

    def __init__(
        self, settings: SchedulerSettings | None = None, *, seed: int = 0, catalogue: Catalogue = BUILT_INS, scorer: Scorer = score
    ) -> None:
        self.state = MeshState(settings or SchedulerSettings(), RandomStream(seed), catalogue, scorer)

    def to_snapshot(self) -> object:
        """Return the whole state as values that `json_text` writes. Call between two calls of `handle`.

        What is not saved (scores, last explanations) is dropped here too. This scheduler and one restored from the snapshot then decide
        alike, and a journal continued from the snapshot can be replayed.
        """
        kept = snapshot.take(self.state)
        self.state = snapshot.restore(kept, self.state.catalogue, self.state.scorer)
        return _FORM.encode(kept)

    @classmethod
    def from_snapshot(cls, kept: object, catalogue: Catalogue = BUILT_INS, scorer: Scorer = score) -> MeshScheduler:
        """Return a scheduler that continues from the snapshot.

        Raises:
            JsonCodecError: It is not such a snapshot.
        """
        scheduler = cls(catalogue=catalogue, scorer=scorer)
        scheduler.state = snapshot.restore(_FORM.decode(kept), catalogue, scorer)
        return scheduler

    def handle(self, *events: happened.Event) -> list[Decision]:
        """Apply the events and return the decisions they lead to, in order.

        Pure: the same events on the same state give the same decisions, so a journal can be replayed.

        Args:
            events: Oldest first; `at_ms` is milliseconds on this mesh's clock.

        Raises:
            IllegalTransition: `TRANSITIONS` has no such row; the message contains the task's history.
            MeshError: An event of an unknown kind.
        """
        state = self.state
        state.begin_step()
        for event in events:
            state.advance_to(event.at_ms)
            handler = self._HANDLERS.get(type(event))
            if handler is None:
                raise MeshError(f"the mesh scheduler does not know events of the kind {type(event).__name__}")
            handler(self, event)
        refill_reserved(state)
        admit(state)
        while state.task_ledger.unschedulable:
            record, refusal = state.task_ledger.take_unschedulable()
            end(state, record, TaskState.FAILED, *refusal)
        state.report_demand()
        return state.end_step()

    # -- the cluster ---------------------------------------------------------------------------------------------------

    def _node_joined(self, event: happened.NodeJoined) -> None:
        self.state.capacity.add_node(event.node, event.total, event.labels)
        try_infeasible(self.state)

    def _node_use_seen(self, event: happened.NodeUseSeen) -> None:
        if event.node in self.state.table:
            self.state.capacity.set_foreign_use(event.node, event.foreign)
            self.state.room_came()

    def _node_left(self, event: happened.NodeLeft) -> None:
        state = self.state
        if event.node not in state.table:
            return
        state.remove_node(event.node)
        for group in state.groups.on_node(event.node):
            lose_group(self.state, group.group)
        for task in [record.request.task for record in state.records.values() if record.node == event.node and record.group is None]:
            if task in state.records:  # Else it ended with its agent, which was on the node too.
                lose(self.state, state.records[task], f"node {event.node} left")

    # -- configuration -------------------------------------------------------------------------------------------------

    def _pool_configured(self, event: happened.PoolConfigured) -> None:
        state = self.state
        check_pool(state, event.spec)
        state.capacity.configure_pool(event.spec)
        for group in state.groups.surplus_reserved(event.spec.pool, event.spec.groups):
            state.remove_group(group, Reason.GROUP_DISCARDED)
        state.assign_again()
        try_infeasible(self.state)

    def _pool_deleted(self, event: happened.PoolDeleted) -> None:
        state = self.state
        for task in [task for task, record in state.records.items() if record.request.pool == event.pool]:
            if task not in state.records:
                continue  # It ended together with an earlier one.
            cancel(
                self.state,
                state.records[task],
                happened.TaskCancelled(at_ms=event.at_ms, task=task, destroy_group=True),
                Reason.POOL_CLOSING,
            )
        for group in state.groups.of_pool(event.pool):
            if group.state in (GroupState.IDLE, GroupState.HELD):
                state.remove_group(group, Reason.GROUP_DISCARDED)
        state.capacity.delete_pool(event.pool)

    def _settings_changed(self, event: happened.SettingsChanged) -> None:
        self.state.change_settings(event.settings)

    def _label_configured(self, event: happened.LabelConfigured) -> None:
        check_label(self.state, event)
        rules = LabelRules(priority=event.priority, aging_per_s=event.aging_per_s, weights=dict(event.weights), policy=event.policy)
        self.state.configure_label(event.label, rules)

    # -- submission ----------------------------------------------------------------------------------------------------

    def _task_submitted(self, event: happened.TaskSubmitted) -> None:
        state, request = self.state, event.request
        if request.task in state.records or (request.task in state.ended and not event.resume):
            return
        ended_before = state.task_ledger.forget_end(request.task)
        wrong = find_problem(state, request)
        if wrong is not None:
            state.task_ledger.remember_end(request.task, TaskState.FAILED)
            order_end(state, request.task, *wrong)
            return
        record = state.task_ledger.submit(request, event.at_ms, resume=event.resume and ended_before, first_attempt=event.first_attempt)
        if state.task_ledger.open_needs(record):
            state.task_ledger.enter(record, TaskState.WAITING)
        elif request.agent is not None:
            wait_for_agent(self.state, record)
        else:
            state.task_ledger.enter(record, TaskState.PLACEABLE)
            queue(self.state, record, event.version)
            if state.job_reservations and state.job_reservations.use(request):
                state.evictions.forget_candidates()
                try_now(state, record)

    # -- running tasks -------------------------------------------------------------------------------------------------

    def _task_started(self, event: happened.TaskStarted) -> None:
        state, record = self.state, current(self.state, event.task, event.attempt)
        if record is None or state.tasks.state_of(event.task) in QUEUED:
            order_end_of_stray(state, event.task, event.attempt)
            return
        if state.tasks.state_of(event.task) is not TaskState.SWAP:
            return
        state.start(record)
        state.note_started(record, event.agent)
        state.end_eviction(event.task)
        if record.request.agent is None:
            agent_came(self.state, event.agent)

    def _task_refused(self, event: happened.TaskRefused) -> None:
        state, record = self.state, current(self.state, event.task, event.attempt)
        if record is None or state.tasks.state_of(event.task) is not TaskState.SWAP:
            return
        refusals = state.task_ledger.count_refusal(record)
        if event.final or refusals >= state.settings.start_tries:
            end(self.state, record, TaskState.FAILED, event.reason if event.final else Reason.START_FAILED, event.detail)
        elif record.stopping is not None:
            stopped(self.state, record)
        else:
            requeue(self.state, record, Reason.START_FAILED, event.detail)

    def _task_blocked(self, event: happened.TaskBlocked) -> None:
        state = self.state
        if event.task in state.records and state.tasks.state_of(event.task) in AT_WORK:
            state.task_ledger.set_blocked(event.task, is_blocked=event.blocked)

    def _checkpoint_kept(self, event: happened.CheckpointKept) -> None:
        record = current(self.state, event.task, event.attempt)
        if record is not None:
            self.state.task_ledger.note_checkpoint(record, self.state.now_ms)

    def _task_ended(self, event: happened.TaskEnded) -> None:
        record = current(self.state, event.task, event.attempt)
        if record is None or self.state.tasks.state_of(event.task) not in {*AT_WORK, TaskState.SWAP}:
            return
        state = TaskState.FAILED if event.error else TaskState.SUCCEEDED
        end(self.state, record, state, Reason.USER_ERROR if event.error else Reason.FINISHED, event.error)

    def _task_cancelled(self, event: happened.TaskCancelled) -> None:
        record = self.state.records.get(event.task)
        if record is not None:
            cancel(self.state, record, event, Reason.CANCELLED_BY_USER)

    def _task_stopped(self, event: happened.TaskStopped) -> None:
        record = current(self.state, event.task, event.attempt)
        if record is not None and record.stopping is not None:
            stopped(self.state, record)

    # -- agents and placement groups -----------------------------------------------------------------------------------

    def _agent_lost(self, event: happened.AgentLost) -> None:
        record = current(self.state, event.task, event.attempt)
        if record is not None and self.state.tasks.state_of(event.task) in {*AT_WORK, TaskState.SWAP}:
            lose(self.state, record, event.detail)

    def _group_ready(self, event: happened.GroupReady) -> None:
        state, group = self.state, self.state.groups.records.get(event.group)
        if group is None:
            state.order(RemoveGroup(version=state.version, group=event.group, reason=Reason.GROUP_DISCARDED))
            return
        if group.state is not GroupState.CREATING:
            return
        record = state.group_created(group)
        if record is None:
            if not is_kept(state, group):
                state.remove_group(group, Reason.GROUP_DISCARDED)
            state.room_came()
            return
        order_start(state, record, Reason.GROUP_CREATED)

    def _group_failed(self, event: happened.GroupFailed) -> None:
        state, group = self.state, self.state.groups.records.get(event.group)
        if group is None:
            return
        record = state.records.get(group.holder) if group.holder is not None else None
        if record is None:
            state.capacity.pause_reserved(group.pool, state.now_ms + _RESERVED_PAUSE_MS)
            state.lose_group(group)
            return
        if state.task_ledger.count_refusal(record) >= state.settings.start_tries:
            end(self.state, record, TaskState.FAILED, Reason.START_FAILED, event.detail)
        else:
            requeue(self.state, record, Reason.START_FAILED, event.detail)
        lose_group(self.state, event.group)

    def _group_gone(self, event: happened.GroupGone) -> None:
        lose_group(self.state, event.group)

    # -- capacity without an agent -------------------------------------------------------------------------------------

    def _slot_asked(self, event: happened.SlotAsked) -> None:
        state, pool = self.state, self.state.pools.pools.get(event.pool)
        refused: tuple[Reason | None, str] = (None, "")
        if pool is None or pool.is_closing:
            refused = Reason.POOL_UNKNOWN, f"there is no pool {event.pool}"
        elif held := state.pools.held_by(_slot(event.slot)):
            same = held == event.resources and state.pools.pools_of(_slot(event.slot)) == (event.pool,)
            refused = (None, "it is already held") if same else (Reason.ID_IN_USE, f"{event.slot} already holds {held}")
        elif not event.resources <= pool.capacity:
            refused = Reason.POOL_TOO_SMALL, f"pool {event.pool} has {pool.capacity} in total"
        elif not pool.fits(event.resources):
            refused = Reason.POOL_BUSY, f"pool {event.pool} has {pool.free} free"
        else:
            state.capacity.reserve_slot(event.pool, _slot(event.slot), event.resources)
        state.order(AnswerSlot(version=state.version, slot=event.slot, refused=refused[0], detail=refused[1]))

    def _slot_committed(self, event: happened.SlotCommitted) -> None:
        state = self.state
        held = next((name for name, pool in state.pools.pools.items() if _slot(event.slot) in pool.reservations), None)
        if held is not None:
            state.capacity.commit_slot(held, _slot(event.slot))
        known = held is not None or bool(state.pools.held_by(_slot(event.slot)))
        refused = (None, "") if known else (Reason.SLOT_UNKNOWN, f"nothing is reserved under {event.slot}")
        state.order(AnswerSlot(version=state.version, slot=event.slot, refused=refused[0], detail=refused[1]))

    def _slot_released(self, event: happened.SlotReleased) -> None:
        state, is_held = self.state, self.state.capacity.release_slot(_slot(event.slot))
        if is_held:
            state.room_came()
        refused = (None, "") if is_held else (Reason.SLOT_UNKNOWN, f"nothing is held under {event.slot}")
        state.order(AnswerSlot(version=state.version, slot=event.slot, refused=refused[0], detail=refused[1]))

    def _placements_reserved(self, event: happened.PlacementsReserved) -> None:
        if self.state.job_reservations.replace(event):
            self.state.room_came()

    def _ticked(self, event: happened.Ticked) -> None:
        state = self.state
        state.evictions.forget_old(event.at_ms)
        expire_groups(state)
        state.job_reservations.end_overdue(state.now_ms)
        for preemptor in state.evictions.overdue(event.at_ms - state.settings.reservation_timeout_ms):
            state.end_eviction(preemptor)
            state.release_group_of(preemptor)
        state.room_came()  # Tasks that were too young to be preempted may be old enough now.

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
        happened.PlacementsReserved: _placements_reserved,
        happened.Ticked: _ticked,
    }


def _slot(name: str) -> str:
    """Return the ledger name of a slot. The prefix separates users' slot names from task ids."""
    return f"slot:{name}"
