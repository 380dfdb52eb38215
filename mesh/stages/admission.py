"""Admission of stages: workloads of the federation get room in pools, inside the leases that the federation grants.

Queued workloads are tried by priority, then by arrival. A mesh may add priority to the workloads of a tenant, and more with each second
of their wait (`stage_settings`): then by that sum. Each tries the pools in its tenant's order of flavors, then in the order of the
mesh. A pool must have room for one slot, and so must one of its nodes, or several for the bundles of a gang. Then room for all useful
slots is reserved, on the nodes that the pool's policy chooses (`slot_placement`). Then a lease is requested. A refused lease releases the
room, and the next pool is tried. A workload that does not fit does not block those behind it. Under `strict_order` it does: the tenant's
other workloads are not tried before the first one has started.

Workloads of one tenant with the same slot are one kind. A refusal holds for the whole kind, so only kinds with a change are tried again.
A long queue of one tenant therefore costs other tenants nothing.

A running workload that could use more slots of its pool asks for them in the same way, after the queued workloads of its priority: work
that waits gets its first slot before running work grows.

A preempting workload gets a reservation of one slot. Room that its victims free goes into this reservation, and no other workload can
use it.

Same shape as h11 and dask: events in, decisions out; `handle` is the only writer.
"""

from __future__ import annotations

from collections.abc import Iterator

from mesh.core.ids import PoolName, StageId
from mesh.core.pools import Pool, PoolLedger, PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import IllegalTransition
from mesh.policies.catalogue import BUILT_INS, Catalogue
from mesh.stages.admission_decisions import (
    AcquireLease,
    AdmissionDecision,
    GrowWorkload,
    ReleaseLease,
    StartWorkload,
)
from mesh.stages.admission_events import (
    AdmissionEvent,
    ClockRead,
    LeaseCameFree,
    LeaseGranted,
    LeaseRefused,
    NodesSeen,
    PreemptionDelayed,
    PromiseEnded,
    RoomMayHaveCome,
    RoomPromised,
    SettingsChanged,
    SlotsRetired,
    UsefulSlotsKnown,
    WorkloadEnded,
    WorkloadFound,
    WorkloadOffered,
    WorkloadWithdrawn,
)
from mesh.stages.admission_kinds import aged
from mesh.stages.admission_room import AdmissionRoom
from mesh.stages.hosting import NO_POOL
from mesh.stages.reserved_groups import NO_POOLS, ReservedGroups
from mesh.stages.slot_placement import SlotPlacement
from mesh.stages.stage_settings import DEFAULT_SETTINGS, StageSettings
from mesh.stages.waiting_kinds import WaitingKinds, explain_one
from mesh.stages.workloads import Workload, WorkloadState, growth_of


