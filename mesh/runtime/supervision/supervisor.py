"""The supervisor: one detached actor per mesh, which has the one scheduler and everything that carries out what it decides.

Clients talk to it with values and get values. Every method that changes something may be called again with the same arguments:
a client whose call was under way when the supervisor's process died sends it to the next one. Nothing here blocks the event
loop, so a call that waits (for a start, for a placement group) holds nobody else up.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
import structlog

from mesh.actors.members import Member
from mesh.errors import MeshError, RuntimeDoorError
from mesh.ids import AgentId, JobId, PoolName, TaskId
from mesh.jobs.decisions import ReportJob
from mesh.jobs.spec import JobSpec
from mesh.jobs.views import JobView
from mesh.plugins import PluginFenced
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet
from mesh.runtime.supervision import views
from mesh.runtime.supervision.agent_door import AgentDoor, AgentProcess
from mesh.runtime.supervision.agent_orders import AgentStatus, Ended, HostOrder
from mesh.runtime.supervision.answers import (
    AgentSeen,
    Audit,
    CandidateStatus,
    GroupGiven,
    GroupStatus,
    MeshNews,
    MeshStatus,
    NewsKind,
    NodeStatus,
    PoolStatus,
    Refused,
    SlotReserved,
    TaskStatus,
)
from mesh.runtime.supervision.archive import Archive
from mesh.runtime.supervision.auditing import audit
from mesh.runtime.supervision.autoscaling import Autoscaling
from mesh.runtime.supervision.control_loop import ClusterWatch, ControlLoop, MeshClock
from mesh.runtime.supervision.driver import Driver, DriverSettings
from mesh.runtime.supervision.group_door import GroupDoor
from mesh.runtime.supervision.job_desk import JobDesk, JobSettings
from mesh.runtime.supervision.journal_file import LINES_MAX
from mesh.runtime.supervision.observing import Observer, ObserverSettings
from mesh.runtime.supervision.order_book import TaskRow
from mesh.runtime.supervision.plugin_host import PluginHost
from mesh.runtime.supervision.ray_names import group_name
from mesh.runtime.supervision.recovery import Recovery
from mesh.runtime.supervision.snapshot_store import FileSnapshots
from mesh.runtime.supervision.standbys import Standbys
from mesh.runtime.supervision.supervision_errors import JobExists, PoolUnknown, TaskExists, TaskNotRunning, TaskUnknown
from mesh.runtime.supervision.work_store import WorkStore
from mesh.runtime.supervision.works import JobWork, TaskWorks
from mesh.saved_state import Snapshot
from mesh.scheduling.decisions import AnswerSlot, Decision, EndTask
from mesh.scheduling.events import (
    CheckpointKept,
    Event,
    LabelConfigured,
    PoolConfigured,
    PoolDeleted,
    SettingsChanged,
    SlotAsked,
    SlotCommitted,
    SlotReleased,
    TaskBlocked,
    TaskCancelled,
    TaskSubmitted,
)
from mesh.scheduling.figures import Figures
from mesh.scheduling.settings import SchedulerSettings
from mesh.scheduling.tasks import AT_WORK, TERMINAL, TaskRequest, TaskState

log = structlog.get_logger(__name__)

#: A wait is answered after this time at the latest; the client asks again.
WAIT_S_MAX = 30.0
#: Calls that may wait at the same time.
CALLS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """How a mesh is supervised."""

    mesh: str
    namespace: str
    state_dir: str
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    driver: DriverSettings = field(default_factory=DriverSettings)
    node_labels: Mapping[str, str] = field(default_factory=dict)  #: Of the nodes that are this mesh's; empty: all.
    observing: ObserverSettings = field(default_factory=ObserverSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    plugins: Mapping[str, str] = field(default_factory=dict)  #: By name: `module:attribute`, or a WebAssembly file.
    journal_lines_max: int = LINES_MAX  #: After so many lines a snapshot takes the journal's place.
    seed: int = 0


class MeshSupervisor:
    """See the module. All methods are coroutines on one event loop."""

    def __init__(self, options: SupervisorOptions) -> None:
        self._options = options
        self._is_stopped = False
        loop = asyncio.get_running_loop()
        self._is_first = not Path(options.state_dir).exists()
        try:
            self._assemble()
        except MeshError as refused:  # Told to whoever asks; an actor whose constructor raises is only known to have died.
            log.exception("the mesh cannot be started")
            self._leave_nothing()
            self._ready = loop.create_task(_refuse(refused), name="refuse")
        else:
            self._ready = loop.create_task(self._begin(), name="begin")

    def _assemble(self) -> None:
        options = self._options
        folder = Path(options.state_dir)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as refused:
            raise RuntimeDoorError(f"state_dir {folder} cannot be used: {refused}; name a folder that the head node can write") from refused
        plugins = PluginHost(options.plugins)
        archive = Archive(folder / "journal", lines_max=options.journal_lines_max, plugins=plugins)
        self._incarnation = _count_start(folder)
        self._clock = MeshClock()
        self._loop = ControlLoop(archive, lambda: plugins.scheduler(options.settings, options.seed), self._clock, plugins)
        self._clock.not_before(self._loop.scheduler.state.now_ms)
        self._store = WorkStore(folder / "tasks")
        self._works = self._loop.works = TaskWorks(self._store, FileSnapshots(folder / "kept"), self._known)
        self._plugins = plugins
        self._observer = _observer(options, self._loop, self._incarnation, self._agents_at_work)
        self._jobs = JobDesk(self._loop, self._works, plugins.catalogue.policy, options.jobs, options.seed)
        self._agents = AgentDoor(options.mesh, options.namespace, self._incarnation, self._process_ended)
        self._groups = GroupDoor(options.mesh)
        self._standbys = Standbys(self._agents, options.driver.standbys_per_node)
        self._driver = Driver(
            agents=self._agents,
            groups=self._groups,
            standbys=self._standbys,
            works=self._works,
            store=self._store,
            autoscaling=Autoscaling(),
            settings=options.driver,
            tell=self._loop.tell,
            now_ms=self._clock.now_ms,
        )
        self._watch = ClusterWatch(self._loop, self._driver, self._groups, self._standbys, dict(options.node_labels))
        self._reports: dict[TaskId, AgentStatus] = {}  #: Of tasks that are not over.
        self._listen()

    def _listen(self) -> None:
        def fenced(told: PluginFenced) -> None:
            log.warning("a plugin was fenced off", plugin=told.plugin, hook=told.hook, why=told.why)
            words = f"{told.hook}() {told.why}; it is not asked any more, the default answers in its place"
            self._observer.note(self._clock.now_ms(), NewsKind.PLUGIN_FENCED, told.plugin, words)

        def reported(told: ReportJob) -> None:
            why = f", {told.reason.value}: {told.detail}" if told.reason is not None else ""
            words = f"{told.stage.value}, {told.schedule_state.value}{why}"
            self._observer.note(self._clock.now_ms(), NewsKind.JOB, told.job, words)

        def over(_events: Sequence[Event], decisions: Sequence[Decision], _took_ms: float) -> None:
            for decision in decisions:
                if isinstance(decision, EndTask):
                    self._reports.pop(decision.task, None)

        self._loop.on_fenced, self._jobs.on_report = fenced, reported
        self._loop.listeners += [self._observer.fold, self._jobs.hear, over]

    def _leave_nothing(self) -> None:
        """A mesh that never was leaves no folder behind."""
        if self._is_first:
            shutil.rmtree(self._options.state_dir, ignore_errors=True)

    async def _begin(self) -> None:
        try:
            await self._recover()
        except MeshError:
            self._leave_nothing()
            raise

    async def _recover(self) -> None:
        recovery = Recovery(self._loop, self._driver, self._agents, self._groups, self._store, self._watch.nodes)
        self._loop.driver = await recovery.recover()
        await self._watch.look()
        self._jobs.recover()
        loop = asyncio.get_running_loop()
        self._background = (
            loop.create_task(self._watch.run(), name="watch"),
            loop.create_task(self._observe(), name="observe"),
            loop.create_task(self._jobs.run(), name="jobs"),
        )

    async def _observe(self) -> None:
        """Every metrics period the figures are looked at, and settings moved when targets are missed for long."""
        while True:
            await asyncio.sleep(self._options.observing.period_ms / 1000)
            try:
                self._observer.look(self._state, self._clock.now_ms())
                self._works.sweep(self._clock.now_ms())
            except Exception:
                log.exception("the figures could not be looked at")

    # -- the mesh ------------------------------------------------------------------------------------------------------

    async def status(self) -> MeshStatus:
        """Answers when the supervisor is ready to serve."""
        await self._ready
        return MeshStatus(
            mesh=self._options.mesh,
            namespace=self._options.namespace,
            state_dir=self._options.state_dir,
            pid=os.getpid(),
            incarnation=self._incarnation,
            version=self._state.version,
            metrics_port=self._observer.metrics_port,
            tasks=dict(Counter(row.state.value for row in self._loop.book.tasks.values())),
        )

    async def stop(self, *, forget: bool) -> None:
        """End everything in Ray that is this mesh's, but this actor. With `forget` its folder goes too."""
        await self._ready
        self._is_stopped = True
        for task in self._background:
            task.cancel()
        await asyncio.to_thread(self._observer.close)
        self._loop.driver = None  # What ends now is no news.
        for process in tuple(self._agents.processes.values()):
            self._agents.end(process)
        for name in await asyncio.to_thread(self._agents.names):
            self._agents.end_named(name)
        for group in await self._groups.seen():
            await self._groups.remove(group)
        if forget:
            await asyncio.to_thread(shutil.rmtree, self._options.state_dir, ignore_errors=True)

    async def change_settings(self, settings: Mapping[str, float]) -> None:
        """See `SchedulerSettings.changed`."""
        await self._ready
        self._state.settings.changed(settings)  # Raises here, before anything is written down.
        self._loop.tell(SettingsChanged(at_ms=self._clock.now_ms(), settings=dict(settings)))

    async def configure_label(self, event: LabelConfigured) -> None:
        """How one label's queue is ordered and scored; `at_ms` is set here."""
        await self._ready
        self._loop.tell(
            LabelConfigured(
                at_ms=self._clock.now_ms(),
                label=event.label,
                priority=event.priority,
                aging_per_s=event.aging_per_s,
                weights=event.weights,
                policy=event.policy,
            )
        )

    # -- pools and slots -----------------------------------------------------------------------------------------------

    async def configure_pool(self, spec: PoolSpec) -> PoolStatus:
        """Create the pool, or change it."""
        await self._ready
        known = self._state.pools.pools.get(spec.pool)
        if known is None or known.is_closing or known.spec != spec:
            self._loop.tell(PoolConfigured(at_ms=self._clock.now_ms(), spec=spec))
        return await self.pool(spec.pool)

    async def pool_spec(self, pool: PoolName) -> PoolSpec | None:
        """As it was configured; None: there is no such pool."""
        await self._ready
        known = self._state.pools.pools.get(pool)
        return known.spec if known is not None else None

    async def delete_pool(self, pool: PoolName) -> None:
        """Nothing new goes into the pool, and what is in it is cancelled. Harmless when there is none."""
        await self._ready
        if pool in self._state.pools.pools:
            self._loop.tell(PoolDeleted(at_ms=self._clock.now_ms(), pool=pool))

    async def pool(self, pool: PoolName) -> PoolStatus:
        """One pool. Raises `PoolUnknown`."""
        found = next((status for status in await self.pools() if status.pool == pool), None)
        if found is None:
            raise PoolUnknown(pool, tuple(self._state.pools.pools))
        return found

    async def pools(self) -> list[PoolStatus]:
        """All pools."""
        await self._ready
        return views.pool_statuses(self._state, self._loop.book)

    async def reserve_slot(self, slot: str, pool: PoolName, resources: ResourceSet) -> SlotReserved | Refused:
        """Set quota aside under the name. Again with the same: the same answer."""
        await self._ready
        if resources == self._state.pools.held_by(slot).get(pool):
            return SlotReserved(slot=slot, pool=pool, resources=resources)
        refused = self._slot_answer(slot, self._loop.tell(SlotAsked(at_ms=self._clock.now_ms(), slot=slot, pool=pool, resources=resources)))
        return refused if refused is not None else SlotReserved(slot=slot, pool=pool, resources=resources)

    async def commit_slot(self, slot: str) -> Refused | None:
        """What was set aside is in use."""
        await self._ready
        return self._slot_answer(slot, self._loop.tell(SlotCommitted(at_ms=self._clock.now_ms(), slot=slot)))

    async def release_slot(self, slot: str) -> None:
        """Give it back. Harmless to repeat."""
        await self._ready
        self._loop.tell(SlotReleased(at_ms=self._clock.now_ms(), slot=slot))

    def _slot_answer(self, slot: str, decisions: list[Any]) -> Refused | None:
        answer = next(decision for decision in decisions if isinstance(decision, AnswerSlot) and decision.slot == slot)
        return None if answer.refused is None else Refused(reason=answer.refused, detail=answer.detail)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    async def submit(self, request: TaskRequest, order: HostOrder | None, *, anew: bool = False) -> TaskStatus:
        """Accept a task. Again with the same request: where it stands; with `anew`, one that is over leaves its name to this one.

        Raises:
            TaskExists: Another task of this name is known.
        """
        await self._ready
        if anew and order is not None and await self._give_name(request, order):
            return self._status(request.task)
        row = self._loop.book.tasks.get(request.task)
        # Where its arguments lie may have changed since; it is the same task all the same.
        if row is not None and not self._plugins.is_same(row.request, replace(request, local_bytes=row.request.local_bytes)):
            raise TaskExists(request.task, row.state)
        if row is None:
            request = self._loop.prioritised(request)
            if order is not None:
                self._works.submit(order)
            self._loop.tell(TaskSubmitted(at_ms=self._clock.now_ms(), request=request))
        return self._status(request.task)

    async def _give_name(self, request: TaskRequest, order: HostOrder) -> bool:
        """The name of a task that is over, or is stopping, goes to this one; False: there is none such."""
        record = self._state.records.get(request.task)
        if record is not None and record.stopping is not None:
            await self._loop.until(request.task, lambda: self._is_in(request.task, ()), WAIT_S_MAX)
        row = self._loop.book.tasks.get(request.task)
        if row is None or row.state not in TERMINAL:
            return False
        request = self._loop.prioritised(request)
        self._works.forget(request.task)
        self._works.submit(order)
        # The scheduler remembers those that are over, and would take this one for a repetition; attempts count on.
        self._loop.tell(TaskSubmitted(at_ms=self._clock.now_ms(), request=request, resume=True, first_attempt=row.attempt))
        return True

    async def task(self, task: TaskId) -> TaskStatus:
        """Where it stands. Raises `TaskUnknown`."""
        await self._ready
        return self._status(task)

    async def tasks(self) -> list[TaskStatus]:
        """All tasks that are remembered, oldest first."""
        await self._ready
        return [self._status(task) for task in self._loop.book.tasks]

    async def wait_task(self, task: TaskId, until: tuple[TaskState, ...], timeout_s: float) -> TaskStatus:
        """Its status, once it is in one of the states or over; or as it stands after the time (`WAIT_S_MAX` at the most)."""
        await self._ready
        self._row(task)
        await self._loop.until(task, lambda: self._is_in(task, until), min(timeout_s, WAIT_S_MAX))
        return self._status(task)

    async def result(self, task: TaskId) -> tuple[Ended, Any | None] | None:
        """How its entry method ended, and the ref of a large value; None: it has not."""
        await self._ready
        return self._works.ended(task)

    async def handle(self, task: TaskId) -> tuple[Any, int] | None:
        """Ray's handle of the agent that has the task, and the attempt; None: it is not up."""
        await self._ready
        is_up = self._row(task).state in AT_WORK
        process = self._driver.hosts.get(task)
        return (process.handle, process.attempt) if process is not None and is_up else None

    async def cancel(self, task: TaskId, *, keep_state: bool, destroy_group: bool, requeue: bool) -> TaskStatus:
        """Somebody wants it gone, or back in the queue. Harmless to repeat."""
        await self._ready
        self._row(task)
        event = TaskCancelled(at_ms=self._clock.now_ms(), task=task, keep_state=keep_state, destroy_group=destroy_group, requeue=requeue)
        if self._loop.book.tasks[task].state not in TERMINAL:
            self._loop.tell(event)
        return self._status(task)

    async def finish(self, task: TaskId) -> TaskStatus:
        """Its owner is done with a task that has no entry method: it has succeeded. One that is over: where it stands.

        Raises:
            TaskNotRunning: No agent has it; it waits, or starts.
        """
        await self._ready
        row = self._row(task)
        if row.state not in TERMINAL:
            process = self._driver.hosts.get(task)
            if process is None or process.attempt != row.attempt or row.state not in (*AT_WORK, TaskState.PREEMPTED):
                raise TaskNotRunning(f"task {task} is {row.state.value}, no agent has it: wait until it runs, or cancel it")
            self._driver.ended(Ended(task=task, attempt=row.attempt))
        return self._status(task)

    async def resume(self, task: TaskId) -> TaskStatus:
        """A cancelled task goes on from its kept state; one that is still stopping, when it has stopped. Harmless to repeat."""
        await self._ready
        record = self._state.records.get(task)
        if record is not None and record.stopping is not None:
            await self._loop.until(task, lambda: self._row(task).state in TERMINAL, WAIT_S_MAX)
        row = self._row(task)
        if row.state is TaskState.CANCELLED:
            at_ms = self._clock.now_ms()
            self._loop.tell(TaskSubmitted(at_ms=at_ms, request=row.request, resume=True, first_attempt=row.attempt))
        return self._status(task)

    async def saved(self, task: TaskId) -> Snapshot | None:
        """The state that was kept of it last."""
        await self._ready
        return self._works.saved(task)

    async def evaluate_preemption(self, request: TaskRequest) -> list[CandidateStatus]:
        """Dry run: who might give way to such a task, with score and reason."""
        await self._ready
        if request.pool not in self._state.pools.pools:
            raise PoolUnknown(request.pool, tuple(self._state.pools.pools))
        return views.candidate_statuses(self._state, request, self._clock.now_ms())

    # -- jobs ----------------------------------------------------------------------------------------------------------

    async def submit_job(self, spec: JobSpec, work: JobWork) -> JobView:
        """Take a job. Again with the same spec: where it stands.

        Raises:
            JobExists: Another job of this name is known.
        """
        await self._ready
        refused = self._jobs.submit(spec, work)
        if refused is not None:
            raise JobExists(refused.detail)
        return self._jobs.view(spec.job)

    async def job(self, job: JobId) -> JobView:
        """Where it stands. Raises `JobUnknown`."""
        await self._ready
        return self._jobs.view(job)

    async def jobs(self) -> list[JobView]:
        """All jobs that are remembered, oldest first."""
        await self._ready
        return self._jobs.views()

    async def wait_job(self, job: JobId, timeout_s: float) -> JobView:
        """Once it is over and cleaned up; or as it stands after the time (`WAIT_S_MAX` at the most)."""
        await self._ready
        await self._jobs.until_over(job, min(timeout_s, WAIT_S_MAX))
        return self._jobs.view(job)

    async def terminate_job(self, job: JobId) -> JobView:
        """End it. Harmless to repeat."""
        await self._ready
        self._jobs.terminate(job)
        return self._jobs.view(job)

    async def job_result(self, job: JobId) -> tuple[Ended, Any | None] | None:
        """How the leader's entry method ended, and the ref of a large value; None: it has not."""
        await self._ready
        self._jobs.view(job)
        return self._works.job_ended(job)

    # -- placement groups ----------------------------------------------------------------------------------------------

    async def give_group(self, request: TaskRequest, timeout_s: float) -> GroupGiven | Refused:
        """A placement group for whoever asks, without an agent (`allocate_pg`). Not in time: refused, and nothing is held.

        A holder that has given its group back, or got none, may ask again.
        """
        await self._ready
        task, book = request.task, self._loop.book
        row = book.tasks.get(task)
        if row is None or (row.state in TERMINAL and not row.request.has_agent):
            # The scheduler remembers those that are over, and would take them a second time for a repetition.
            attempt, request = row.attempt if row is not None else 0, self._loop.prioritised(request)
            self._loop.tell(TaskSubmitted(at_ms=self._clock.now_ms(), request=request, resume=True, first_attempt=attempt))
        else:
            await self.submit(request, None)
        book = self._loop.book
        await self._loop.until(task, lambda: task in book.given or self._is_in(task, ()), min(timeout_s, WAIT_S_MAX))
        given = book.given.get(task)
        if given is not None:
            name = group_name(self._options.mesh, given.group)
            return GroupGiven(holder=task, group=given.group, name=name, reason=given.reason)
        status = self._status(task)
        await self.cancel(task, keep_state=False, destroy_group=False, requeue=False)
        book.forget(task)
        return Refused(reason=status.reason or Reason.WAITING_IN_QUEUE, detail=status.detail)

    async def groups(self) -> list[GroupStatus]:
        """All placement groups of the mesh."""
        await self._ready
        return views.group_statuses(self._state)

    # -- agents and nodes ----------------------------------------------------------------------------------------------

    async def agents(self) -> list[AgentSeen]:
        """All agent processes, those that wait too."""
        await self._ready
        hosting = set(map(id, self._driver.hosts.values()))
        return [
            views.agent_seen(process, self._driver, self._loop.book, is_warm=id(process) not in hosting)
            for process in self._agents.processes.values()
        ]

    async def nodes(self) -> list[NodeStatus]:
        """All nodes of the mesh."""
        await self._ready
        return views.node_statuses(self._state, self._standbys)

    async def metrics(self, task: TaskId | None) -> dict[TaskId, AgentStatus]:
        """What agents reported last; of one task the agent is asked now."""
        await self._ready
        process = self._driver.hosts.get(task) if task is not None else None
        if task is not None and process is not None:
            self._report(task, await process.handle.report.remote())
        return {of: report for of, report in self._reports.items() if task in (None, of)}

    async def figures(self) -> Figures:
        """The six figures of seed §6.2, and what stands beside them."""
        await self._ready
        return self._observer.figures(self._state, self._clock.now_ms())

    async def figures_history(self) -> list[Figures]:
        """One set per metrics period, of the last two hours at the most; the last one is of now."""
        await self._ready
        return [*self._observer.history(), self._observer.figures(self._state, self._clock.now_ms())]

    async def news(self) -> list[MeshNews]:
        """What those who look after the mesh should know, oldest first."""
        await self._ready
        return self._observer.news()

    async def members(self, pool: PoolName | None, label: str | None, tasks: tuple[TaskId, ...] | None) -> list[Member]:
        """Agents that are up, with ranks in the order in which their tasks were named, else submitted."""
        await self._ready
        book = self._loop.book
        wanted = [
            (task, row)
            for task, row in ((task, book.tasks.get(task)) for task in (tasks if tasks is not None else tuple(book.tasks)))
            if row is not None and row.agent is not None and row.state in AT_WORK and task in self._driver.hosts
            if pool in (None, row.request.pool) and label in (None, row.request.label)
        ]
        return [views.member(rank, task, row, self._driver.hosts[task]) for rank, (task, row) in enumerate(wanted)]

    async def agent_said(self, agent: str, attempt: int, kind: str, payload: Any) -> None:
        """An agent tells something of its own accord; what is about an earlier attempt is late, and ignored."""
        await self._ready
        process = self._agents.processes.get(agent)
        if process is None or process.task is None or process.attempt != attempt or self._is_stopped:
            return
        task, at_ms = process.task, self._clock.now_ms()
        if kind == "report":
            self._report(task, payload)
            agent_id = self._loop.book.tasks[task].agent if task in self._loop.book.tasks else None
            if agent_id is not None:
                self._observer.feedback.hear(agent_id, payload, at_ms)
        elif kind == "checkpoint" and isinstance(payload, Snapshot):
            self._works.keep_saved(payload)
            self._loop.tell(CheckpointKept(at_ms=at_ms, task=task, attempt=attempt))
        elif kind in ("blocked", "unblocked"):
            self._loop.tell(TaskBlocked(at_ms=at_ms, task=task, blocked=kind == "blocked"))
        elif kind == "ended" and isinstance(payload, Ended) and (payload.result is not None or payload.error):
            self._driver.ended(payload)

    async def audit(self) -> Audit:
        """Do the ledgers agree with each other, and with what lives in Ray?"""
        await self._ready
        return await audit(self._state, self._loop.book, self._driver, self._agents, self._groups)

    # -- what they share -----------------------------------------------------------------------------------------------

    @property
    def _state(self) -> Any:
        return self._loop.scheduler.state

    def _report(self, task: TaskId, report: AgentStatus) -> None:
        if not self._is_in(task, ()):
            self._reports[task] = report

    def _status(self, task: TaskId) -> TaskStatus:
        return views.task_status(self._state, self._loop.book, task, self._row(task))

    def _row(self, task: TaskId) -> Any:
        row = self._loop.book.tasks.get(task)
        if row is None:
            raise TaskUnknown(task)
        return row

    def _agents_at_work(self) -> set[AgentId]:
        rows = (self._known(task) for task in self._driver.hosts)
        return {row.agent for row in rows if row is not None and row.agent is not None}

    def _known(self, task: TaskId) -> TaskRow | None:
        return self._loop.book.tasks.get(task)

    def _is_in(self, task: TaskId, states: tuple[TaskState, ...]) -> bool:
        row = self._loop.book.tasks.get(task)
        return row is None or row.state in TERMINAL or row.state in states

    def _process_ended(self, process: AgentProcess, words: str) -> None:
        if not self._is_stopped:
            self._driver.process_ended(process, words)


