"""Admission of stages: workloads of the federation get room in pools, inside the leases that the federation grants.

Queued workloads are looked at by priority, then arrival. For each the pools are tried in the order of their flavors that its
tenant's file gives, then in their own: one slot has to fit; room for as many slots as are worth having is reserved; a lease is asked
for. A refusal gives the room back and the next pool is tried. A workload that does not fit now does not hold up those behind it,
unless its tenant's start in order: then nothing of the tenant is tried before the first has started.

What refuses one refuses all of its kind, the same tenant and slot: they are queued together, and only kinds for which something has
changed are looked at. So a long queue of one tenant costs the others nothing, and is not gone through for each answer.

Where others stop for a workload, one slot of its pool is set aside for it as it comes free, and nobody else gets that; those behind it
take only what is beyond.

The shape is h11's and dask's: events in, decisions out, `handle` is the only writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heapreplace

from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.pools import Pool, PoolLedger, PoolSpec
from mesh.core.reasons import PASSING, Reason
from mesh.core.resources import NOTHING, ResourceSet, format_units
from mesh.errors import IllegalTransition
from mesh.stages.admission_decisions import AcquireLease, AdmissionDecision, ExplainWaiting, ReleaseLease, StartWorkload
from mesh.stages.admission_events import (
    AdmissionEvent,
    LeaseCameFree,
    LeaseGranted,
    LeaseRefused,
    PromiseEnded,
    RoomMayHaveCome,
    RoomPromised,
    WorkloadEnded,
    WorkloadFound,
    WorkloadOffered,
    WorkloadWithdrawn,
)
from mesh.stages.admission_kinds import Kind, KindKey, Turn
from mesh.stages.admission_order import Lines

#: Refusals that room in a pool may lift.
LACK_OF_ROOM = frozenset({Reason.POOL_BUSY, Reason.CAPACITY_RESERVED})
#: What is said to those who wait for their turn. Not who is before them: then each start would be news to the whole queue.
_BEHIND = (Reason.BEHIND_HEAD, "work of its tenant that comes before it waits on this mesh, and starts first (strict_order)")


class WorkloadState(str, Enum):
    """Where a workload stands on this mesh."""

    QUEUED = "QUEUED"
    """Known; no room or no lease yet."""
    GATHERING = "GATHERING"
    """Others stop for it; what comes free in its pool is set aside for it, up to one slot."""
    RESERVED = "RESERVED"
    """Room is set aside; the lease is being asked for."""
    RUNNING = "RUNNING"
    """Started."""


@dataclass(slots=True, kw_only=True)
class Workload:
    """A workload that this mesh knows."""

    offer: WorkloadOffered
    arrival: int  #: Counts up; breaks ties of priority.
    kind: Kind  #: Whose refusals are its own.
    state: WorkloadState = WorkloadState.QUEUED
    pool: PoolName | None = None  #: Where its room is, from GATHERING on.
    victims: frozenset[StageId] = frozenset()  #: While GATHERING: who stops for it.
    until_ms: int = 0  #: While GATHERING: when the promise ends; no decision here reads it.
    reported: tuple[Reason, str] | None = None  #: What was last said about its waiting.

    @property
    def refused_by(self) -> dict[PoolName, tuple[Reason, str]]:
        """Pools that have refused its kind since room last came, and why."""
        return self.kind.refused_by

    @property
    def key(self) -> KindKey:
        """Of its kind."""
        return self.offer.tenant, self.offer.slot

    @property
    def turn(self) -> Turn:
        """Its place in the queue."""
        return -self.offer.priority, self.arrival, self.offer.workload


class StageAdmission:
    """One mesh. `workloads` and `ledger` are its state; only `handle` writes them."""

    def __init__(self, pools: tuple[PoolSpec, ...]) -> None:
        self.ledger = PoolLedger(pools)
        self.workloads: dict[StageId, Workload] = {}
        self._arrivals = 0
        self._kinds: dict[KindKey, Kind] = {}
        self._open: set[KindKey] = set()  #: Kinds that not every pool has refused yet.
        self._new_events: dict[KindKey, None] = {}  #: Kinds that may have to be told something else than last time, in order.
        self._gathering: dict[StageId, None] = {}
        self._lines = Lines()
        #: Why a pool has no room for a slot: the same for every kind with such a slot, until something is reserved.
        self._refusals: dict[tuple[ResourceSet, PoolName], tuple[Reason, str]] = {}

    def is_behind(self, workload: Workload) -> bool:
        """Does it have to wait until others of its tenant have started?"""
        return workload.offer.preemption.in_order and self._lines.first(workload.offer.tenant) != workload.turn

    def handle(self, *events: AdmissionEvent) -> list[AdmissionDecision]:
        """Take the events in; return what must be done, in order.

        Pure: the same events on the same state give the same decisions.

        Raises:
            IllegalTransition: A lease was granted or refused that was not asked for.
            LedgerError: Work was found that does not fit into its pool.
        """
        decisions: list[AdmissionDecision] = []
        for event in events:
            decisions.extend(self._take(event))
        decisions.extend(self._admit())
        return decisions

    def _take(self, event: AdmissionEvent) -> list[AdmissionDecision]:
        if isinstance(event, WorkloadOffered):
            if event.workload not in self.workloads:
                workload = self._add(event)
                self._queue(workload)
                self._line_up(workload, self._lines.add)
            return []
        if isinstance(event, WorkloadFound):
            self._take_over(event)
            return []
        if isinstance(event, (RoomMayHaveCome, LeaseCameFree)):
            self._reopen_all(None if isinstance(event, RoomMayHaveCome) else event.tenant)
            return []
        if isinstance(event, RoomPromised):
            return self._promise(event)
        if isinstance(event, PromiseEnded):
            self._end_promise(event)
            return []
        if isinstance(event, LeaseGranted):
            return [self._start(event)]
        if isinstance(event, LeaseRefused):
            self._refuse(event)
            return []
        return self._drop(event)

    def _take_over(self, event: WorkloadFound) -> None:
        """What runs has its room, whatever waits."""
        name, amounts = event.offer.workload, event.offer.slot.times(event.slots)
        self.ledger.reserve(event.pool, name, amounts)
        self.ledger.commit(event.pool, name, amounts)
        workload = self._add(event.offer)
        workload.state, workload.pool = WorkloadState.RUNNING, event.pool

    def _add(self, offer: WorkloadOffered) -> Workload:
        self._arrivals += 1
        kind = self._kinds.get((offer.tenant, offer.slot)) or Kind(slot=offer.slot)
        workload = self.workloads[offer.workload] = Workload(offer=offer, arrival=self._arrivals, kind=kind)
        return workload

    def _line_up(self, workload: Workload, change: Callable[[TenantPath, Turn], tuple[Turn, ...]]) -> None:
        """Where its tenant's start in order: who comes first now is tried; it, and who did before, wait for another reason."""
        for turn in change(workload.offer.tenant, workload.turn) if workload.offer.preemption.in_order else ():
            other = self.workloads.get(turn[-1])
            if other is not None and other.key in self._kinds:
                self._new_events[other.key] = None
                self._open.add(other.key)

    def _queue(self, workload: Workload) -> None:
        """It waits from now on, with all of its kind."""
        key = workload.key
        workload.state, workload.pool = WorkloadState.QUEUED, None
        workload.kind = self._kinds.setdefault(key, workload.kind)
        workload.kind.add(workload.turn)
        self._open.add(key)
        self._new_events[key] = None

    def _answered(self, workload: Workload) -> None:
        """It asks for no lease any more."""
        workload.kind.asking -= 1
        self._new_events[workload.key] = None

    def _reopen(self, key: KindKey) -> None:
        self._kinds[key].reopen()
        self._open.add(key)

    def _reopen_all(self, tenant: TenantPath | None) -> None:
        """Of one tenant, or of all."""
        for key in self._kinds:
            if tenant is None or key[0] == tenant:
                self._reopen(key)

    def _start(self, event: LeaseGranted) -> AdmissionDecision:
        workload, pool = self._reserved(event.workload)
        reserved, used = self.ledger.pools[pool].reservations[event.workload], workload.offer.slot.times(event.slots)
        self.ledger.commit(pool, event.workload, used)
        workload.state = WorkloadState.RUNNING
        self._answered(workload)
        self._line_up(workload, self._lines.remove)
        if used != reserved:
            self._capacity_came()
        return StartWorkload(workload=event.workload, pool=pool, slot=workload.offer.slot, slots=event.slots, token=event.token)

    def _refuse(self, event: LeaseRefused) -> None:
        workload, pool = self._reserved(event.workload)
        self.ledger.release(event.workload)
        self._answered(workload)
        self._queue(workload)
        self._line_up(workload, self._lines.withdraw)
        workload.kind.refuse_lease(pool, (event.reason, event.detail))
        self._capacity_came()

    def _reserved(self, workload_id: StageId) -> tuple[Workload, PoolName]:
        workload = self.workloads.get(workload_id)
        if workload is None or workload.state is not WorkloadState.RESERVED or workload.pool is None:
            raise IllegalTransition(f"{workload_id} has asked for no lease")
        return workload, workload.pool

    def _drop(self, event: WorkloadEnded | WorkloadWithdrawn) -> list[AdmissionDecision]:
        workload = self.workloads.pop(event.workload, None)
        if workload is None:
            return []
        self._line_up(workload, self._lines.remove)
        if workload.state is WorkloadState.QUEUED:
            workload.kind.remove(workload.turn)
        elif workload.state is WorkloadState.RESERVED:
            self._answered(workload)
        self._gathering.pop(event.workload, None)
        self._new_events[workload.key] = None
        if self.ledger.release(event.workload):
            self._capacity_came()
        return [ReleaseLease(workload=event.workload)] if workload.state is WorkloadState.RUNNING else []

    def _promise(self, event: RoomPromised) -> list[AdmissionDecision]:
        """From now on what comes free there is its own. It may have got its room meanwhile, or be gone: then nothing is promised."""
        workload = self.workloads.get(event.workload)
        if workload is None or workload.state is not WorkloadState.QUEUED:
            return []
        workload.kind.remove(workload.turn)
        self._gathering[event.workload] = None
        workload.state, workload.pool = WorkloadState.GATHERING, event.pool
        workload.victims, workload.until_ms = event.victims, event.until_ms
        self.ledger.reserve(event.pool, event.workload, NOTHING)
        self._line_up(workload, self._lines.promise)
        return self._send(workload, Reason.WAITING_FOR_VICTIMS, event.detail)

    def _end_promise(self, event: PromiseEnded) -> None:
        workload = self.workloads.get(event.workload)
        if workload is not None and workload.state is WorkloadState.GATHERING:
            self.ledger.release(event.workload)
            del self._gathering[event.workload]
            self._queue(workload)
            self._line_up(workload, self._lines.withdraw)
            self._reopen(workload.key)
            self._capacity_came()

    def _capacity_came(self) -> None:
        """Room in a pool lifts refusals for want of room; refusals of leases stand until the federation says that room came.

        What does not fit yet keeps its refusal: to try it and word it anew for each stage that ends would take longer than the stages.
        """
        self._open.update(key for key, kind in self._kinds.items() if kind.lift(self.ledger.pools))

    def _admit(self) -> list[AdmissionDecision]:
        decisions: list[AdmissionDecision] = []
        for workload in sorted((self.workloads[name] for name in self._gathering), key=lambda one: one.turn):
            decisions.extend(self._gather(workload))
        decisions.extend(self._try_kinds())
        decisions.extend(self._explain())
        return decisions

    def _try_kinds(self) -> Iterable[AdmissionDecision]:
        """The first of each kind, the most urgent kind first, until every pool has refused each kind."""
        heap = [(kind.queue[0], key) for key in self._open if (kind := self._kinds[key]).queue]
        heapify(heap)
        self._refusals.clear()
        while heap:
            turn, key = heap[0]
            kind, workload = self._kinds[key], self.workloads[turn[-1]]
            pool = None if self.is_behind(workload) else self._try_pools(workload)
            if pool is not None:
                kind.remove(turn)
                yield self._reserve(workload, pool)
                self._refusals.clear()
            self._new_events[key] = None
            if pool is not None and kind.queue:
                heapreplace(heap, (kind.queue[0], key))
            else:
                heappop(heap)
        self._open.clear()

    def _gather(self, workload: Workload) -> list[AdmissionDecision]:
        """Set aside what has come free; ask for the lease once there is a whole slot, and all have stopped whose leases pay for it."""
        pool = self.ledger.pool(workload.pool or PoolName(""))
        holder, slot = workload.offer.workload, workload.offer.slot
        room = pool.free + pool.reservations[holder]
        self.ledger.release(holder)
        if slot <= room and self.workloads.keys().isdisjoint(workload.victims):
            del self._gathering[holder]
            return [self._reserve(workload, pool)]
        self.ledger.reserve(pool.spec.pool, holder, ResourceSet({name: min(units, room[name]) for name, units in slot.items()}))
        return []

    def _try_pools(self, workload: Workload) -> Pool | None:
        """The first pool that has not refused its kind and has room for a slot."""
        kind = workload.kind
        for pool in self._pools_in_order(workload.offer.preemption.flavors):
            name = pool.spec.pool
            if name in kind.refused_by:
                continue
            if kind.slot.copies_in(pool.free) != 0:
                return pool
            reported = self._refusals.get((kind.slot, name))
            if reported is None:
                reported = self._refusals[kind.slot, name] = _no_room(workload, pool, self._set_aside(name))
            kind.refuse_room(name, reported)
        return None

    def _pools_in_order(self, flavors: tuple[str, ...]) -> Iterable[Pool]:
        """Those of the first flavor first; of one flavor, and of flavors that are not named, in the order of the mesh."""
        pools = self.ledger.pools.values()
        if not flavors or len(pools) == 1:
            return pools
        ranks = {flavor: rank for rank, flavor in enumerate(flavors)}
        return sorted(pools, key=lambda pool: ranks.get(pool.spec.flavor, len(ranks)))

    def _reserve(self, workload: Workload, pool: Pool) -> AdmissionDecision:
        """Room for as many slots as are worth having; the pool has room for one."""
        offer, name = workload.offer, pool.spec.pool
        fits = offer.slot.copies_in(pool.free)
        demand = offer.width if fits is None else min(offer.width, fits)
        self.ledger.reserve(name, offer.workload, offer.slot.times(demand))
        workload.state, workload.pool = WorkloadState.RESERVED, name
        workload.kind.asking += 1
        return AcquireLease(
            workload=offer.workload, tenant=offer.tenant, pool=name, flavor=pool.spec.flavor, slot=offer.slot, demand=demand
        )

    def _set_aside(self, pool: PoolName) -> ResourceSet:
        """What would be free there, if it were not promised."""
        held = self.ledger.pools[pool].reservations
        promised = (amounts for name, amounts in held.items() if self.workloads[StageId(name)].state is WorkloadState.GATHERING)
        return sum(promised, start=NOTHING)

    def _explain(self) -> Iterable[AdmissionDecision]:
        """Kinds of which one asks for its lease are told of when that is answered: the answer is the same for all."""
        for key in [key for key in self._new_events if key not in self._kinds or not self._kinds[key].asking]:
            del self._new_events[key]
            kind = self._kinds.get(key)
            if kind is not None and not kind.queue:
                del self._kinds[key]
            elif kind is not None:
                reported = kind.explanation(PASSING) if kind.refused_by else _BEHIND
                for *_, name in kind.queue:
                    workload = self.workloads[name]
                    yield from self._send(workload, *(_BEHIND if self.is_behind(workload) else reported))

    def _send(self, workload: Workload, reason: Reason, detail: str) -> list[AdmissionDecision]:
        if workload.reported == (reason, detail):
            return []
        workload.reported = (reason, detail)
        return [ExplainWaiting(workload=workload.offer.workload, reason=reason, detail=detail)]


def _no_room(workload: Workload, pool: Pool, set_aside: ResourceSet) -> tuple[Reason, str]:
    slot = workload.offer.slot
    if slot <= pool.free + set_aside:
        return Reason.CAPACITY_RESERVED, f"what pool {pool.spec.pool} has free is set aside for more urgent work, for which others stop"
    ever = slot <= pool.spec.capacity
    room = pool.free if ever else pool.spec.capacity
    short = next(name for name in slot if slot[name] > room[name])
    has = f"{format_units(short, room[short])} {short} {'free' if ever else 'in all'}"
    words = f"pool {pool.spec.pool} has {has}, one slot takes {format_units(short, slot[short])}"
    return (Reason.POOL_BUSY if ever else Reason.POOL_TOO_SMALL, words)
