"""Room of a mesh for slots: pools, nodes and reserved groups, changed together, and why there is none. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.core.ids import PoolName, StageId
from mesh.core.pools import Pool, PoolLedger, PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet, format_units
from mesh.core.shapes import UNBOUNDED, amounts_of
from mesh.policies.catalogue import Catalogue
from mesh.stages.admission_events import WorkloadFound
from mesh.stages.admission_kinds import CrowdKey
from mesh.stages.hosting import NO_POOL
from mesh.stages.reserved_groups import ReservedGroups
from mesh.stages.slot_placement import SlotPlacement
from mesh.stages.stage_settings import StageSettings
from mesh.stages.workloads import Workload, WorkloadState, stage_of


class AdmissionRoom:
    """Room of all pools of a mesh. `ledger`, `placement` and `reserved` are its state.

    Args:
        pools: Pools of the mesh.
        workloads: All workloads of the mesh; read only.
    """

    def __init__(
        self, pools: tuple[PoolSpec, ...], workloads: Mapping[StageId, Workload], settings: StageSettings, catalogue: Catalogue
    ) -> None:
        self._workloads = workloads
        self.ledger = PoolLedger(pools)
        self.placement = SlotPlacement(self.ledger, weights=settings.weights.as_weights(), catalogue=catalogue)
        self.reserved = ReservedGroups(self.ledger, self.placement)

    # -- questions -----------------------------------------------------------------------------------------------------

    def has(self, wanted: CrowdKey) -> bool:
        """Return whether a reserved group is idle that may be taken, or the pool and its nodes have room for a slot."""
        pool, slot = wanted.pool, amounts_of(wanted.shape)
        if wanted.may_take_reserved and self.reserved.has(pool, slot):
            return True
        has_room = self.ledger.pools[pool].fits(slot) and self.placement.fits(pool, wanted.shape)
        return has_room and self._dynamic_left(pool, slot) > 0

    def _dynamic_left(self, pool: PoolName, slot: ResourceSet) -> int:
        """Return how many more slots of this size may be in groups that are made on demand."""
        kept = self.ledger.pools[pool]
        if not slot or kept.spec.groups is None or kept.spec.groups.max_dynamic >= UNBOUNDED:
            return UNBOUNDED
        made = 0
        for holder, amounts in (*kept.uses.items(), *kept.reservations.items()):
            workload = self._workloads.get(StageId(holder)) or self._workloads.get(stage_of(holder))
            if workload is not None and workload.offer.slot:
                made += (workload.offer.slot.copies_in(amounts) or 0) - len(self.reserved.groups_of(StageId(holder)))
        return max(0, kept.spec.groups.max_dynamic - made)

    def in_order(self, flavors: tuple[str, ...]) -> Iterable[Pool]:
        """Return the pools in the order of these flavors; ties, and other flavors at the end, in the order of the mesh."""
        pools = self.ledger.pools.values()
        if not flavors or len(pools) == 1:
            return pools
        ranks = {flavor: rank for rank, flavor in enumerate(flavors)}
        return sorted(pools, key=lambda pool: ranks.get(pool.spec.flavor, len(ranks)))

    def refusal(self, workload: Workload, pool: Pool) -> tuple[Reason, str]:
        """Return why the pool has no room for a slot."""
        name, slot, shape = pool.spec.pool, workload.offer.slot, workload.offer.shape
        has_room, has_node = slot.copies_in(pool.free) != 0, self.placement.fits(name, shape)
        if self.placement.copies(name, shape) != 0 and not (has_room and has_node) and self._is_reserved_away(workload, pool):
            return Reason.CAPACITY_RESERVED, self._reserved_words(pool)
        if has_room and has_node:
            return Reason.GROUPS_AT_LIMIT, f"pool {name} has all the groups on demand that `dynamic_max` allows"
        is_for_nodes = self.placement.copies(name, shape) == 0 if not has_room else not has_node
        on_nodes = self.placement.refusal(name, shape) if is_for_nodes else None
        return on_nodes or _no_room(workload, pool, self.set_aside(name))

    def _is_reserved_away(self, workload: Workload, pool: Pool) -> bool:
        """Return whether a slot would fit, were it not for reserved groups."""
        name, slot = pool.spec.pool, workload.offer.slot
        if not pool.fits(slot):
            return slot <= pool.free + self.reserved.idle_amounts(name)
        return workload.offer.gang is None and self.reserved.has(name, slot)

    def _reserved_words(self, pool: Pool) -> str:
        name = pool.spec.pool
        kept = ", ".join(f"{format_units(key, units)} {key}" for key, units in self.reserved.idle_amounts(name).items())
        least = f"{self.reserved.threshold(name):g}"
        return f"pool {name} keeps {kept} in reserved groups, which slots of their size or less take from priority {least} on"

    def set_aside(self, pool: PoolName) -> ResourceSet:
        """Return what the pool holds for workloads in GATHERING."""
        held = self.ledger.pools[pool].reservations
        known = ((self._workloads.get(StageId(holder)), amounts) for holder, amounts in held.items())
        gathered = (amounts for one, amounts in known if one is not None and one.state is WorkloadState.GATHERING)
        return sum(gathered, start=NOTHING)

    # -- changes -------------------------------------------------------------------------------------------------------

    def find(self, event: WorkloadFound) -> None:
        """Charge pool and nodes for a running workload that an earlier process has started."""
        name, amounts = event.offer.workload, event.offer.slot.times(event.slots)
        self.reserved.find(name, event.pool, event.offer.slot, event.groups)
        self.reserved.make_room(event.pool, amounts)
        self.ledger.reserve(event.pool, name, amounts)
        self.ledger.commit(event.pool, name, amounts)
        self.placement.find(name, event.offer.shape, (*(node for node in event.groups.values() if node), *event.nodes))

    def reserve(self, holder: StageId, workload: Workload, pool: Pool, most: int) -> int:
        """Reserve reserved groups, places on nodes and amounts for up to `most` slots; return for how many."""
        slot, name = workload.offer.slot, pool.spec.pool
        copies, left = slot.copies_in(pool.free), self._dynamic_left(name, slot)
        taken = self.reserved.take(holder, name, slot, most) if name in workload.kind.reserves else 0
        more = min(most - taken, left) if copies is None else min(most - taken, left, copies)
        slots = taken + (self.placement.place(holder, name, workload.offer.shape, more) if more > 0 else 0)
        self.ledger.reserve(name, holder, slot.times(slots))
        return slots

    def commit(self, workload: Workload, pool: PoolName, slots: int) -> bool:
        """Keep this many of the reserved slots of a workload that starts; return whether others are released."""
        name, used = workload.offer.workload, workload.offer.slot.times(slots)
        reserved = self.ledger.pools[pool].reservations[name]
        self.ledger.commit(pool, name, used)
        self.reserved.keep(name, slots)
        self.placement.keep(name, slots)
        return used != reserved

    def charge(self, workload: Workload, slots: int) -> None:
        """Charge the pool and the nodes for this many slots of a running workload."""
        name, pool = workload.offer.workload, workload.pool or NO_POOL
        self.ledger.release(name)
        self.ledger.reserve(pool, name, workload.offer.slot.times(slots))
        self.ledger.commit(pool, name)
        self.placement.keep(name, slots)

    def gather(self, workload: Workload) -> None:
        """Reserve the part of one slot that is free in the workload's pool, and its place on nodes if there is one."""
        pool, holder = self.ledger.pool(workload.pool or NO_POOL), workload.offer.workload
        slot, shape = workload.offer.slot, workload.offer.shape
        room = pool.free
        self.ledger.reserve(pool.spec.pool, holder, ResourceSet({name: min(units, room[name]) for name, units in slot.items()}))
        if self.placement.fits(pool.spec.pool, shape):
            self.placement.place(holder, pool.spec.pool, shape, 1)

    def release(self, stage: StageId) -> bool:
        """Release what the stage holds of pools and nodes; return whether a pool has room because of it."""
        self.release_nodes(stage)
        return self.ledger.release(stage)

    def release_nodes(self, stage: StageId) -> None:
        """Release what the stage holds of reserved groups and nodes."""
        self.reserved.give_back(stage)
        self.placement.release(stage)


def _no_room(workload: Workload, pool: Pool, set_aside: ResourceSet) -> tuple[Reason, str]:
    slot = workload.offer.slot
    if slot <= pool.free + set_aside:
        return Reason.CAPACITY_RESERVED, f"what pool {pool.spec.pool} has free is set aside for more urgent work, for which others stop"
    ever = slot <= pool.spec.capacity
    room = pool.free if ever else pool.spec.capacity
    short = next(name for name in slot if slot[name] > room[name])
    has = f"{format_units(short, room[short])} {short} {'free' if ever else 'in all'}"
    gang = workload.offer.gang
    one = "one slot" if gang is None else f"one gang of {gang.words()}"
    words = f"pool {pool.spec.pool} has {has}, {one} takes {format_units(short, slot[short])}"
    return (Reason.POOL_BUSY if ever else Reason.POOL_TOO_SMALL, words)
