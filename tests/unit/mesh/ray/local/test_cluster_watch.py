"""Watch of the cluster's nodes, without Ray: an event that was not accepted is sent again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.errors import LedgerError, RuntimeAdapterError
from mesh.ray.local.store.archive import Archive
from mesh.ray.local.supervisor import cluster_watch, event_retry_queue
from mesh.ray.local.supervisor.cluster_watch import ClusterWatch
from mesh.ray.local.supervisor.control_loop import ControlLoop, MeshClock
from mesh.ray.local.supervisor.event_retry_queue import EventRetryQueue
from mesh.ray.plugins.plugin_host import PluginHost
from mesh.tasks.scheduler import MeshScheduler

ONE = ResourceSet.of({"cpu": 1})


async def locks(count):
    for _ in range(count):
        await asyncio.sleep(0)


def node(name):
    return NodeSeen(node=name, total=ONE, labels={}, available=ONE)


class Scene:
    """Watch of these nodes, a loop, and the orders to the standbys."""

    def __init__(self, folder, monkeypatch, *seen):
        monkeypatch.setattr(cluster_watch, "look_at_nodes", lambda _: list(seen))
        monkeypatch.setattr(event_retry_queue, "SEND_AGAIN_S", 0)
        self.archive, self.filled = Archive(folder), []
        self.loop = ControlLoop(self.archive, MeshScheduler, MeshClock(), PluginHost())
        event_queue = EventRetryQueue(self.loop.send)
        driver = SimpleNamespace(
            on_node={}, taken=lambda _: ResourceSet(), look_at_nodes=None, event_queue=event_queue, end_idle=lambda: None
        )
        self.watch = ClusterWatch(self.loop, driver, None, SimpleNamespace(leave=lambda _: None, fill=self.filled.append), {})

    def known(self):
        return {name for name in self.loop.scheduler.state.table.names if name is not None}


def test_a_node_that_was_not_journaled_is_reported_again(tmp_path, monkeypatch):
    def full(*_):
        raise RuntimeAdapterError("no space left")

    async def scene():
        scene = Scene(tmp_path, monkeypatch, node("a"))
        with monkeypatch.context() as patch:
            patch.setattr(scene.archive, "append", full)
            await scene.watch.look()
        assert scene.known() == set()
        await locks(10)
        assert scene.known() == {"a"}

    asyncio.run(scene())


def test_a_node_that_is_never_accepted_stops_nothing_else(tmp_path, monkeypatch):
    async def scene():
        scene = Scene(tmp_path, monkeypatch, node("a"), node("b"), node("c"))
        handle = MeshScheduler.handle

        def picky(self, *events):
            if any(event.node == "b" for event in events):
                raise LedgerError("its total cannot be")
            return handle(self, *events)

        monkeypatch.setattr(MeshScheduler, "handle", picky)
        for _ in range(2):
            await scene.watch.look()
            await locks(100)
        assert scene.known() == {"a", "c"}
        assert scene.filled == [{"a", "b", "c"}] * 2

    asyncio.run(scene())
