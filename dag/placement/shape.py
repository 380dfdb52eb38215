"""Shape of a graph, alone and with a mesh for each node: levels, components, fusion, cuts, stages and transfers.

Nodes are numbers from 0; `needs[v]` are the nodes that v waits for, and `order` is a topological order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

N = TypeVar("N", bound=Hashable)


class Shape(NamedTuple):
    """Metrics of a graph."""

    tasks: int
    edges: int
    components: int  #: Weakly connected ones; an isolated node is one.
    levels: int  #: Nodes on the longest way.
    width: int  #: The most nodes at one level.
    linear_edges: int  #: Edges whose source has no other reader and whose target has no other need: a chain may run as one task.


class Transfers(NamedTuple):
    """Objects that cross between meshes, each counted once per destination."""

    objects: int
    size_bytes: int


def shape_of(order: Sequence[int], needs: Sequence[Sequence[int]]) -> Shape:
    """Return the metrics of a graph. O(nodes + edges)."""
    depth = [0] * len(needs)
    readers = Counter(source for sources in needs for source in sources)
    for node in order:
        depth[node] = max([depth[source] + 1 for source in needs[node]], default=0)
    return Shape(
        tasks=len(needs),
        edges=sum(map(len, needs)),
        components=len(set(components(range(len(needs)), dict(enumerate(needs))).values())),
        levels=max(depth, default=-1) + 1,
        width=max(Counter(depth).values(), default=0),
        linear_edges=sum(len(sources) == 1 and readers[sources[0]] == 1 for sources in needs),
    )


def components(nodes: Iterable[N], needs: Mapping[N, Iterable[N]]) -> dict[N, N]:
    """Return a node that stands for the weakly connected component of each node. Needs outside `nodes` do not connect."""
    above: dict[N, N] = {node: node for node in nodes}

    def root(node: N) -> N:
        while above[node] != node:
            above[node] = above[above[node]]
            node = above[node]
        return node

    for node in above:
        for source in needs[node]:
            if source in above:
                above[root(node)] = root(source)
    return {node: root(node) for node in above}


def border_levels(order: Iterable[N], needs: Mapping[N, Iterable[N]], place_of: Mapping[N, Hashable]) -> dict[N, int]:
    """Return L of each node: the most borders between places on a way to it (ADR 0007). Needs outside `order` do not count."""
    level: dict[N, int] = {}
    for node in order:
        place = place_of[node]
        level[node] = max([level[source] + (place_of[source] != place) for source in needs[node] if source in level], default=0)
    return level


def cut_edges(needs: Sequence[Iterable[int]], mesh_of: Sequence[Hashable]) -> int:
    """Return how many edges lead from one mesh to another."""
    return sum(mesh_of[source] != mesh_of[node] for node, sources in enumerate(needs) for source in sources)


def distinct_transfers(reads: Iterable[tuple[N, int, int]], sizes: Mapping[N, int], mesh_of: Sequence[Hashable]) -> Transfers:
    """Return the transfers between meshes.

    Args:
        reads: Object, the node that makes it, and a node that reads it.
        sizes: Bytes of each object.
    """
    crossing = {(thing, mesh_of[reader]) for thing, maker, reader in reads if mesh_of[maker] != mesh_of[reader]}
    return Transfers(objects=len(crossing), size_bytes=sum(sizes[thing] for thing, _ in crossing))
