"""Admission of stages: workloads of the federation get room in pools, inside the leases that the federation grants.

Queued workloads are looked at by priority, then arrival. For each the pools are tried in their order: one slot has to
fit; room for as many slots as are worth having is reserved; a lease is asked for. A refusal gives the room back and the
next pool is tried. A workload that does not fit now does not hold up those behind it.

Where others stop for a workload, one slot of its pool is set aside for it as it comes free, and nobody else gets that; those behind it
take only what is beyond.

The shape is h11's and dask's: events in, decisions out, `handle` is the only writer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from mesh.admission_decisions import AcquireLease, AdmissionDecision, ExplainWaiting, ReleaseLease, StartWorkload
from mesh.admission_events import (
    AdmissionEvent,
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
from mesh.errors import IllegalTransition
from mesh.ids import PoolName, StageId
from mesh.pools import Pool, PoolLedger, PoolSpec
from mesh.reasons import PASSING, Reason
from mesh.resources import NOTHING, ResourceSet, format_units

#: Refusals that room in a pool may lift.
WANT_OF_ROOM = frozenset({Reason.CAPACITY_BUSY, Reason.ROOM_RESERVED})


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
    state: WorkloadState = WorkloadState.QUEUED
    pool: PoolName | None = None  #: Where its room is, from GATHERING on.
    victims: frozenset[StageId] = frozenset()  #: While GATHERING: who stops for it.
    until_ms: int = 0  #: While GATHERING: when the promise ends; no decision here reads it.
    refused_by: dict[PoolName, tuple[Reason, str]] = field(default_factory=dict)  #: Since room last came; these pools are not tried.
    told: tuple[Reason, str] | None = None  #: What was last said about its waiting.


class StageAdmission:
    """One mesh. `workloads` and `ledger` are its state; only `handle` writes them."""

    def __init__(self, pools: tuple[PoolSpec, ...]) -> None:
        self.ledger = PoolLedger(pools)
        self.workloads: dict[StageId, Workload] = {}
        self._arrivals = 0

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
                self._arrivals += 1
                self.workloads[event.workload] = Workload(offer=event, arrival=self._arrivals)
            return []
        if isinstance(event, WorkloadFound):
            self._take_over(event)
            return []
        if isinstance(event, RoomMayHaveCome):
            for workload in self.workloads.values():
                workload.refused_by.clear()
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
        self._arrivals += 1
        self.workloads[name] = Workload(offer=event.offer, arrival=self._arrivals, state=WorkloadState.RUNNING, pool=event.pool)

    def _start(self, event: LeaseGranted) -> AdmissionDecision:
        workload, pool = self._reserved(event.workload)
        reserved, used = self.ledger.pools[pool].reservations[event.workload], workload.offer.slot.times(event.slots)
        self.ledger.commit(pool, event.workload, used)
        workload.state = WorkloadState.RUNNING
        if used != reserved:
            self._capacity_came()
        return StartWorkload(workload=event.workload, pool=pool, slot=workload.offer.slot, slots=event.slots, token=event.token)

    def _refuse(self, event: LeaseRefused) -> None:
        workload, pool = self._reserved(event.workload)
        self.ledger.release(event.workload)
        workload.state, workload.pool = WorkloadState.QUEUED, None
        self._capacity_came()
        workload.refused_by[pool] = (event.reason, event.detail)

    def _reserved(self, workload_id: StageId) -> tuple[Workload, PoolName]:
        workload = self.workloads.get(workload_id)
        if workload is None or workload.state is not WorkloadState.RESERVED or workload.pool is None:
            raise IllegalTransition(f"{workload_id} has asked for no lease")
        return workload, workload.pool

    def _drop(self, event: WorkloadEnded | WorkloadWithdrawn) -> list[AdmissionDecision]:
        workload = self.workloads.pop(event.workload, None)
        if workload is None:
            return []
        held = self.ledger.release(event.workload)
        if held:
            self._capacity_came()
        return [ReleaseLease(workload=event.workload)] if workload.state is WorkloadState.RUNNING else []

    def _promise(self, event: RoomPromised) -> list[AdmissionDecision]:
        """From now on what comes free there is its own. It may have got its room meanwhile, or be gone: then nothing is promised."""
        workload = self.workloads.get(event.workload)
        if workload is None or workload.state is not WorkloadState.QUEUED:
            return []
        workload.state, workload.pool = WorkloadState.GATHERING, event.pool
        workload.victims, workload.until_ms = event.victims, event.until_ms
        self.ledger.reserve(event.pool, event.workload, NOTHING)
        return self._tell(workload, Reason.WAITING_FOR_VICTIMS, event.detail)

    def _end_promise(self, event: PromiseEnded) -> None:
        workload = self.workloads.get(event.workload)
        if workload is not None and workload.state is WorkloadState.GATHERING:
            self.ledger.release(event.workload)
            workload.state, workload.pool = WorkloadState.QUEUED, None
            workload.refused_by.clear()
            self._capacity_came()

    def _capacity_came(self) -> None:
        """Room in a pool lifts refusals for want of room; refusals of quota stand until the federation says that room came."""
        for workload in self.workloads.values():
            busy = [pool for pool, (reason, _) in workload.refused_by.items() if reason in WANT_OF_ROOM]
            for pool in busy:
                del workload.refused_by[pool]

    def _admit(self) -> list[AdmissionDecision]:
        decisions: list[AdmissionDecision] = []
        for workload in self._in_order(WorkloadState.GATHERING):
            decisions.extend(self._gather(workload))
        for workload in self._in_order(WorkloadState.QUEUED):
            decisions.extend(self._try_pools(workload))
        return decisions

    def _in_order(self, state: WorkloadState) -> list[Workload]:
        found = [workload for workload in self.workloads.values() if workload.state is state]
        return sorted(found, key=lambda kept: (-kept.offer.priority, kept.arrival))

    def _gather(self, workload: Workload) -> list[AdmissionDecision]:
        """Set aside what has come free; ask for the lease once there is a whole slot, and all have stopped whose leases pay for it."""
        pool = self.ledger.pool(workload.pool or PoolName(""))
        holder, slot = workload.offer.workload, workload.offer.slot
        room = pool.free + pool.reservations[holder]
        self.ledger.release(holder)
        if slot <= room and self.workloads.keys().isdisjoint(workload.victims):
            return [self._reserve(workload, pool)]
        self.ledger.reserve(pool.spec.pool, holder, ResourceSet({name: min(units, room[name]) for name, units in slot.items()}))
        return []

    def _try_pools(self, workload: Workload) -> list[AdmissionDecision]:
        offer = workload.offer
        for pool in self.ledger.pools.values():
            name = pool.spec.pool
            if name in workload.refused_by:
                continue
            if offer.slot.copies_in(pool.free) == 0:
                workload.refused_by[name] = _no_room(workload, pool, self._set_aside(name))
                continue
            return [self._reserve(workload, pool)]
        return self._explain(workload)

    def _reserve(self, workload: Workload, pool: Pool) -> AdmissionDecision:
        """Room for as many slots as are worth having; the pool has room for one."""
        offer, name = workload.offer, pool.spec.pool
        fits = offer.slot.copies_in(pool.free)
        want = offer.width if fits is None else min(offer.width, fits)
        self.ledger.reserve(name, offer.workload, offer.slot.times(want))
        workload.state, workload.pool = WorkloadState.RESERVED, name
        return AcquireLease(workload=offer.workload, tenant=offer.tenant, pool=name, flavor=pool.spec.flavor, slot=offer.slot, want=want)

    def _set_aside(self, pool: PoolName) -> ResourceSet:
        """What would be free there, if it were not promised."""
        held = self.ledger.pools[pool].reservations
        promised = (amounts for name, amounts in held.items() if self.workloads[StageId(name)].state is WorkloadState.GATHERING)
        return sum(promised, start=NOTHING)

    def _explain(self, workload: Workload) -> list[AdmissionDecision]:
        reasons = list(workload.refused_by.values())
        passing = [told for told in reasons if told[0] in PASSING]
        reason = (passing or reasons)[0][0]
        return self._tell(workload, reason, "; ".join(dict.fromkeys(words for _, words in reasons)))

    def _tell(self, workload: Workload, reason: Reason, detail: str) -> list[AdmissionDecision]:
        if workload.told == (reason, detail):
            return []
        workload.told = (reason, detail)
        return [ExplainWaiting(workload=workload.offer.workload, reason=reason, detail=detail)]


def _no_room(workload: Workload, pool: Pool, set_aside: ResourceSet) -> tuple[Reason, str]:
    slot = workload.offer.slot
    if slot <= pool.free + set_aside:
        return Reason.ROOM_RESERVED, f"what pool {pool.spec.pool} has free is set aside for more urgent work, for which others stop"
    ever = slot <= pool.spec.capacity
    room = pool.free if ever else pool.spec.capacity
    short = next(name for name in slot if slot[name] > room[name])
    has = f"{format_units(short, room[short])} {short} {'free' if ever else 'in all'}"
    words = f"pool {pool.spec.pool} has {has}, one slot takes {format_units(short, slot[short])}"
    return (Reason.CAPACITY_BUSY if ever else Reason.CAPACITY_TOO_SMALL, words)
