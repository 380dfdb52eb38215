"""Growth that a plan has decided for waiting stages, and the leases that shrink for it. A new plan would show neither."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from federation.explaining.flavor_reach import FlavorReach
from federation.explaining.forecast import LeaseVictim
from federation.explaining.pending_stages import PendingStage
from federation.planning.planner_inputs import FreeRoom, free_room, has_room, on_its_way
from federation.quota.forest import QuotaForest
from federation.quota.policies import TenantPolicies
from federation.snapshot import FederationSnapshot, LeaseView
from mesh.core.ids import FlavorName
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGrant:
    """Growth that a stage waits for while other leases shrink."""

    victims: tuple[LeaseVictim, ...]
    wait_ms: int  #: Until then all victims are past their minimum run time.


class PlannedGrants:
    """Planned grants on one snapshot, computed on first use.

    A lease's growth names no stage: it counts for the first waiting stages of the tenant at the mesh. A lease that shrinks names no
    receiver either: all shrinking leases of the flavor in the tenant's tree count. On a full mesh only those on it count, since others
    make no room there.

    Args:
        all_pending: Waiting stages.
    """

    def __init__(
        self,
        snapshot: FederationSnapshot,
        forest: QuotaForest,
        tenant_policies: TenantPolicies,
        all_pending: Iterable[PendingStage],
        reach: FlavorReach,
    ) -> None:
        self._snapshot = snapshot
        self._forest = forest
        self._tenant_policies = tenant_policies
        self._pending = all_pending
        self._reach = reach

    def to(self, pending: PendingStage) -> PlannedGrant | None:
        """Return the grant for a waiting stage; None: there is none, or no lease has to shrink for it."""
        flavor = self._flavors.get(pending.stage)
        if flavor is None:
            return None
        shrinking = [(lease, part) for lease, part in self._shrinking if lease.flavor == flavor and self._helps(lease, part, pending)]
        if not has_room(self._free, pending.mesh, flavor, pending.need):
            shrinking = [(lease, part) for lease, part in shrinking if lease.mesh == pending.mesh]
        if not shrinking:
            return None
        return PlannedGrant(
            victims=tuple(_victims_of(lease, part) for lease, part in shrinking),
            wait_ms=max(self._tenant_policies.min_run_of(lease.tenant) for lease, _ in shrinking),
        )

    @cached_property
    def _shrinking(self) -> list[tuple[LeaseView, ResourceSet]]:
        """Leases that hold more than their target, each with the part above it."""
        tenants = self._snapshot.tree.tenants
        present = (lease for lease in self._snapshot.leases if lease.incarnation is None and lease.tenant in tenants)
        return [(lease, part) for lease in present if (part := _above_target(lease))]

    @cached_property
    def _flavors(self) -> Mapping[str, FlavorName]:
        """Stage to the flavor of the lease that a plan lets grow for it; empty if no lease shrinks."""
        if not self._shrinking:
            return {}
        growing = {
            (lease.mesh, lease.tenant, lease.flavor): (lease.target, on_its_way(lease, ()))
            for lease in self._snapshot.leases
            if lease.incarnation is None and not lease.target <= lease.amounts
        }
        whose = {(mesh, tenant) for mesh, tenant, _ in growing}
        waiting = [pending for pending in self._pending if (pending.mesh, pending.tenant) in whose]
        found: dict[str, FlavorName] = {}
        for pending in sorted(waiting, key=lambda pending: pending.arrival):
            for flavor in self._reach.at_mesh(pending):
                target, coming = growing.get((pending.mesh, pending.tenant, flavor), (None, {}))
                if target is not None and pending.slot <= target and any(coming.get(name, 0) > 0 for name in pending.slot):
                    coming.update({name: coming.get(name, 0) - pending.width * units for name, units in pending.slot.items()})
                    found[pending.stage] = flavor
                    break
        return found

    @cached_property
    def _free(self) -> FreeRoom:
        return free_room(self._snapshot)

    def _helps(self, lease: LeaseView, part: ResourceSet, pending: PendingStage) -> bool:
        tops = {self._forest.root(self._forest.queue_of(tenant)) for tenant in (lease.tenant, pending.tenant)}
        is_its_own = (lease.mesh, lease.tenant) == (pending.mesh, pending.tenant)
        return len(tops) == 1 and not is_its_own and any(part[name] for name in pending.slot)


def _above_target(lease: LeaseView) -> ResourceSet:
    return ResourceSet({name: more for name, units in lease.amounts.items() if (more := units - lease.target[name]) > 0})


def _victims_of(lease: LeaseView, part: ResourceSet) -> LeaseVictim:
    return LeaseVictim(mesh=lease.mesh, tenant=lease.tenant, flavor=lease.flavor, amounts=part, reason=Reason.QUOTA_RECLAIMED)
