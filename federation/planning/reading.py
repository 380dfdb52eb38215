"""What the planner reads from the ledger's snapshot; whoever asks what a plan would say reads the same."""

from __future__ import annotations

from collections.abc import Mapping

from federation.planning.values import Holding, Want
from federation.snapshot import LeaseView, PoolRecord, Snapshot, WantView
from mesh.ids import FlavorName, MeshId

#: Pools by mesh and flavor: looked at for each want, and read from a snapshot once.
FreeRoom = dict[tuple[MeshId, FlavorName], list[PoolRecord]]

#: The ledger's tokens are microseconds of its clock when they are minted.
_TOKENS_A_MS = 1_000


def granted_ms(lease: LeaseView) -> int:
    """When the lease was granted, on the ledger's clock."""
    return lease.token // _TOKENS_A_MS


def holdings_of(snapshot: Snapshot) -> list[Holding]:
    """Every lease."""
    return [_holding(lease) for lease in snapshot.leases]


def wants_of(snapshot: Snapshot) -> list[Want]:
    """All that meshes want which are there, for tenants that are."""
    alive = {view.record.mesh for view in snapshot.meshes if view.alive}
    promised = {(lease.mesh, lease.tenant, lease.flavor): lease for lease in snapshot.leases if lease.incarnation is None}
    free = free_room(snapshot)
    wants = (_want(view, promised.get((view.mesh, view.tenant, view.flavor)), snapshot.at_ms, free) for view in snapshot.wants)
    return [want for want in wants if want.slots > 0 and want.mesh in alive and want.tenant in snapshot.tree.tenants]


def free_room(snapshot: Snapshot) -> FreeRoom:
    """The pools of every mesh, by mesh and flavor."""
    free: FreeRoom = {}
    for view in snapshot.meshes:
        for pool in view.record.pools:
            free.setdefault((view.record.mesh, pool.flavor), []).append(pool)
    return free


def has_room(free: FreeRoom, mesh: MeshId, flavor: FlavorName, slot: Mapping[str, int]) -> bool:
    """Would one slot fit into a pool of the mesh, by what the mesh has told last?"""
    pools = free.get((mesh, flavor), ())
    return any(all(units <= pool.capacity[name] - pool.used[name] for name, units in slot.items()) for pool in pools)


def _holding(lease: LeaseView) -> Holding:
    """What runs out with its session (it has an `incarnation`) stays charged and can be asked for nothing."""
    return Holding(
        mesh=lease.mesh if lease.incarnation is None else MeshId(f"{lease.mesh}#{lease.incarnation}"),
        tenant=lease.tenant,
        flavor=lease.flavor,
        target=dict(lease.target.items()) if lease.incarnation is None else dict(lease.amounts.items()),
        token=lease.token,
        priority=lease.priority,
        since_ms=granted_ms(lease),
        is_fixed=lease.incarnation is not None,
    )


def _want(view: WantView, lease: LeaseView | None, at_ms: int, free: FreeRoom) -> Want:
    """Slots that an earlier plan has promised and that are still on their way are wanted no more."""
    coming = 0
    if lease is not None:
        coming = min(((lease.target[name] - lease.amounts[name]) // units for name, units in view.slot.items() if units), default=0)
    return Want(
        mesh=view.mesh,
        tenant=view.tenant,
        flavor=view.flavor,
        slot=dict(view.slot.items()),
        slots=view.slots - max(0, coming),
        priority=view.priority,
        since_ms=at_ms - view.waiting_ms,
        is_crowded=not has_room(free, view.mesh, view.flavor, view.slot),
    )
