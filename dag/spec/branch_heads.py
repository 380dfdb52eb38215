"""Heads of nodes that only branches of conds need, and the circles that they make. Pure.

A branch of a cond runs only if the cond takes it. A node belongs to a *head*: the nearest branch that everything that follows from the
node leads to. It runs once a cond has taken its head, so it waits for what that cond decides. A cond may belong to a head as well; then
it decides nothing before its head is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from dag.spec.graph import Graph, topological_order
from mesh.core.ids import NodeId

Needs = Mapping[NodeId, Sequence[NodeId]]


def heads_in(
    order: Sequence[NodeId],
    conds_of: Mapping[NodeId, Sequence[NodeId]],
    followers_of: Callable[[NodeId], Sequence[NodeId]],
    outputs: Collection[str],
) -> dict[NodeId, NodeId]:
    """Return the head of each node that has one. The head of a branch is the branch itself.

    Walks from the ends of the graph to its beginnings: a node's head is the innermost that all its followers have in common.

    Args:
        order: All nodes, each after its needs.
        conds_of: Each branch to the conds that may take it.
        followers_of: Returns the nodes that need a node to run.
        outputs: Nodes that somebody needs in any case.
    """
    heads: dict[NodeId, NodeId] = {}
    depth: dict[NodeId, int] = {}
    above: dict[NodeId, NodeId | None] = {}
    for node in reversed(order):
        if node in conds_of:
            around = _common((heads.get(cond) for cond in conds_of[node]), depth, above)
            above[node], depth[node] = around, depth[around] + 1 if around is not None else 0
            heads[node] = node
            continue
        followers = followers_of(node)
        head = _common((heads.get(each) for each in followers), depth, above) if followers and node not in outputs else None
        if head is not None:
            heads[node] = head
    return heads


def with_decisions(needs: Needs, conds: Needs, outputs: Collection[str]) -> Needs:
    """Return the needs with one more node for what each cond decides, which its branches wait for, where conds have heads.

    A cond within a branch decides only once its head is taken. A graph that has no order with these nodes would wait for ever. All that
    follows from another node of a head leads to the head, so such a node is in no circle without its head.

    Args:
        needs: A graph that has an order.
        conds: Each cond to the node that decides and its branches.
    """
    conds_of: dict[NodeId, list[NodeId]] = {}
    for cond, (_, *branches) in conds.items():
        for branch in dict.fromkeys(branches):
            conds_of.setdefault(branch, []).append(cond)
    graph = Graph(needs)
    followers = graph.followers()
    heads = heads_in(topological_order(graph), conds_of, followers.__getitem__, outputs)
    if heads.keys().isdisjoint(conds):
        return needs
    decided = {cond: NodeId(f"[{cond} decides]") for cond in conds}

    def of_head(node: NodeId) -> list[NodeId]:
        deciding = conds_of[heads[node]] if node in heads else []
        return [decided[cond] for cond in deciding] if len(deciding) == 1 else []  # Of several, each may take the branch.

    found: dict[NodeId, Sequence[NodeId]] = {node: (*own, *of_head(node)) if node in conds_of else own for node, own in needs.items()}
    for cond, (test, *_) in conds.items():
        found[decided[cond]] = (test, *of_head(cond))
    return found


def _common(heads: Iterable[NodeId | None], depth: Mapping[NodeId, int], above: Mapping[NodeId, NodeId | None]) -> NodeId | None:
    """Return the innermost head that is, or is around, each of these."""
    found: NodeId | None = None
    is_first = True
    for head in heads:
        if is_first:
            found, is_first = head, False
        while found != head:
            if found is None or head is None:
                return None
            if depth[found] >= depth[head]:
                found = above[found]
            else:
                head = above[head]  # noqa: PLW2901
    return found
