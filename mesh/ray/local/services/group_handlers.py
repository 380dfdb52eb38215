"""Requests about placement groups, and allocation of groups without an agent."""

from __future__ import annotations

from mesh.core.reasons import Reason
from mesh.core.task_spec import TERMINAL, TaskRequest
from mesh.ray.local.ray_names import group_name
from mesh.ray.local.services.task_handlers import TaskHandlers
from mesh.ray.local.status_values import GroupGiven, GroupStatus, RequestRefused
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.supervised_mesh import WAIT_S_MAX
from mesh.tasks.events import TaskSubmitted


class GroupHandlers(TaskHandlers):
    """Methods of the supervisor's actor. An allocated group stands for a task: it is requested, awaited and cancelled like one."""

    async def give_group(self, request: TaskRequest, timeout_s: float) -> GroupGiven | RequestRefused:
        """Allocate a placement group without an agent (`allocate_pg`). Not in time: return `RequestRefused` and hold nothing.

        A holder that has released its group, or got none, may ask again.

        Raises:
            PoolUnknown: The pool does not exist.
            SubmissionError: The request names a resource that neither a node nor a pool has.
            TaskExists: The holder has asked for another group, or is a task.
        """
        await self._ready
        task, task_index = request.task, self._loop.task_index
        row = task_index.tasks.get(task)
        if row is None or (row.state in TERMINAL and not row.request.has_agent):
            views.check_pool(self._state, request.pool, *request.bundles)
            # The scheduler remembers ended holders and would treat a new request as a repetition.
            attempt, request = row.attempt if row is not None else 0, self._loop.prioritised(request)
            self._loop.send(TaskSubmitted(at_ms=self._clock.now_ms(), request=request, resume=True, first_attempt=attempt))
        else:
            await self.submit(request, None)
        task_index = self._loop.task_index
        await self._loop.until(task, lambda: task in task_index.given or self._is_in(task, ()), min(timeout_s, WAIT_S_MAX))
        given = task_index.given.get(task)
        if given is not None:
            name = group_name(self._options.mesh, given.group)
            return GroupGiven(holder=task, group=given.group, name=name, reason=given.reason)
        status = self._status(task)
        await self.cancel(task, keep_state=False, destroy_group=False, requeue=False)
        task_index.forget(task)
        return RequestRefused(reason=status.reason or Reason.WAITING_IN_QUEUE, detail=status.detail)

    async def groups(self) -> list[GroupStatus]:
        await self._ready
        return views.group_statuses(self._state)
