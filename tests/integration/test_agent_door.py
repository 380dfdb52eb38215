"""The door to agent processes, on a real cluster."""

from __future__ import annotations

import asyncio
import os
import sys

import cloudpickle
import pytest
import ray
from ray.exceptions import ActorDiedError

from mesh.runtime.supervision.agent_door import AgentDoor, AgentProcess

for pickling in (cloudpickle, ray.cloudpickle):  # Workers cannot import this file.
    pickling.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.ray

PATIENCE_S = 60.0


class OutOfReach:
    """Lives, and answers as if it could not be reached."""

    async def wait_end(self):
        raise ray.exceptions.ActorUnavailableError("the connection broke", None)

    async def pid(self):
        return os.getpid()


def test_a_process_that_ray_cannot_reach_any_more_is_told_as_lost_and_holds_nothing(ray_driver):
    lost: list[tuple[str, str]] = []

    async def watched():
        door = AgentDoor("door", "tests", 1, lambda process, words: lost.append((process.name, words)))
        process = door._know(AgentProcess(name="one", handle=ray.remote(OutOfReach).remote(), node=None, group=None))
        await asyncio.wait_for(process.watch, PATIENCE_S)
        return process, door

    process, door = asyncio.run(watched())
    assert [name for name, _ in lost] == ["one"]
    assert "the connection broke" in lost[0][1]
    assert door.processes == {}
    with pytest.raises(ActorDiedError, match=r"ray\.kill"):
        ray.get(process.handle.pid.remote(), timeout=PATIENCE_S)
