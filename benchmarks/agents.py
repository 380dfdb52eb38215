"""One small class on two sides: hosted by the mesh's agents in an actor group, and as plain Ray actors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from mesh.actors.members import GroupMember
from mesh.core.ids import AgentId, TaskId
from mesh.ray.local.agent.agent import Agent
from mesh.ray.local.agent_messages import HostCommand, Hosted
from mesh.ray.local.client.actor_group import ActorGroup
from mesh.ray.local.pickled_code import pickled_class

#: Name without a supervisor: agents report every few seconds, and continue if no supervisor exists.
NO_SUPERVISOR = ("benchmarks-have-no-supervisor", "benchmarks")


class Echo:
    """Class whose methods do almost nothing."""

    def echo(self, value: Any) -> Any:
        """Return the value."""
        return value

    def size(self, value: Any) -> int:
        """Return the length of the value."""
        return len(value)


@dataclass(frozen=True, slots=True)
class Sides:
    """As many agents as actors, all warm."""

    group: ActorGroup
    actors: tuple[Any, ...]


@contextmanager
def sides(count: int) -> Iterator[Sides]:
    """Yield agents and actors, on the nodes of the mesh and of plain Ray, and remove them at the end. None of them holds a CPU."""
    plain = ray.remote(num_cpus=0)(Echo).options(label_selector={"side": "plain"})
    actors = tuple(plain.remote() for _ in range(count))
    agents = [Agent.options(label_selector={"side": "mesh"}).remote("bench", *NO_SUPERVISOR, f"bench-{rank}") for rank in range(count)]
    try:
        members = [_hosting(agent, rank) for rank, agent in enumerate(agents)]
        ray.get([actor.echo.remote(0) for actor in actors])
        group = ActorGroup(members)
        group.all().echo(0)
        yield Sides(group, actors)
    finally:
        for actor in (*agents, *actors):
            ray.kill(actor)


def _hosting(agent: Any, rank: int) -> GroupMember:
    task = TaskId(f"bench-{rank}")
    answer = ray.get(agent.host.remote(HostCommand(task=task, attempt=1, code=pickled_class(Echo))))
    assert isinstance(answer, Hosted), answer
    return GroupMember(agent=AgentId(f"bench-{rank}"), handle=agent, rank=rank, task=task, attempt=1)
