"""Answers the verbs about placement groups."""

from __future__ import annotations

from mesh.core.reasons import Reason
from mesh.core.task_spec import TERMINAL, TaskRequest
from mesh.ray.local.ray_names import group_name
from mesh.ray.local.services.task_service import TaskService
from mesh.ray.local.status_values import GroupGiven, GroupStatus, RequestRefused
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.verbs import WAIT_S_MAX
from mesh.tasks.events import TaskSubmitted


class GroupService:
    """An allocated group stands for a task: it is requested, awaited and cancelled like one.

    Args:
        mesh: Name of the mesh, which is part of the names of its groups.
    """

    def __init__(self, mesh: str, loop: ControlLoop, tasks: TaskService) -> None:
        self._mesh = mesh
        self._loop = loop
        self._tasks = tasks

    async def allocate_group(self, request: TaskRequest, timeout_s: float) -> GroupGiven | RequestRefused:
        loop, task = self._loop, request.task
        row = loop.task_index.tasks.get(task)
        if row is None or (row.state in TERMINAL and not row.request.has_agent):
            views.check_pool(loop.state, request.pool, *request.bundles)
            # The scheduler remembers ended holders and would treat a new request as a repetition.
            attempt, request = row.attempt if row is not None else 0, loop.prioritised(request)
            loop.send(TaskSubmitted(at_ms=loop.clock.now_ms(), request=request, resume=True, first_attempt=attempt))
        else:
            await self._tasks.submit(request, None)
        await loop.until(task, lambda: task in loop.task_index.given or loop.task_index.is_over(task), min(timeout_s, WAIT_S_MAX))
        given = loop.task_index.given.get(task)
        if given is not None:
            name = group_name(self._mesh, given.group)
            return GroupGiven(holder=task, group=given.group, name=name, reason=given.reason)
        status = await self._tasks.task(task)
        await self._tasks.cancel(task, keep_state=False, destroy_group=False, requeue=False)
        loop.task_index.forget(task)
        return RequestRefused(reason=status.reason or Reason.WAITING_IN_QUEUE, detail=status.detail)

    async def groups(self) -> list[GroupStatus]:
        return views.group_statuses(self._loop.state)
