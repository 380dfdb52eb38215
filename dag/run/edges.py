"""Dependencies of a graph's nodes, in both directions."""

from __future__ import annotations

from collections.abc import Mapping

from dag.spec.plans import NodePlan
from mesh.core.ids import NodeId


class Edges:
    """The edges of a graph, which never change.

    Attributes:
        needs: Each node to the nodes that it waits for, for their values or for the order only.
        followers: Each node to the nodes that wait for it.
        readers: Each node to the followers that read its value.
    """

    def __init__(self, plans: Mapping[NodeId, NodePlan]) -> None:
        self.needs = {node: tuple(dict.fromkeys((*plan.task.inputs, *plan.task.after))) for node, plan in plans.items()}
        self.followers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        self.readers: dict[NodeId, list[NodeId]] = {node: [] for node in plans}
        for node, needs in self.needs.items():
            for need in needs:
                self.followers[need].append(node)
                if need in plans[node].task.inputs:
                    self.readers[need].append(node)
