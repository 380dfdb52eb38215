"""Requests about tasks, from submission to result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mesh.core.ids import TaskId
from mesh.core.saved_state import StateSnapshot
from mesh.core.task_spec import AT_WORK, TERMINAL, TaskRequest, TaskState
from mesh.ray.local.agent_messages import Ended, HostCommand
from mesh.ray.local.status_values import CandidateStatus, TaskStatus
from mesh.ray.local.supervision_errors import GangContradiction, TaskExists, TaskNotRunning
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.supervised_mesh import WAIT_S_MAX, SupervisedMesh
from mesh.tasks.events import TaskCancelled, TaskSubmitted
from mesh.tasks.request_validation import find_gang_problem


class TaskHandlers(SupervisedMesh):
    async def submit(self, request: TaskRequest, order: HostCommand | None, *, replaces: int | None = None) -> TaskStatus:
        """Submit a task. Idempotent for the same request. Return its status.

        Args:
            replaces: Last attempt of an ended or ending task of the same name, which this task replaces. If that task has not ended
                within `WAIT_S_MAX`, the status is still that task's: ask again.
        Raises:
            TaskExists: Another task has this name.
            PoolUnknown: The pool does not exist.
            SubmissionError: The task asks for a resource that neither a node nor a pool has.
            GangContradiction: A task of its gang gives another size of it.
        """
        await self._ready
        if replaces is not None and order is not None and await self._give_name(request, order, replaces):
            return self._status(request.task)
        row = self._loop.task_index.tasks.get(request.task)
        # The location of its arguments may have changed since; the task is the same all the same.
        if row is not None and not self._plugins.is_same(row.request, replace(request, local_bytes=row.request.local_bytes)):
            raise TaskExists(request.task, views.state_of(self._state, request.task, row))
        if row is None:
            views.check_pool(self._state, request.pool, request.resources, *request.bundles)
            contradicted = find_gang_problem(self._state, request) if request.gang_size else ""
            if contradicted:
                raise GangContradiction(contradicted)
            request = self._loop.prioritised(request)
            if order is not None:
                self._payloads.submit(order)
            self._loop.send(TaskSubmitted(at_ms=self._clock.now_ms(), request=request))
        return self._status(request.task)

    async def _give_name(self, request: TaskRequest, order: HostCommand, replaces: int) -> bool:
        """Replace the ended task of this attempt. True: replaced, or the task still ends; False: there is no such attempt."""
        row = self._loop.task_index.tasks.get(request.task)
        if row is not None and row.attempt == replaces and views.is_ending(self._state, request.task):
            await self._loop.until(request.task, lambda: self._is_in(request.task, ()), WAIT_S_MAX)
            row = self._loop.task_index.tasks.get(request.task)
        if row is None or row.attempt != replaces:
            return False  # A repeated call: the task was replaced already.
        if row.state not in TERMINAL:
            return views.is_ending(self._state, request.task)
        views.check_pool(self._state, request.pool, request.resources, *request.bundles)
        request = self._loop.prioritised(request)
        self._payloads.forget(request.task)
        self._payloads.submit(order)
        # `resume`, because the scheduler remembers ended tasks and would take this one for a repetition. The attempt number rises even
        # if no agent ever had the old task, so a repetition of this call finds another attempt.
        self._loop.send(TaskSubmitted(at_ms=self._clock.now_ms(), request=request, resume=True, first_attempt=row.attempt + 1))
        return True

    async def task(self, task: TaskId) -> TaskStatus:
        """Return the task's status. Raises `TaskUnknown`."""
        await self._ready
        return self._status(task)

    async def tasks(self) -> list[TaskStatus]:
        """Return all remembered tasks, oldest first."""
        await self._ready
        return [self._status(task) for task in self._loop.task_index.tasks]

    async def wait_task(self, task: TaskId, until: tuple[TaskState, ...], timeout_s: float) -> TaskStatus:
        """Wait until the task is in one of the states or over, at most `WAIT_S_MAX`; return its status."""
        await self._ready
        self._row(task)
        await self._loop.until(task, lambda: self._is_in(task, until), min(timeout_s, WAIT_S_MAX))
        return self._status(task)

    async def result(self, task: TaskId) -> tuple[Ended, Any | None] | None:
        """Return the end of the entry method, and the reference of a large value; None before the end."""
        await self._ready
        return self._payloads.ended(task)

    async def handle(self, task: TaskId) -> tuple[Any, int] | None:
        """Return Ray's handle of the task's agent, and the attempt; None when it is not up."""
        await self._ready
        is_up = self._row(task).state in AT_WORK
        process = self._driver.hosts.get(task)
        return (process.handle, process.attempt) if process is not None and is_up else None

    async def cancel(self, task: TaskId, *, keep_state: bool, destroy_group: bool, requeue: bool) -> TaskStatus:
        """Cancel the task, or put it back into the queue. Idempotent."""
        await self._ready
        self._row(task)
        event = TaskCancelled(at_ms=self._clock.now_ms(), task=task, keep_state=keep_state, destroy_group=destroy_group, requeue=requeue)
        if self._loop.task_index.tasks[task].state not in TERMINAL:
            self._loop.send(event)
        return self._status(task)

    async def finish(self, task: TaskId) -> TaskStatus:
        """Mark a task without an entry method as succeeded. Does nothing when it is over.

        Raises:
            TaskNotRunning: No agent has the task: it waits, or starts.
        """
        await self._ready
        row = self._row(task)
        if row.state not in TERMINAL:
            process = self._driver.hosts.get(task)
            if process is None or process.attempt != row.attempt or row.state not in (*AT_WORK, TaskState.PREEMPTED):
                where = views.state_of(self._state, task, row)
                raise TaskNotRunning(f"task {task} is {where.value} and has no agent; wait until it runs, or cancel it")
            self._driver.ended(Ended(task=task, attempt=row.attempt))
        return self._status(task)

    async def resume(self, task: TaskId) -> TaskStatus:
        """Resume a cancelled task from its saved state; a stopping task, once it has stopped. Idempotent."""
        await self._ready
        record = self._state.records.get(task)
        if record is not None and record.stopping is not None:
            await self._loop.until(task, lambda: self._row(task).state in TERMINAL, WAIT_S_MAX)
        row = self._row(task)
        if row.state is TaskState.CANCELLED:
            at_ms = self._clock.now_ms()
            self._loop.send(TaskSubmitted(at_ms=at_ms, request=row.request, resume=True, first_attempt=row.attempt))
        return self._status(task)

    async def saved(self, task: TaskId) -> StateSnapshot | None:
        """Return the task's last saved state."""
        await self._ready
        return self._payloads.saved(task)

    async def evaluate_preemption(self, request: TaskRequest) -> list[CandidateStatus]:
        """Return the preemption candidates for such a task, with score and verdict (dry run). Raises `PoolUnknown`."""
        await self._ready
        views.check_pool(self._state, request.pool, request.resources, *request.bundles)
        return views.candidate_statuses(self._state, request, self._clock.now_ms())
