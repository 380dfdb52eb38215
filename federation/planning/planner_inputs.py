"""Reads the planner's input from a ledger's snapshot. The explanation of a plan reads the same input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import NamedTuple

from federation.planning.values import Holding, LeaseKey, PlannerDemand
from federation.snapshot import DemandView, FederationSnapshot, LeaseView, MeshRecord, PoolRecord, RunningView
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet
from mesh.preemption.stage_preemption import NO_LIMITS

#: By mesh, flavor and tenant: the mesh's room that is not yet assigned to a demand of the tenant.
_Left = dict[tuple[MeshId, FlavorName, TenantPath], dict[str, int]]
RunningByLease = Mapping[LeaseKey, Sequence[RunningView]]
#: The ledger's tokens are the microseconds of its clock at their creation.
_TOKENS_A_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotNeed:
    """Facts that decide whether a slot fits into a pool.

    Room of reserved groups is no room for a gang, nor for a slot that no group covers.
    """

    slot: ResourceSet
    priority: int
    is_gang: bool = False
    whole: ResourceSet = NOTHING  #: The whole slot, where `slot` is the part of one that a lease lacks.

    def free_in(self, pool: PoolRecord, resource: str) -> int:
        """Return the units of the resource that the slot could use in the pool."""
        return pool.free(resource, self.priority, is_gang=self.is_gang, slot=self.whole or self.slot)

    def fits_in(self, pool: PoolRecord) -> bool:
        """Return whether a slot would fit into the pool now."""
        return all(units <= self.free_in(pool, name) for name, units in self.slot.items())


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """Free room of every mesh and flavor, read from a snapshot once and used for each demand."""

    pools: dict[tuple[MeshId, FlavorName], list[PoolRecord]] = field(default_factory=dict)
    #: Sum of all targets less all held amounts: positive for promised room, negative for room about to come free.
    promised: dict[tuple[MeshId, FlavorName, str], int] = field(default_factory=dict)
    limited: set[MeshId] = field(default_factory=set)  #: Meshes that limit their own preemption.
    _room: dict[tuple[MeshId, FlavorName], dict[str, int]] = field(default_factory=dict)  #: Answers of `room_of`.

    def room_of(self, mesh: MeshId, flavor: FlavorName) -> dict[str, int]:
        """Return the free room of all pools together, less the room that plans have promised; computed at the first demand for it."""
        room = self._room.get((mesh, flavor))
        if room is None:
            room = self._room[mesh, flavor] = _all_room(self, mesh, flavor)
        return room


def granted_ms(lease: LeaseView) -> int:
    """Return when the lease was granted, on the ledger's clock."""
    return lease.token // _TOKENS_A_MS


def running_by_lease(snapshot: FederationSnapshot) -> RunningByLease:
    """Return the stages that each lease pays for, in the order of the snapshot."""
    running: defaultdict[LeaseKey, list[RunningView]] = defaultdict(list)
    for view in snapshot.running:
        running[view.mesh, view.tenant, view.flavor].append(view)
    return running


def holdings_of(snapshot: FederationSnapshot, running: RunningByLease | None = None) -> list[Holding]:
    """Return every lease as a holding, with the stages that it pays for.

    Args:
        running: `running_by_lease` of the snapshot, if the caller has it.
    """
    return HoldingsReader().read(snapshot, running_by_lease(snapshot) if running is None else running)


