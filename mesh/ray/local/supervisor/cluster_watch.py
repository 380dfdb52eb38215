"""Check of Ray's nodes and placement groups once a second; changes become events."""

from __future__ import annotations

import asyncio

import structlog

from mesh.core.ids import NodeName
from mesh.core.resources import ResourceSet
from mesh.ray.local.supervisor.control_loop import ControlLoop
from mesh.ray.local.supervisor.driver import Driver
from mesh.ray.local.supervisor.node_watch import NodeWatch, look_at_nodes
from mesh.ray.local.supervisor.placement_group_client import PlacementGroupClient
from mesh.ray.local.supervisor.standbys import Standbys
from mesh.tasks.events import Ticked

log = structlog.get_logger(__name__)

#: Seconds between two checks of the cluster.
WATCH_S = 1.0


class ClusterWatch:
    """Checks the cluster once a second and reports the differences.

    Args:
        selector: Labels of this mesh's nodes; empty: all nodes.
    """

    def __init__(
        self, loop: ControlLoop, driver: Driver, groups: PlacementGroupClient, standbys: Standbys, selector: dict[str, str]
    ) -> None:
        self._loop = loop
        self._driver = driver
        self._groups = groups
        self._standbys = standbys
        self._selector = selector
        self.nodes = NodeWatch(self._taken)
        self._looking = asyncio.Lock()
        self._begun = 0  #: Number of checks begun.
        driver.look_at_nodes = self.look

    async def look(self) -> None:
        """Run one check that begins after this call. Checks are serial: parallel ones could report events in the wrong order."""
        begun = self._begun
        async with self._looking:
            if self._begun == begun:
                self._begun += 1
                await self._look()

    async def _look(self) -> None:
        before = self.nodes.nodes
        seen = await asyncio.to_thread(look_at_nodes, self._selector)
        new_events = self.nodes.compare(seen, self._loop.clock.now_ms())
        if new_events:  # The watch has recorded these changes, so no event may get lost; node events go before losses on those nodes.
            self._driver.event_queue.send(*new_events)
        for gone in before - self.nodes.nodes:
            self._standbys.leave(gone)
        self._standbys.fill(self.nodes.nodes)
        self._driver.end_idle()
        await self._look_at_groups()

    async def run(self) -> None:
        """Check for ever. A failed check is logged and repeated: Ray's control process (GCS) may be restarting."""
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self.look()
                if self._loop.needs_tick():
                    self._loop.send(Ticked(at_ms=self._loop.clock.now_ms()))
            except Exception:
                log.exception("the check of the cluster failed")

    async def _look_at_groups(self) -> None:
        stood = set(self._driver.on_node)
        if not stood:
            return
        seen = await self._groups.seen()
        for group in stood & set(self._driver.on_node):
            row = self._loop.task_index.groups.get(group)
            if row is None or row.state != "READY":
                continue
            if group not in seen or seen[group].state == "RESCHEDULING" or seen[group].nodes != row.nodes:
                self._driver.group_vanished(group)

    def _taken(self, node: NodeName) -> ResourceSet:
        return self._driver.taken(node)
