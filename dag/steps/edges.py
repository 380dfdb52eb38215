"""Who waits for whom in a graph, looked up from both ends."""

from __future__ import annotations

from collections.abc import Mapping

from dag.compiling import NodePlan
from mesh.ids import NodeId


class Edges:
    """The edges of a graph that does not change.

    Attributes:
        needs: By node, what it waits for: values that it reads, and nodes that only come before it.
        followers: By node, those that wait for it.
        readers: By node, those of the followers that read its value.
    """

    def __init__(self, plans: Mapping[NodeId, NodePlan]) -> None:
        self.needs = {node: tuple(dict.fromkeys((*plan.inputs, *plan.after))) for node, plan in plans.items()}
        self.followers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        self.readers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        for node, needs in self.needs.items():
            for need in needs:
                self.followers[need].append(node)
                if need in plans[node].inputs:
                    self.readers[need].append(node)
