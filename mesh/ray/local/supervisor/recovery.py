"""Recovery after a restart of the supervisor: reconciles the journal with Ray, and turns every difference into an event.

Replay restores the scheduler and the task index decision by decision. Three things can differ in Ray: processes and groups may
have died; orders may have been carried out without a journaled answer; processes and groups created just before the death may
be unknown. Lost ones are reported. Orders are carried out again, which is idempotent: an attempt is hosted once, and a group
is created once under its name. Unknown ones are ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import structlog

from mesh.core.ids import GroupId
from mesh.core.resources import NOTHING
from mesh.core.task_spec import AT_WORK, TaskState
from mesh.ray.local.store.payload_store import PayloadStore
from mesh.ray.local.supervisor.agent_client import AgentClient
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.local.supervisor.node_watch import NodeWatch
from mesh.ray.local.supervisor.placement_group_client import GroupSeen, PlacementGroupClient
from mesh.tasks.decisions import Decision
from mesh.tasks.events import AgentLost, GroupGone

log = structlog.get_logger(__name__)

_HAS_AGENT = AT_WORK | {TaskState.PREEMPTED}


class Recovery:
    """One recovery; a new mesh has nothing to recover."""

    def __init__(
        self,
        loop: ControlLoop,
        driver: Driver,
        agents: AgentClient,
        groups: PlacementGroupClient,
        store: PayloadStore,
        nodes: NodeWatch,
    ) -> None:
        self._loop = loop
        self._driver = driver
        self._agents = agents
        self._groups = groups
        self._store = store
        self._nodes = nodes

    async def recover(self) -> Driver:
        """Return the driver with all remaining work handed to it."""
        self._know_nodes()
        names = await asyncio.to_thread(self._agents.names)
        seen = await self._groups.seen()
        task_index = self._loop.task_index
        creates, removes, starts, stops = (
            dict(task_index.creates),
            dict(task_index.removes),
            dict(task_index.starts),
            dict(task_index.stops),
        )
        self._take_groups(seen)
        self._take_processes(names)
        await self._end_unknown(names, seen)
        self._loop.driver = self._driver
        self._report_lost(seen)
        self._order_again([order for group, order in creates.items() if task_index.creates.get(group) is order])
        self._order_again([order for group, order in removes.items() if task_index.removes.get(group) is order])
        self._order_again([order for task, order in starts.items() if task_index.starts.get(task) is order])
        self._order_again([order for task, order in stops.items() if task_index.stops.get(task) is order])
        for task, process in tuple(self._driver.hosts.items()):
            if task not in task_index.starts:
                self._driver.run_entry(task, process)  # The agent runs it once; a repeated call returns the same answer.
        return self._driver

    def _order_again(self, orders: Sequence[Decision]) -> None:
        for order in orders:
            self._driver.carry_out(order)

    def _know_nodes(self) -> None:
        table = self._loop.scheduler.state.table
        for row, name in enumerate(table.names):
            if name is not None:
                foreign = table.amounts(table.foreign[name]) if name in table.foreign else NOTHING
                self._nodes.know(name, table.amounts(table.total[row]), table.labels[row], foreign)

    def _take_groups(self, seen: dict[GroupId, GroupSeen]) -> None:
        """Record the groups that exist as journaled."""
        for group, row in self._loop.task_index.groups.items():
            found = seen.get(group)
            if found is not None and found.state == "CREATED" and row.state != "CREATING" and found.nodes == row.nodes:
                self._driver.on_node[group] = tuple(zip(found.nodes, row.shape.bundles, strict=True))

    def _take_processes(self, names: set[str]) -> None:
        """Find the processes that have a task, or were about to get one."""
        for task, row in self._loop.task_index.tasks.items():
            if row.agent is None:
                continue
            kept = self._store.read(task, "process")
            record = json.loads(kept) if kept is not None else {}
            if record.get("attempt") != row.attempt or record.get("process") not in names:
                continue
            process = self._agents.find(record["process"], node=row.node, group=row.group)
            if process is not None:
                process.task, process.attempt, process.tenant = task, row.attempt, row.request.tenant
                process.holds = row.request.resources
                self._driver.hosts[task] = process

    async def _end_unknown(self, names: set[str], seen: dict[GroupId, GroupSeen]) -> None:
        """End standbys, processes that waited in groups, and unknown ones; new ones are started as needed."""
        known = {process.name for process in self._driver.hosts.values()}
        for name in sorted(names - known):
            self._agents.end_named(name)
        for group in seen.keys() - self._loop.task_index.groups.keys():
            log.info("an unknown placement group is removed", group=group)
            await self._groups.remove(group)

    def _report_lost(self, seen: dict[GroupId, GroupSeen]) -> None:
        at_ms = self._loop.clock.now_ms()
        task_index = self._loop.task_index
        lost_groups = [group for group, row in task_index.groups.items() if row.state == "READY" and group not in self._driver.on_node]
        for group in lost_groups:
            if group in seen:
                self._driver.group_vanished(group)  # Ray has moved it to other nodes: remove it, and report it as gone then.
            else:
                self._loop.send(GroupGone(at_ms=at_ms, group=group))
        lost = [
            (task, row)
            for task, row in task_index.tasks.items()
            if row.state in _HAS_AGENT and row.agent and task not in self._driver.hosts
        ]
        for task, row in lost:
            words = "the agent's process ended while no supervisor was running"
            self._loop.send(AgentLost(at_ms=at_ms, task=task, attempt=row.attempt, detail=words))
