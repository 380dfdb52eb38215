"""Dependencies of a graph's nodes. All results are deterministic: equal candidates come in the given order.

The order is computed on arrays: with 100 000 nodes and a million edges, building a networkx graph alone takes longer than the
rest of the checks together. networkx finds the circles of an invalid graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from dag.errors import CycleError
from dag.spec.strict_json import pointer
from mesh.core.ids import NodeId

Places = npt.NDArray[np.int64]

#: Limit on the nodes of a circle in a message.
_CIRCLE_WORDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Graph:
    """Dependencies. `needs` maps every node, in the order of the spec, to the nodes that it reads or waits for, each once."""

    needs: Mapping[NodeId, Sequence[NodeId]]

    def followers(self) -> dict[NodeId, list[NodeId]]:
        """The nodes that need each node, in the order of the spec."""
        followers: dict[NodeId, list[NodeId]] = {node: [] for node in self.needs}
        for node, needs in self.needs.items():
            for need in needs:
                followers[need].append(node)
        return followers

    def edge_count(self) -> int:
        """Number of edges, for data and for order."""
        return sum(map(len, self.needs.values()))


def topological_order(graph: Graph) -> tuple[NodeId, ...]:
    """Return every node after all its needs; among candidates, the first in the spec comes first.

    Raises:
        CycleError: The graph contains a circle.
    """
    names = tuple(graph.needs)
    index = {node: place for place, node in enumerate(names)}
    needed = [index[need] for needs in graph.needs.values() for need in needs]
    waiting = [place for place, needs in enumerate(graph.needs.values()) for _ in needs]
    order = order_of(len(names), np.array(needed, np.int64), np.array(waiting, np.int64))
    if order is None:
        raise CycleError(tuple((pointer("/nodes", circle[0]), circle_in_words(circle)) for circle in circles(graph)))
    return tuple([names[place] for place in order.tolist()])


def order_of(count: int, needed: Places, waiting: Places) -> Places | None:
    """Return every node's place after those of all its needs, the least candidate first; None: there is a circle.

    Args:
        count: Number of nodes.
        needed: A node of each edge, by place.
        waiting: The node that waits for it.
    """
    if np.all(needed < waiting):
        return np.arange(count)
    by_needed = np.argsort(needed, kind="stable")
    followers = waiting[by_needed].tolist()
    ends = np.searchsorted(needed[by_needed], np.arange(count + 1)).tolist()
    missing = np.bincount(waiting, minlength=count).tolist()
    ready = [place for place, left in enumerate(missing) if left == 0]
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for follower in followers[ends[place] : ends[place + 1]]:
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(ready, follower)
    return np.array(order, np.int64) if len(order) == count else None


def circles(graph: Graph) -> Iterator[tuple[NodeId, ...]]:
    """Return one circle per strongly connected component, along the flow of values, from its first node in the spec."""
    nx, view = _networkx(), as_networkx(graph)
    index = {node: place for place, node in enumerate(graph.needs)}
    knots = [knot for knot in nx.strongly_connected_components(view) if len(knot) > 1 or view.has_edge(*(2 * tuple(knot)))]
    for knot in sorted(knots, key=lambda nodes: min(index[node] for node in nodes)):
        start = min(knot, key=index.__getitem__)
        inside = view.subgraph(sorted(knot, key=index.__getitem__))
        nodes = [source for source, _ in nx.find_cycle(inside, source=start)]
        first = nodes.index(min(nodes, key=index.__getitem__))
        yield tuple(nodes[first:] + nodes[:first])


def circle_in_words(circle: Sequence[NodeId]) -> str:
    """Return `the graph runs in a circle: a -> b -> a`, along the flow of values; a long circle without its middle."""
    names: list[str] = [*circle, circle[0]]
    if len(names) > _CIRCLE_WORDS_MAX:
        half = _CIRCLE_WORDS_MAX // 2
        names[half:-half] = [f"… ({len(names) - 2 * half} more) …"]
    return f"the graph runs in a circle: {' -> '.join(names)}"


def as_networkx(graph: Graph) -> Any:
    """Return the graph for networkx, a `networkx.DiGraph`; edges follow the flow of values."""
    view = _networkx().DiGraph()
    view.add_nodes_from(graph.needs)
    view.add_edges_from((need, node) for node, needs in graph.needs.items() for need in needs)
    return view


def _networkx() -> ModuleType:
    """Return networkx."""
    import networkx as nx  # noqa: PLC0415  few processes ask its questions, and the import takes a tenth of a second

    return nx
