"""Answers the verbs about agents and nodes, and takes the reports of agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mesh.actors.members import GroupMember
from mesh.core.ids import PoolName, TaskId
from mesh.core.saved_state import StateSnapshot
from mesh.core.task_spec import AT_WORK
from mesh.ray.local.agent_messages import AgentStatus
from mesh.ray.local.status_values import AgentSeen, NodeStatus
from mesh.ray.local.store.task_payloads import TaskPayloads
from mesh.ray.local.supervisor import views
from mesh.ray.local.supervisor.agent_client import AgentClient
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.local.supervisor.feedback import Feedback
from mesh.ray.local.supervisor.standbys import Standbys
from mesh.tasks.decisions import Decision, EndTask
from mesh.tasks.events import CheckpointKept, Event, TaskBlocked


class AgentService:
    """Holds the last report of each task that is not over; listens to the loop for ends.

    Args:
        feedback: Gets the reports, to tune settings by them.
    """

    def __init__(
        self, *, loop: ControlLoop, driver: Driver, agents: AgentClient, standbys: Standbys, payloads: TaskPayloads, feedback: Feedback
    ) -> None:
        self._loop = loop
        self._driver = driver
        self._agents = agents
        self._standbys = standbys
        self._payloads = payloads
        self._feedback = feedback
        self._reports: dict[TaskId, AgentStatus] = {}
        loop.listeners.append(self._forget_ended)

    async def agents(self) -> list[AgentSeen]:
        hosting = set(map(id, self._driver.hosts.values()))
        return [
            views.agent_seen(process, self._driver, self._loop.task_index, is_warm=id(process) not in hosting)
            for process in self._agents.processes.values()
        ]

    async def nodes(self) -> list[NodeStatus]:
        return views.node_statuses(self._loop.state, self._standbys)

    async def agent_metrics(self, task: TaskId | None) -> dict[TaskId, AgentStatus]:
        process = self._driver.hosts.get(task) if task is not None else None
        if task is not None and process is not None:
            self._keep(task, await process.handle.report.remote())
        return {of: report for of, report in self._reports.items() if task in (None, of)}

    async def members(self, pool: PoolName | None, label: str | None, tasks: tuple[TaskId, ...] | None) -> list[GroupMember]:
        if pool is not None:
            views.check_pool(self._loop.state, pool)
        task_index = self._loop.task_index
        wanted = [
            (task, row)
            for task, row in ((task, task_index.tasks.get(task)) for task in (tasks if tasks is not None else tuple(task_index.tasks)))
            if row is not None and row.agent is not None and row.state in AT_WORK and task in self._driver.hosts
            if pool in (None, row.request.pool) and label in (None, row.request.label)
        ]
        return [views.member(rank, task, row, self._driver.hosts[task]) for rank, (task, row) in enumerate(wanted)]

    async def report(self, agent: str, task: TaskId | None, attempt: int, kind: str, payload: Any) -> None:
        process = self._agents.processes.get(agent)
        if process is None or task is None or (process.task, process.attempt) != (task, attempt):
            return
        at_ms = self._loop.clock.now_ms()
        if kind == "report":
            self._keep(task, payload)
            row = self._loop.task_index.tasks.get(task)
            if row is not None and row.agent is not None:
                self._feedback.hear(row.agent, payload, at_ms)
        elif kind == "checkpoint" and isinstance(payload, StateSnapshot):
            self._payloads.keep_saved(payload)
            self._loop.send(CheckpointKept(at_ms=at_ms, task=task, attempt=attempt))
        elif kind in ("blocked", "unblocked"):
            self._loop.send(TaskBlocked(at_ms=at_ms, task=task, blocked=kind == "blocked"))

    def _keep(self, task: TaskId, report: AgentStatus) -> None:
        if not self._loop.task_index.is_over(task):
            self._reports[task] = report

    def _forget_ended(self, _events: Sequence[Event], decisions: Sequence[Decision], _took_ms: float) -> None:
        for decision in decisions:
            if isinstance(decision, EndTask):
                self._reports.pop(decision.task, None)
