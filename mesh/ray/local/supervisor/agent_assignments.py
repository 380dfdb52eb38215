"""Assignment of agent processes: which process has which task, and which waits for the next one, in its placement group or idle."""

from __future__ import annotations

import json

from mesh.core.ids import GroupId, NodeName, TaskId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.store.task_payloads import Owner
from mesh.ray.local.supervisor.agent_client import AgentClient, AgentProcess
from mesh.ray.local.supervisor.idle_processes import IdleProcesses
from mesh.ray.local.supervisor.placement_group_client import PlacementGroupClient
from mesh.ray.local.supervisor.standbys import Standbys
from mesh.tasks.decisions import CreateGroup, StartTask


class AgentAssignments:
    """Invariant: a process is in `hosts` under its task, in `residents` under its group, or in `idle`, and never in two of them.

    Args:
        store: Records which process has a task, for the next supervisor.
        tasks_max: Number of tasks after which a process ends.
    """

    def __init__(
        self,
        agents: AgentClient,
        groups: PlacementGroupClient,
        standbys: Standbys,
        idle: IdleProcesses,
        store: PayloadStore,
        tasks_max: int,
    ) -> None:
        self._agents = agents
        self._groups = groups
        self._standbys = standbys
        self._tasks_max = tasks_max
        self.idle = idle  #: Processes without a group and without a task.
        self._store = store
        self.hosts: dict[TaskId, AgentProcess] = {}  #: Processes by the task that they have.
        self.residents: dict[GroupId, AgentProcess] = {}  #: Processes that wait in a placement group, without a task.

    def in_group(self, group: GroupId) -> list[AgentProcess]:
        """Return all processes that run in the placement group, or serve a task that holds it."""
        return [process for process in self._agents.processes.values() if process.group == group]

    # -- assigning -----------------------------------------------------------------------------------------------------

    def give_idle(self, order: StartTask, owner: Owner) -> None:
        """Assign an idle process of the owner to a task without a group, if there is one."""
        process = self.idle.take(order.node, order.resources, owner)
        if process is not None:
            self.give(process, order.task, order.attempt, owner.tenant)

    def process_for(self, order: StartTask, tenant: TenantPath, *, is_new: bool = False) -> AgentProcess | None:
        """Choose a process for the task: one that waits in the group, a standby, or a new one. None: the group is gone.

        Args:
            is_new: The process must not have served another task.
        """
        if order.group is None:
            return self._agents.start(node=order.node, resources=order.resources)
        resident = self.residents.pop(order.group, None)
        if resident is not None and resident.is_wanted:
            if resident.tenant is None or (resident.tenant == tenant and not is_new):
                return resident
            self._agents.end(resident)
        if not order.resources["gpu"]:
            standby = self._standbys.take(order.node)
            if standby is not None:
                self._standbys.fill([order.node])
                standby.group = order.group
                return standby
        inside = self._groups.handle(order.group)
        if inside is None:
            return None
        return self._agents.start(node=order.node, resources=order.resources, group=order.group, inside=inside)

    def warm(self, order: CreateGroup) -> None:
        """Start a process that waits in the group for its first task. Idempotent."""
        inside = self._groups.handle(order.group)
        if inside is not None and order.group not in self.residents:
            process = self._agents.start(node=order.nodes[0], resources=order.shape.bundles[0], group=order.group, inside=inside)
            self.residents[order.group] = process

    def give(self, process: AgentProcess, task: TaskId, attempt: int, tenant: TenantPath) -> None:
        """Assign this attempt of the task to the process, and record it for the next supervisor."""
        process.task, process.attempt, process.tenant = task, attempt, tenant
        process.served += 1
        self.hosts[task] = process
        self._store.keep(task, "process", json.dumps({"process": process.name, "attempt": attempt}).encode())

    # -- releasing -----------------------------------------------------------------------------------------------------

    def forget(self, process: AgentProcess) -> None:
        """Remove the process's assignment. Does nothing when another process has the task by now."""
        if process.task is not None and self.hosts.get(process.task) is process:
            del self.hosts[process.task]
            self._store.drop(process.task, "process")

    def settle(self, process: AgentProcess, *, may_stay: bool, owner: Owner | None = None) -> None:
        """Let a process without a task wait if it may: in its group if no other waits there; idle for its owner; else end it."""
        self.forget(process)
        process.task = None
        may_stay = may_stay and process.is_wanted and process.served < self._tasks_max
        if may_stay and process.group is not None and process.group not in self.residents:
            self.residents[process.group] = process
        elif not (may_stay and process.group is None and owner is not None and self.idle.put(process, owner)):
            self._agents.end(process)

    def make_room(self, node: NodeName, free: ResourceSet) -> None:
        """End idle processes until the rest holds no more of the node than is free by the scheduler's count."""
        for process in self.idle.take_surplus(node, free):
            self._agents.end(process)

    def end_expired(self) -> None:
        """End the processes that have been idle for too long."""
        for process in self.idle.take_expired():
            self._agents.end(process)

    def end(self, process: AgentProcess) -> None:
        """Kill the process and remove its assignment."""
        self.forget(process)
        self._agents.end(process)

    def end_attempt(self, task: TaskId, attempt: int) -> None:
        """Kill the processes that have this attempt of the task."""
        for process in [each for each in self._agents.processes.values() if each.task == task and each.attempt == attempt]:
            self.end(process)

    def leave(self, group: GroupId) -> None:
        """Kill all processes of the group. Their tasks stay in `hosts` until their loss is reported."""
        for process in self.in_group(group):
            self._agents.end(process)
        self.residents.pop(group, None)

    def waiting_ended(self, process: AgentProcess) -> None:
        """Remove a dead process from those that wait."""
        self.idle.lost(process)
        if process.group is not None and self.residents.get(process.group) is process:
            del self.residents[process.group]
