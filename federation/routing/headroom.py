"""Headroom: what tenants could be granted of each flavor on one snapshot, and what would have to be reclaimed for that.

Each result is cached, since one tenant's work comes in many shapes, and meshes share flavors.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from federation.routing.domains import crowded
from federation.snapshot import FederationSnapshot
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import ResourceSet


class Grantable(NamedTuple):
    """Grantable units of one (flavor, resource)."""

    potential: int  #: The most that the tenant could hold if no other tenant held any.
    available: int  #: The most that it would be granted now.


class Borrowing(NamedTuple):
    """Consequences for a tenant of holding one slot more of a flavor."""

    level: int  #: How far up its quota has to come from; 0: its own covers it.
    is_entitled: bool  #: Quota below the root covers it: borrowers of that quota have to return it.


_NOTHING = Grantable(potential=0, available=0)


class Headroom:
    """Headroom on one snapshot."""

    def __init__(self, snapshot: FederationSnapshot) -> None:
        self._snapshot = snapshot
        self._grantable: dict[tuple[TenantPath, FlavorName, str], Grantable] = {}
        self._crowded: Mapping[MeshId, tuple[TenantPath, ...]] | None = None
        self._held: set[tuple[MeshId, TenantPath, FlavorName]] | None = None
        self._borrowed: dict[tuple[MeshId, FlavorName, str], dict[TenantPath, int]] | None = None
        self._idle: Mapping[tuple[MeshId, TenantPath, FlavorName, str], int] | None = None

    @property
    def crowded(self) -> Mapping[MeshId, tuple[TenantPath, ...]]:
        """The meshes that admit nothing, as in `domains.crowded`."""
        if self._crowded is None:
            self._crowded = crowded(self._snapshot)
        return self._crowded

    def grantable(self, tenant: TenantPath, flavor: FlavorName, resource: str) -> Grantable:
        """Return what the tenant could hold and would get. A tenant that was removed from the tree during its run is granted nothing."""
        row = (tenant, flavor, resource)
        known = self._grantable.get(row)
        if known is None:
            self._grantable[row] = known = self._reckon(tenant, flavor, resource)
        return known

    def _reckon(self, tenant: TenantPath, flavor: FlavorName, resource: str) -> Grantable:
        tree, usage = self._snapshot.tree, self._snapshot.usage
        if tenant not in tree.tenants:
            return _NOTHING
        key = (flavor, resource)
        return Grantable(potential=tree.potential(tenant, key), available=max(0, tree.available(usage, tenant, key)))

    def is_closed(self, tenant: TenantPath, flavor: FlavorName) -> bool:
        """Return whether the tenant may not use the flavor at all. A removed tenant is just granted nothing."""
        tree = self._snapshot.tree
        return tenant in tree.tenants and flavor not in tree.open_flavors(tenant)

    def borrowing(self, tenant: TenantPath, flavor: FlavorName, slot: ResourceSet) -> Borrowing:
        """Return the consequences for the worst resource of the slot. The tenant has to be in the tree."""
        tree, usage = self._snapshot.tree, self._snapshot.usage
        levels = [tree.borrowing_level(usage, tenant, (flavor, name), units) for name, units in slot.items()]
        return Borrowing(level=max((level for level, _ in levels), default=0), is_entitled=all(entitled for _, entitled in levels))

    def holds(self, mesh: MeshId, tenant: TenantPath, flavor: FlavorName) -> bool:
        """Return whether the mesh's session holds a lease of the tenant and flavor."""
        if self._held is None:
            self._held = {(lease.mesh, lease.tenant, lease.flavor) for lease in self._snapshot.leases if lease.incarnation is None}
        return (mesh, tenant, flavor) in self._held

    def idle_at(self, mesh: MeshId, tenant: TenantPath, flavor: FlavorName, resource: str) -> int:
        """Return the units that the mesh holds for the tenant and no stage uses: work there needs no other grant for them."""
        if self._idle is None:
            self._idle = self._idle_by_mesh()
        return max(0, self._idle.get((mesh, tenant, flavor, resource), 0))

    def _idle_by_mesh(self) -> Mapping[tuple[MeshId, TenantPath, FlavorName, str], int]:
        """Return what leases hold and keep by their targets, without the use of stages; below zero where a lease shrinks."""
        idle: Counter[tuple[MeshId, TenantPath, FlavorName, str]] = Counter()
        for lease in self._snapshot.leases:
            if lease.incarnation is None:
                for name, held in lease.amounts.items():
                    idle[lease.mesh, lease.tenant, lease.flavor, name] += min(held, lease.target[name])
        for running in self._snapshot.running:
            for name, units in running.amounts.items():
                idle[running.mesh, running.tenant, running.flavor, name] -= units
        return idle

    def borrowed_at(self, mesh: MeshId, flavor: FlavorName, resource: str, tenant: TenantPath) -> int:
        """Return the units that other tenants hold on the mesh beyond their own quota."""
        if self._borrowed is None:
            self._borrowed = self._borrowed_by_mesh()
        return sum(units for other, units in self._borrowed.get((mesh, flavor, resource), {}).items() if other != tenant)

    def _borrowed_by_mesh(self) -> dict[tuple[MeshId, FlavorName, str], dict[TenantPath, int]]:
        """Return borrowed units per mesh: at most what each lease holds, and what its tenant borrows."""
        tree, usage = self._snapshot.tree, self._snapshot.usage
        borrowed: defaultdict[tuple[MeshId, FlavorName, str], dict[TenantPath, int]] = defaultdict(dict)
        for lease in self._snapshot.leases:
            if lease.tenant not in tree.tenants:
                continue
            for name, held in lease.amounts.items():
                key = (lease.flavor, name)
                beyond = min(held, usage.get((lease.tenant, *key), 0) - tree.own_quota(lease.tenant, key))
                if beyond > 0:
                    row = borrowed[lease.mesh, lease.flavor, name]
                    row[lease.tenant] = row.get(lease.tenant, 0) + beyond
        return borrowed
