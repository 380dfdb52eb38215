"""One supervised mesh: construction, start and end of its parts.

Subclasses answer requests about pools, tasks, groups, jobs, agents, and the mesh as a whole.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import structlog

from mesh.core.ids import AgentId, TaskId
from mesh.core.task_spec import TERMINAL, TaskState
from mesh.errors import MeshError, RuntimeAdapterError
from mesh.jobs.decisions import ReportJob
from mesh.plugins import PluginFenced
from mesh.ray.local.agent_messages import AgentStatus
from mesh.ray.local.ray_names import process_name
from mesh.ray.local.status_values import MeshEventKind, TaskStatus
from mesh.ray.local.store.archive import Archive
from mesh.ray.local.store.mesh_folder import MeshFolder
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.store.snapshot_store import FileSnapshots
from mesh.ray.local.store.task_index import TaskEntry
from mesh.ray.local.store.task_payloads import TaskPayloads
from mesh.ray.local.supervision_errors import MeshStopped, StartFailed, StartsAgain, TaskUnknown, no_such_mesh
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.agent_client import AgentClient, AgentProcess
from mesh.ray.local.supervisor.autoscaling import Autoscaling
from mesh.ray.local.supervisor.cluster_watch import ClusterWatch
from mesh.ray.local.supervisor.control_loop import ControlLoop, MeshClock
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.local.supervisor.job_reconciler import JobReconciler
from mesh.ray.local.supervisor.observing import Observer
from mesh.ray.local.supervisor.placement_group_client import PlacementGroupClient
from mesh.ray.local.supervisor.recovery import Recovery
from mesh.ray.local.supervisor.standbys import Standbys
from mesh.ray.local.supervisor.supervisor_options import SupervisorOptions
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.decisions import Decision, EndTask
from mesh.tasks.events import Event, TaskStarted, TaskStopped

log = structlog.get_logger(__name__)

#: Longest time until a wait is answered; the client then asks again.
WAIT_S_MAX = 30.0
#: Time that a supervisor that could not start still reports why. The starting client ends it earlier, unless it is gone.
FAREWELL_S = 60.0
#: Time after which a supervisor that was up, died and could not start is ended, so that Ray starts the next one: the fault may be
#: transient.
AGAIN_S = 5.0


class SupervisedMesh:
    """Parts of the supervisor that all requests share. All methods belong to one event loop."""

    def __init__(self, options: SupervisorOptions) -> None:
        self._options = options
        self._is_stopped = self._is_up = False
        self._stopping = asyncio.Lock()
        self._background: tuple[asyncio.Task[None], ...] = ()
        self._ending: asyncio.TimerHandle | None = None  #: Timer that ends this actor.
        self._is_again = bool(ray.get_runtime_context().was_current_actor_reconstructed)  #: Up before; its process died.
        # Started as a task: an actor whose constructor raises just dies, while this task's error goes to every caller.
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_task(self._start(), name="start")

    async def _start(self) -> None:
        """Start everything or nothing: a failed start removes what it has created before it raises.

        Raises:
            MeshError: The error, with the remedy.
            StartsAgain: The same, of a supervisor that was up before. Its mesh has agents and tasks, so the start is repeated.
        """
        async with AsyncExitStack() as made:
            try:
                self._assemble(made)
                await self._begin()
            except Exception as error:
                log.exception("the mesh cannot be started")
                self._end_soon(FAREWELL_S if not self._is_again else AGAIN_S, is_last=not self._is_again)
                if self._is_again:
                    raise StartsAgain(self._options.mesh, str(error) or type(error).__name__) from error
                if isinstance(error, MeshError):
                    raise
                raise StartFailed(self._options.mesh, f"{type(error).__name__}: {error}") from error
            made.pop_all()
            self._is_up = True

    def _assemble(self, made: AsyncExitStack) -> None:
        options = self._options
        folder = MeshFolder(Path(options.state_dir))
        made.callback(folder.unmake)
        plugins = PluginHost(options.plugins)
        archive = self._archive = Archive(folder.path / "journal", lines_max=options.journal_lines_max, plugins=plugins)
        made.callback(archive.close)
        made.callback(folder.forget_first)  # Called before `archive.close`, under the journal's lock.
        self._incarnation = folder.count_start()
        self._clock = MeshClock()
        self._loop = ControlLoop(archive, lambda: plugins.scheduler(options.settings, options.seed), self._clock, plugins)
        self._clock.not_before(self._loop.scheduler.state.now_ms)
        self._store = PayloadStore(folder.path / "tasks")
        self._payloads = self._loop.payloads = TaskPayloads(self._store, FileSnapshots(folder.path / "kept"), self._known)
        self._plugins = plugins
        self._observer = _observer(options, self._loop, self._agents_at_work, is_again=self._is_again)
        made.callback(self._observer.close)
        self._jobs = JobReconciler(self._loop, self._payloads, plugins.catalogue.policy, options.jobs, options.seed)
        self._agents = AgentClient(options.mesh, options.namespace, self._incarnation, self._process_ended)
        made.callback(self._end_started)
        self._groups = PlacementGroupClient(options.mesh)
        self._standbys = Standbys(self._agents, options.driver.standbys_per_node)
        self._driver = Driver(
            agents=self._agents,
            groups=self._groups,
            standbys=self._standbys,
            payloads=self._payloads,
            store=self._store,
            autoscaling=Autoscaling(),
            settings=options.driver,
            send=self._loop.send,
            now_ms=self._clock.now_ms,
        )
        self._watch = ClusterWatch(self._loop, self._driver, self._groups, self._standbys, dict(options.node_labels))
        self._reports: dict[TaskId, AgentStatus] = {}  #: Last reports of tasks that are not over.
        self._listen()

    def _listen(self) -> None:
        def fenced(fenced_before: PluginFenced) -> None:
            log.warning("a plugin is disabled", plugin=fenced_before.plugin, hook=fenced_before.hook, why=fenced_before.why)
            words = f"{fenced_before.hook}() {fenced_before.why}; the hook is disabled, the default replaces it"
            self._observer.note(self._clock.now_ms(), MeshEventKind.PLUGIN_FENCED, fenced_before.plugin, words)

        def reported(fenced_before: ReportJob) -> None:
            why = f", {fenced_before.reason.value}: {fenced_before.detail}" if fenced_before.reason is not None else ""
            words = f"{fenced_before.stage.value}, {fenced_before.schedule_state.value}{why}"
            self._observer.note(self._clock.now_ms(), MeshEventKind.JOB, fenced_before.job, words)

        def over(_events: Sequence[Event], decisions: Sequence[Decision], _took_ms: float) -> None:
            for decision in decisions:
                if isinstance(decision, EndTask):
                    self._reports.pop(decision.task, None)

        def state_lost(events: Sequence[Event], _decisions: Sequence[Decision], _took_ms: float) -> None:
            for event in events:
                why = getattr(event, "unkept", "") or getattr(event, "unrestored", "")
                if why and isinstance(event, (TaskStarted, TaskStopped)):
                    self._observer.note(event.at_ms, MeshEventKind.STATE_LOST, event.task, views.state_lost(why))

        self._loop.on_fenced, self._jobs.on_report = fenced, reported
        self._loop.listeners += [self._observer.fold, self._jobs.hear, over, state_lost]
        for fenced_before in self._plugins.plugins.fenced:  # Disabled under an earlier supervisor, whose mesh events are lost.
            fenced(fenced_before)

    async def _begin(self) -> None:
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
        """Record the metrics every metrics period, and tune settings when targets are missed for long."""
        while True:
            await asyncio.sleep(self._options.observing.period_ms / 1000)
            try:
                self._observer.look(self._state, self._clock.now_ms())
                self._payloads.sweep(self._clock.now_ms())
            except Exception:
                log.exception("the metrics could not be recorded")

    async def stop(self, *, forget: bool) -> None:
        """End everything of the mesh in Ray except this actor, which the caller ends. With `forget`, remove its folder too.

        Raises:
            RuntimeAdapterError: The mesh could not be started, so its folder, which may belong to another, stays; all else has ended.
        """
        async with self._stopping:
            await asyncio.wait([self._ready])
            failed = None if self._is_up else self._ready.exception()
            self._is_stopped = True
            self._ready = self._gone()  # Later requests must not see a running mesh.
            if self._ending is not None:
                self._ending.cancel()
            try:
                await self._end_all()
                if forget and failed is not None:
                    raise RuntimeAdapterError(f"all has ended, but state_dir {self._options.state_dir} stays: {failed}; remove it yourself")
                if forget:
                    await asyncio.to_thread(shutil.rmtree, self._options.state_dir, ignore_errors=True)
            finally:
                self._end_soon(FAREWELL_S, is_last=True)  # In case the caller is gone.
                if self._is_up:
                    self._archive.close()  # The process takes a while to end, and the mesh may be started again at once.

    async def _end_all(self) -> None:
        for task in self._background:
            task.cancel()
        if self._is_up:
            await asyncio.to_thread(self._observer.close)
            self._loop.driver = None  # Ends from here on are not reported.
            agents, groups = self._agents, self._groups
        else:  # The start may have failed before these existed; processes and groups of an earlier supervisor are found by name.
            agents = AgentClient(self._options.mesh, self._options.namespace, 0, self._process_ended)
            groups = PlacementGroupClient(self._options.mesh)
        for process in tuple(agents.processes.values()):
            agents.end(process)
        for name in await asyncio.to_thread(agents.names):
            agents.end_named(name)
        for group in await groups.seen():
            await groups.remove(group)

    def _end_soon(self, pause_s: float, *, is_last: bool) -> None:
        self._ending = asyncio.get_running_loop().call_later(pause_s, _end_this_actor, is_last)

    def _gone(self) -> asyncio.Future[None]:
        gone = asyncio.get_running_loop().create_future()
        gone.set_exception(no_such_mesh(self._options.mesh, MeshStopped))
        gone.exception()  # Marks the error as retrieved, because asyncio logs unretrieved ones.
        return gone

    def _end_started(self) -> None:
        """End the processes that this supervisor has started; those of an earlier one have work that must not be lost."""
        self._is_stopped = True
        own = process_name(self._options.mesh, f"{self._incarnation}.")
        for process in tuple(self._agents.processes.values()):
            if process.name.startswith(own):
                self._agents.end(process)

    # -- shared by all requests ----------------------------------------------------------------------------------------

    @property
    def _state(self) -> Any:
        return self._loop.scheduler.state

    def _report(self, task: TaskId, report: AgentStatus) -> None:
        if not self._is_in(task, ()):
            self._reports[task] = report

    def _status(self, task: TaskId) -> TaskStatus:
        return views.task_status(self._state, self._loop.task_index, task, self._row(task))

    def _row(self, task: TaskId) -> Any:
        row = self._loop.task_index.tasks.get(task)
        if row is None:
            raise TaskUnknown(task)
        return row

    def _agents_at_work(self) -> set[AgentId]:
        rows = (self._known(task) for task in self._driver.hosts)
        return {row.agent for row in rows if row is not None and row.agent is not None}

    def _known(self, task: TaskId) -> TaskEntry | None:
        return self._loop.task_index.tasks.get(task)

    def _is_in(self, task: TaskId, states: tuple[TaskState, ...]) -> bool:
        row = self._loop.task_index.tasks.get(task)
        return row is None or row.state in TERMINAL or row.state in states

    def _process_ended(self, process: AgentProcess, words: str) -> None:
        if not self._is_stopped:
            self._driver.process_ended(process, words)


def _end_this_actor(is_last: bool) -> None:
    ray.kill(ray.get_runtime_context().current_actor, no_restart=is_last)


def _observer(options: SupervisorOptions, loop: ControlLoop, agents: Callable[[], Collection[AgentId]], *, is_again: bool) -> Observer:
    """Create the observer. A port or file in use fails a first start, but not a mesh that was up before."""
    if not is_again and options.observing.traces_file is not None:
        _check_writable("traces_file", Path(options.observing.traces_file))
    try:
        return Observer(options.mesh, options.observing, loop.send, agents)
    except RuntimeAdapterError:
        if not is_again:
            raise
        log.exception("metrics are not served until the supervisor restarts")
        return Observer(options.mesh, replace(options.observing, metrics_port=None), loop.send, agents)


def _check_writable(option: str, file: Path) -> None:
    """Raise `RuntimeAdapterError` if the file cannot be written; leave no new file behind."""
    try:
        was_there = file.exists()
        with file.open("a"):
            pass
        if not was_there:
            file.unlink()
    except OSError as refused:
        raise RuntimeAdapterError(
            f"{option} {file} cannot be written: {refused}; name a file in an existing folder on the head node"
        ) from refused
