"""Leases, wants and sessions as rows of the ledger, as `lua/lib_lease.lua` writes them; and as people look at them."""

import json

from federation.leases import Lease, Want
from federation.snapshot import LeaseView, MeshRecord, MeshView, WantView
from federation.tenants import SEPARATOR
from mesh.ids import FlavorName, MeshId, TenantPath
from mesh.resources import ResourceSet
from mesh.wire import decode

#: Stands in a holder's name between a mesh and the incarnation of an earlier session of it.
EARLIER = "~"


def lease_of(mesh: MeshId, tenant: str, flavor: str, row: str, shrink_ms: int | None = None) -> Lease:
    """From `token|version|priority|cut` and then resource, held, target, …"""
    token, version, priority, _, *amounts = row.split(SEPARATOR)
    names, held, target = amounts[::3], amounts[1::3], amounts[2::3]
    return Lease(
        tenant=TenantPath(tenant),
        mesh=mesh,
        flavor=FlavorName(flavor),
        held=ResourceSet(dict(zip(names, map(int, held), strict=True))),
        target=ResourceSet(dict(zip(names, map(int, target), strict=True))),
        token=int(token),
        version=int(version),
        priority=int(priority),
        shrink_ms=shrink_ms,
    )


def holder_of(name: str) -> tuple[MeshId, int | None]:
    """The mesh, and the incarnation when its leases are those of an earlier session."""
    mesh, _, incarnation = name.partition(EARLIER)
    return MeshId(mesh), int(incarnation) if incarnation else None


def view_of(lease: Lease, incarnation: int | None = None) -> LeaseView:
    """The lease for people."""
    return LeaseView(
        lease=lease.lease,
        tenant=lease.tenant,
        mesh=lease.mesh,
        flavor=lease.flavor,
        amounts=lease.held,
        token=lease.token,
        target=lease.target,
        version=lease.version,
        priority=lease.priority,
        incarnation=incarnation,
    )


def want_row(want: Want) -> list[object]:
    """As `heartbeat.lua` and (with the version) `acquire.lua` read it."""
    return [want.tenant, want.flavor, dict(want.slot.items()), want.slots, want.priority]


def want_view(mesh: MeshId, field: str, row: str, now_lt: int) -> WantView:
    """From `tenant|flavor` and JSON of slot, slots, priority and the time on the lease clock since when."""
    tenant, _, flavor = field.rpartition(SEPARATOR)
    slot, slots, priority, since = json.loads(row)
    return WantView(
        mesh=mesh,
        tenant=TenantPath(tenant),
        flavor=FlavorName(flavor),
        slot=ResourceSet({resource: int(units) for resource, units in slot.items()}),
        slots=int(slots),
        priority=int(priority),
        waiting_ms=max(0, now_lt - int(since)),
    )


def mesh_view(row: list[bytes | int]) -> MeshView:
    """From `snapshot.lua`."""
    _, record, incarnation, alive, age_ms, waiting, claimed = row
    return MeshView(
        record=decode(MeshRecord, bytes(record)),
        incarnation=int(incarnation),
        alive=alive == 1,
        heartbeat_age_ms=int(age_ms),
        waiting=int(waiting),
        claimed=int(claimed),
    )