class HoldingsReader:
    """Reads the leases of one snapshot after the other as holdings. The holding of a lease that has not changed is kept.

    A reader of the ledger that caches its rows returns the same objects for unchanged rows, so comparing objects suffices.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}  #: By id of the lease's row, which the value holds.

    def read(self, snapshot: FederationSnapshot, running: RunningByLease) -> list[Holding]:
        """Return every lease as a holding, in the order of the snapshot; `running` is `running_by_lease` of it."""
        wanted, before, now, nothing = _wanted(snapshot), self._kept, dict[int, _Kept](), list[RunningView]()
        protected = {(view.record.mesh, flavor) for view in snapshot.meshes for flavor in _protected_flavors(view.record)}
        for lease in snapshot.leases:
            mesh, _, flavor = key = _key(lease)
            work, flags = running.get(key, nothing), (key in wanted, (mesh, flavor) in protected)
            kept = before.get(id(lease))
            if kept is None or kept.flags != flags or not _are_same(kept.running, work):
                is_wanted, is_protected = flags
                kept = _Kept(lease, work, flags, _holding(lease, work, is_wanted=is_wanted, is_protected=is_protected))
            now[id(lease)] = kept
        self._kept = now
        return [kept.holding for kept in now.values()]


class _Kept(NamedTuple):
    """A holding and what it was made of."""

    lease: LeaseView
    running: Sequence[RunningView]
    flags: tuple[bool, bool]  #: Whether it is wanted, and protected.
    holding: Holding


def _are_same(some: Sequence[RunningView], others: Sequence[RunningView]) -> bool:
    """Return whether both have the same objects in the same order."""
    return len(some) == len(others) and all(map(is_, some, others))


def _wanted(snapshot: FederationSnapshot) -> set[LeaseKey]:
    """Return the leases that demands would grow."""
    return {(view.mesh, view.tenant, view.flavor) for view in snapshot.demands}


def _protected_flavors(record: MeshRecord) -> frozenset[FlavorName]:
    """Return the flavors of which the mesh has protected pools only. Of other flavors, nothing tells in which pool a stage runs."""
    protected = record.settings.preemption.protected_pools
    if not protected:
        return frozenset()
    return frozenset(pool.flavor for pool in record.pools) - {pool.flavor for pool in record.pools if pool.pool not in protected}


def demands_of(snapshot: FederationSnapshot, running: RunningByLease | None = None) -> list[PlannerDemand]:
    """Return the demands of all meshes that can start work, for tenants that exist; `running` as in `holdings_of`."""
    able = {view.record.mesh for view in snapshot.meshes if view.can_start}
    running = running_by_lease(snapshot) if running is None else running
    wanted = _wanted(snapshot)
    coming = {
        _key(lease): on_its_way(lease, running.get(_key(lease), ()))
        for lease in snapshot.leases
        if lease.incarnation is None and _key(lease) in wanted
    }
    free = free_room(snapshot)
    left: _Left = {}
    demands: list[PlannerDemand] = []
    for view in sorted(snapshot.demands, key=lambda view: (-view.priority, -view.waiting_ms)):
        if view.mesh in able and view.tenant in snapshot.tree.tenants:
            slots = view.slots - _take_slots(coming.get((view.mesh, view.tenant, view.flavor), {}), view.slot, view.slots)
            demands.extend(_parts(view, slots, snapshot.at_ms, free, left))
    return demands


def free_room(snapshot: FederationSnapshot) -> FreeRoom:
    """Return the free room of the pools as meshes reported it, with the room that plans have promised since."""
    free = FreeRoom()
    for view in snapshot.meshes:
        if view.record.settings.preemption != NO_LIMITS:
            free.limited.add(view.record.mesh)
        for pool in view.record.pools:
            free.pools.setdefault((view.record.mesh, pool.flavor), []).append(pool)
    for lease in snapshot.leases:
        if lease.incarnation is None and lease.target != lease.amounts:
            for name in {*lease.target.keys(), *lease.amounts.keys()}:
                key = lease.mesh, lease.flavor, name
                free.promised[key] = free.promised.get(key, 0) + lease.target[name] - lease.amounts[name]
    return free


def has_room(free: FreeRoom, mesh: MeshId, flavor: FlavorName, need: SlotNeed) -> bool:
    """Return whether one slot would fit into a pool of the mesh, by the mesh's last report."""
    return any(need.fits_in(pool) for pool in free.pools.get((mesh, flavor), ()))


