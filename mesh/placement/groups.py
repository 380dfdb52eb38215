"""A placement group of a pool: its layer, its holder, and the shapes that it serves.

A pool's groups are in two layers. Reserved groups are created beforehand for urgent tasks. Dynamic groups are created on demand, reused
by tasks of the same shape, and removed when they are old or block others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mesh.core.counting import counted
from mesh.core.ids import GroupId, NodeName, PoolName, TaskId
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupShape


class GroupState(str, Enum):
    """State of a placement group."""

    CREATING = "CREATING"
    """Ordered; Ray has not answered. Created for its holder, if it has one."""
    IDLE = "IDLE"
    """Ready and free for any task."""
    TAKEN = "TAKEN"
    """In use by a task."""
    HELD = "HELD"
    """Idle, and held for one task: the preemptor of its last holder."""
    REMOVING = "REMOVING"
    """Removal ordered; its resources are not free before Ray confirms."""


class Layer(str, Enum):
    """Layer of a pool's groups."""

    RESERVED = "RESERVED"
    """Created beforehand, for tasks of `reserved_priority` and more."""
    DYNAMIC = "DYNAMIC"
    """Created on demand, up to `max_dynamic`."""


@dataclass(slots=True, kw_only=True)
class GroupRecord:
    """Record of a placement group; only the ledger writes it."""

    group: GroupId
    pool: PoolName
    shape: GroupShape
    layer: Layer
    nodes: tuple[NodeName, ...]  #: One per bundle.
    state: GroupState = GroupState.CREATING
    holder: TaskId | None = None  #: Always set if TAKEN or HELD; if CREATING, the task it is for, if any; else None.
    reuse_count: int = 0  #: How often it passed from one task to another.
    idle_since_ms: int | None = None  #: IDLE and HELD only.
    last_holder: TaskId | None = None  #: Last task that had it when ready.

    def amounts_on(self, node: NodeName) -> ResourceSet:
        """Return the amounts that the group takes of this node."""
        return sum((bundle for bundle, there in zip(self.shape.bundles, self.nodes, strict=True) if there == node), start=NOTHING)

    @property
    def since_ms(self) -> int:
        """Return when it became idle; 0 when it is not idle."""
        return self.idle_since_ms or 0

    def contradictions(self) -> Iterator[str]:
        """Yield a message per inconsistency of the record."""
        state, name = self.state, f"placement group {self.group}"
        is_idle = state in (GroupState.IDLE, GroupState.HELD)
        if is_idle is (self.idle_since_ms is None):
            yield f"{name} is {state.value} with idle_since_ms {self.idle_since_ms}"
        if state in (GroupState.TAKEN, GroupState.HELD) and self.holder is None:
            yield f"{name} is {state.value} without a holder"
        if state in (GroupState.IDLE, GroupState.REMOVING) and self.holder is not None:
            yield f"{name} is {state.value} with holder {self.holder}"
        if len(self.nodes) != len(self.shape.bundles):
            yield f"{name} has {counted(len(self.shape.bundles), 'bundle')} on {counted(len(self.nodes), 'node')}"


def covers(has: GroupShape, wanted: GroupShape) -> bool:
    """Return whether a group of shape `has` serves `wanted`: as many bundles, each large enough, and a strategy at least as strict."""
    return wasted_share(has, wanted, 1.0) is not None


def wasted_share(has: GroupShape, wanted: GroupShape, waste_max: float) -> tuple[float, float] | None:
    """Return the share of the group that would be unused: of the most wasted resource, and summed over all resources.

    None when the wanted shape does not fit, or would leave more than `waste_max` of a resource unused.
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
    """Return whether the strategy satisfies the wanted one: a single bundle always does, and a strict strategy satisfies its loose form."""
    return len(has.bundles) == 1 or has.strategy in (wanted.strategy, f"STRICT_{wanted.strategy}")
