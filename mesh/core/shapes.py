"""Shapes of placement groups and of gangs, and the group settings of a pool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mesh.core.counting import counted
from mesh.core.ids import NodeName
from mesh.core.node_instances import copies_on_node
from mesh.core.resources import NOTHING, ResourceSet, format_units

#: Ray's strategies: few nodes, different nodes, one node, all nodes different.
Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]

#: `max_dynamic` without a limit.
UNBOUNDED = 1 << 30


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
class Gang:
    """Equal bundles of one placement group, which are placed all together or not at all. A stage of gangs has one in each slot."""

    size: int  #: Number of bundles.
    bundle: ResourceSet
    strategy: Strategy = "PACK"

    @property
    def slot(self) -> ResourceSet:
        """Return the sum over all bundles."""
        return self.bundle.times(self.size)

    @property
    def places(self) -> tuple[ResourceSet, int]:
        """Return what must be free on one node, and in how many places: the whole gang in one place under STRICT_PACK."""
        return (self.slot, 1) if self.strategy == "STRICT_PACK" else (self.bundle, self.size)

    def copies_in(self, nodes: Iterable[tuple[ResourceSet, int]]) -> int:
        """Return how many such gangs fit on nodes together.

        Args:
            nodes: Amounts of some nodes that are alike, and the number of these nodes.
        """
        _, count = self.places
        copies = self._copies_on(nodes)
        most = sum(each * number for each, number in copies) // count
        if self.strategy != "STRICT_SPREAD":
            return most
        return next((gangs for gangs in range(most, 0, -1) if _spread_over(copies, gangs) >= gangs * count), 0)

    def places_in(self, nodes: Iterable[tuple[ResourceSet, int]]) -> int:
        """Return how many bundles of one gang fit on nodes together. `nodes`: as for `copies_in`."""
        _, count = self.places
        copies = self._copies_on(nodes)
        found = _spread_over(copies, 1) if self.strategy == "STRICT_SPREAD" else sum(each * number for each, number in copies)
        return min(count, found) * (self.size // count)

    def _copies_on(self, nodes: Iterable[tuple[ResourceSet, int]]) -> list[tuple[int, int]]:
        """Return how many places one node of each kind has, and the number of such nodes. A bundle has a part of one GPU, or whole GPUs."""
        bundles = self.size // self.places[1]
        return [(copies_on_node(self.bundle, amounts) // bundles, number) for amounts, number in nodes]

    def words(self) -> str:
        """Describe the bundles."""
        amounts = " and ".join(f"{format_units(name, units)} {name}" for name, units in self.bundle.items())
        how = {"STRICT_PACK": " on one node", "STRICT_SPREAD": " on nodes of their own"}.get(self.strategy, "")
        return f"{counted(self.size, 'bundle')} of {amounts} each{how}"


#: Room that a slot takes of nodes: amounts on one node, or a gang.
SlotShape = ResourceSet | Gang


def amounts_of(shape: SlotShape) -> ResourceSet:
    """Return the sum of what a slot takes."""
    return shape.slot if isinstance(shape, Gang) else shape


def _spread_over(copies: Iterable[tuple[int, int]], gangs: int) -> int:
    """Return how many bundles fit when a node takes one of each gang at most."""
    return sum(min(each, gangs) * number for each, number in copies)


def bundles_in(gang: Gang | None) -> int:
    """Return the number of nodes that are named for one slot."""
    return 1 if gang is None else gang.size


def gang_size(gang: Gang | None) -> int:
    """Return the number of bundles; 0 for a slot that is no gang."""
    return 0 if gang is None else gang.size


def without_slots(nodes: Sequence[NodeName], gone: Sequence[NodeName], bundles: int = 1) -> tuple[NodeName, ...]:
    """Return the nodes of the slots that are left. Whole slots go, as far as they are there.

    Args:
        nodes: Nodes of all slots, slot after slot.
        gone: Nodes of the slots that go.
        bundles: Number of nodes of one slot.
    """
    going = [sorted(gone[first : first + bundles]) for first in range(0, len(gone), bundles)]
    left: list[NodeName] = []
    for first in range(0, len(nodes), bundles):
        slot = nodes[first : first + bundles]
        if sorted(slot) in going:
            going.remove(sorted(slot))
        else:
            left += slot
    return tuple(left)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPoolSpec:
    """Placement groups of one pool: a reserved layer, and a dynamic one between two bounds."""

    reserved: tuple[GroupShape, ...] = ()  #: `high_priority_pg_specs`: created beforehand, for tasks of `reserved_priority` and more.
    max_dynamic: int = 4  #: `max_dynamic_pgs`: limit on groups created on demand, in use or idle.
    min_idle: int = 0  #: Number of idle groups retained whatever their age.
    idle_ms: int = 60_000  #: How long idle groups beyond `min_idle` are retained.
    reuse: bool = True
    reserved_priority: int | float = 8  #: Whole in a federation: the link of a mesh carries no fractions.
    warm_agents: bool = True  #: Each reserved group has a waiting agent process, so that no task waits for a process start.