def left_over(free: FreeRoom, mesh: MeshId, flavor: FlavorName, need: SlotNeed) -> dict[str, int]:
    """Return the free part of a slot that does not fit: in the pool that comes nearest, less the room promised on the mesh."""
    needed = {name: units for name, units in need.slot.items() if units}
    pools = [
        {name: need.free_in(pool, name) for name in needed}
        for pool in free.pools.get((mesh, flavor), ())
        if all(units <= pool.capacity[name] for name, units in needed.items())
    ]
    nearest = max(pools, key=lambda left: min((left[name] * 1_000 // units for name, units in needed.items()), default=0), default={})
    return {name: max(0, units - free.promised.get((mesh, flavor, name), 0)) for name, units in nearest.items()}


def on_its_way(lease: LeaseView, running: Sequence[RunningView]) -> dict[str, int]:
    """Return the amounts that come free for the lease's tenant there: promised growth, and what stages return that are stopping.

    Args:
        running: Stages that the lease pays for.
    """
    leaving = _sum(
        view.amounts_of(view.slots if view.is_leaving else view.retiring) for view in running if view.is_leaving or view.retiring
    )
    free = {name: units - lease.amounts[name] + leaving.get(name, 0) for name, units in lease.target.items()}
    return {name: units for name, units in free.items() if units > 0}


def _key(lease: LeaseView) -> LeaseKey:
    return lease.mesh, lease.tenant, lease.flavor


def _sum(amounts: Iterable[ResourceSet]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in amounts:
        for name, units in each.items():
            total[name] = total.get(name, 0) + units
    return total


def _holding(lease: LeaseView, running: Sequence[RunningView], *, is_wanted: bool, is_protected: bool) -> Holding:
    """Return the holding. A lease that ends with its session (it has an `incarnation`) stays charged and cannot be reclaimed.

    Stages that stop for their own tenant free quota for it alone, and so do cancelled stages if it demands any there.
    """
    if lease.incarnation is not None:
        mesh = MeshId(f"{lease.mesh}#{lease.incarnation}")
        return Holding(mesh=mesh, tenant=lease.tenant, flavor=lease.flavor, target=dict(lease.amounts.items()), is_fixed=True)
    paid = _sum(view.amounts for view in running)
    return Holding(
        mesh=lease.mesh,
        tenant=lease.tenant,
        flavor=lease.flavor,
        target=dict(lease.target.items()),
        token=lease.token,
        priority=lease.priority,
        since_ms=granted_ms(lease),
        is_giving=not lease.amounts <= lease.target,
        is_protected=is_protected,
        running=tuple(_staying(view) for view in running if not (view.is_leaving and (is_wanted or view.token in lease.victims))),
        promised={name: units - lease.amounts[name] for name, units in lease.target.items() if units > lease.amounts[name]},
        idle={name: units - paid.get(name, 0) for name, units in lease.amounts.items()},
    )


def _staying(view: RunningView) -> RunningView:
    """Return the stage with the slots that no plan reclaims."""
    if not view.retiring:
        return view
    kept = view.slots - view.retiring
    return replace(view, amounts=view.amounts_of(kept), slots=kept, retiring=0)


def _take_slots(amounts: dict[str, int], slot: Mapping[str, int], most: int) -> int:
    """Take as many slots as possible out of the amounts, at most `most`; return their number."""
    slots = max(0, min([most, *(amounts.get(name, 0) // units for name, units in slot.items() if units)]))
    for name, units in slot.items() if slots else ():
        amounts[name] = amounts.get(name, 0) - slots * units
    return slots


def _parts(view: DemandView, slots: int, at_ms: int, free: FreeRoom, left: _Left) -> Iterator[PlannerDemand]:
    """Split a demand into the slots that the mesh has room for and the rest, for which leases there have to be reclaimed.

    Room is counted once for all demands of a tenant on the mesh, the most urgent first, less promised room. Which tenant gets the room is
    not decided here. The rest carries all `free` room, so that a demand can use room that was assigned to an earlier demand which failed.
    """
    key = view.mesh, view.flavor
    room = free.room_of(*key)
    need = SlotNeed(slot=view.slot, priority=view.priority, is_gang=view.gang_size > 0, whole=view.whole)
    with_room = min(slots, _slots_in_pools(free, *key, need))
    if with_room > 0:
        with_room = _take_slots(left.setdefault((*key, view.tenant), dict(room)), view.slot, with_room)
    for some, is_crowded in ((with_room, False), (slots - with_room, True)):
        if some > 0:
            yield PlannerDemand(
                mesh=view.mesh,
                tenant=view.tenant,
                flavor=view.flavor,
                slot=dict(view.slot.items()),
                slots=some,
                priority=view.priority,
                beyond=view.beyond if is_crowded or some == slots else 0,
                since_ms=at_ms - view.waiting_ms,
                created_ms=view.created_ms,
                is_crowded=is_crowded,
                is_limited=view.mesh in free.limited,
                free=left_over(free, *key, need) if is_crowded else {},
                room=None if is_crowded else _room_for(free, *key, need),
            )


def _slots_in_pools(free: FreeRoom, mesh: MeshId, flavor: FlavorName, need: SlotNeed) -> int:
    """Return the number of slots that would fit into the pools of the mesh, by its last report."""
    pools = free.pools.get((mesh, flavor), ())
    return sum(min((need.free_in(pool, name) // units for name, units in need.slot.items() if units), default=0) for pool in pools)


def _all_room(free: FreeRoom, mesh: MeshId, flavor: FlavorName, need: SlotNeed | None = None) -> dict[str, int]:
    """Return the free room of the pools, as far as the need may use it, less promised room. None: any work."""
    pools = free.pools.get((mesh, flavor), ())
    names = {name for pool in pools for name in pool.capacity}
    room = {name: sum(pool.free(name) if need is None else need.free_in(pool, name) for pool in pools) for name in names}
    return {name: units - max(0, free.promised.get((mesh, flavor, name), 0)) for name, units in room.items()}


def _room_for(free: FreeRoom, mesh: MeshId, flavor: FlavorName, need: SlotNeed) -> dict[str, int]:
    """Return the free room that the need may use."""
    if any(pool.reserved_idle for pool in free.pools.get((mesh, flavor), ())):
        return _all_room(free, mesh, flavor, need)
    return free.room_of(mesh, flavor)
