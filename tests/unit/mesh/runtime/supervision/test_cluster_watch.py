"""Looks at the cluster, without one: what is not taken is not lost."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from mesh.errors import RuntimeDoorError
from mesh.resources import ResourceSet
from mesh.runtime.supervision import cluster_watch
from mesh.runtime.supervision.archive import Archive
from mesh.runtime.supervision.cluster_watch import ClusterWatch
from mesh.runtime.supervision.control_loop import ControlLoop, MeshClock
from mesh.runtime.supervision.node_watch import NodeSeen
from mesh.runtime.supervision.plugin_host import PluginHost
from mesh.scheduling.scheduler import MeshScheduler

ONE = ResourceSet.of({"cpu": 1})


def test_a_node_that_the_loop_did_not_take_is_told_at_the_next_look(tmp_path, monkeypatch):
    seen = NodeSeen(node="a", total=ONE, labels={}, available=ONE)
    monkeypatch.setattr(cluster_watch, "look_at_nodes", lambda _: [seen])

    def full(*_):
        raise RuntimeDoorError("no space left")

    async def scene():
        archive, plugins = Archive(tmp_path), PluginHost()
        loop = ControlLoop(archive, MeshScheduler, MeshClock(), plugins)
        driver = SimpleNamespace(on_node={}, taken=lambda _: ResourceSet(), look_at_nodes=None)
        standbys = SimpleNamespace(leave=lambda _: None, fill=lambda _: None)
        watch = ClusterWatch(loop, driver, None, standbys, {})
        with monkeypatch.context() as patch:
            patch.setattr(archive, "append", full)
            with pytest.raises(RuntimeDoorError):
                await watch.look()
        assert "a" not in loop.scheduler.state.table
        await watch.look()
        assert "a" in loop.scheduler.state.table

    asyncio.run(scene())
