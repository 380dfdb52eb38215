"""Graph to stages, by the (mesh, level) rule.

With a mesh for every node, L(v) is the largest L(u) + [mesh(u) ≠ mesh(v)] over the edges u → v; a stage is what shares mesh and
level. Along an edge L never falls, and it rises whenever the mesh changes: so an edge between two stages always leads to a higher
level, stages form no circle, and the number of borders on the way to a node is the least that its placement allows. O(V + E).

Source: ADR 0007.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mesh.ids import MeshId, NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """A stage before it has a name."""

    mesh: MeshId
    level: int  #: How many borders lie before it at most.
    nodes: tuple[NodeId, ...]  #: In topological order.
    #: The most nodes at one depth of the stage, its inner edges counted: about how many could run at once. Never more than the true
    #: number; less where a short lane could run beside a deeper part of a long one.
    width: int


def split(order: Sequence[NodeId], edges: Iterable[tuple[NodeId, NodeId]], mesh_of: Mapping[NodeId, MeshId]) -> tuple[StagePlan, ...]:
    """The stages of the nodes in `order`, lowest level first, then in the order of their first node.

    Args:
        order: The nodes, topologically ordered: all that are placed and not sent. Two calls on parts of what is not sent know nothing
            of each other's edges, and their stages may wait for each other in a circle.
        edges: (from, to), of values and of order. One from a node that is not in `order` does not count: that node has finished, or
            belongs to a stage that was sent, and its value comes from outside wherever it is.
        mesh_of: Where each node goes.
    """
    needs: dict[NodeId, list[NodeId]] = {node: [] for node in order}
    for source, target in edges:
        if source in needs and target in needs:
            needs[target].append(source)
    level: dict[NodeId, int] = {}
    depth: dict[NodeId, int] = {}
    members: dict[tuple[int, MeshId], list[NodeId]] = {}
    for node in order:
        mesh = mesh_of[node]
        level[node] = max((level[need] + (mesh_of[need] != mesh) for need in needs[node]), default=0)
        inside = (depth[need] + 1 for need in needs[node] if mesh_of[need] == mesh and level[need] == level[node])
        depth[node] = max(inside, default=0)
        members.setdefault((level[node], mesh), []).append(node)
    plans = [
        StagePlan(mesh=mesh, level=of_level, nodes=tuple(nodes), width=max(Counter(depth[node] for node in nodes).values()))
        for (of_level, mesh), nodes in members.items()
    ]
    return tuple(sorted(plans, key=lambda plan: plan.level))


def exports(edges: Iterable[tuple[NodeId, NodeId]], mesh_of: Mapping[NodeId, MeshId], outputs: Iterable[NodeId]) -> frozenset[NodeId]:
    """The nodes whose values must leave their mesh: the user's outputs, and what a node on another mesh reads.

    Args:
        edges: (from, to) where `to` reads the value; an order without a value is none.
    """
    return frozenset(outputs) | frozenset(source for source, _ in transfers(edges, mesh_of))


def transfers(edges: Iterable[tuple[NodeId, NodeId]], mesh_of: Mapping[NodeId, MeshId]) -> frozenset[tuple[NodeId, MeshId]]:
    """What crosses a border: (node, destination mesh), once however many nodes read the value there."""
    return frozenset((source, mesh_of[target]) for source, target in edges if mesh_of[source] != mesh_of[target])
