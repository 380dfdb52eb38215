"""Shapes of placement groups, and the group settings of a pool."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.core.resources import NOTHING, ResourceSet


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Shape that makes two placement groups interchangeable."""

    bundles: tuple[ResourceSet, ...]
    strategy: str = "PACK"  #: One of Ray's strategies: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD.

    @property
    def amounts(self) -> ResourceSet:
        """Return the sum over all bundles."""
        return sum(self.bundles, start=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPoolSpec:
    """Placement groups of one pool: a reserved layer, and a dynamic one between two bounds."""

    reserved: tuple[GroupShape, ...] = ()  #: `high_priority_pg_specs`: created beforehand, for tasks of `reserved_priority` and more.
    max_dynamic: int = 4  #: `max_dynamic_pgs`: limit on groups created on demand, in use or idle.
    min_idle: int = 0  #: Number of idle groups retained whatever their age.
    idle_ms: int = 60_000  #: How long idle groups beyond `min_idle` are retained.
    reuse: bool = True
    reserved_priority: float = 8.0
    warm_agents: bool = True  #: Each reserved group has a waiting agent process, so that no task waits for a process start.
