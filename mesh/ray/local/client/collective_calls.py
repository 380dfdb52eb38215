"""Calls of many agents together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mesh.actors.errors import NoMembers
from mesh.core.ids import PoolName, TaskId
from mesh.ray.local.client.actor_group import ActorGroup
from mesh.ray.local.client.checked_calls import Seconds, checked
from mesh.ray.local.client.supervisor_link import SupervisorLink
from mesh.ray.local.client.task_handle import TaskHandle
from mesh.ray.local.verbs import AgentVerbs, TaskVerbs


@checked(skip=("choose",))  # Called once for each call on an agent.
class CollectiveCalls:
    """Groups of agents, and the three ways to call them."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link
        self._groups: dict[str | None, ActorGroup] = {}

    def group(
        self,
        *,
        pool: str | None = None,
        label: str | None = None,
        tasks: Sequence[str | TaskHandle] | None = None,
        shape: Mapping[str, int] | None = None,
    ) -> ActorGroup:
        """Return a group of ranked agents: those of a pool, of a label, or of these tasks, in this order.

        Agents that are not up yet are left out. `shape={"pipeline": 2, "tensor": 2}` names its dimensions.

        Raises:
            PoolUnknown: The pool does not exist.
            TaskUnknown: A task does not exist.
            ShapeError: The size of the shape is not the number of agents.
        """
        names = tuple(TaskId(task if isinstance(task, str) else task.task) for task in tasks) if tasks is not None else None
        members = self._link.ask(AgentVerbs.members, PoolName(pool) if pool is not None else None, label, names)
        for name in set(names or ()) - {member.task for member in members}:
            self._link.ask(TaskVerbs.task, name)  # Raises if the task does not exist; else the agent is not up.
        return ActorGroup(members, shape)

    def all(self, label: str | None = None, *, timeout: Seconds | None = None) -> Any:
        """Call the same method on every agent of the label: `mesh.all("tier:gold").step(x)`. Each call looks the agents up; keep a
        `group` for a loop. Raises `NoMembers` when no agent with the label is up.
        """
        return self._up(label).all(timeout=timeout)

    def choose(self, label: str | None = None, strategy: str = "least_busy", *, timeout: float | None = None) -> Any:
        """Choose one agent of the label for each call: `mesh.choose("tier:gold").infer(x)`. The group behind it is cached, so that
        calls in flight count as load. Raises `NoMembers`.
        """
        kept = self._groups.get(label)
        if kept is None or kept.lost or not kept.members:
            members = self._link.ask(AgentVerbs.members, None, label, None)
            if not members:
                raise _nobody(label)
            kept = self._groups[label] = ActorGroup(members) if kept is None else kept.with_members(members)
        return kept.choose(strategy=strategy, timeout=timeout)

    def refresh_groups(self) -> None:
        """Clear the cached groups of `choose`, because agents were added or removed."""
        self._groups.clear()

    def shard(self, /, label: str | None = None, **options: Any) -> Any:
        """Make a collective call on the agents of the label; options as in `ActorGroup.shard`. Raises `NoMembers`."""
        return self._up(label).shard(**options)

    def _up(self, label: str | None) -> ActorGroup:
        group = self.group(label=label)
        if not group:
            raise _nobody(label)
        return group


def _nobody(label: str | None) -> NoMembers:
    whose = f"no agent that is up has the label {label!r}" if label is not None else "no agent is up"
    return NoMembers(f"{whose}; `list_agents()` shows all agents")
