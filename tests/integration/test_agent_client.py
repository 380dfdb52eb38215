"""Client of agent processes, on a real cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import cloudpickle
import pytest
import ray
from patience import PATIENCE_S
from ray.exceptions import ActorUnavailableError

from mesh.ray.local.supervisor.agent_client import AgentClient, AgentProcess

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray


class OutOfReach:
    """Live agent whose first waiter is answered as if the connection broke."""

    def __init__(self):
        self.waits = 0
        self.is_waited_for = asyncio.Event()

    async def wait_end(self):
        self.waits += 1
        if self.waits == 1:
            raise ActorUnavailableError("the connection broke", None)
        self.is_waited_for.set()
        await asyncio.Event().wait()

    async def pid(self):
        await self.is_waited_for.wait()
        return os.getpid()


def test_a_broken_connection_loses_no_process_and_no_end(ray_driver):
    lost: list[tuple[str, str]] = []

    async def watched():
        client = AgentClient("client", "tests", 1, lambda process, words: lost.append((process.name, words)))
        process = client.track(AgentProcess(name="one", handle=ray.remote(OutOfReach).remote(), node=None, group=None))
        pid = await asyncio.wait_for(process.handle.pid.remote(), PATIENCE_S)
        assert (lost, list(client.processes)) == ([], ["one"])
        os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(process.watch, PATIENCE_S)
        return client.processes

    assert asyncio.run(watched()) == {}
    assert [name for name, _ in lost] == ["one"]
