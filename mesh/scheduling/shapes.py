"""The shape of a placement group, and what a pool keeps of such groups."""

from __future__ import annotations

from dataclasses import dataclass

from mesh.resources import NOTHING, ResourceSet


@dataclass(frozen=True, slots=True)
class GroupShape:
    """What makes two placement groups interchangeable."""

    bundles: tuple[ResourceSet, ...]
    strategy: str = "PACK"  #: Ray's words: PACK, SPREAD, STRICT_PACK, STRICT_SPREAD.

    @property
    def amounts(self) -> ResourceSet:
        """What the whole group takes."""
        return sum(self.bundles, start=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPoolSpec:
    """The placement groups of one pool (seed §6.4): a reserved layer, and a dynamic one between two bounds."""

    reserved: tuple[GroupShape, ...] = ()  #: `high_priority_pg_specs`: made beforehand, for tasks of `reserved_priority` and more.
    max_dynamic: int = 4  #: `max_dynamic_pgs`: groups made on demand, in use or kept.
    min_idle: int = 0  #: Kept idle groups that are not removed for their age.
    idle_ms: int = 60_000  #: How long a group beyond `min_idle` is kept for the next task.
    reuse: bool = True
    reserved_priority: float = 8.0
    warm_agents: bool = True  #: Each reserved group has an agent process that waits in it, so that a start waits for none.
