"""Calls about agents and nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mesh.core.ids import TaskId
from mesh.core.task_spec import AT_WORK
from mesh.ray.local.agent_messages import AgentStatus
from mesh.ray.local.client.checked_calls import Count, Seconds, checked
from mesh.ray.local.client.parsing import Amounts
from mesh.ray.local.client.pool_calls import pool_spec
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.client.task_calls import TaskCalls
from mesh.ray.local.client.task_handle import TaskHandle
from mesh.ray.local.status_values import (
    AgentSeen,
    NodeStatus,
    RequestRefused,
    TaskStatus,
)
from mesh.ray.local.supervision_errors import SubmissionError
from mesh.ray.local.verbs import AgentVerbs, PoolVerbs


@checked()
class AgentCalls:
    """Calls that create and list named agents, and that list nodes and metrics."""

    def __init__(self, link: SupervisorLink, tasks: TaskCalls) -> None:
        self._link = link
        self._tasks = tasks

    def create_agent(
        self, /, name: str, actor_class: Any, *, pool: str, timeout_s: Seconds | None = 60.0, **options: Any
    ) -> TaskHandle | RequestRefused:
        """Create a named agent: a task without an entry method. If it is not up in time, remove it and return `RequestRefused`.

        The name of an agent that has ended, or was refused, is free. The same request for a running agent returns its handle.

        Raises:
            SubmissionError: An argument is invalid.
            PoolUnknown: The pool does not exist.
            TaskExists: Another agent has this name.
        """
        handle = self._tasks.taking_over_names().submit_task(actor_class, pool=pool, task_id=name, **options)
        status = handle.wait_started(timeout_s)
        if status.state in AT_WORK:
            return handle
        handle.cancel(keep_state=False)
        return RequestRefused(reason=status.reason, detail=status.detail) if status.reason is not None else _still(status)

    def create_agent_with_pg(
        self, /, name: str, actor_class: Any, *, pool: str, resources: Amounts, timeout_s: Seconds | None = 60.0, **options: Any
    ) -> TaskHandle | RequestRefused:
        """Create a named agent in a placement group of the pool.

        Raises:
            SubmissionError: The pool has no placement groups.
        """
        if pool_spec(self._link, pool).groups is None:
            raise SubmissionError(f"pool {pool} has no placement groups: call configure_pool({pool!r}, ...) first")
        return self.create_agent(name, actor_class, pool=pool, resources=resources, timeout_s=timeout_s, **options)

    def delete_agent(self, name: str, *, destroy_pg: bool = False) -> TaskStatus:
        """End an agent and release its resources. Its placement group is kept for the next agent, unless `destroy_pg`."""
        handle = TaskHandle(self._link, TaskId(name))
        handle.cancel(keep_state=False, destroy_group=destroy_pg)
        return handle.wait()

    def scale_agents(self, /, pool: str, count: Count, actor_class: Any, *, name: str | None = None, **options: Any) -> list[TaskHandle]:
        """Scale the named agents of a class in a pool to `count`: start missing ones, end surplus ones, the latest first.

        They are named `<name>-<number>` (default name: the pool's), restart whenever they are lost, and queue where there is no
        room. Idempotent; the pool's `target_agents` is the last count. `options` are those of `submit_task`.
        """
        self._link.ask(PoolVerbs.configure_pool, replace(pool_spec(self._link, pool), target_agents=count))
        wanted = [f"{name or pool}-{number}" for number in range(count)]
        there = {status.task for status in self._tasks.list_tasks(pool=pool) if not (status.is_over or status.is_ending)}
        stem = f"{name or pool}-"
        surplus = [task for task in there if task.startswith(stem) and task.removeprefix(stem).isdigit() and task not in wanted]
        for task in sorted(surplus, key=lambda task: int(task.removeprefix(stem)), reverse=True):
            TaskHandle(self._link, TaskId(task)).cancel(keep_state=False)
        return [
            TaskHandle(self._link, TaskId(task))
            if task in there
            else self._tasks.taking_over_names().submit_task(actor_class, pool=pool, task_id=task, **{"max_restarts": -1, **options})
            for task in wanted
        ]

    def restart_agent(self, name: str) -> TaskStatus:
        """Stop the agent, save its state, and queue it to start again from there."""
        return TaskHandle(self._link, TaskId(name)).preempt()

    def list_agents(self) -> list[AgentSeen]:
        """Return all agent processes: those with a task, those that wait in a group, and standbys."""
        return self._link.ask(AgentVerbs.agents)

    def list_nodes(self) -> list[NodeStatus]:
        """Return all nodes of the mesh, as the scheduler counts them."""
        return self._link.ask(AgentVerbs.nodes)

    def collect_metrics(self, task_id: str | None = None) -> dict[TaskId, AgentStatus]:
        """Return the agents' last reports. With `task_id`, ask its agent for a fresh one. Raises `TaskUnknown`."""
        if task_id is not None:
            self._tasks.task(task_id)
        return self._link.ask(AgentVerbs.agent_metrics, TaskId(task_id) if task_id is not None else None)


def _still(status: TaskStatus) -> RequestRefused:
    raise SubmissionError(f"agent {status.task} is {status.state.value}: {status.detail}")
