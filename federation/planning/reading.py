"""What the planner reads from the ledger's snapshot; whoever asks what a plan would say reads the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.planning.values import Holding, Want
from federation.snapshot import LeaseView, PoolRecord, Snapshot, WantView
from mesh.ids import FlavorName, MeshId

#: The ledger's tokens are microseconds of its clock when they are minted.
_TOKENS_A_MS = 1_000


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """Of every mesh and flavor: looked at for each want, and read from a snapshot once."""

    pools: dict[tuple[MeshId, FlavorName], list[PoolRecord]] = field(default_factory=dict)
    #: By how much all targets are above what is held: room that is promised already, or, below 0, that is about to come free.
    promised: dict[tuple[MeshId, FlavorName, str], int] = field(default_factory=dict)


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
    """What meshes have told of their pools, and what plans have promised since."""
    free = FreeRoom()
    for view in snapshot.meshes:
        for pool in view.record.pools:
            free.pools.setdefault((view.record.mesh, pool.flavor), []).append(pool)
    for lease in snapshot.leases:
        if lease.incarnation is None and lease.target != lease.amounts:
            for name in {*lease.target.keys(), *lease.amounts.keys()}:
                key = lease.mesh, lease.flavor, name
                free.promised[key] = free.promised.get(key, 0) + lease.target[name] - lease.amounts[name]
    return free


def has_room(free: FreeRoom, mesh: MeshId, flavor: FlavorName, slot: Mapping[str, int]) -> bool:
    """Would one slot fit into a pool of the mesh, by what the mesh has told last?"""
    pools = free.pools.get((mesh, flavor), ())
    return any(all(units <= pool.capacity[name] - pool.used[name] for name, units in slot.items()) for pool in pools)


def left_over(free: FreeRoom, mesh: MeshId, flavor: FlavorName, slot: Mapping[str, int]) -> dict[str, int]:
    """What there is of a slot that does not fit: in the pool that comes nearest to it, less what is promised on the mesh."""
    needed = {name: units for name, units in slot.items() if units}
    pools = [
        {name: pool.capacity[name] - pool.used[name] for name in needed}
        for pool in free.pools.get((mesh, flavor), ())
        if all(units <= pool.capacity[name] for name, units in needed.items())
    ]
    nearest = max(pools, key=lambda left: min((left[name] * 1_000 // units for name, units in needed.items()), default=0), default={})
    return {name: max(0, units - free.promised.get((mesh, flavor, name), 0)) for name, units in nearest.items()}


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
    is_crowded = not has_room(free, view.mesh, view.flavor, view.slot)
    return Want(
        mesh=view.mesh,
        tenant=view.tenant,
        flavor=view.flavor,
        slot=dict(view.slot.items()),
        slots=view.slots - max(0, coming),
        priority=view.priority,
        since_ms=at_ms - view.waiting_ms,
        is_crowded=is_crowded,
        free=left_over(free, view.mesh, view.flavor, view.slot) if is_crowded else {},
    )
