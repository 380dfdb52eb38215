"""Idle agent processes, a few per node, for tasks whose placement group already holds the room."""

from __future__ import annotations

from collections.abc import Iterable

from mesh.core.ids import NodeName
from mesh.ray.local.supervisor.agent_client import AgentClient, AgentProcess


class Standbys:
    """Keeps `per_node` processes ready on each node.

    A standby holds none of Ray's resources. It serves tasks without GPUs only: Ray assigns GPUs to a process when it starts.
    """

    def __init__(self, client: AgentClient, per_node: int) -> None:
        self._client = client
        self._per_node = per_node
        self._ready: dict[NodeName, list[AgentProcess]] = {}

    def fill(self, nodes: Iterable[NodeName]) -> None:
        """Start missing standbys on these nodes. Does not wait."""
        for node in nodes:
            ready = self._ready.setdefault(node, [])
            while len(ready) < self._per_node:
                ready.append(self._client.start(node=node))

    def take(self, node: NodeName) -> AgentProcess | None:
        """Take the node's oldest standby; the caller calls `fill` afterwards."""
        ready = self._ready.get(node)
        return ready.pop(0) if ready else None

    def lost(self, process: AgentProcess) -> bool:
        """Remove a dead process; return whether it was a standby."""
        for ready in self._ready.values():
            if process in ready:
                ready.remove(process)
                return True
        return False

    def leave(self, node: NodeName) -> None:
        """End the standbys of a node that is gone."""
        for process in self._ready.pop(node, []):
            self._client.end(process)

    def count(self, node: NodeName) -> int:
        return len(self._ready.get(node, []))

    def __contains__(self, process: object) -> bool:
        return any(process in ready for ready in self._ready.values())
