"""Splits a graph into stages, by the (mesh, level) rule.

With a mesh for every node, L(v) is the largest L(u) + [mesh(u) ≠ mesh(v)] over the edges u → v. Nodes with the same mesh and level
form a stage. Along an edge L never falls, and it rises whenever the mesh changes. So an edge between two stages always leads to a
higher level, stages form no circle, and each node has as few borders before it as its placement allows. O(V + E).

A mesh may have parts, where one slot for all of its nodes would fit nowhere. The parts count as meshes of their own, and so do the gangs
of each shape: a slot of their stage is one gang.

Source: ADR 0007, 0038.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from dag.placement.shape import border_levels
from dag.run.runs import StageRecord
from mesh.core.ids import MeshId, NodeId, StageId


def split(
    order: Sequence[NodeId],
    edges: Iterable[tuple[NodeId, NodeId]],
    mesh_of: Mapping[NodeId, MeshId],
    names: Iterable[StageId],
    part_of: Mapping[NodeId, Hashable] | None = None,
) -> tuple[StageRecord, ...]:
    """Return the stages of the nodes in `order`, lowest level first, then in the order of their first node.

    A stage's width is the largest number of its nodes at one depth. It is never more than the number that can run at once, and less if a
    short branch could run beside a deeper part of a long one.

    Args:
        order: All nodes that are placed and not sent, in topological order. Two calls on parts of these nodes do not know each
            other's edges, so their stages might wait for each other in a circle.
        edges: (from, to), for values and for order. An edge from a node that is not in `order` does not count: that node has ended, or
            belongs to a sent stage, and its value comes from outside in any case.
        mesh_of: The mesh of each node.
        names: Names for the stages, as many as there are nodes or more.
        part_of: Part of its mesh for each node; None: no mesh has parts.
    """
    needs: dict[NodeId, list[NodeId]] = {node: [] for node in order}
    for source, target in edges:
        if source in needs and target in needs:
            needs[target].append(source)
    depth: dict[NodeId, int] = {}
    place_of = {node: (mesh_of[node], part_of[node] if part_of is not None else 0) for node in order}
    level = border_levels(order, needs, place_of)
    members: dict[tuple[int, tuple[MeshId, Hashable]], list[NodeId]] = {}
    for node in order:
        place = place_of[node]
        inside = (depth[need] + 1 for need in needs[node] if place_of[need] == place and level[need] == level[node])
        depth[node] = max(inside, default=0)
        members.setdefault((level[node], place), []).append(node)
    lowest_first = sorted(members.items(), key=lambda item: item[0][0])
    return tuple(
        StageRecord(stage=name, mesh=mesh, level=of_level, nodes=tuple(nodes), width=max(Counter(depth[node] for node in nodes).values()))
        for name, ((of_level, (mesh, _)), nodes) in zip(names, lowest_first, strict=False)
    )