async def _refuse(refused: MeshError) -> None:
    raise refused


def _observer(options: SupervisorOptions, loop: ControlLoop, incarnation: int, agents: Callable[[], Collection[AgentId]]) -> Observer:
    if incarnation == 1 and options.observing.traces_file is not None:
        _check_writable("traces_file", options.observing.traces_file)
    try:
        return Observer(options.mesh, options.observing, loop.tell, agents)
    except RuntimeDoorError:
        if incarnation == 1:
            raise
        log.exception("metrics are not served, until the supervisor starts anew")  # The mesh must not end for it.
        return Observer(options.mesh, replace(options.observing, metrics_port=None), loop.tell, agents)


def _check_writable(option: str, path: str) -> None:
    try:
        with Path(path).open("a"):
            pass
    except OSError as refused:
        raise RuntimeDoorError(f"{option} {path} cannot be written: {refused}; name a file in a folder that the head node has") from refused


def _count_start(folder: Path) -> int:
    """How often a supervisor has started on this folder: part of the names that it gives."""
    kept = folder / "incarnation"
    count = int(kept.read_text()) + 1 if kept.exists() else 1
    draft = folder / "incarnation.draft"
    draft.write_text(str(count))
    draft.replace(kept)
    return count


#: The actor class. Typed as Any: Ray's types know no actor that is made by a call.
Supervisor: Any = ray.remote(num_cpus=0, max_restarts=-1, max_concurrency=CALLS_MAX)(MeshSupervisor)  # type: ignore[call-overload]  # as above
