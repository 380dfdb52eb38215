"""Client for agent processes: start them in reserved room, report their end, end them.

A process is a Ray actor that outlives the supervisor. Starting one takes a second or two, a placement group milliseconds.
Some are therefore started in advance: in the reserved placement groups, and as standbys. A standby holds none of Ray's
resources and serves a task whose group holds the room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util import list_named_actors
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from mesh.core.ids import GroupId, NodeName, TaskId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.ray.cluster.node_resources import actor_options
from mesh.ray.local.agent.agent import Agent
from mesh.ray.local.ray_names import process_name, process_prefix, supervisor_name

#: Seconds between two attempts to reach a process after a broken connection.
REACH_AGAIN_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class AgentProcess:
    """One agent process. Invariant: `task` is set before the order to host and until the process has released the task."""

    name: str
    handle: Any
    node: NodeName | None
    group: GroupId | None = None  #: The process runs in this group, or serves a task that holds the group.
    holds: ResourceSet = NOTHING  #: Ray resources of the process itself.
    tenant: TenantPath | None = None  #: Tenant of the first task; a process never serves two tenants.
    task: TaskId | None = None
    attempt: int = 0
    served: int = 0  #: Attempts that it was assigned to.
    is_wanted: bool = True  #: True: the end of the process is reported.
    watch: asyncio.Task[None] | None = field(default=None, repr=False)


class AgentClient:
    """All agent processes of one mesh. Call methods on the supervisor's event loop; none blocks it.

    Args:
        incarnation: Number of the supervisor's start; part of process names, so that no two supervisors make the same name.
        on_end: Called with Ray's message when a wanted process has ended.
    """

    def __init__(self, mesh: str, namespace: str, incarnation: int, on_end: Callable[[AgentProcess, str], None]) -> None:
        self._mesh = mesh
        self._namespace = namespace
        self._incarnation = incarnation
        self._on_end = on_end
        self._made = 0
        self.processes: dict[str, AgentProcess] = {}

    def start(
        self, *, node: NodeName | None, resources: ResourceSet = NOTHING, group: GroupId | None = None, inside: PlacementGroup | None = None
    ) -> AgentProcess:
        """Start a process in the first bundle of a placement group, or on the node.

        Does not wait. A process that cannot start ends like one that has died.
        """
        self._made += 1
        name = process_name(self._mesh, f"{self._incarnation}.{self._made}")
        strategy: object
        if inside is not None:
            # Tasks that user code submits are captured only if the group has bundles left for them. A group of one bundle is full with
            # its agent, and captured tasks would wait for ever.
            strategy = PlacementGroupSchedulingStrategy(inside, 0, placement_group_capture_child_tasks=inside.bundle_count > 1)
        else:
            strategy = NodeAffinitySchedulingStrategy(str(node), soft=False)
        options = {**actor_options(resources), "scheduling_strategy": strategy}
        actor = Agent.options(name=name, namespace=self._namespace, lifetime="detached", max_restarts=0, **options)
        handle = actor.remote(self._mesh, supervisor_name(self._mesh), self._namespace, name)
        return self.track(AgentProcess(name=name, handle=handle, node=node, group=group, holds=resources))

    def find(self, name: str, *, node: NodeName | None = None, group: GroupId | None = None) -> AgentProcess | None:
        """Return a process that an earlier supervisor started; None when it is gone."""
        known = self.processes.get(name)
        if known is not None:
            return known
        try:
            handle = ray.get_actor(name, namespace=self._namespace)
        except ValueError:
            return None
        return self.track(AgentProcess(name=name, handle=handle, node=node, group=group))

    def names(self) -> set[str]:
        """Return the names of all the mesh's processes that Ray knows, of earlier supervisors too. Blocks for about a millisecond."""
        prefix = process_prefix(self._mesh)
        return {
            actor["name"]
            for actor in list_named_actors(all_namespaces=True)
            if actor["namespace"] == self._namespace and actor["name"].startswith(prefix)
        }

    def end(self, process: AgentProcess) -> None:
        """Kill the process; its end is not reported. Idempotent."""
        process.is_wanted = False
        self.processes.pop(process.name, None)
        ray.kill(process.handle, no_restart=True)
        if process.watch is not None:
            process.watch.cancel()

    def end_named(self, name: str) -> None:
        """Kill a process by name. Does nothing when it is gone."""
        try:
            ray.kill(ray.get_actor(name, namespace=self._namespace), no_restart=True)
        except ValueError:
            return

    def track(self, process: AgentProcess) -> AgentProcess:
        """Count the process as running until it ends."""
        self.processes[process.name] = process
        process.watch = asyncio.get_running_loop().create_task(self._await_end(process), name=f"end of {process.name}")
        return process

    async def _await_end(self, process: AgentProcess) -> None:
        words = None
        while words is None:
            try:
                await process.handle.wait_end.remote()
                words = "the agent's process has ended"
            except ActorUnavailableError:  # A broken connection, as after suspend; the next call shows whether the process lives.
                await asyncio.sleep(REACH_AGAIN_S)
            except RayError as error:
                words = str(error).strip() or type(error).__name__
        if process.is_wanted:
            process.is_wanted = False
            self.processes.pop(process.name, None)
            self._on_end(process, words)
