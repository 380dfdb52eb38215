"""Sizes of a mesh's nodes. A slot lies on one node, so the largest nodes bound what one task can ask for, however large the pools are."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mesh.core.resources import NOTHING, ResourceSet

#: Most sizes that a mesh reports.
SIZES_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """Total resources of some nodes that are alike."""

    total: ResourceSet
    nodes: int  #: Number of these nodes.


def may_grow(slot: ResourceSet, declared: Iterable[ResourceSet], there: Iterable[ResourceSet]) -> bool:
    """Return whether pools declare more of a resource of the slot than the nodes have: an autoscaler may then add nodes of any size.

    Args:
        declared: Capacities of all pools of the mesh.
        there: Total resources of all its nodes.
    """
    wanted, have = sum(declared, start=NOTHING), sum(there, start=NOTHING)
    return any(wanted[name] > have[name] for name in slot)


def sizes_of(totals: Iterable[ResourceSet]) -> tuple[NodeSize, ...]:
    """Return the sizes of nodes with these totals, at most `SIZES_MAX`, in a fixed order.

    Further sizes become one that is as large as any of them, so a slot that fits a node always fits a reported size.
    """
    counted = sorted(Counter(totals).items(), key=lambda size: tuple(size[0].items()), reverse=True)
    kept, rest = counted[: SIZES_MAX - 1], counted[SIZES_MAX - 1 :]
    if len(rest) > 1:
        largest = NOTHING
        for total, _ in rest:
            largest = largest.join(total)
        rest = [(largest, sum(nodes for _, nodes in rest))]
    return tuple(NodeSize(total=total, nodes=nodes) for total, nodes in (*kept, *rest))
