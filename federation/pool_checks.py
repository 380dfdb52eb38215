"""Comparison of the capacity of a mesh's pools with the resources of its Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable

from federation.snapshot import PoolRecord
from mesh.core.resources import NOTHING, ResourceSet, format_units


def unbacked_pools(pools: Iterable[PoolRecord], nodes: Iterable[ResourceSet]) -> tuple[str, ...]:
    """Return a message per resource whose capacity in pools exceeds the nodes' total. Such work is admitted and then waits in Ray.

    No work is refused for this, because nodes may still join, as with an autoscaler.

    Args:
        nodes: Total resources of each node of the mesh, by this project's resource names.
    """
    promised, there = sum((pool.capacity for pool in pools), NOTHING), sum(nodes, NOTHING)
    return tuple(
        f"its pools declare {format_units(name, units)} {name}, its nodes have {format_units(name, there[name])}; "
        "work beyond the nodes would wait in Ray: reduce the pools' capacity, or add nodes"
        for name, units in promised.items()
        if units > there[name]
    )
