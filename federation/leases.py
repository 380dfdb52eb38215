"""Leases: an amount of a flavor, held by a tenant on a mesh, paid for until it is given back or its session ends.

The ledger is the only writer. A mesh joins and gets a session (its `incarnation`); one heartbeat renews the session and
with it every lease of the mesh, whatever their number. A session that is not renewed for `ttl_ms` on the store's own
clock, and `grace_ms` more, is swept: its leases return to the tree, its stages are reported lost. A mesh stops its work
by its own clock at `ttl_ms` after the heartbeat it last sent, so the grantor always outlasts the holder.
"""

from dataclasses import dataclass
from typing import Protocol

from federation.snapshot import MeshRecord, Snapshot
from federation.tenants import TenantTree
from mesh.ids import FlavorName, LeaseId, MeshId, StageId, TenantPath
from mesh.reasons import Reason
from mesh.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One life of a mesh in the ledger."""

    mesh: MeshId
    incarnation: int  #: A token: greater than that of any earlier session of any mesh.
    ttl_ms: int  #: Renew well within this, counted from the moment of sending.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A grant of `slots` times `slot` of a flavor."""

    lease: LeaseId
    tenant: TenantPath
    mesh: MeshId
    flavor: FlavorName
    slot: ResourceSet
    slots: int
    token: int  #: Fencing token: strictly increasing over all grants of the ledger.

    @property
    def amounts(self) -> ResourceSet:
        """What the tenant is charged."""
        return self.slot.times(self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRefused:
    """Not now, or never as the quota stands."""

    reason: Reason  #: QUOTA_EXHAUSTED or QUOTA_TOO_SMALL.
    tenant: TenantPath
    flavor: FlavorName
    resource: str  #: The resource that is short.
    wanted: int  #: Units of it for one slot.
    available: int  #: Units of it that the tree would grant now.


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What a sweep took back."""

    meshes: tuple[MeshId, ...] = ()
    leases: int = 0
    stages: tuple[StageId, ...] = ()


class LeaseLedger(Protocol):
    """The port; every method is atomic, and safe to repeat.

    Raises (all): StoreUnavailable.
    """

    def configure(self, tree: TenantTree) -> None:
        """Make `tree` the tree of the ledger. Usage is kept and bubbled anew; a cut may leave a node over its limits: it
        then grants nothing until usage has fallen. A tenant that vanished but is still charged keeps its row with no quota."""

    def join(self, record: MeshRecord) -> Session:
        """Begin a session. An earlier session of the same mesh ends at once: its leases return, its stages are reported lost."""

    def heartbeat(self, session: Session, record: MeshRecord) -> None:
        """Renew the session and store the mesh's present record.

        Raises:
            SessionLost: Swept, superseded by another join, or never known.
        """

    def leave(self, session: Session) -> None:
        """End the session in good order; like a sweep of it, at once. Harmless when it has ended already."""

    def acquire(
        self, session: Session, lease: LeaseId, tenant: TenantPath, flavor: FlavorName, slot: ResourceSet, want: int
    ) -> Lease | LeaseRefused:
        """Grant as many slots as the tree allows, at least 1 and at most `want`. The same lease id again: the same lease.

        Raises:
            SessionLost: As for `heartbeat`, or its time has run out.
            UnknownTenant: No such tenant in the tree.
        """

    def release(self, session: Session, lease: LeaseId) -> bool:
        """Give the lease back; False when it was not held any more. Meshes with waiting stages are told to look again.

        Raises:
            SessionLost: As for `heartbeat`.
        """

    def sweep(self) -> Swept:
        """Take back what sessions hold that are overdue by more than the grace."""

    def snapshot(self) -> Snapshot:
        """Tenants with their use, meshes with their state and leases, at one instant."""
