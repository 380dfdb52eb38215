"""Polls the nodes of the cluster and reports differences only.

Ray offers no subscription to nodes, so they are polled. Use by others is reported when two polls agree on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray._private.state import available_resources_per_node

from mesh.core.ids import NodeName
from mesh.core.labels import mismatch
from mesh.core.resources import ResourceSet
from mesh.core.seen_nodes import ForeignUse, NodeSeen
from mesh.ray.cluster.node_resources import own_resources
from mesh.tasks.events import Event, NodeJoined, NodeLeft, NodeUseSeen


def look_at_nodes(selector: Mapping[str, str] | None = None) -> list[NodeSeen]:
    """Return the live nodes whose labels match `selector`. Blocks for about a millisecond."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # untyped in Ray
    available: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]  # the same
    return [
        NodeSeen(
            node=NodeName(row["NodeID"]),
            total=own_resources(row["Resources"]),
            labels=dict(row["Labels"]),
            available=own_resources(available.get(row["NodeID"], {})),
            host=str(row["NodeManagerAddress"]),
        )
        for row in rows
        if row["Alive"] and mismatch(selector or {}, row["Labels"]) is None
    ]


class NodeWatch:
    """Turns differences between two polls into events.

    Args:
        ours: Returns this mesh's own use of a node, as far as Ray must know of it by now.
    """

    def __init__(self, ours: Callable[[NodeName], ResourceSet]) -> None:
        self._ours = ours
        self._known: dict[NodeName, tuple[ResourceSet, dict[str, str]]] = {}
        self._foreign = ForeignUse()

    @property
    def nodes(self) -> frozenset[NodeName]:
        """Nodes of the last poll."""
        return frozenset(self._known)

    def know(self, node: NodeName, total: ResourceSet, labels: Mapping[str, str], foreign: ResourceSet) -> None:
        """Record a node, and the use by others, that the scheduler knew before the supervisor restarted."""
        self._known[node] = (total, dict(labels))
        self._foreign.know(node, foreign)

    def compare(self, seen: list[NodeSeen], at_ms: int) -> list[Event]:
        """Return the changes since the last poll as events."""
        events: list[Event] = []
        for gone in self._known.keys() - {look.node for look in seen}:
            del self._known[gone]
            self._foreign.forget(gone)
            events.append(NodeLeft(at_ms=at_ms, node=gone))
        for look in seen:
            facts = look.total, dict(look.labels)
            if self._known.get(look.node) != facts:
                self._known[look.node] = facts
                events.append(NodeJoined(at_ms=at_ms, node=look.node, total=look.total, labels=dict(look.labels)))
            foreign = self._foreign.change(look.node, look.used_beside(self._ours(look.node)))
            if foreign is not None:
                events.append(NodeUseSeen(at_ms=at_ms, node=look.node, foreign=foreign))
        return events
