"""The shape of a graph: which node needs which. Deterministic everywhere: where the graph leaves a choice, nodes come in the given order.

Order and levels are computed on plain dicts: with 100 000 nodes and a million edges, building a networkx graph alone takes
longer than the rest of the checks together. networkx is used for what is asked rarely: circles and reachability.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from dag.errors import CycleError
from mesh.ids import NodeId

#: More of a circle than this is left out of its words.
_CIRCLE_WORDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Graph:
    """`needs` maps every node, in the order of the spec, to the nodes that it reads or waits for, each once."""

    needs: Mapping[NodeId, Sequence[NodeId]]

    def followers(self) -> dict[NodeId, list[NodeId]]:
        """The nodes that need each node, in the order of the spec."""
        followers: dict[NodeId, list[NodeId]] = {node: [] for node in self.needs}
        for node, needs in self.needs.items():
            for need in needs:
                followers[need].append(node)
        return followers

    def edge_count(self) -> int:
        """Edges, data and order together."""
        return sum(map(len, self.needs.values()))


def topological_order(graph: Graph) -> tuple[NodeId, ...]:
    """Every node after all that it needs; among those that could come next, the one that stands first in the spec.

    Raises:
        CycleError: The graph runs in a circle.
    """
    index = {node: place for place, node in enumerate(graph.needs)}
    names = tuple(graph.needs)
    missing = {node: len(needs) for node, needs in graph.needs.items()}
    followers = graph.followers()
    ready = [index[node] for node, count in missing.items() if count == 0]
    order: list[NodeId] = []
    while ready:
        node = names[heapq.heappop(ready)]
        order.append(node)
        for follower in followers[node]:
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(ready, index[follower])
    if len(order) < len(names):
        raise CycleError(tuple((f"/nodes/{circle[0]}", circle_in_words(circle)) for circle in circles(graph)))
    return tuple(order)


def circles(graph: Graph) -> Iterator[tuple[NodeId, ...]]:
    """One circle for each knot of circles, along the flow of values; beginning with the node that stands first in the spec."""
    view = as_networkx(graph)
    index = {node: place for place, node in enumerate(graph.needs)}
    knots = [knot for knot in nx.strongly_connected_components(view) if len(knot) > 1 or view.has_edge(*(2 * tuple(knot)))]
    for knot in sorted(knots, key=lambda nodes: min(index[node] for node in nodes)):
        start = min(knot, key=index.__getitem__)
        inside = view.subgraph(sorted(knot, key=index.__getitem__))
        nodes = [source for source, _ in nx.find_cycle(inside, source=start)]
        first = nodes.index(min(nodes, key=index.__getitem__))
        yield tuple(nodes[first:] + nodes[:first])


def find_circle(graph: Graph) -> tuple[NodeId, ...] | None:
    """The nodes of the first circle, each once; None when there is none."""
    return next(circles(graph), None)


def circle_in_words(circle: Sequence[NodeId]) -> str:
    """`the graph runs in a circle: a -> b -> a`, each arrow the way that a value goes; long ones without their middle."""
    names: list[str] = [*circle, circle[0]]
    if len(names) > _CIRCLE_WORDS_MAX:
        half = _CIRCLE_WORDS_MAX // 2
        names[half:-half] = [f"… ({len(names) - 2 * half} more) …"]
    return f"the graph runs in a circle: {' -> '.join(names)}"


def levels(graph: Graph, order: Iterable[NodeId]) -> dict[NodeId, int]:
    """How many edges the longest way to each node has; `order` is topological."""
    depth: dict[NodeId, int] = {}
    for node in order:
        depth[node] = max((depth[need] + 1 for need in graph.needs[node]), default=0)
    return depth


def ancestors(graph: Graph, node: NodeId) -> tuple[NodeId, ...]:
    """All that the node depends on, directly or not, in the order of the spec."""
    found = nx.ancestors(as_networkx(graph), node)
    return tuple(other for other in graph.needs if other in found)


def descendants(graph: Graph, node: NodeId) -> tuple[NodeId, ...]:
    """All that depends on the node, directly or not, in the order of the spec."""
    found = nx.descendants(as_networkx(graph), node)
    return tuple(other for other in graph.needs if other in found)


def as_networkx(graph: Graph) -> nx.DiGraph[NodeId]:
    """The graph for networkx; edges go the way that values go."""
    view: nx.DiGraph[NodeId] = nx.DiGraph()
    view.add_nodes_from(graph.needs)
    view.add_edges_from((need, node) for node, needs in graph.needs.items() for need in needs)
    return view
