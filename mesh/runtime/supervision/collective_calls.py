"""Calls of many agents together (seed §4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mesh.ids import PoolName, TaskId
from mesh.runtime.supervision.actor_group import ActorGroup
from mesh.runtime.supervision.mesh_calls import MeshCalls
from mesh.runtime.supervision.task_handle import TaskHandle


class CollectiveCalls(MeshCalls):
    """Groups of agents, and the three ways to call them."""

    def __init__(self, name: str, *, namespace: str) -> None:
        super().__init__(name, namespace=namespace)
        self._groups: dict[str | None, ActorGroup] = {}

    def group(
        self,
        *,
        pool: str | None = None,
        label: str | None = None,
        tasks: Sequence[str | TaskHandle] | None = None,
        shape: Mapping[str, int] | None = None,
    ) -> ActorGroup:
        """Agents with ranks, called together: those of a pool, of a label, or of these tasks, in this order.

        Agents that are not up yet are not in it. `shape={"pipeline": 2, "tensor": 2}` names its dimensions.

        Raises:
            ShapeError: The shape has not as many places as there are agents.
        """
        names = tuple(TaskId(task if isinstance(task, str) else task.task) for task in tasks) if tasks is not None else None
        members = self._link.ask("members", PoolName(pool) if pool is not None else None, label, names)
        return ActorGroup(members, shape)

    def all(self, label: str | None = None, *, timeout: float | None = None) -> Any:
        """The same method on every agent of the label: `mesh.all("tier:gold").step(x)`. Looked up anew each time; keep a `group`
        for a loop."""
        return self.group(label=label).all(timeout=timeout)

    def choose(self, label: str | None = None, strategy: str = "least_busy", *, timeout: float | None = None) -> Any:
        """One agent of the label for each call: `mesh.choose("tier:gold").infer(x)`. The group behind it is kept, so that what is
        in flight counts."""
        kept = self._groups.get(label)
        if kept is None or kept.lost or not kept.members:
            members = self._link.ask("members", None, label, None)
            kept = self._groups[label] = ActorGroup(members) if kept is None else kept.with_members(members)
        return kept.choose(strategy=strategy, timeout=timeout)

    def refresh_groups(self) -> None:
        """Forget which agents `choose` leads to: some have come or gone."""
        self._groups.clear()

    def shard(self, label: str | None = None, **options: Any) -> Any:
        """A collective call on the agents of the label; options as `ActorGroup.shard` has them."""
        return self.group(label=label).shard(**options)
