"""Ends of tasks and placement groups, and their effects on others. Each function leaves all ledgers consistent."""

from __future__ import annotations

from mesh.core.ids import AgentId, GroupId, TaskId
from mesh.core.reasons import Reason
from mesh.core.task_spec import AT_WORK, TaskState
from mesh.placement.groups import GroupState
from mesh.tasks import events as happened
from mesh.tasks.admitting import continue_eviction, order_end
from mesh.tasks.evicting import end_eviction_for, order_end_of_stray, release_victim
from mesh.tasks.placing import is_kept, order_start
from mesh.tasks.records import TaskRecord
from mesh.tasks.state import MeshState

QUEUED = frozenset({TaskState.PLACEABLE, TaskState.WAITING, TaskState.WAITING_FOR_ACTOR_CREATION, TaskState.INFEASIBLE})


def wait_for_agent(state: MeshState, record: TaskRecord) -> None:
    """Make a call wait until its agent is up."""
    request = record.request
    assert request.agent is not None  # noqa: S101  a call names its agent
    if request.task not in state.tasks:
        state.task_ledger.enter(record, TaskState.WAITING_FOR_ACTOR_CREATION)
    state.relations.await_agent(request.agent, request.task)
    if request.agent in state.relations.agents:
        agent_came(state, request.agent)


def queue(state: MeshState, record: TaskRecord, version: int | None = None) -> None:
    """Queue the task and register it with its gang. A node chosen on an outdated state version is dropped."""
    request = record.request
    if version is not None and request.node is not None and version < state.node_version(request.node):
        state.task_ledger.drop_node(record)
        state.explain(record, Reason.STALE_PLACEMENT, f"node {request.node} has changed since version {version}")
    state.task_ledger.enqueue(record)
    if request.gang:
        state.relations.join_gang(request.gang, request.task)


def agent_came(state: MeshState, agent: AgentId) -> None:
    """Start the calls that waited for the agent."""
    owner = state.records[state.relations.agents[agent]]
    for task in state.relations.take_calls(agent):
        record = state.records.get(task)
        if record is None:
            continue
        state.task_ledger.begin_call(record, agent, owner.node)
        order_start(state, record, Reason.PLACED)


def cancel(state: MeshState, record: TaskRecord, event: happened.TaskCancelled, reason: Reason) -> None:
    """Cancel the task in any state."""
    state.task_ledger.note_cancelled(record, destroy_group=event.destroy_group)
    where = state.tasks.state_of(record.request.task)
    if where in QUEUED:
        if not event.requeue:
            end(state, record, TaskState.CANCELLED, reason)
    elif where is TaskState.READY or not record.request.has_agent:
        if event.requeue:
            requeue(state, record, reason, "")
        else:
            end(state, record, TaskState.CANCELLED, reason)
    else:
        state.order_stop(record, reason, keep_state=event.keep_state, requeue=event.requeue)


def stopped(state: MeshState, record: TaskRecord) -> None:
    """Queue a stopped task again, or end it."""
    if not record.requeue:
        end(state, record, TaskState.CANCELLED, record.stopping or Reason.CANCELLED_BY_USER)
        return
    preemptor = let_go(state, record)
    state.task_ledger.requeue_stopped(record)
    state.explain(record, Reason.PREEMPTED, f"it was preempted for {preemptor}" if preemptor else "")
    continue_eviction(state, preemptor)


def lose(state: MeshState, record: TaskRecord, detail: str) -> None:
    """Handle the loss of the task's agent or node: end a task that was being stopped, else retry it within its limits."""
    where = state.tasks.state_of(record.request.task)
    if where in QUEUED:
        return
    if record.stopping is not None:
        stopped(state, record)
    elif where is TaskState.READY or where is TaskState.SWAP:
        state.task_ledger.count_refusal(record)
        requeue(state, record, Reason.START_FAILED, detail)
    elif record.request.max_restarts < 0 or record.restarts < record.request.max_restarts:
        state.task_ledger.count_restart(record)
        requeue(state, record, Reason.AGENT_LOST, detail)
    else:
        end(state, record, TaskState.FAILED, Reason.AGENT_LOST, detail)


def lose_group(state: MeshState, group_id: GroupId) -> None:
    """Handle the loss or removal of a placement group, with everything on it."""
    group = state.groups.records.get(group_id)
    if group is None:
        return
    holder = state.records.get(group.holder) if group.state in (GroupState.TAKEN, GroupState.CREATING) and group.holder else None
    state.lose_group(group)
    preemptor = state.evictions.group_gone(group)
    if holder is not None:
        _end_what_stands(state, holder)
        lose(state, holder, f"placement group {group.group} is gone")
    continue_eviction(state, preemptor)


