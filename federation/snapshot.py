"""Tenants, leases and meshes at one instant: all that routing and people look at."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from federation.standing import NEWCOMER, Standing
from federation.tenants import TenantTree
from mesh.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.resources import NOTHING, ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """A pool as its mesh tells it."""

    pool: PoolName
    flavor: FlavorName
    capacity: ResourceSet
    used: ResourceSet = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshRecord:
    """A child mesh as it tells itself at join and with each heartbeat."""

    mesh: MeshId
    labels: dict[str, str]
    pools: tuple[PoolRecord, ...]
    cluster: str  #: Ray's own id of the cluster.
    address: str = ""  #: Ray address of the cluster, for people.
    tenants: tuple[str, ...] = ("*",)  #: Who may use it: tenant paths (with all below them), or `*`.
    cluster_answers: bool = True  #: Where it does not, the mesh starts nothing.
    shared: bool = False  #: Tenants of several top-level tenants may meet on its Ray cluster: somebody said that they trust each other.
    waiting_for_ray: int = 0  #: Stages that it runs, and for which Ray has no room.
    leases_full: bool = False  #: It holds as many leases as it may, and all of them pay for something: it can get none of another pair.


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshView:
    """A mesh as the ledger sees it."""

    record: MeshRecord
    incarnation: int
    alive: bool  #: The session is within its time to live.
    heartbeat_age_ms: int
    waiting: int = 0  #: Stages in its queue.
    claimed: int = 0  #: Stages it runs.
    standing: Standing = NEWCOMER  #: What is remembered of it; see `federation.registry.enrolled`.

    @property
    def is_draining(self) -> bool:
        """Whether it finishes what it has and takes nothing new, by somebody's word."""
        return self.standing.drain is not None

    @property
    def can_start(self) -> bool:
        """Whether what waits for it could begin there at all."""
        return self.alive and self.record.cluster_answers

    def unsteady_ms(self, now_ms: int) -> int:
        """For how much longer it is on probation because it was lost; 0 when it is steady."""
        return self.standing.steadiness.remaining_ms(now_ms) if self.standing.steadiness is not None else 0


def resources_of(records: Iterable[MeshRecord]) -> frozenset[str]:
    """Every resource that a pool of these meshes has."""
    return frozenset(name for record in records for pool in record.pools for name in pool.capacity)


class Whereabouts(str, Enum):
    """Where a mesh is that the federation knows of and the ledger does not. The value is the word on the wire."""

    NOT_JOINED = "not_joined"
    """The root's file names it, and it has not come yet."""
    LEFT = "left"
    """It has left in good order, and may come back."""
    LOST = "lost"
    """It was lost, and has not been heard of for so long that the ledger has forgotten it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsentMesh:
    """A mesh that the federation knows of, and that has no session."""

    record: MeshRecord  #: As the root's file has it; without pools: the file does not have it.
    whereabouts: Whereabouts
    standing: Standing = NEWCOMER


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """One lease, for people."""

    lease: str
    tenant: TenantPath
    mesh: MeshId
    flavor: FlavorName
    amounts: ResourceSet  #: What it holds: what the tenant is charged.
    token: int
    target: ResourceSet = NOTHING  #: What the ledger aims at.
    version: int = 0
    priority: int = 0
    incarnation: int | None = None  #: Of the earlier session whose leases run out; None: of the present one.


@dataclass(frozen=True, slots=True, kw_only=True)
class WantView:
    """What a mesh could use for a tenant and was not granted."""

    mesh: MeshId
    tenant: TenantPath
    flavor: FlavorName
    slot: ResourceSet
    slots: int
    priority: int
    waiting_ms: int  #: The oldest work behind it, on the lease clock.
    beyond: int = 0  #: Slots that wait for room beside, more than the mesh could hold at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The federation at `at_ms` of the store's clock."""

    at_ms: int
    tree: TenantTree  #: Limits.
    usage: dict[tuple[TenantPath, FlavorName, str], int] = field(default_factory=dict)  #: Bubbled use of each node, in units.
    meshes: tuple[MeshView, ...] = ()  #: By id.
    absent: tuple[AbsentMesh, ...] = ()  #: By id; see `federation.registry.enrolled`.
    leases: tuple[LeaseView, ...] = ()
    wants: tuple[WantView, ...] = ()  #: By mesh, tenant, flavor and priority as words.
    version: int = 0  #: Of the tree.
    epoch: int = 0  #: Of the ledger.
    learn_ms: int = 0  #: For how long the ledger grants nothing new.

    def resources(self) -> frozenset[str]:
        """Every resource that a pool of a mesh has, of those that are not there too."""
        return resources_of((*(view.record for view in self.meshes), *(away.record for away in self.absent)))
