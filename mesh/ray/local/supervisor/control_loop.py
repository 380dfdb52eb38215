"""The loop around the one scheduler: events in, decisions journaled and carried out, waiters woken.

All of it runs on the supervisor's event loop and never waits inside: `send` is a plain function, so the mesh has one writer
and no call of a client can block another. Blocking work (Ray's reads, the autoscaler) runs on threads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from mesh.core.ids import TaskId
from mesh.core.task_spec import TERMINAL, TaskRequest, TaskState
from mesh.errors import MeshError
from mesh.jobs.controller import JobController
from mesh.jobs.decisions import JobDecision
from mesh.jobs.events import JobEvent
from mesh.plugins import PluginFenced
from mesh.ray.local.store.archive import Archive, Memory
from mesh.ray.local.store.task_index import TaskIndex
from mesh.ray.local.store.task_payloads import TaskPayloads
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.decisions import Decision
from mesh.tasks.events import Event, SettingsChanged
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.state import MeshState

log = structlog.get_logger(__name__)


class MeshClock:
    """Milliseconds since the epoch that never go back, not even over restarts."""

    def __init__(self) -> None:
        self._last_ms = 0

    def now_ms(self) -> int:
        """Return this machine's time, or the last returned time when the machine's clock was set back."""
        self._last_ms = max(self._last_ms, time.time_ns() // 1_000_000)
        return self._last_ms

    def not_before(self, at_ms: int) -> None:
        """Advance the clock to a time that an earlier supervisor recorded."""
        self._last_ms = max(self._last_ms, at_ms)


class ControlLoop:
    """The loop of one mesh: handles events, journals and carries out decisions.

    Args:
        archive: Loads scheduler, task index and jobs, and journals every batch.
        fresh: Creates the scheduler of a new mesh.
    """

    def __init__(self, archive: Archive, fresh: Callable[[], MeshScheduler], clock: MeshClock, plugins: PluginHost) -> None:
        self.clock = clock
        self._archive = archive
        self._fresh = fresh
        self._plugins = plugins
        self._memory: Memory = archive.load(fresh)
        self.driver: Driver | None = None  #: None until recovery: decisions are only journaled, and recovery carries them out.
        self.payloads: TaskPayloads | None = None
        self.listeners: list[
            Callable[[Sequence[Event], Sequence[Decision], float], None]
        ] = []  #: The last argument: milliseconds that the decision took.
        self.on_fenced: Callable[[PluginFenced], None] = lambda _: None  #: Called with each plugin hook that is disabled.
        self._waiting: dict[TaskId, set[asyncio.Future[None]]] = {}

    @property
    def scheduler(self) -> MeshScheduler:
        """The one scheduler; replaced by another object after a batch that failed."""
        return self._memory.scheduler

    @property
    def state(self) -> MeshState:
        """The scheduler's state, to read."""
        return self.scheduler.state

    @property
    def task_index(self) -> TaskIndex:
        """Tasks, groups and open decisions."""
        return self._memory.task_index

    @property
    def jobs(self) -> JobController:
        """The job controller; members of jobs are tasks of the scheduler."""
        return self._memory.jobs

    def send(self, *events: Event) -> list[Decision]:
        """Pass events to the scheduler, journal its decisions and start them. All events enter here.

        When the scheduler raises, or the disk is full, the batch did not happen: all state is loaded again from the journal, and the
        error goes to the caller. Once journaled, the batch has happened, whatever raises afterwards.
        """
        began = time.perf_counter()
        try:
            decisions = self.scheduler.handle(*events)
            fenced = self._plugins.take_fenced()
            if not fenced:
                self._archive.append(self.scheduler.state.version, events, decisions)
            took_ms = (time.perf_counter() - began) * 1000
            changed = self.task_index.fold(events, decisions)
            if fenced:  # The batch cannot be replayed without the disabled plugin (see `plugin_host`).
                self._archive.snapshot(self._memory)
        except Exception as error:
            self._reload(events, error)
            raise
        if self.driver is not None:
            for decision in decisions:
                _attempt(self.driver.carry_out, decision)
        for listener in self.listeners:
            _attempt(listener, events, decisions, took_ms)
        for task in changed:
            _attempt(self._wake, task)
        _attempt(self._keep_short)
        for one in fenced:
            _attempt(self.on_fenced, one)
        if fenced:  # Compute again the scores that the plugin gave.
            _attempt(self.send, SettingsChanged(at_ms=self.clock.now_ms(), settings={}))
        return decisions

    def send_to_jobs(self, *events: JobEvent) -> list[JobDecision]:
        """Pass events to the job controller and journal its decisions; the caller starts them."""
        try:
            decisions = self.jobs.handle(*events)
            self._archive.append(self.scheduler.state.version, events, decisions)
        except Exception as error:
            self._reload(events, error)
            raise
        self._keep_short()
        return decisions

    def prioritised(self, request: TaskRequest) -> TaskRequest:
        """Return the request with the priority that a plugin gives it. The answer becomes part of the task."""
        wanted = self._plugins.prioritised(request)
        fenced = self._plugins.take_fenced()
        for one in fenced:
            self.on_fenced(one)
        if fenced:
            self._snapshot()  # The snapshot records which hooks are disabled.
        return wanted

    def _reload(self, events: Sequence[object], error: Exception) -> None:
        kinds = [type(event).__name__ for event in events]
        log.error("a batch failed; the state before it was restored", events=kinds, error=str(error))
        self._memory = self._archive.load(self._fresh)

    def _keep_short(self) -> None:
        """Replace a long journal by a snapshot. When the snapshot cannot be written, the journal continues."""
        if self._archive.needs_snapshot():
            self._snapshot()

    def _snapshot(self) -> None:
        try:
            self._archive.snapshot(self._memory)
        except MeshError:
            log.exception("the snapshot could not be written")
            self._memory = self._archive.load(self._fresh)  # Making a snapshot changes the cached scores.

    def wake(self, name: str) -> None:
        """Wake those that wait for the name in `until`."""
        for future in self._waiting.pop(TaskId(name), set()):
            if not future.done():
                future.set_result(None)

    async def until(self, task: TaskId, wanted: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a change of the task makes `wanted` true; return False at the timeout."""
        deadline = time.monotonic() + timeout_s
        while not wanted():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            future = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(task, set()).add(future)
            try:
                await asyncio.wait_for(future, left)
            except asyncio.TimeoutError:
                return wanted()
            finally:
                waiting = self._waiting.get(task, set())
                waiting.discard(future)
                if not waiting:
                    self._waiting.pop(task, None)
        return True

    def _wake(self, task: TaskId) -> None:
        row = self.task_index.tasks.get(task)
        if row is not None and row.state in TERMINAL and self.payloads is not None:
            self.payloads.is_over(task, may_resume=row.state is TaskState.CANCELLED, at_ms=self.clock.now_ms())
        for gone in self.task_index.take_forgotten():
            if self.payloads is not None:
                self.payloads.forget(gone)
        self.wake(task)

    def needs_tick(self) -> bool:
        """Return whether time matters: a task waits, room is held, or a group is idle."""
        state = self.scheduler.state
        idles = any(record.idle_since_ms is not None for record in state.groups.records.values())
        return bool(len(state.queues) or state.evictions or state.job_reservations or idles)


def _attempt(call: Callable[..., object], *arguments: object) -> None:
    """Call one follow-up of a journaled batch; an error in one must not stop the others."""
    try:
        call(*arguments)
    except Exception:
        log.exception("a follow-up of a batch failed", part=getattr(call, "__qualname__", str(call)))
