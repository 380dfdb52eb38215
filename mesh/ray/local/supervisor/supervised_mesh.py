"""One supervised mesh: its parts, wired to each other; their start and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import structlog

from mesh.core.ids import AgentId, NodeName, TaskId
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import RuntimeAdapterError
from mesh.jobs.decisions import ReportJob
from mesh.plugins import PluginFenced
from mesh.ray.local.ray_names import process_name
from mesh.ray.local.status_values import MeshEventKind
from mesh.ray.local.store.archive import Archive
from mesh.ray.local.store.mesh_folder import MeshFolder
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.store.snapshot_store import FileSnapshots
from mesh.ray.local.store.task_index import TaskEntry
from mesh.ray.local.store.task_payloads import TaskPayloads
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
from mesh.tasks.decisions import Decision
from mesh.tasks.events import Event, TaskStarted, TaskStopped

log = structlog.get_logger(__name__)


class SupervisedMesh:
    """Parts of one supervised mesh. All methods belong to one event loop.

    Args:
        made: Gets the callbacks that undo the construction when the start fails.
        is_again: The mesh was up before, and its supervisor's process died.
    """

    def __init__(self, options: SupervisorOptions, made: AsyncExitStack, *, is_again: bool) -> None:
        self.options = options
        self._is_ended = False
        self._background: tuple[asyncio.Task[None], ...] = ()
        folder = MeshFolder(Path(options.state_dir))
        made.callback(folder.unmake)
        self.plugins = plugins = PluginHost(options.plugins)
        self._archive = archive = Archive(folder.path / "journal", lines_max=options.journal_lines_max, plugins=plugins)
        made.callback(archive.close)
        made.callback(folder.forget_first)  # Called before `archive.close`, under the journal's lock.
        self.incarnation = folder.count_start()
        clock = MeshClock()
        self.loop = ControlLoop(archive, lambda: plugins.scheduler(options.settings, options.seed), clock, plugins)
        clock.not_before(self.loop.state.now_ms)
        self._store = PayloadStore(folder.path / "tasks")
        self.payloads = self.loop.payloads = TaskPayloads(self._store, FileSnapshots(folder.path / "kept"), self._known)
        self.observer = _observer(options, self.loop, self._agents_at_work, is_again=is_again)
        made.callback(self.observer.close)
        self.jobs = JobReconciler(self.loop, self.payloads, plugins.catalogue.policy, options.jobs, options.seed)
        self.agents = AgentClient(options.mesh, options.namespace, self.incarnation, self._process_ended)
        made.callback(self._end_started)
        self.groups = PlacementGroupClient(options.mesh)
        self.standbys = Standbys(self.agents, options.driver.standbys_per_node)
        self.driver = Driver(
            agents=self.agents,
            groups=self.groups,
            standbys=self.standbys,
            payloads=self.payloads,
            store=self._store,
            autoscaling=Autoscaling(),
            settings=options.driver,
            send=self.loop.send,
            now_ms=clock.now_ms,
            free_on=self._free_on,
        )
        self.watch = ClusterWatch(self.loop, self.driver, self.groups, self.standbys, dict(options.node_labels))
        self._listen()

    def _listen(self) -> None:
        def fenced(disabled: PluginFenced) -> None:
            log.warning("a plugin is disabled", plugin=disabled.plugin, hook=disabled.hook, why=disabled.why)
            words = f"{disabled.hook}() {disabled.why}; the hook is disabled, the default replaces it"
            self.observer.note(self.loop.clock.now_ms(), MeshEventKind.PLUGIN_FENCED, disabled.plugin, words)

        def reported(job: ReportJob) -> None:
            why = f", {job.reason.value}: {job.detail}" if job.reason is not None else ""
            words = f"{job.stage.value}, {job.schedule_state.value}{why}"
            self.observer.note(self.loop.clock.now_ms(), MeshEventKind.JOB, job.job, words)

        def state_lost(events: Sequence[Event], _decisions: Sequence[Decision], _took_ms: float) -> None:
            for event in events:
                why = getattr(event, "unkept", "") or getattr(event, "unrestored", "")
                if why and isinstance(event, (TaskStarted, TaskStopped)):
                    self.observer.note(event.at_ms, MeshEventKind.STATE_LOST, event.task, views.state_lost(why))

        self.loop.on_fenced, self.jobs.on_report = fenced, reported
        self.loop.listeners += [self.observer.fold, self.jobs.hear, state_lost]
        for disabled in self.plugins.plugins.fenced:  # Disabled under an earlier supervisor, whose mesh events are lost.
            fenced(disabled)

    async def begin(self) -> None:
        """Recover what runs, look at the cluster, and start the work in the background."""
        recovery = Recovery(self.loop, self.driver, self.agents, self.groups, self._store, self.watch.nodes)
        self.loop.driver = await recovery.recover()
        await self.watch.look()
        self.jobs.recover()
        loop = asyncio.get_running_loop()
        self._background = (
            loop.create_task(self.watch.run(), name="watch"),
            loop.create_task(self._observe(), name="observe"),
            loop.create_task(self.jobs.run(), name="jobs"),
        )

    async def _observe(self) -> None:
        """Record the metrics every metrics period, and tune settings when targets are missed for long."""
        while True:
            await asyncio.sleep(self.options.observing.period_ms / 1000)
            try:
                self.observer.look(self.loop.state, self.loop.clock.now_ms())
                self.payloads.sweep(self.loop.clock.now_ms())
            except Exception:
                log.exception("the metrics could not be recorded")

    async def end(self) -> None:
        """End the work in the background, and everything of the mesh in Ray except the supervisor. May be called again."""
        self._is_ended = True
        for task in self._background:
            task.cancel()
        await asyncio.to_thread(self.observer.close)
        self.loop.driver = None  # Ends from here on are not reported.
        await end_in_ray(self.agents, self.groups)

    def close(self) -> None:
        """Release the mesh's folder."""
        self._archive.close()

    def _end_started(self) -> None:
        """End the processes that this supervisor has started; those of an earlier one have work that must not be lost."""
        self._is_ended = True
        own = process_name(self.options.mesh, f"{self.incarnation}.")
        for process in tuple(self.agents.processes.values()):
            if process.name.startswith(own):
                self.agents.end(process)

    def _process_ended(self, process: AgentProcess, words: str) -> None:
        if not self._is_ended:
            self.driver.process_ended(process, words)

    def _agents_at_work(self) -> set[AgentId]:
        rows = (self._known(task) for task in self.driver.hosts)
        return {row.agent for row in rows if row is not None and row.agent is not None}

    def _free_on(self, node: NodeName) -> ResourceSet:
        table = self.loop.state.table
        return table.amounts(table.free(slice(row := table.row(node), row + 1))[0]) if node in table else NOTHING

    def _known(self, task: TaskId) -> TaskEntry | None:
        return self.loop.task_index.tasks.get(task)


async def end_in_ray(agents: AgentClient, groups: PlacementGroupClient) -> None:
    """End all agents and placement groups of a mesh, also those that this process has not started: they are found by name."""
    for process in tuple(agents.processes.values()):
        agents.end(process)
    for name in await asyncio.to_thread(agents.names):
        agents.end_named(name)
    for group in await groups.seen():
        await groups.remove(group)


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
