"""Input and output of the planner: holdings, demands and targets of leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from federation.snapshot import RunningView
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.reasons import Reason

LeaseKey = tuple[MeshId, TenantPath, FlavorName]
Units = Mapping[str, int]  #: Resource to whole units.


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A lease as the planner sees it."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    target: Units  #: Amounts the lease is to have; what it holds above them is on its way back. Only the mesh knows the stages.
    token: int = 0  #: Later grants have greater tokens.
    priority: int = 0  #: Priority of its idle part: that of the most urgent stage that it last paid for.
    since_ms: int = 0  #: When it was first granted; the minimum run time of its idle part counts from there.
    is_giving: bool = False  #: It holds more than its target.
    is_fixed: bool = False  #: It cannot be reclaimed: it expires with a silent session.
    running: tuple[RunningView, ...] = ()  #: Stages that it pays for, without those that stop for others of its tenant.
    promised: Units = field(default_factory=dict)  #: Part of the target that is not granted yet.
    is_protected: bool = False  #: Its stages run in protected pools: no stage of its tenant on another mesh preempts them.
    idle: Units | None = None  #: Amounts that it holds and that pay for nothing; None: all of the target that `running` leaves.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerDemand:
    """Demand for slots beyond the lease's target."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    slot: Units
    slots: int
    slots_min: int = 1  #: Fewer are of no use, as for a gang.
    priority: int = 0
    since_ms: int = 0  #: When it began to wait.
    created_ms: int = 0  #: When the oldest of this work was submitted; 0: unknown.
    beyond: int = 0  #: Further waiting slots, beyond what the mesh could hold; for people only.
    is_crowded: bool = False  #: The mesh has no room for a slot: the missing room has to be reclaimed on this mesh.
    is_limited: bool = False  #: The mesh limits preemption within a tenant for room, so the mesh alone decides it.
    free: Units = field(default_factory=dict)  #: On a crowded mesh: the room that is left and not promised.
    room: Units | None = None  #: On any other mesh: the room left for all demands of the flavor there; None: unknown.


class Target(NamedTuple):
    """Amounts that a lease shall have. A named tuple, since a round makes a thousand, and a frozen dataclass takes three times as long."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    amounts: Units
    reason: Reason
    victims: tuple[int, ...] = ()  #: Claims of the stages that the mesh shall stop; it falls back to its own order if they have ended.


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """A demand that gets nothing or not all of it, and the reason."""

    demand: PlannerDemand
    slots: int  #: Number of missing slots.
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Result of one round. It may be applied in slices: a slice never holds a growth without the reduction that pays for it."""

    lowered: tuple[Target, ...] = ()
    raised: tuple[Target, ...] = ()
    unmet: tuple[Unmet, ...] = ()