class StageAdmission:
    """Stage admission of one mesh. `workloads`, its room and its waiting kinds are its state; only `handle` changes them.

    Args:
        pools: Pools of the mesh, in the order in which they are tried.
        settings: Settings of the mesh at the start; `SettingsChanged` changes them.
        catalogue: Node policies that pools may name.
    """

    def __init__(
        self, pools: tuple[PoolSpec, ...], *, settings: StageSettings = DEFAULT_SETTINGS, catalogue: Catalogue = BUILT_INS
    ) -> None:
        self.workloads: dict[StageId, Workload] = {}
        self._room = AdmissionRoom(pools, self.workloads, settings, catalogue)
        self._waiting = WaitingKinds(self.workloads, self._room)
        self._settings = settings
        self._now_ms = 0  #: As last read; only workloads of different queues are compared by it.
        self._arrivals = 0
        self._gathering: dict[StageId, None] = {}

    @property
    def ledger(self) -> PoolLedger:
        """Amounts that each pool has, holds and reserves."""
        return self._room.ledger

    @property
    def placement(self) -> SlotPlacement:
        """Nodes, and the slots on them."""
        return self._room.placement

    @property
    def reserved(self) -> ReservedGroups:
        """Reserved groups of all pools."""
        return self._room.reserved

    def set_aside(self, pool: PoolName) -> ResourceSet:
        """Return what the pool holds for preemptors whose victims stop."""
        return self._room.set_aside(pool)

    def is_behind(self, workload: Workload) -> bool:
        """Return whether `strict_order` makes the workload wait for others of its tenant."""
        return self._waiting.is_behind(workload)

    def is_asked(self, decision: AcquireLease) -> bool:
        """Return whether the lease is still requested: a running workload that was to grow may have ended."""
        workload = self.workloads.get(decision.workload)
        return workload is not None and (not decision.is_growth or workload.asked > 0)

    def handle(self, *events: AdmissionEvent) -> list[AdmissionDecision]:
        """Apply the events and return the decisions they lead to, in order.

        Pure: the same events on the same state give the same decisions.

        Raises:
            IllegalTransition: A lease was granted or refused that nobody requested.
            LedgerError: A found workload does not fit into its pool.
        """
        decisions: list[AdmissionDecision] = []
        for event in events:
            decisions.extend(self._apply(event))
        decisions.extend(self._admit())
        return decisions

    def _apply(self, event: AdmissionEvent) -> list[AdmissionDecision]:
        if isinstance(event, WorkloadOffered):
            if event.workload not in self.workloads:
                self._waiting.enter(self._add(event))
            return []
        if isinstance(event, (RoomMayHaveCome, LeaseCameFree)):
            self._waiting.quota_came(event.tenant if isinstance(event, LeaseCameFree) else None)
            return []
        if isinstance(event, (WorkloadFound, NodesSeen, ClockRead, SettingsChanged, PreemptionDelayed, PromiseEnded)):
            self._note(event)
            return []
        if isinstance(event, RoomPromised):
            return self._start_reservation(event)
        if isinstance(event, LeaseGranted):
            return [self._grow(event) if self._is_growing(event.workload) else self._start(event)]
        return self._apply_to_running(event)

    def _note(self, event: WorkloadFound | NodesSeen | ClockRead | SettingsChanged | PreemptionDelayed | PromiseEnded) -> None:
        """Apply an event from which no decision follows by itself."""
        if isinstance(event, WorkloadFound):
            self._recover(event)
        elif isinstance(event, NodesSeen):
            self._see(event)
        elif isinstance(event, ClockRead):
            self._now_ms = event.now_ms
        elif isinstance(event, SettingsChanged):
            self._change_settings(event.settings)
        elif isinstance(event, PreemptionDelayed):
            self._note_delay(event)
        else:
            self._end_reservation(event)

    def _apply_to_running(
        self, event: LeaseRefused | UsefulSlotsKnown | SlotsRetired | WorkloadEnded | WorkloadWithdrawn
    ) -> list[AdmissionDecision]:
        if isinstance(event, LeaseRefused):
            (self._refuse_growth if self._is_growing(event.workload) else self._refuse)(event)
            return []
        if isinstance(event, (WorkloadEnded, WorkloadWithdrawn)):
            return self._drop(event)
        workload = self.workloads.get(event.workload)
        if workload is not None and workload.state is WorkloadState.RUNNING:
            self._resize(workload, event)
        return []

    def _add(self, offer: WorkloadOffered) -> Workload:
        self._arrivals += 1
        rules = self._settings.queue_of(offer.tenant)
        reserves = self.reserved.pools_for(offer.priority) if offer.gang is None else NO_POOLS
        kind = self._waiting.kind((offer.tenant, offer.shape, NO_POOL, reserves), rules)
        workload = self.workloads[offer.workload] = Workload(offer=offer, arrival=self._arrivals, kind=kind, rules=rules)
        return workload

    def _recover(self, event: WorkloadFound) -> None:
        """Charge a running workload to its pool; queued workloads have no say."""
        self._room.find(event)
        workload = self._add(event.offer)
        workload.state, workload.pool = WorkloadState.RUNNING, event.pool
        workload.slots = workload.useful = event.slots

    def _see(self, event: NodesSeen) -> None:
        if self.placement.see(event.nodes):
            self.reserved.note_nodes()
            self.reserved.fill()
            self._waiting.reopen_all()

    def _change_settings(self, settings: StageSettings) -> None:
        """Sort all queues again, and score the nodes again."""
        self._settings = settings
        self.placement.change_weights(settings.weights.as_weights())
        for workload in self.workloads.values():
            workload.rules = settings.queue_of(workload.offer.tenant)
        self._waiting.sort_again(settings)

    def _note_delay(self, event: PreemptionDelayed) -> None:
        workload = self.workloads.get(event.workload)
        if workload is not None and workload.delayed != event.detail:
            workload.delayed = event.detail
            self._waiting.explain_again(workload)

    # -- starts --------------------------------------------------------------------------------------------------------

    def _admit(self) -> list[AdmissionDecision]:
        decisions: list[AdmissionDecision] = []
        self.reserved.fill()
        gathering = (self.workloads[name] for name in self._gathering)
        for workload in sorted(gathering, key=lambda one: aged(one.turn, one.rules, self._now_ms)):
            decisions.extend(self._gather(workload))
        for workload, pool in self._waiting.fits(self._now_ms):
            is_growth = workload.state is WorkloadState.RUNNING
            decisions.append(self._reserve_growth(workload, pool) if is_growth else self._reserve(workload, pool))
        decisions.extend(self._waiting.explain())
        return decisions

    def _reserve(self, workload: Workload, pool: Pool) -> AdmissionDecision:
        """Reserve as many useful slots as fit; the pool has room for one at least."""
        offer, name = workload.offer, pool.spec.pool
        demand = self._room.reserve(offer.workload, workload, pool, offer.width)
        workload.state, workload.pool = WorkloadState.RESERVED, name
        return AcquireLease(
            workload=offer.workload, tenant=offer.tenant, pool=name, flavor=pool.spec.flavor, slot=offer.slot, demand=demand
        )

    def _start(self, event: LeaseGranted) -> AdmissionDecision:
        workload, pool = self._reserved(event.workload)
        has_rest = self._room.commit(workload, pool, event.slots)
        workload.state, workload.slots, workload.useful = WorkloadState.RUNNING, event.slots, workload.offer.width
        self._waiting.start(workload)
        self._waiting.want_growth(workload)
        if has_rest:
            self._waiting.refuse_more(workload)
            self._waiting.capacity_came()
        return StartWorkload(
            workload=event.workload,
            pool=pool,
            slot=workload.offer.slot,
            slots=event.slots,
            token=event.token,
            nodes=self.reserved.nodes_beside(event.workload),
            groups=self.reserved.places_of(event.workload),
        )

    def _refuse(self, event: LeaseRefused) -> None:
        workload, pool = self._reserved(event.workload)
        self._room.release(event.workload)
        self._waiting.end_request(workload)
        self._put_back(workload)
        self._waiting.refuse_lease(workload.kind, pool, (event.reason, event.detail))
        self._waiting.capacity_came()

    def _put_back(self, workload: Workload) -> None:
        workload.state, workload.pool = WorkloadState.QUEUED, None
        self._waiting.put_back(workload)

    def _reserved(self, workload_id: StageId) -> tuple[Workload, PoolName]:
        workload = self.workloads.get(workload_id)
        if workload is None or workload.state is not WorkloadState.RESERVED or workload.pool is None:
            raise IllegalTransition(f"{workload_id} has requested no lease")
        return workload, workload.pool

    def _drop(self, event: WorkloadEnded | WorkloadWithdrawn) -> list[AdmissionDecision]:
        workload = self.workloads.pop(event.workload, None)
        if workload is None:
            return []
        self._waiting.leave(workload, was_queued=workload.state is WorkloadState.QUEUED)
        if workload.state is WorkloadState.RESERVED:
            self._waiting.end_request(workload)
        elif workload.asked:
            self._end_growth_request(workload)
            self._room.release_nodes(growth_of(event.workload))
        self._waiting.leave_growth(workload)
        self._gathering.pop(event.workload, None)
        if self._room.release(event.workload):
            self._waiting.capacity_came()
        return [ReleaseLease(workload=event.workload)] if workload.state is WorkloadState.RUNNING else []

    # -- growth --------------------------------------------------------------------------------------------------------

    def _is_growing(self, workload_id: StageId) -> bool:
        workload = self.workloads.get(workload_id)
        return workload is not None and workload.asked > 0

    def _reserve_growth(self, workload: Workload, pool: Pool) -> AdmissionDecision:
        """Reserve as many further slots as fit; the pool has room for one at least."""
        offer, name = workload.offer, pool.spec.pool
        demand = workload.asked = self._room.reserve(growth_of(offer.workload), workload, pool, workload.useful - workload.slots)
        return AcquireLease(
            workload=offer.workload,
            tenant=offer.tenant,
            pool=name,
            flavor=pool.spec.flavor,
            slot=offer.slot,
            demand=demand,
            is_growth=True,
        )

    def _end_growth_request(self, workload: Workload) -> int:
        """Release the amounts for further slots; return for how many the lease was requested."""
        asked = self._waiting.end_growth_request(workload)
        self.ledger.release(growth_of(workload.offer.workload))
        return asked

    def _grow(self, event: LeaseGranted) -> AdmissionDecision:
        workload = self.workloads[event.workload]
        asked, growth = self._end_growth_request(workload), growth_of(event.workload)
        self.reserved.keep(growth, event.slots)
        self.placement.keep(growth, event.slots)
        nodes, groups = self.reserved.nodes_beside(growth), self.reserved.places_of(growth)
        self.placement.join(event.workload, growth)
        self.reserved.join(event.workload, growth)
        self._hold(workload, workload.slots + event.slots)
        self._waiting.want_growth(workload)
        if event.slots < asked:
            self._waiting.refuse_more(workload)
            self._waiting.capacity_came()
        return GrowWorkload(workload=event.workload, slots=event.slots, token=event.token, nodes=nodes, groups=groups)

    def _refuse_growth(self, event: LeaseRefused) -> None:
        workload = self.workloads[event.workload]
        self._end_growth_request(workload)
        self._room.release_nodes(growth_of(event.workload))
        self._waiting.want_growth(workload)
        if workload.growth is not None and workload.pool is not None:
            self._waiting.refuse_lease(workload.growth, workload.pool, (event.reason, event.detail))
        self._waiting.capacity_came()

    def _hold(self, workload: Workload, slots: int) -> None:
        """Charge the pool and the nodes for this many slots of the running workload."""
        workload.slots = slots
        self._room.charge(workload, slots)

    def _resize(self, workload: Workload, event: UsefulSlotsKnown | SlotsRetired) -> None:
        if isinstance(event, UsefulSlotsKnown):
            workload.useful = event.slots
        elif event.slots < workload.slots:
            self.reserved.give_back(event.workload, event.groups)
            self.reserved.keep(event.workload, event.slots)
            self.placement.withdraw(event.workload, event.gone)
            self._hold(workload, event.slots)
            self._waiting.capacity_came()
        self._waiting.want_growth(workload)

    # -- reservations of preemptors ------------------------------------------------------------------------------------

    def _start_reservation(self, event: RoomPromised) -> list[AdmissionDecision]:
        """Reserve room that comes free in the pool. No effect if the workload has room by now, or is gone."""
        workload = self.workloads.get(event.workload)
        if workload is None or workload.state is not WorkloadState.QUEUED:
            return []
        self._gathering[event.workload] = None
        workload.state, workload.pool, workload.delayed = WorkloadState.GATHERING, event.pool, ""
        workload.victims, workload.until_ms = event.victims, event.until_ms
        self.ledger.reserve(event.pool, event.workload, NOTHING)
        self._waiting.set_apart(workload)
        return [*explain_one(workload, Reason.WAITING_FOR_VICTIMS, event.detail)]

    def _gather(self, workload: Workload) -> list[AdmissionDecision]:
        """Reserve room that has come free. With a whole slot and all victims stopped, request the lease."""
        pool, holder = self.ledger.pool(workload.pool or NO_POOL), workload.offer.workload
        self._room.release(holder)
        if self._room.has(workload.kind.room_in(pool.spec.pool)) and self.workloads.keys().isdisjoint(workload.victims):
            del self._gathering[holder]
            workload.kind.asking += 1
            return [self._reserve(workload, pool)]
        self._room.gather(workload)
        return []

    def _end_reservation(self, event: PromiseEnded) -> None:
        workload = self.workloads.get(event.workload)
        if workload is not None and workload.state is WorkloadState.GATHERING:
            self._room.release(event.workload)
            del self._gathering[event.workload]
            self._put_back(workload)
            self._waiting.reopen(workload.key)
            self._waiting.capacity_came()

    def check(self) -> Iterator[str]:
        """Yield a message per broken invariant of the queues."""
        yield from self._waiting.check(self._settings)
