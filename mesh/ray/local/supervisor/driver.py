"""Carries the scheduler's decisions out on Ray, and reports the results as events.

Each decision becomes a task of the event loop, so that none waits for another, with one exception: decisions about one
placement group, or about one task, run in the order in which they were made. The driver decides nothing. The scheduler
reserves quota and room; the driver creates the group and the process. Any failure is reported as an event, and the scheduler
then releases the reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from mesh.core.ids import GroupId, NodeName, TaskId
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.ray.local.agent_messages import Ended, Failed, HostCommand, Hosted, StopCommand, Stopped
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.store.task_payloads import TaskPayloads
from mesh.ray.local.supervisor.agent_assignments import AgentAssignments
from mesh.ray.local.supervisor.agent_client import REACH_AGAIN_S, AgentClient, AgentProcess
from mesh.ray.local.supervisor.autoscaling import Autoscaling
from mesh.ray.local.supervisor.event_retry_queue import EventRetryQueue
from mesh.ray.local.supervisor.idle_processes import IdleProcesses
from mesh.ray.local.supervisor.keyed_locks import KeyedLocks
from mesh.ray.local.supervisor.placement_group_client import PlacementGroupClient
from mesh.ray.local.supervisor.standbys import Standbys
from mesh.tasks.decisions import CreateGroup, Decision, RemoveGroup, RequestCapacity, StartTask, StopTask
from mesh.tasks.events import (
    AgentLost,
    Event,
    GroupFailed,
    GroupGone,
    GroupReady,
    TaskEnded,
    TaskRefused,
    TaskStarted,
    TaskStopped,
)

log = structlog.get_logger(__name__)

_UNANSWERED = "its agent did not answer the command to stop and was killed"
#: One attempt of a task.
_Run = tuple[TaskId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverSettings:
    """Time limits, and the number of standbys."""

    group_s_max: float = 30.0  #: From the order until Ray has created a placement group.
    start_s_max: float = 120.0  #: From the order until an agent has built its object.
    standbys_per_node: int = 1
    #: Time that a process without a placement group waits for the next task of its owner, with its Ray resources; 0: it never waits.
    idle_ms_max: int = 2_000
    tasks_per_process_max: int = 1_000  #: Number of tasks that a process serves, one after the other, before it ends.
    preserve_ms_max: int = 5_000  #: Time limit of a user's preserver.
    margin_s: float = 5.0  #: Time beyond the limits of a stop after which the process is killed.


class Driver:
    """Carries out decisions of one mesh; see the module for the order.

    Args:
        send: Passes result events to the scheduler, at once and on this thread. When it raises, the events are sent again later,
            in order, because Ray does not report them twice.
        now_ms: The mesh's clock.
        free_on: Returns the room of a node that is free by the scheduler's count.
    """

    def __init__(
        self,
        *,
        agents: AgentClient,
        groups: PlacementGroupClient,
        standbys: Standbys,
        payloads: TaskPayloads,
        store: PayloadStore,
        autoscaling: Autoscaling,
        settings: DriverSettings,
        send: Callable[..., object],
        now_ms: Callable[[], int],
        free_on: Callable[[NodeName], ResourceSet],
    ) -> None:
        self._agents = agents
        self._groups = groups
        self._standbys = standbys
        self._payloads = payloads
        self._autoscaling = autoscaling
        self._settings = settings
        self.event_queue = EventRetryQueue(send)  #: Results of decisions, and changes that the watch has seen, in one order.
        self._now_ms = now_ms
        self._free_on = free_on
        self._locks = KeyedLocks()  #: One lock per placement group, or per task without one.
        self._starting: dict[_Run, asyncio.Task[None]] = {}
        self._unwanted: set[_Run] = set()  #: Starts that were cancelled while in progress.
        self.look_at_nodes: Callable[[], Coroutine[Any, Any, None]] = _see_nothing  #: Reports dead nodes; set by the cluster watch.
        self._assignments = AgentAssignments(
            agents, groups, standbys, IdleProcesses(settings.idle_ms_max, now_ms), store, settings.tasks_per_process_max
        )
        self.hosts = self._assignments.hosts  #: Processes by the task that they have.
        self.on_node: dict[
            GroupId, tuple[tuple[NodeName, ResourceSet], ...]
        ] = {}  #: Nodes and resources of existing groups, one entry per bundle.
        self._carriers: dict[type[Decision], Callable[[Any], Coroutine[Any, Any, None]]] = {
            CreateGroup: self._create_group,
            RemoveGroup: self._remove_group,
            StartTask: self._start,
            StopTask: self._stop,
            RequestCapacity: self._request,
        }

    def carry_out(self, decision: Decision) -> None:
        """Start to carry the decision out. Does not wait."""
        carrier = self._carriers.get(type(decision))
        if carrier is None:
            return  # An explanation or an end, which is for people only.
        if isinstance(decision, StartTask):
            self._end_earlier(decision)
        started = self._locks.spawn(carrier(decision), f"{type(decision).__name__}")
        if isinstance(decision, StartTask):
            self._starting[decision.task, decision.attempt] = started
            owner = self._payloads.owner(decision.task) if decision.group is None else None
            if owner is not None:  # Now: another decision of this batch may end idle processes for their room.
                self._assignments.give_idle(decision, owner)

    def end_idle(self) -> None:
        """End processes that have been idle for too long, or whose room is needed."""
        self._assignments.end_expired()
        for node in self._assignments.idle.nodes():
            self._assignments.make_room(node, self._free_on(node))

    def taken(self, node: NodeName) -> ResourceSet:
        """Return this mesh's resources on a node in Ray: existing groups, and processes outside of groups."""
        amounts = [amount for bundles in self.on_node.values() for where, amount in bundles if where == node]
        amounts += [process.holds for process in self._agents.processes.values() if process.node == node and process.group is None]
        return sum(amounts, start=ResourceSet())

    # -- placement groups ----------------------------------------------------------------------------------------------

    async def _create_group(self, order: CreateGroup) -> None:
        async with self._locks.lock(order.group):
            for node in set(order.nodes):
                self._assignments.make_room(node, self._free_on(node))
            made = await self._groups.create(order.group, order.shape, order.nodes, self._settings.group_s_max)
            if isinstance(made, str):
                self.event_queue.send(GroupFailed(at_ms=self._now_ms(), group=order.group, detail=made))
                return
            self.stands(order, made)
            self.event_queue.send(GroupReady(at_ms=self._now_ms(), group=order.group, nodes=made))
            if order.warm:
                self._assignments.warm(order)

    def stands(self, order: CreateGroup, nodes: tuple[NodeName, ...]) -> None:
        """Record that the group exists."""
        self.on_node[order.group] = tuple(zip(nodes, order.shape.bundles, strict=True))

    async def _remove_group(self, order: RemoveGroup) -> None:
        async with self._locks.lock(order.group):
            await self._take_down(order.group)
        self.event_queue.send(GroupGone(at_ms=self._now_ms(), group=order.group))

    async def _take_down(self, group: GroupId) -> None:
        self._assignments.leave(group)
        await self._groups.remove(group)
        self.on_node.pop(group, None)

    def group_vanished(self, group: GroupId) -> None:
        """Handle a group that was removed by others or died with its node: its tasks are lost, and its starts are refused."""
        at_ms = self._now_ms()
        refused: list[Event] = []
        for process in self._assignments.in_group(group):
            task = process.task
            if task is None or (task, process.attempt) not in self._starting or self.hosts.get(task) is not process:
                continue
            # Ray never starts such a process, and its start would keep the group's lock until the timeout.
            words = f"placement group {group} is gone"
            refused.append(TaskRefused(at_ms=at_ms, task=task, attempt=process.attempt, reason=Reason.WORKER_LOST, detail=words))
            self._unwanted.add((task, process.attempt))
            self._assignments.end(process)
        self._locks.spawn(self._clear_away(group, refused), f"clear {group} away")

    async def _clear_away(self, group: GroupId, events: list[Event]) -> None:
        async with self._locks.lock(group):
            victims = [process for process in self._assignments.in_group(group) if process.task is not None]
            await self._take_down(group)
        lost: list[Event] = [self._lost(process, "its placement group is gone") for process in victims]
        self.event_queue.send(*events, *lost, GroupGone(at_ms=self._now_ms(), group=group))

    # -- starting ------------------------------------------------------------------------------------------------------

    def _end_earlier(self, order: StartTask) -> None:
        """Kill the processes of earlier attempts, which the scheduler has given up, for example when their node disappeared."""
        for task, attempt in [run for run in self._starting if run[0] == order.task and run[1] < order.attempt]:
            self._unwanted.add((task, attempt))
            self._assignments.end_attempt(task, attempt)
        process = self.hosts.get(order.task)
        if process is not None and process.attempt < order.attempt:
            self._assignments.end_attempt(order.task, process.attempt)

    async def _start(self, order: StartTask) -> None:
        run = order.task, order.attempt
        try:
            async with self._locks.lock(order.group or order.task):
                if run not in self._unwanted:
                    await self._host(order)
        finally:
            self._unwanted.discard(run)
            if self._starting.get(run) is asyncio.current_task():
                del self._starting[run]

    async def _host(self, order: StartTask) -> None:
        if self._payloads.is_call(order.task):  # The agent is up; the caller's handle makes the call itself.
            self.event_queue.send(TaskStarted(at_ms=self._now_ms(), task=order.task, attempt=order.attempt, agent=order.agent))
            return
        host_command = self._payloads.host_command(order)
        if host_command is None:
            self._refuse(order, Reason.CODE_UNAVAILABLE, "the code of the task is lost; submit the task again", final=True)
            return
        tenant = self._payloads.tenant(order.task)
        process = self.hosts.get(order.task)  # An earlier supervisor may have chosen it and sent the order.
        if process is None or process.attempt != order.attempt or not process.is_wanted:
            if order.group is None:
                self._assignments.make_room(order.node, self._free_on(order.node))
            process = self._assignments.process_for(order, tenant, is_new=self._payloads.has_own_process(order.task))
            if process is None:
                self._refuse(order, Reason.WORKER_LOST, f"placement group {order.group} is gone")
                return
            self._assignments.give(process, order.task, order.attempt, tenant)
        await self._host_on(process, order, host_command)

    async def _host_on(self, process: AgentProcess, order: StartTask, host_command: HostCommand) -> None:
        try:
            answer = await asyncio.wait_for(process.handle.host.remote(host_command), self._settings.start_s_max)
        except (RayError, asyncio.TimeoutError) as error:
            self._assignments.end(process)
            await self._look()  # A task has few attempts and must not spend them all on a dead node.
            if (order.task, order.attempt) not in self._unwanted:
                self._refuse(order, Reason.WORKER_LOST, f"the agent did not start: {_words(error)}")
            return
        if (order.task, order.attempt) in self._unwanted:
            return  # The canceller has reported the stop, and ends the process.
        if isinstance(answer, Hosted):
            self._payloads.keep_hosted(answer)
            at_ms = self._now_ms()
            self.event_queue.send(
                TaskStarted(at_ms=at_ms, task=order.task, attempt=order.attempt, agent=order.agent, unrestored=answer.unrestored)
            )
            self.run_entry(order.task, process)
            return
        self._assignments.settle(process, may_stay=self._may_stay(process) and answer.reusable)
        self._refuse_as(order, answer)

    def run_entry(self, task: TaskId, process: AgentProcess) -> None:
        """Call the entry method of a task that is up, if it has one. Does not wait."""
        if self._payloads.has_entry(task):
            self._locks.spawn(self._run(process), f"run {task}")

    async def _run(self, process: AgentProcess) -> None:
        task, attempt = process.task, process.attempt
        while task is not None and self.hosts.get(task) is process and process.attempt == attempt:
            ended_ref, value_ref = process.handle.run.remote(task, attempt)
            try:
                ended = await ended_ref
            except RayTaskError as error:  # The call itself failed: the process lives, and nothing else would report the task.
                if self.hosts.get(task) is process and process.attempt == attempt:
                    lost = self._lost(process, f"the agent's call failed: {error.cause!r}")
                    self._assignments.end(process)
                    await self._report_lost(lost, process.group)
                return
            except ActorUnavailableError:  # The call may have arrived or not; the agent runs it once, and answers again.
                await asyncio.sleep(REACH_AGAIN_S)
                continue
            except RayError:
                return  # The process has died; its watch reports that.
            self.ended(ended, None if ended.result is not None or ended.error else value_ref)
            return

    def ended(self, ended: Ended, value: Any | None = None) -> None:
        """Record the end of the entry method, or of a task without one. Repeated calls do nothing."""
        process = self.hosts.get(ended.task)
        if process is None or process.attempt != ended.attempt or ended.stopped or (ended.task, ended.attempt) in self._unwanted:
            return
        self._payloads.keep_ended(ended, value)
        # Before the event, so that the process waits, or gets the group's lock, before the start of the next task.
        if ended.spoiled is None:
            self._assignments.forget(process)
            is_own = self._payloads.has_own_process(ended.task)  # Its payload is gone after the event.
            self._locks.spawn(self._let_go(process, ended.task, ended.attempt, is_own=is_own), f"let {ended.task} go")
        else:
            may_stay = not ended.spoiled and self._may_stay(process)
            self._assignments.settle(process, may_stay=may_stay, owner=self._payloads.owner(ended.task))
            if ended.spoiled:
                log.info("the process of a task is not reused", task=ended.task, why=ended.spoiled)
        self.event_queue.send(TaskEnded(at_ms=self._now_ms(), task=ended.task, attempt=ended.attempt, error=ended.error))

    async def _let_go(self, process: AgentProcess, task: TaskId, attempt: int, *, is_own: bool) -> None:
        async with self._locks.lock(process.group or task):
            reusable = False
            if process.group is not None and process.is_wanted:
                stopped = await self._ask_to_stop(process, StopCommand(task=task, attempt=attempt, keep_state=False, grace_ms=0))
                reusable = stopped is not None and stopped.reusable
            self._assignments.settle(process, may_stay=self._may_stay(process) and reusable and not is_own)

    # -- stopping ------------------------------------------------------------------------------------------------------

    async def _stop(self, order: StopTask) -> None:
        starting = self._starting.get((order.task, order.attempt))
        if starting is not None:
            await self._call_off(order, starting)
            return
        process = self.hosts.get(order.task)
        if process is None or process.attempt != order.attempt:  # This order does not concern another attempt.
            self._assignments.end_attempt(order.task, order.attempt)
            self.event_queue.send(TaskStopped(at_ms=self._now_ms(), task=order.task, attempt=order.attempt))
            return
        async with self._locks.lock(process.group or order.task):
            await self._stop_on(process, order)

    async def _stop_on(self, process: AgentProcess, order: StopTask) -> None:
        stopped = await self._ask_to_stop(
            process,
            StopCommand(
                task=order.task,
                attempt=order.attempt,
                keep_state=order.keep_state,
                grace_ms=order.grace_ms,
                preserve_ms_max=self._settings.preserve_ms_max,
                reason=order.reason,
                by=order.by,
            ),
        )
        if self.hosts.get(order.task) is not process:
            return  # The task ended or died meanwhile, and that was reported.
        if stopped is not None and stopped.ended is not None and stopped.ended.spoiled is not None:
            self.ended(stopped.ended)  # It had ended by itself, and the answer to `run` is still on its way.
            return
        self._assignments.forget(process)
        unkept = self._payloads.keep_stopped(stopped) if stopped is not None else _UNANSWERED if order.keep_state else ""
        self._assignments.settle(process, may_stay=self._may_stay(process) and stopped is not None and stopped.reusable)
        lost_ms = stopped.lost_ms if stopped is not None else 0
        at_ms = self._now_ms()
        self.event_queue.send(TaskStopped(at_ms=at_ms, task=order.task, attempt=order.attempt, lost_ms=lost_ms, unkept=unkept))

    async def _call_off(self, order: StopTask, starting: asyncio.Task[None]) -> None:
        self._unwanted.add((order.task, order.attempt))
        self._assignments.end_attempt(order.task, order.attempt)
        await asyncio.wait([starting])
        self.event_queue.send(TaskStopped(at_ms=self._now_ms(), task=order.task, attempt=order.attempt))

    async def _ask_to_stop(self, process: AgentProcess, command: StopCommand) -> Stopped | None:
        seconds = (command.grace_ms + command.preserve_ms_max) / 1000 + self._settings.margin_s
        try:
            stopped: Stopped = await asyncio.wait_for(process.handle.stop.remote(command), seconds)
        except (RayError, asyncio.TimeoutError) as error:
            log.warning("an agent did not answer the command to stop and is killed", task=command.task, error=_words(error))
            return None
        return stopped

    # -- ends ----------------------------------------------------------------------------------------------------------

    def process_ended(self, process: AgentProcess, words: str) -> None:
        """Handle the death of a wanted process."""
        if self._standbys.lost(process):
            return  # The next check of the nodes starts a new one: a process that dies at once must not restart in a tight loop.
        self._assignments.waiting_ended(process)
        task = process.task
        if task is None or self.hosts.get(task) is not process or (task, process.attempt) in self._starting:
            return  # A start in progress notices it by itself.
        event = self._lost(process, words)
        self._locks.spawn(self._report_lost(event, process.group), f"loss of {task}")

    async def _report_lost(self, lost: AgentLost, group: GroupId | None) -> None:
        """Report the loss of a task. Ray also ends what runs on a dead node or in a removed group: report such a loss first, or
        together, so that no task is placed there again.
        """
        await self._look()
        if group is None or await self._groups.stands(group):
            self.event_queue.send(lost)
        else:
            await self._clear_away(group, [lost])

    async def _look(self) -> None:
        try:
            await self.look_at_nodes()
        except Exception:
            log.exception("the check of the nodes failed")

    def _may_stay(self, process: AgentProcess) -> bool:
        is_own = process.task is not None and self._payloads.has_own_process(process.task)
        return not is_own and (process.group is None or process.group in self.on_node)

    def _lost(self, process: AgentProcess, words: str) -> AgentLost:
        self._assignments.forget(process)  # Only this process: the next attempt may be in another one by now.
        return AgentLost(at_ms=self._now_ms(), task=process.task or TaskId(""), attempt=process.attempt, detail=words)

    def _refuse(self, order: StartTask, reason: Reason, detail: str, *, final: bool = False) -> None:
        at_ms = self._now_ms()
        self.event_queue.send(TaskRefused(at_ms=at_ms, task=order.task, attempt=order.attempt, reason=reason, detail=detail, final=final))

    def _refuse_as(self, order: StartTask, failed: Failed) -> None:
        ended = Ended(
            task=order.task, attempt=order.attempt, error=failed.detail or failed.reason, traceback=failed.traceback, pickled=failed.pickled
        )
        if failed.is_final:
            self._payloads.keep_ended(ended, None)
        self._refuse(order, failed.reason, failed.traceback or failed.detail, final=failed.is_final)

    async def _request(self, order: RequestCapacity) -> None:
        await asyncio.to_thread(self._autoscaling.ask, order.demands)


async def _see_nothing() -> None:
    return


def _words(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__
