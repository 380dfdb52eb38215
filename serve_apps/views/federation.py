"""Views of tenants, meshes and leases, from a snapshot. Pure.

`within` says which tenants the key covers. Everything outside is left out, as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from federation.configured_meshes import NO_CONFIGURED_MESHES, ConfiguredMeshes, differences
from federation.dispatch import StageAges
from federation.mesh_access import may_use
from federation.planning.planner_inputs import granted_ms
from federation.quota.policies import QueueSettings, Stop, TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce
from federation.routing.domains import crowded
from federation.routing.mesh_filters import words_of_crowd
from federation.snapshot import AbsentMesh, FederationSnapshot, MeshRecord, MeshView, PoolRecord
from federation.tenants import FlavorResource
from mesh.core.ids import MeshId, TenantPath
from mesh.core.resources import format_units, from_units
from serve_apps.schemas.leases import LeaseEntry, LeasesView
from serve_apps.schemas.meshes import (
    AbsentEntry,
    MeshEntry,
    MeshesView,
    NodeSizeView,
    PluginView,
    PoolView,
    ReservedGroupsView,
)
from serve_apps.schemas.quantities import Quantity
from serve_apps.schemas.stops import StopView
from serve_apps.schemas.tenants import QuotaView, TenantsView, TenantView, WindowView

Within = Callable[[TenantPath], bool]

NO_POLICIES = PoliciesInForce()


def quantity(resource: str, units: int) -> Quantity:
    """Return units of the resource as a quantity; negative if quota was reduced below use."""
    text = format_units(resource, abs(units))
    return Quantity(units=units, amount=from_units(resource, units), text=f"-{text}" if units < 0 else text)


def tenants_view(snapshot: FederationSnapshot, within: Within, tenant_policies: PoliciesInForce = NO_POLICIES) -> TenantsView:
    """Return the tenants within reach, each after its parent."""
    keys = sorted(snapshot.tree.flavor_resources())
    merged = tenant_policies.merged()
    return TenantsView(
        at_ms=snapshot.at_ms,
        tenants=[
            TenantView(
                tenant=path,
                parent=tenant.parent,
                quotas=[_quota_view(snapshot, path, key) for key in keys if _is_shown(snapshot, path, key)],
                pickled_code=tenant.pickled_code,
                functions=list(tenant.functions),
                **_policies_of(path, merged, tenant_policies),
            )
            for path, tenant in sorted(snapshot.tree.tenants.items(), key=lambda item: item[0].split("/"))
            if within(path)
        ],
    )


def _policies_of(path: TenantPath, merged: TenantPolicies, tenant_policies: PoliciesInForce) -> dict[str, Any]:
    own, stopped = merged.settings.get(path, QueueSettings()), tenant_policies.stops.get(path)
    return {
        "stop": own.stop.value,
        "stop_reason": stopped.reason if stopped is not None else "",
        "stopped_ms": stopped.since_ms if stopped is not None else 0,
        "weight": str(merged.weights.get(path, 1)),
        "priority_max": own.priority_max,
        "running_max": own.running_max,
        "running_max_per_user": own.running_max_per_user,
        "max_wait_ms": own.max_wait_ms,
        "on_max_wait": own.on_max_wait.value,
        "windows": [WindowView(opens_ms=one.opens_ms, lasts_ms=one.lasts_ms, every_ms=one.every_ms) for one in own.windows],
    }


def stop_view(tenant: TenantPath, tenant_policies: PoliciesInForce, *, changed: bool = True) -> StopView:
    """Return whether the tenant's work may start."""
    settings, stopped = tenant_policies.merged().settings.get(tenant), tenant_policies.stops.get(tenant)
    return StopView(
        tenant=tenant,
        stop=settings.stop.value if settings is not None else Stop.NONE.value,
        reason=stopped.reason if stopped is not None else "",
        by=stopped.by if stopped is not None else "",
        since_ms=stopped.since_ms if stopped is not None else 0,
        changed=changed,
    )


def meshes_view(
    snapshot: FederationSnapshot,
    within: Within,
    ages: Mapping[MeshId, StageAges] | None = None,
    configured_meshes: ConfiguredMeshes = NO_CONFIGURED_MESHES,
) -> MeshesView:
    """Return the meshes that a tenant within reach may use, and absent meshes that it could use."""
    reached = [path for path in snapshot.tree.tenants if within(path)]
    barred = crowded(snapshot)
    return MeshesView(
        at_ms=snapshot.at_ms,
        meshes=[
            _mesh_entry(
                view,
                snapshot.at_ms,
                (ages or {}).get(view.record.mesh, StageAges()),
                (
                    *differences(view.record, configured_meshes),
                    *(words_of_crowd(barred[mesh]) for mesh in (view.record.mesh,) if mesh in barred),
                ),
            )
            for view in snapshot.meshes
            if _is_open_to(view.record, reached)
        ],
        absent=[_absent_entry(mesh) for mesh in snapshot.absent if _is_expected(mesh) and _is_open_to(mesh.record, reached)],
    )


