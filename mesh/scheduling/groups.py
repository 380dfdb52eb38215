"""A placement group of a pool: in which layer it stands, who has it, and which wishes its shape can serve.

A pool's groups stand in two layers (seed §6.4). The reserved ones are made beforehand and wait for urgent tasks; the dynamic
ones are made on demand, kept for the next task of the same shape, and removed for their age or when they stand in the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mesh.counting import counted
from mesh.ids import GroupId, NodeName, PoolName, TaskId
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.shapes import GroupShape


class GroupState(str, Enum):
    """Where a placement group stands."""

    CREATING = "CREATING"
    """Ordered; Ray has not answered. For its holder, if it has one."""
    IDLE = "IDLE"
    """Ready, and free for the next task."""
    TAKEN = "TAKEN"
    """A task's."""
    HELD = "HELD"
    """Idle, and kept for one task: the one for which its last holder gave way."""
    REMOVING = "REMOVING"
    """To be given back; its room is not free before Ray says so."""


class Layer(str, Enum):
    """Which part of a pool's groups."""

    RESERVED = "RESERVED"
    """Made beforehand, for tasks of `reserved_priority` and more."""
    DYNAMIC = "DYNAMIC"
    """Made on demand, up to `max_dynamic`."""


@dataclass(slots=True, kw_only=True)
class GroupRecord:
    """A placement group; only its ledger writes it."""

    group: GroupId
    pool: PoolName
    shape: GroupShape
    layer: Layer
    nodes: tuple[NodeName, ...]  #: One per bundle.
    state: GroupState = GroupState.CREATING
    holder: TaskId | None = None  #: TAKEN, HELD: always; CREATING: if it is made for one task; else None.
    reuse_count: int = 0  #: How often a task got it that another one had before.
    idle_since_ms: int | None = None  #: IDLE and HELD only.
    last_holder: TaskId | None = None  #: Who had it last, ready.

    def amounts_on(self, node: NodeName) -> ResourceSet:
        """What it takes of this node."""
        return sum((bundle for bundle, there in zip(self.shape.bundles, self.nodes, strict=True) if there == node), start=NOTHING)

    @property
    def since_ms(self) -> int:
        """Since when it is idle; 0 when it is not."""
        return self.idle_since_ms or 0

    def contradictions(self) -> Iterator[str]:
        """What of it cannot be, in words; nothing of a record that is right."""
        state, name = self.state, f"placement group {self.group}"
        is_idle = state in (GroupState.IDLE, GroupState.HELD)
        if is_idle is (self.idle_since_ms is None):
            yield f"{name} is {state.value} with idle_since_ms {self.idle_since_ms}"
        if state in (GroupState.TAKEN, GroupState.HELD) and self.holder is None:
            yield f"{name} is {state.value} and nobody's"
        if state in (GroupState.IDLE, GroupState.REMOVING) and self.holder is not None:
            yield f"{name} is {state.value} and {self.holder}'s"
        if len(self.nodes) != len(self.shape.bundles):
            yield f"{name} has {counted(len(self.shape.bundles), 'bundle')} on {counted(len(self.nodes), 'node')}"


def covers(has: GroupShape, wanted: GroupShape) -> bool:
    """A group of the one shape can stand in for one of the other: as many bundles, each large enough, and its promise kept."""
    return wasted_share(has, wanted, 1.0) is not None


def wasted_share(has: GroupShape, wanted: GroupShape, waste_max: float) -> tuple[float, float] | None:
    """What share of the group would lie idle: of the resource that is wasted most, and summed over all resources.

    None when the wanted shape does not fit, or would leave more than `waste_max` of a resource idle.
    """
    if len(has.bundles) != len(wanted.bundles) or not _keeps_promise(has, wanted):
        return None
    if not all(one <= other for one, other in zip(wanted.bundles, has.bundles, strict=True)):
        return None
    all_of, part = has.amounts, wanted.amounts
    shares = [(amount - part[name]) / amount for name, amount in all_of.items()]
    worst = max(shares, default=0.0)
    return None if worst > waste_max else (worst, sum(shares))


def _keeps_promise(has: GroupShape, wanted: GroupShape) -> bool:
    """One bundle is in one place under any strategy; a strict strategy does what the loose one of its name asks for."""
    return len(has.bundles) == 1 or has.strategy in (wanted.strategy, f"STRICT_{wanted.strategy}")
