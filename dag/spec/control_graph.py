"""Control flow of a graph, as the nodes have it; it does not change while the run goes on.

A node with `when` other than success is *tolerant*: it waits for the ends of the nodes in its `after`, whatever these are. Tolerant nodes
and all that follow from them are *cleanup*: they run although the run stops.

A branch of a cond runs only if the cond takes it. A node that only branches need runs only if one of these does. Such a node belongs to
a *head*: the branch that everything that follows from the node leads to. Heads are nested as conds are. A node that both branches of a
cond need belongs to the head of the cond itself, since one of the branches will need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dag.spec.branch_heads import heads_in
from dag.spec.control import ON_SUCCESS, Cond, Control, When
from dag.spec.plans import NodePlan, controls_of, whens_of
from mesh.core.ids import NodeId


class Edges(Protocol):
    """The edges of the graph, as `dag.run.run_status` has them."""

    @property
    def followers(self) -> Mapping[NodeId, Sequence[NodeId]]:
        """Each node to the nodes that wait for it."""
        ...


class ControlGraph:
    """Control flow of a graph.

    Attributes:
        controls: The nodes that the root does itself, in topological order.
        whens: `when` of the tolerant nodes.
        cleanup: The nodes that run although the run stops.
        head_of: Each node that belongs to a branch, to that branch.
        conds_of: Each branch to the conds that may take it; the last branch of the graph first, so branches around others come before them.
        watched: The nodes whose readiness `dag.run.control` decides, in topological order.
    """

    def __init__(self, plans: Mapping[NodeId, NodePlan], edges: Edges, outputs: Iterable[str]) -> None:
        self.controls: dict[NodeId, Control] = controls_of(plans)
        self.whens: dict[NodeId, When] = whens_of(plans)
        self.cleanup: frozenset[NodeId] = _descendants(self.whens, edges) if self.whens else frozenset()
        self.conds_of: dict[NodeId, list[NodeId]] = {}
        for node, control in self.controls.items():
            if isinstance(control, Cond):
                for branch in control.branches:
                    self.conds_of.setdefault(branch, []).append(node)
        self.head_of: dict[NodeId, NodeId] = {}
        if self.conds_of:
            self.conds_of = {node: self.conds_of[node] for node in reversed(tuple(plans)) if node in self.conds_of}
            self._find_heads(plans, edges, frozenset(outputs))
        self.watched: tuple[NodeId, ...] = ()
        if self.controls or self.cleanup:
            self.watched = tuple(node for node in plans if node in self.controls or node in self.cleanup)

    def __bool__(self) -> bool:
        return bool(self.watched)

    def is_tolerant(self, nodes: NDArray[np.intp], names: tuple[NodeId, ...]) -> NDArray[np.bool_]:
        """Return which of these rows are tolerant nodes."""
        return np.fromiter((names[row] in self.whens for row in nodes.tolist()), dtype=np.bool_, count=len(nodes))

    def judges(self, follower: NodeId) -> bool:
        """Return whether a node that a skipped one leads to is left to `dag.run.control`, instead of being skipped too."""
        return follower in self.cleanup or isinstance(self.controls.get(follower), Cond)

    def when_of(self, node: NodeId) -> When:
        """Return when the node runs."""
        return self.whens.get(node, ON_SUCCESS)

    def _find_heads(self, plans: Mapping[NodeId, NodePlan], edges: Edges, outputs: frozenset[str]) -> None:
        def followers_of(node: NodeId) -> list[NodeId]:
            return [each for each in edges.followers[node] if not self._only_waits(each, node, plans)]

        self.head_of = heads_in(tuple(plans), self.conds_of, followers_of, outputs)

    def _only_waits(self, follower: NodeId, node: NodeId, plans: Mapping[NodeId, NodePlan]) -> bool:
        """Return whether the follower is tolerant and does not read the node: it does not need the node to run."""
        return follower in self.whens and node not in plans[follower].task.inputs


def _descendants(nodes: Iterable[NodeId], edges: Edges) -> frozenset[NodeId]:
    found = set(nodes)
    pending = list(found)
    while pending:
        for follower in edges.followers[pending.pop()]:
            if follower not in found:
                found.add(follower)
                pending.append(follower)
    return frozenset(found)