def leases_view(snapshot: FederationSnapshot, within: Within) -> LeasesView:
    """Return the leases of tenants within reach."""
    return LeasesView(
        at_ms=snapshot.at_ms,
        leases=[
            LeaseEntry(
                lease=lease.lease,
                tenant=lease.tenant,
                mesh=lease.mesh,
                flavor=lease.flavor,
                amounts=quantities(lease.amounts),
                target=quantities(lease.target),
                priority=lease.priority,
                granted_ms=granted_ms(lease),
                running_out=lease.incarnation is not None,
                token=lease.token,
            )
            for lease in snapshot.leases
            if within(lease.tenant)
        ],
    )


def _is_shown(snapshot: FederationSnapshot, path: TenantPath, key: FlavorResource) -> bool:
    """Return whether the tenant has any of the resource: nominal quota, quota lent from below, or use."""
    has_quota = key in snapshot.tree.tenant(path).quotas or snapshot.tree.own_quota(path, key) > 0
    return has_quota or snapshot.usage.get((path, *key), 0) > 0


def _quota_view(snapshot: FederationSnapshot, path: TenantPath, key: FlavorResource) -> QuotaView:
    tree, usage = snapshot.tree, snapshot.usage
    flavor, resource = key
    quota, used = tree.quota(path, key), usage.get((path, *key), 0)
    return QuotaView(
        flavor=flavor,
        resource=resource,
        nominal=quantity(resource, quota.nominal),
        used=quantity(resource, used),
        borrowed=quantity(resource, max(0, used - tree.own_quota(path, key))),
        available=quantity(resource, tree.available(usage, path, key)),
        potential=quantity(resource, tree.potential(path, key)),
        borrowing_limit=_limit(resource, quota.borrowing_limit),
        lending_limit=_limit(resource, quota.lending_limit),
    )


def _limit(resource: str, units: int | None) -> Quantity | None:
    return quantity(resource, units) if units is not None else None


def _is_open_to(record: MeshRecord, reached: Iterable[TenantPath]) -> bool:
    return any(may_use(record.tenants, path) for path in reached)


def _is_expected(mesh: AbsentMesh) -> bool:
    """Return whether an absent mesh is listed: the root's file names it, or it has a drain in force."""
    return bool(mesh.record.pools) or mesh.condition.drain is not None


def _absent_entry(mesh: AbsentMesh) -> AbsentEntry:
    drain = mesh.condition.drain
    return AbsentEntry(
        mesh=mesh.record.mesh,
        state=mesh.whereabouts.value,
        draining=drain is not None,
        drain_reason=drain.reason if drain is not None else "",
        labels=mesh.record.labels,
    )


def _mesh_entry(view: MeshView, now_ms: int, ages: StageAges, warnings: tuple[str, ...]) -> MeshEntry:
    record, condition = view.record, view.condition
    held_ms = view.flapping_ms(now_ms)
    return MeshEntry(
        mesh=record.mesh,
        alive=view.alive,
        cluster_answers=record.cluster_answers,
        draining=view.is_draining,
        drain_reason=condition.drain.reason if condition.drain is not None else "",
        drained_ms=condition.drain.since_ms if condition.drain is not None else 0,
        stable=held_ms == 0,
        stable_in_ms=held_ms,
        losses=len(condition.flap_history.losses_ms) if condition.flap_history is not None else 0,
        run_ms=condition.pace.run_ms if condition.pace is not None else None,
        heartbeat_age_ms=view.heartbeat_age_ms,
        last_heard_ms=max(0, now_ms - view.heartbeat_age_ms),
        labels=record.labels,
        cluster=record.cluster,
        tenants=list(record.tenants),
        warnings=list(warnings),
        pools=[_pool_view(pool) for pool in record.pools],
        nodes=[NodeSizeView(nodes=size.nodes, total=quantities(size.total)) for size in record.nodes],
        plugins=[PluginView(plugin=one.plugin, hooks=list(one.hooks), fenced=one.fenced) for one in record.plugins],
        waiting=view.waiting,
        running=view.claimed,
        waiting_for_ray=record.waiting_for_ray,
        outside_group=record.outside_group,
        oldest_waiting_ms=ages.queued_ms,
        oldest_running_ms=ages.claimed_ms,
    )


def _pool_view(pool: PoolRecord) -> PoolView:
    used = {name: pool.used[name] for name in pool.capacity}
    counts = pool.group_counts
    groups = ReservedGroupsView(reserved=counts.reserved, in_use=counts.in_use, idle=counts.idle, reuse_count=counts.reuse_count)
    return PoolView(
        pool=pool.pool,
        flavor=pool.flavor,
        capacity=quantities(pool.capacity),
        used=quantities(used),
        groups=groups if counts.reserved else None,
    )


def quantities(amounts: Mapping[str, int]) -> dict[str, Quantity]:
    """Return `quantity` of each resource."""
    return {resource: quantity(resource, units) for resource, units in amounts.items()}