def _end_what_stands(state: MeshState, holder: TaskRecord) -> None:
    """Stop an agent whose group lost another bundle: the agent would keep running on resources that count as free."""
    is_out = state.tasks.state_of(holder.request.task) in AT_WORK | {TaskState.SWAP} and holder.request.has_agent
    if is_out and holder.node in state.table and holder.stopping is None:
        order_end_of_stray(state, holder.request.task, holder.attempt, Reason.AGENT_LOST)


def current(state: MeshState, task: TaskId, attempt: int) -> TaskRecord | None:
    """Return the task's record if this is its current attempt; None for a late answer about an earlier one."""
    record = state.records.get(task)
    return record if record is not None and record.attempt == attempt else None


def let_go(state: MeshState, record: TaskRecord) -> TaskId | None:
    """Free what the task holds. Return the preemptor if the task was a victim."""
    group, preemptor = record.group, release_victim(state, record)
    agent = state.task_ledger.drop_agent(record)
    kept = state.groups.records.get(group) if group is not None else None
    if kept is not None and kept.state is GroupState.IDLE and (record.destroy_group or not is_kept(state, kept)):
        state.remove_group(kept, Reason.GROUP_DISCARDED)
    if agent is not None and record.request.agent is None:
        _lose_calls(state, agent)
    return preemptor


def _lose_calls(state: MeshState, agent: AgentId) -> None:
    """Fail the calls in progress on a lost agent."""
    for task in state.tasks.of_agent(agent):
        call = state.records.get(task)
        if call is not None and state.tasks.state_of(task) in AT_WORK | {TaskState.SWAP}:
            end(state, call, TaskState.FAILED, Reason.AGENT_LOST, f"agent {agent} is gone")


def requeue(state: MeshState, record: TaskRecord, reason: Reason, detail: str) -> None:
    """Release everything and queue the task at its old position."""
    preemptor = let_go(state, record)
    state.task_ledger.requeue(record)
    state.explain(record, reason, detail)
    continue_eviction(state, preemptor)


def end(state: MeshState, record: TaskRecord, to: TaskState, reason: Reason, detail: str = "") -> None:
    """End the task: free everything, report it, and apply the effects on others."""
    task = record.request.task
    state.task_ledger.dequeue(task)
    end_eviction_for(state, record)
    state.release_group_of(task)
    preemptor = let_go(state, record)
    state.forget(record, to)
    order_end(state, task, reason, detail)
    _follow(state, record, to, preemptor)


def _follow(state: MeshState, record: TaskRecord, to: TaskState, preemptor: TaskId | None) -> None:
    """Apply the effects of an end. A queue instead of recursion: a chain of ends may be longer than Python's stack."""
    pending = state.task_ledger.pending_ends
    state.task_ledger.add_pending_end((record, to, preemptor))
    if len(pending) > 1:
        return  # The loop further up the call stack processes it.
    while pending:
        ended, how, preempted_for = pending[0]
        end_readers(state, ended.request.task, how)
        end_gang(state, ended, how)
        continue_eviction(state, preempted_for)
        state.task_ledger.finish_end()


def end_readers(state: MeshState, task: TaskId, to: TaskState) -> None:
    """Queue the tasks that depended on this one, or fail them if it did not succeed."""
    for reader in state.relations.take_readers(task):
        record = state.records.get(reader)
        if record is None or state.tasks.state_of(reader) is not TaskState.WAITING:
            continue
        state.task_ledger.meet_need(record, task)
        if to is not TaskState.SUCCEEDED:
            end(state, record, TaskState.FAILED, Reason.UPSTREAM_FAILED, f"{task} is {to.value}")
        elif not record.needs:
            state.task_ledger.inputs_came(record)
            if record.request.agent is None:
                queue(state, record)
            else:
                wait_for_agent(state, record)


def end_gang(state: MeshState, record: TaskRecord, to: TaskState) -> None:
    """Cancel the rest of a gang when a member failed."""
    gang = record.request.gang
    if not gang:
        return
    others = state.relations.leave_gang(gang, record.request.task)
    if to is TaskState.FAILED:
        for task in others:
            other = state.records.get(task)
            if other is not None:
                cancel(state, other, happened.TaskCancelled(at_ms=state.now_ms, task=task), Reason.GANG_BROKEN)
