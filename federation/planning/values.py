"""What the planner reads and says: what meshes hold, what they want, what they shall come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mesh.ids import FlavorName, MeshId, TenantPath
from mesh.reasons import Reason

Units = Mapping[str, int]  #: Resource to whole units.


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A lease as the planner sees it."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    target: Units  #: What it is to come to; what it holds above that is on its way back. Which work it pays for, only its mesh knows.
    token: int = 0  #: Later grants have greater ones.
    priority: int = 0  #: Of the most urgent work that it pays for.
    since_ms: int = 0  #: When it was first granted; it is left alone for the minimum run time after that.
    is_giving: bool = False  #: It holds more than its target: some of it is on its way back.
    is_fixed: bool = False  #: Nobody can be asked to give it back: it runs out with a session that is silent.
    saved_ms: int | None = None  #: The oldest of the last checkpoints of its work; None: no work of it keeps state.


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """So many slots more than the lease's target."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    slot: Units
    slots: int
    slots_min: int = 1  #: Fewer are of no use: a gang.
    priority: int = 0
    since_ms: int = 0  #: When it began to wait.
    beyond: int = 0  #: Slots that wait beside, more than the mesh could hold; for people only.
    is_crowded: bool = False  #: The mesh has no room for a slot: what is missing of it has to give way on this very mesh.
    free: Units = field(default_factory=dict)  #: Where it is crowded: what the mesh has left all the same, and no plan has promised.
    room: Units | None = None  #: Where it is not: what the mesh has left for all who want the flavor there; None: nobody knows.


class Target(NamedTuple):
    """What a lease shall come to. A tuple with names: a round makes a thousand, and a frozen dataclass takes three times as long."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    amounts: Units
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """A want that gets nothing, or not all of it, and why."""

    want: Want
    slots: int  #: What is missing.
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round's answer. Applied whole or in slices: a slice never holds a growth without the shrinking that pays for it."""

    lowered: tuple[Target, ...] = ()
    raised: tuple[Target, ...] = ()
    unmet: tuple[Unmet, ...] = ()
