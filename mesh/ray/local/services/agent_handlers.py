"""Requests about agents and nodes, and reports from agents."""

from __future__ import annotations

from typing import Any

from mesh.actors.members import GroupMember
from mesh.core.ids import PoolName, TaskId
from mesh.core.saved_state import StateSnapshot
from mesh.core.task_spec import AT_WORK
from mesh.ray.local.agent_messages import AgentStatus, Ended
from mesh.ray.local.status_values import AgentSeen, NodeStatus
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.supervised_mesh import SupervisedMesh
from mesh.tasks.events import CheckpointKept, TaskBlocked


class AgentHandlers(SupervisedMesh):
    async def agents(self) -> list[AgentSeen]:
        """Return all agent processes, idle ones too."""
        await self._ready
        hosting = set(map(id, self._driver.hosts.values()))
        return [
            views.agent_seen(process, self._driver, self._loop.task_index, is_warm=id(process) not in hosting)
            for process in self._agents.processes.values()
        ]

    async def nodes(self) -> list[NodeStatus]:
        await self._ready
        return views.node_statuses(self._state, self._standbys)

    async def metrics(self, task: TaskId | None) -> dict[TaskId, AgentStatus]:
        """Return the agents' last reports. With `task`, ask its agent for a fresh one."""
        await self._ready
        process = self._driver.hosts.get(task) if task is not None else None
        if task is not None and process is not None:
            self._report(task, await process.handle.report.remote())
        return {of: report for of, report in self._reports.items() if task in (None, of)}

    async def members(self, pool: PoolName | None, label: str | None, tasks: tuple[TaskId, ...] | None) -> list[GroupMember]:
        """Return agents that are up, ranked in the order of `tasks`, else of submission. Raises `PoolUnknown`."""
        await self._ready
        if pool is not None:
            views.check_pool(self._state, pool)
        task_index = self._loop.task_index
        wanted = [
            (task, row)
            for task, row in ((task, task_index.tasks.get(task)) for task in (tasks if tasks is not None else tuple(task_index.tasks)))
            if row is not None and row.agent is not None and row.state in AT_WORK and task in self._driver.hosts
            if pool in (None, row.request.pool) and label in (None, row.request.label)
        ]
        return [views.member(rank, task, row, self._driver.hosts[task]) for rank, (task, row) in enumerate(wanted)]

    async def agent_said(self, agent: str, attempt: int, kind: str, payload: Any) -> None:
        """Handle an agent's report. A report about an earlier attempt is late and ignored."""
        await self._ready
        process = self._agents.processes.get(agent)
        if process is None or process.task is None or process.attempt != attempt or self._is_stopped:
            return
        task, at_ms = process.task, self._clock.now_ms()
        if kind == "report":
            self._report(task, payload)
            agent_id = self._loop.task_index.tasks[task].agent if task in self._loop.task_index.tasks else None
            if agent_id is not None:
                self._observer.feedback.hear(agent_id, payload, at_ms)
        elif kind == "checkpoint" and isinstance(payload, StateSnapshot):
            self._payloads.keep_saved(payload)
            self._loop.send(CheckpointKept(at_ms=at_ms, task=task, attempt=attempt))
        elif kind in ("blocked", "unblocked"):
            self._loop.send(TaskBlocked(at_ms=at_ms, task=task, blocked=kind == "blocked"))
        elif kind == "ended" and isinstance(payload, Ended) and (payload.result is not None or payload.error):
            self._driver.ended(payload)
