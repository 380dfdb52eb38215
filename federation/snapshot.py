"""Tenants, leases and meshes at one instant, for routing and display."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from federation.mesh_conditions import NEWCOMER, MeshCondition
from federation.tenants import TenantTree
from mesh.core.ids import FlavorName, MeshId, PoolName, StageId, TenantPath
from mesh.core.node_sizes import NodeSize
from mesh.core.pools import DEFAULT_POLICY
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupPoolSpec
from mesh.stages.reserved_groups import NO_GROUPS, GroupCounts
from mesh.stages.stage_settings import DEFAULT_SETTINGS, StageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """Pool of a mesh, as its mesh reports it."""

    pool: PoolName
    flavor: FlavorName
    capacity: ResourceSet
    used: ResourceSet = NOTHING
    node_labels: dict[str, str] = field(default_factory=dict)  #: Selector on the labels of the nodes that the pool may use.
    policy: str = DEFAULT_POLICY  #: Node policy that places its slots.
    groups: GroupPoolSpec | None = None  #: Its layers of placement groups; None: idle ones are kept by default rules.
    reserved_idle: ResourceSet = NOTHING  #: Room of reserved groups that no stage uses; not in `used`.
    set_aside: ResourceSet = NOTHING  #: Room that is held for preemptors whose victims stop; not in `used`.
    group_counts: GroupCounts = NO_GROUPS

    def free(self, resource: str, priority: int | None = None, *, is_gang: bool = False, slot: ResourceSet = NOTHING) -> int:
        """Return the free units, never below zero. Room of reserved groups counts as free for work that may take them.

        Args:
            priority: Priority of the work; None: any.
            is_gang: The slot is a gang, which takes no reserved group.
            slot: Amounts of a slot, which takes a reserved group that covers it; empty: any group.
        """
        may_take = not is_gang and (priority is None or self._admits_to_reserved(priority)) and self._has_group_for(slot)
        taken = self.used[resource] + self.set_aside[resource] + (0 if may_take else self.reserved_idle[resource])
        return max(0, self.capacity[resource] - taken)

    def could_hold(self, slot: ResourceSet, priority: int, *, is_gang: bool = False) -> bool:
        """Return whether the pool could hold a slot when no stage runs: beside its reserved groups, or in one that the work may take."""
        shapes = self.groups.reserved if self.groups is not None else ()
        reserved = sum((shape.amounts for shape in shapes), start=NOTHING)
        if slot + reserved <= self.capacity or not slot:
            return True
        may_take = not is_gang and self._admits_to_reserved(priority)
        return slot <= self.capacity and (not shapes or (may_take and any(slot <= shape.amounts for shape in shapes)))

    def _has_group_for(self, slot: ResourceSet) -> bool:
        return self.groups is None or not slot or any(slot <= shape.amounts for shape in self.groups.reserved)

    def _admits_to_reserved(self, priority: int) -> bool:
        return self.groups is None or priority >= self.groups.reserved_priority


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """Plugin of a mesh, as its mesh reports it."""

    plugin: str
    hooks: tuple[str, ...] = ()  #: Hooks that the mesh calls.
    fenced: dict[str, str] = field(default_factory=dict)  #: Hooks that are fenced off, each with its cause.


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshRecord:
    """Child mesh, as it describes itself at join and with each heartbeat."""

    mesh: MeshId
    labels: dict[str, str]
    pools: tuple[PoolRecord, ...]
    cluster: str  #: Ray's id of the cluster.
    address: str = ""  #: Ray address of the cluster, for display.
    tenants: tuple[str, ...] = ("*",)  #: Tenants that may use the mesh: paths (with all tenants below), or `*`.
    cluster_answers: bool = True  #: False: the mesh starts nothing.
    shared: bool = False  #: Several top-level tenants may share its Ray cluster: an operator declared that they trust each other.
    waiting_for_ray: int = 0  #: Stages that it runs, but that wait in Ray for resources.
    outside_group: int = 0  #: Nodes that failed with OUTSIDE_GROUP since its process began.
    leases_full: bool = False  #: It holds as many leases as it may, all in use: it can get no lease for another tenant and flavor.
    plugins: tuple[PluginRecord, ...] = ()  #: Plugins that its process has loaded.
    nodes: tuple[NodeSize, ...] = ()  #: Sizes of its Ray nodes, in the resources of its pools; empty: unknown.
    settings: StageSettings = DEFAULT_SETTINGS  #: Settings that it follows now.

    def has_hook(self, hook: str) -> bool:
        """Return whether a plugin of the mesh answers this hook."""
        return any(hook in one.hooks for one in self.plugins)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshView:
    """Mesh as the ledger sees it."""

    record: MeshRecord
    incarnation: int
    alive: bool  #: The session is within its time to live.
    heartbeat_age_ms: int
    waiting: int = 0  #: Stages in its queue.
    claimed: int = 0  #: Stages that it runs.
    condition: MeshCondition = NEWCOMER  #: Stored status; see `federation.registry.enrolled`.

    @property
    def is_draining(self) -> bool:
        """Whether an operator drains the mesh: it finishes its work and gets nothing new."""
        return self.condition.drain is not None

    @property
    def can_start(self) -> bool:
        """Whether queued work could start there at all."""
        return self.alive and self.record.cluster_answers

    def flapping_ms(self, now_ms: int) -> int:
        """Return the rest of the probation after a loss, ms; 0 if the mesh is not on probation."""
        return self.condition.flap_history.remaining_ms(now_ms) if self.condition.flap_history is not None else 0


def resources_of(records: Iterable[MeshRecord]) -> frozenset[str]:
    """Return every resource that a pool of these meshes has."""
    return frozenset(name for record in records for pool in record.pools for name in pool.capacity)


class Whereabouts(str, Enum):
    """Status of a known mesh without a session. The value is the word on the wire."""

    NOT_JOINED = "not_joined"
    """The root's file names the mesh, and it has not joined yet."""
    LEFT = "left"
    """The mesh has left in order, and may come back."""
    LOST = "lost"
    """The mesh was lost, so long ago that the ledger has forgotten it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentMesh:
    """Known mesh without a session."""

    record: MeshRecord  #: As the root's file has it; without pools if the file lacks it.
    whereabouts: Whereabouts
    condition: MeshCondition = NEWCOMER


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """Lease for display."""

    lease: str
    tenant: TenantPath
    mesh: MeshId
    flavor: FlavorName
    amounts: ResourceSet  #: Held amounts, which the tenant is charged.
    token: int
    target: ResourceSet = NOTHING  #: Amounts that the ledger aims at.
    version: int = 0
    priority: int = 0
    victims: tuple[int, ...] = ()  #: Claim tokens of stages that plans stop.
    incarnation: int | None = None  #: Incarnation of the earlier session whose leases expire; None: the current session.


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandView:
    """Slots that a mesh could use for a tenant and was not granted."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    slot: ResourceSet
    slots: int
    priority: int
    whole: ResourceSet = NOTHING  #: Slot of the stages behind it, where `slot` is the part of one that the lease lacks; else empty.
    gang_size: int = 0  #: Bundles of a slot that is a gang; 0: the slot lies on one node.
    waiting_ms: int  #: Wait of the oldest work behind it, on the lease clock.
    beyond: int = 0  #: Further waiting slots, beyond what the mesh could hold at once.
    created_ms: int = 0  #: When the oldest of this work was submitted, since the epoch; 0: unknown.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningView:
    """Stage that a mesh has claimed under a lease. The lease may hold less by now, while the mesh stops the stage."""

    stage: StageId
    mesh: MeshId
    tenant: TenantPath  #: Tenant whose lease pays.
    flavor: FlavorName
    amounts: ResourceSet  #: Everything that the stage takes of its lease, with all its slots.
    priority: int
    token: int  #: Token of its claim.
    since_ms: int  #: When it was claimed, on the clock of `FederationSnapshot.at_ms`.
    created_ms: int  #: When it was queued, on the same clock.
    is_leaving: bool = False  #: Its user has cancelled it, or a plan stops it.
    saved_ms: int | None = None  #: When a node of it last saved a checkpoint, on the same clock; None: none has.
    slots: int = 1  #: Equal slots that the amounts are for.
    retiring: int = 0  #: Slots that a plan reclaims; the stage goes on with the others.

    def amounts_of(self, slots: int) -> ResourceSet:
        """Return the amounts of so many of its slots."""
        return (
            self.amounts
            if slots == self.slots
            else ResourceSet({name: units // self.slots * slots for name, units in self.amounts.items()})
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationSnapshot:
    """The federation at `at_ms` of the store's clock."""

    at_ms: int
    tree: TenantTree  #: Limits.
    usage: dict[tuple[TenantPath, FlavorName, str], int] = field(default_factory=dict)  #: Bubbled use of each node, in units.
    meshes: tuple[MeshView, ...] = ()  #: By id.
    absent: tuple[AbsentMesh, ...] = ()  #: By id; see `federation.registry.enrolled`.
    leases: tuple[LeaseView, ...] = ()
    demands: tuple[DemandView, ...] = ()  #: By mesh, tenant, flavor and priority, compared as strings.
    running: tuple[RunningView, ...] = ()  #: By mesh, then in the order of the claims. Only stages of present sessions.
    version: int = 0  #: Version of the tree.
    epoch: int = 0  #: Epoch of the ledger.
    recovery_ms: int = 0  #: How long the ledger grants nothing new.

    def resources(self) -> frozenset[str]:
        """Return every resource that a pool of a mesh has, absent meshes included."""
        return resources_of((*(view.record for view in self.meshes), *(away.record for away in self.absent)))
