"""What the pools of a mesh promise, held against what its Ray cluster has."""

from __future__ import annotations

from collections.abc import Iterable

from federation.snapshot import PoolRecord
from mesh.resources import NOTHING, ResourceSet, format_units


def broken_promises(pools: Iterable[PoolRecord], nodes: Iterable[ResourceSet]) -> tuple[str, ...]:
    """What pools promise beyond all that the nodes have, in words, by resource: such work is admitted, and then waits in Ray.

    Nobody is refused for it, since nodes may be on their way, as with an autoscaler.

    Args:
        nodes: All that each node of the mesh has, by this project's names of resources.
    """
    promised, there = sum((pool.capacity for pool in pools), NOTHING), sum(nodes, NOTHING)
    return tuple(
        f"its pools promise {format_units(name, units)} {name}, its nodes have {format_units(name, there[name])}; "
        "the rest would wait in Ray: promise less, or add nodes"
        for name, units in promised.items()
        if units > there[name]
    )
