"""Answers the verbs about tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mesh.core.ids import TaskId
from mesh.core.saved_state import StateSnapshot
from mesh.core.task_spec import AT_WORK, TERMINAL, TaskRequest, TaskState
from mesh.ray.local.agent_messages import Ended, HostCommand
from mesh.ray.local.status_values import CandidateStatus, TaskStatus
from mesh.ray.local.store.task_payloads import TaskPayloads
from mesh.ray.local.supervision_errors import GangContradiction, TaskExists, TaskNotRunning
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.local.verbs import WAIT_S_MAX
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.events import TaskCancelled, TaskSubmitted
from mesh.tasks.request_validation import find_gang_problem


class TaskService:
    def __init__(self, loop: ControlLoop, payloads: TaskPayloads, driver: Driver, plugins: PluginHost) -> None:
        self._loop = loop
        self._payloads = payloads
        self._driver = driver
        self._plugins = plugins

    async def submit(self, request: TaskRequest, command: HostCommand | None, *, replaces: int | None = None) -> TaskStatus:
        if replaces is not None and command is not None and await self._give_name(request, command, replaces):
            return self._status(request.task)
        state, row = self._loop.state, self._loop.task_index.tasks.get(request.task)
        # The location of its arguments may have changed since; the task is the same all the same.
        if row is not None and not self._plugins.is_same(row.request, replace(request, local_bytes=row.request.local_bytes)):
            raise TaskExists(request.task, views.state_of(state, request.task, row))
        if row is None:
            views.check_pool(state, request.pool, request.resources, *request.bundles)
            contradicted = find_gang_problem(state, request) if request.gang_size else ""
            if contradicted:
                raise GangContradiction(contradicted)
            request = self._loop.prioritised(request)
            if command is not None:
                self._payloads.submit(command)
            self._loop.send(TaskSubmitted(at_ms=self._loop.clock.now_ms(), request=request))
        return self._status(request.task)

    async def _give_name(self, request: TaskRequest, command: HostCommand, replaces: int) -> bool:
        """Replace the ended task of this attempt. True: replaced, or the task still ends; False: there is no such attempt."""
        row = self._loop.task_index.tasks.get(request.task)
        if row is not None and row.attempt == replaces and views.is_ending(self._loop.state, request.task):
            await self._loop.until(request.task, lambda: self._loop.task_index.is_over(request.task), WAIT_S_MAX)
            row = self._loop.task_index.tasks.get(request.task)
        if row is None or row.attempt != replaces:
            return False  # A repeated call: the task was replaced already.
        if row.state not in TERMINAL:
            return views.is_ending(self._loop.state, request.task)
        views.check_pool(self._loop.state, request.pool, request.resources, *request.bundles)
        request = self._loop.prioritised(request)
        self._payloads.forget(request.task)
        self._payloads.submit(command)
        # `resume`, because the scheduler remembers ended tasks and would take this one for a repetition. The attempt number rises even
        # if no agent ever had the old task, so a repetition of this call finds another attempt.
        at_ms = self._loop.clock.now_ms()
        self._loop.send(TaskSubmitted(at_ms=at_ms, request=request, resume=True, first_attempt=row.attempt + 1))
        return True

    async def task(self, task: TaskId) -> TaskStatus:
        return self._status(task)

    async def tasks(self) -> list[TaskStatus]:
        return [self._status(task) for task in self._loop.task_index.tasks]

    async def wait_task(self, task: TaskId, until: tuple[TaskState, ...], timeout_s: float) -> TaskStatus:
        self._loop.task_index.entry(task)
        await self._loop.until(task, lambda: self._is_over_or_in(task, until), min(timeout_s, WAIT_S_MAX))
        return self._status(task)

    async def result(self, task: TaskId, timeout_s: float) -> tuple[TaskStatus, tuple[Ended, Any | None] | None]:
        status = await self.wait_task(task, (), timeout_s)
        return status, self._payloads.ended(task) if status.is_over else None

    async def handle(self, task: TaskId) -> tuple[Any, int] | None:
        is_up = self._loop.task_index.entry(task).state in AT_WORK
        process = self._driver.hosts.get(task)
        return (process.handle, process.attempt) if process is not None and is_up else None

    async def cancel(self, task: TaskId, *, keep_state: bool, destroy_group: bool, requeue: bool) -> TaskStatus:
        row, at_ms = self._loop.task_index.entry(task), self._loop.clock.now_ms()
        if row.state not in TERMINAL:
            self._loop.send(TaskCancelled(at_ms=at_ms, task=task, keep_state=keep_state, destroy_group=destroy_group, requeue=requeue))
        return self._status(task)

    async def finish(self, task: TaskId) -> TaskStatus:
        row = self._loop.task_index.entry(task)
        if row.state not in TERMINAL:
            process = self._driver.hosts.get(task)
            if process is None or process.attempt != row.attempt or row.state not in (*AT_WORK, TaskState.PREEMPTED):
                where = views.state_of(self._loop.state, task, row)
                raise TaskNotRunning(f"task {task} is {where.value} and has no agent; wait until it runs, or cancel it")
            self._driver.ended(Ended(task=task, attempt=row.attempt))
        return self._status(task)

    async def resume(self, task: TaskId) -> TaskStatus:
        record = self._loop.state.records.get(task)
        if record is not None and record.stopping is not None:
            await self._loop.until(task, lambda: self._loop.task_index.entry(task).state in TERMINAL, WAIT_S_MAX)
        row = self._loop.task_index.entry(task)
        if row.state is TaskState.CANCELLED:
            at_ms = self._loop.clock.now_ms()
            self._loop.send(TaskSubmitted(at_ms=at_ms, request=row.request, resume=True, first_attempt=row.attempt))
        return self._status(task)

    async def saved(self, task: TaskId) -> StateSnapshot | None:
        return self._payloads.saved(task)

    async def evaluate_preemption(self, request: TaskRequest) -> list[CandidateStatus]:
        views.check_pool(self._loop.state, request.pool, request.resources, *request.bundles)
        return views.candidate_statuses(self._loop.state, request, self._loop.clock.now_ms())

    def _status(self, task: TaskId) -> TaskStatus:
        task_index = self._loop.task_index
        return views.task_status(self._loop.state, task_index, task, task_index.entry(task))

    def _is_over_or_in(self, task: TaskId, states: tuple[TaskState, ...]) -> bool:
        task_index = self._loop.task_index
        return task_index.is_over(task) or task_index.tasks[task].state in states
