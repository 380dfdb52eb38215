"""Demands of meshes in memory: the same decisions as the last part of `lua/lib_lease.lua`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from federation.leases import ROWS_SENT_MAX, WAITED_MS_MAX, QuotaDemand
from federation.snapshot import DemandView
from federation.store.lease_rows import demand_field
from federation.store.memory.rows import LeaseKey
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import ResourceSet

#: Tenant, priority, slot and bundles of a gang of stages.
StageKind = tuple[TenantPath, int, ResourceSet, int]
_SAME_MS = 1_000  #: Smaller differences are not written.


@dataclass(slots=True, kw_only=True)
class OpenQuotaDemand:
    """Recorded demand of a mesh: slots of one size and priority, for one lease."""

    demand: QuotaDemand
    slots: int
    since: int  #: On the lease clock.
    beyond: int


def stage_kind(demand: QuotaDemand) -> StageKind:
    """Return the kind of the stages behind the demand."""
    return demand.tenant, demand.priority, demand.whole or demand.slot, demand.gang_size


@dataclass(slots=True)
class MemoryDemands:
    """Demands of all meshes, by the field that the scripts use. Times are on the lease clock, ms."""

    _rows: dict[MeshId, dict[str, OpenQuotaDemand]] = field(default_factory=dict)

    def of(self, mesh: MeshId) -> dict[str, OpenQuotaDemand]:
        """Return the demands of one mesh, by field."""
        return self._rows.get(mesh, {})

    def meshes(self) -> Iterator[MeshId]:
        """Return the meshes with any demand, by name."""
        return (mesh for mesh, rows in sorted(self._rows.items()) if rows)

    def flavors_of(self, mesh: MeshId) -> set[FlavorName]:
        """Return the flavors that the mesh demands."""
        return {row.demand.flavor for row in self.of(mesh).values()}

    def others_want(self, flavor: FlavorName, tenant: TenantPath) -> bool:
        """Return whether another tenant wants the flavor, on any mesh."""
        rows = (row.demand for of_mesh in self._rows.values() for row in of_mesh.values())
        return any(demand.flavor == flavor and demand.tenant != tenant for demand in rows)

    def slots_of(self, mesh: MeshId, demand: QuotaDemand) -> int:
        """Return the recorded slots of this demand."""
        row = self.of(mesh).get(demand_field(demand))
        return row.slots if row is not None else 0

    def drop(self, mesh: MeshId) -> None:
        """Drop all demands of the mesh."""
        self._rows.pop(mesh, None)

    def replace(self, mesh: MeshId, demands: Iterable[QuotaDemand], now: int) -> None:
        """Replace the demands of the mesh."""
        before = self.of(mesh)
        by_field = {demand_field(demand): demand for demand in demands}
        self._rows[mesh] = {
            name: OpenQuotaDemand(demand=demand, slots=demand.slots, since=_since(demand, before.get(name), now), beyond=demand.beyond)
            for name, demand in by_field.items()
            if demand.slots > 0
        }

    def bound(self, mesh: MeshId, kind: StageKind, most: int, newest: str = "") -> None:
        """Reduce the demands for stages of this kind to this many slots of each flavor. See `lua/lib_queue.lua`.

        Args:
            newest: Field of the demand that was recorded last; empty: none.
        """
        rows = self.of(mesh)
        for flavor in self.flavors_of(mesh):
            found = [name for name, row in rows.items() if row.demand.flavor == flavor and stage_kind(row.demand) == kind]
            names = sorted(found, key=lambda name: (name != newest, not rows[name].demand.whole, name))
            left = most
            for name in names:
                rows[name].slots = min(rows[name].slots, left)
                left -= rows[name].slots
            for name in names:
                rows[name].beyond = min(rows[name].beyond, left)
                left -= rows[name].beyond
                if not rows[name].slots:
                    del rows[name]

    def settle(self, mesh: MeshId, demand: QuotaDemand, granted: int, missing: int, now: int) -> bool:
        """Update a demand after `acquire`: remove granted slots, record missing ones. Return whether the demand was unknown."""
        rows = self._rows.setdefault(mesh, {})
        name = demand_field(demand)
        before = rows.get(name)
        if before is None and (missing == 0 or len(rows) >= ROWS_SENT_MAX):
            return False
        slots = max(before.slots - granted if before is not None else 0, missing)
        if slots:
            beyond = before.beyond if before is not None else 0
            since = _since(demand, before, now)  # The oldest work behind the demand counts.
            if before is not None:
                since, demand = min(since, before.since), replace(demand, created_ms=min(demand.created_ms, before.demand.created_ms))
            rows[name] = OpenQuotaDemand(demand=demand, slots=slots, since=since, beyond=beyond)
        else:
            del rows[name]
        return before is None

    def meet(self, mesh: MeshId, key: LeaseKey, grown: dict[str, int]) -> int | None:
        """Remove demands that the growth of a lease has met, the most urgent first, then the oldest. Return the highest priority met; None
        if none was.
        """
        rows = self.of(mesh)
        found = [(-row.demand.priority, row.since, name) for name, row in rows.items() if (row.demand.tenant, row.demand.flavor) == key]
        most = None
        for behind, _, name in sorted(found):
            row = rows[name]
            met = min([row.slots, *(grown.get(resource, 0) // units for resource, units in row.demand.slot.items())])
            if met <= 0:
                continue
            most = -behind if most is None else most
            for resource, units in row.demand.slot.items():
                grown[resource] -= met * units
            row.slots -= met
            if not row.slots:
                del rows[name]
        return most

    def views(self, now: int) -> Iterator[DemandView]:
        for mesh, rows in sorted(self._rows.items()):
            for _, row in sorted(rows.items()):
                demand = row.demand
                yield DemandView(
                    mesh=mesh,
                    tenant=demand.tenant,
                    flavor=demand.flavor,
                    slot=demand.slot,
                    slots=row.slots,
                    priority=demand.priority,
                    whole=demand.whole,
                    gang_size=demand.gang_size,
                    waiting_ms=max(0, now - row.since),
                    beyond=row.beyond,
                    created_ms=demand.created_ms,
                )


def _since(demand: QuotaDemand, before: OpenQuotaDemand | None, now: int) -> int:
    """Return since when the demand waits, from the report and the record."""
    since = None if demand.waited_ms is None else now - min(demand.waited_ms, WAITED_MS_MAX)
    if before is not None and (since is None or abs(since - before.since) < _SAME_MS):
        return before.since
    return now if since is None else since
