"""Once a second, a look at what lives in Ray: nodes and placement groups. What has changed becomes events."""

from __future__ import annotations

import asyncio

import structlog

from mesh.ids import NodeName
from mesh.resources import ResourceSet
from mesh.runtime.supervision.control_loop import ControlLoop
from mesh.runtime.supervision.driver import Driver
from mesh.runtime.supervision.group_door import GroupDoor
from mesh.runtime.supervision.node_watch import NodeWatch, look_at_nodes
from mesh.runtime.supervision.standbys import Standbys
from mesh.scheduling.events import Ticked

log = structlog.get_logger(__name__)

#: Between two looks at the cluster.
WATCH_S = 1.0


class ClusterWatch:
    """Looks at the cluster once a second, and tells the differences.

    Args:
        selector: Labels of the nodes that are this mesh's; empty: all.
    """

    def __init__(self, loop: ControlLoop, driver: Driver, groups: GroupDoor, standbys: Standbys, selector: dict[str, str]) -> None:
        self._loop = loop
        self._driver = driver
        self._groups = groups
        self._standbys = standbys
        self._selector = selector
        self.nodes = NodeWatch(self._taken)
        self._looking = asyncio.Lock()
        self._begun = 0  #: Looks.
        driver.look_at_nodes = self.look

    async def look(self) -> None:
        """One look, that begins after this call: two looks at once could tell their news in the wrong order."""
        begun = self._begun
        async with self._looking:
            if self._begun == begun:
                self._begun += 1
                await self._look()

    async def _look(self) -> None:
        before = self.nodes.nodes
        seen = await asyncio.to_thread(look_at_nodes, self._selector)
        news = self.nodes.compare(seen, self._loop.clock.now_ms())
        if news:  # The watch knows them from now on, so none may get lost; and nodes are told before what was lost with them.
            self._driver.news.tell(*news)
        for gone in before - self.nodes.nodes:
            self._standbys.leave(gone)
        self._standbys.fill(self.nodes.nodes)
        await self._look_at_groups()

    async def run(self) -> None:
        """Look for ever. A look that fails is told and tried again: Ray's own control process may be starting anew."""
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self.look()
                if self._loop.wants_tick():
                    self._loop.tell(Ticked(at_ms=self._loop.clock.now_ms()))
            except Exception:
                log.exception("the cluster could not be looked at")

    async def _look_at_groups(self) -> None:
        stood = set(self._driver.on_node)
        if not stood:
            return
        seen = await self._groups.seen()
        for group in stood & set(self._driver.on_node):
            row = self._loop.book.groups.get(group)
            if row is None or row.state != "READY":
                continue
            if group not in seen or seen[group].state == "RESCHEDULING" or seen[group].nodes != row.nodes:
                self._driver.group_vanished(group)

    def _taken(self, node: NodeName) -> ResourceSet:
        return self._driver.taken(node)
