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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush

from mesh.core.counting import counted
from mesh.core.ids import PoolName, StageId, TenantPath
from mesh.core.pools import Pool, PoolLedger, PoolSpec
from mesh.core.reasons import PASSING, Reason
from mesh.core.resources import NOTHING, ResourceSet, format_units
from mesh.core.shapes import UNBOUNDED, SlotShape, amounts_of
from mesh.errors import IllegalTransition
from mesh.policies.catalogue import BUILT_INS, Catalogue
from mesh.stages.admission_decisions import (
    AcquireLease,
    AdmissionDecision,
    ExplainWaiting,
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
from mesh.stages.admission_kinds import CrowdKey, Crowds, Kind, KindKey, Turn, aged
from mesh.stages.admission_order import StrictQueues
from mesh.stages.hosting import NO_POOL
from mesh.stages.reserved_groups import NO_POOLS, ReservedGroups
from mesh.stages.slot_placement import SlotPlacement
from mesh.stages.stage_settings import DEFAULT_SETTINGS, NO_QUEUE, QueueRules, StageSettings

#: Refusals that more quota may lift.
LACK_OF_QUOTA = frozenset({Reason.QUOTA_EXHAUSTED, Reason.QUOTA_CONTESTED})
#: Refusals that room in a pool may lift.
LACK_OF_ROOM = frozenset({Reason.POOL_BUSY, Reason.CAPACITY_RESERVED})
#: Added to the arrival of a workload that grows: queued workloads of its priority come before it.
_GROWS_LATER = 1 << 40
#: Ends the name under which pool and nodes hold room for a growth.
_GROWTH = "+"
#: First workload of a kind, the kind, and the room for which it waits; (): it is tried without a question about room.
_Trial = tuple[Turn, KindKey, CrowdKey | tuple[()]]
#: Does not name the workload ahead: each start would then be a new reason for the whole queue.
_BEHIND = (Reason.BEHIND_HEAD, "work of its tenant that comes before it waits on this mesh, and starts first (strict_order)")


class WorkloadState(str, Enum):
    """State of a workload on this mesh."""

    QUEUED = "QUEUED"
    """Waits for room or a lease."""
    GATHERING = "GATHERING"
    """Its victims are stopping; room that comes free in its pool is reserved for it, up to one slot."""
    RESERVED = "RESERVED"
    """Has room; its lease is requested."""
    RUNNING = "RUNNING"
    """Started."""


@dataclass(slots=True, kw_only=True)
class Workload:
    """A workload that this mesh knows."""

    offer: WorkloadOffered
    arrival: int  #: Counts up; breaks ties of priority.
    kind: Kind  #: Its refusals hold for this workload.
    rules: QueueRules = NO_QUEUE  #: Rules of its queue.
    state: WorkloadState = WorkloadState.QUEUED
    pool: PoolName | None = None  #: Pool of its room, from GATHERING on.
    victims: frozenset[StageId] = frozenset()  #: Only while GATHERING.
    until_ms: int = 0  #: While GATHERING: end of the reservation; no decision here reads it.
    reported: tuple[Reason, str] | None = None  #: Last reported reason for its wait.
    slots: int = 0  #: While RUNNING.
    useful: int = 0  #: While RUNNING: the most slots that it can use.
    growth: Kind | None = None  #: Where it waits for more slots.
    asked: int = 0  #: Further slots for which its lease is requested.
    delayed: str = ""  #: Why it preempts nothing for the moment; empty: nothing delays it.

    @property
    def refused_by(self) -> dict[PoolName, tuple[Reason, str]]:
        """Pools that have refused its kind since room last came, with the reasons."""
        return self.kind.refused_by

    @property
    def key(self) -> KindKey:
        """Key of its kind."""
        return self.offer.tenant, self.offer.shape, NO_POOL, self.kind.reserves

    @property
    def growth_key(self) -> KindKey:
        """Key of the kind in which it grows."""
        return self.offer.tenant, self.offer.shape, self.pool or NO_POOL, self.kind.reserves

    @property
    def growth_turn(self) -> Turn:
        """Position among those that want slots, while it runs. It waits no more, so it has not aged."""
        return self.rules.key(self.offer.priority, 0), _GROWS_LATER + self.arrival, self.offer.workload

    @property
    def turn(self) -> Turn:
        """Position in the queue."""
        return self.rules.key(self.offer.priority, self.offer.queued_ms), self.arrival, self.offer.workload


class StageAdmission:
    """Stage admission of one mesh. `workloads`, `ledger` and `placement` are its state; only `handle` writes them.

    Args:
        pools: Pools of the mesh, in the order in which they are tried.
        settings: Settings of the mesh at the start; `SettingsChanged` changes them.
        catalogue: Node policies that pools may name.
    """

    def __init__(
        self, pools: tuple[PoolSpec, ...], *, settings: StageSettings = DEFAULT_SETTINGS, catalogue: Catalogue = BUILT_INS
    ) -> None:
        self.ledger = PoolLedger(pools)
        self.placement = SlotPlacement(self.ledger, weights=settings.weights.as_weights(), catalogue=catalogue)
        self.reserved = ReservedGroups(self.ledger, self.placement)
        self._settings = settings
        self._now_ms = 0  #: As last read; only workloads of different queues are compared by it.
        self.workloads: dict[StageId, Workload] = {}
        self._arrivals = 0
        self._kinds: dict[KindKey, Kind] = {}
        self._crowds = Crowds()
        self._unleased: dict[TenantPath, dict[KindKey, None]] = {}  #: Kinds that a lease was refused to since quota last came.
        self._has_freed = False  #: Room has come; `_try_kinds` asks for which slots.
        self._open: set[KindKey] = set()  #: Kinds that some pool has not refused yet.
        self._unexplained: dict[KindKey, None] = {}  #: Kinds whose reason for waiting may have changed, in order.
        self._gathering: dict[StageId, None] = {}
        self._strict_queues = StrictQueues()
        #: Refusals for want of room, shared by all kinds with this slot until the next reservation.
        self._refusals: dict[tuple[SlotShape, PoolName, bool], tuple[Reason, str]] = {}

    def is_behind(self, workload: Workload) -> bool:
        """Does `strict_order` make it wait for others of its tenant?"""
        return workload.offer.preemption.in_order and self._strict_queues.first(workload.offer.tenant) != workload.turn

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
                workload = self._add(event)
                self._queue(workload)
                self._change_order(workload, self._strict_queues.add)
            return []
        if isinstance(event, (RoomMayHaveCome, LeaseCameFree)):
            self._quota_came((event.tenant,) if isinstance(event, LeaseCameFree) else tuple(self._unleased))
            return []
        if isinstance(event, NodesSeen):
            if self._see(event):
                self._reopen_all()
            return []
            return []
        if isinstance(event, (WorkloadFound, ClockRead, SettingsChanged, PreemptionDelayed, PromiseEnded)):
            self._note(event)
            return []
        if isinstance(event, RoomPromised):
            return self._start_reservation(event)
        if isinstance(event, LeaseGranted):
            return [self._grow(event) if self._is_growing(event.workload) else self._start(event)]
        return self._apply_to_running(event)

    def _see(self, event: NodesSeen) -> bool:
        has_changed = self.placement.see(event.nodes)
        if has_changed:
            self.reserved.note_nodes()
            self.reserved.fill()
        return has_changed

    def _note(self, event: WorkloadFound | ClockRead | SettingsChanged | PreemptionDelayed | PromiseEnded) -> None:
        """Apply an event from which no decision follows by itself."""
        if isinstance(event, WorkloadFound):
            self._recover(event)
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

    def _recover(self, event: WorkloadFound) -> None:
        """Charge a running workload to its pool; queued workloads have no say."""
        name, amounts = event.offer.workload, event.offer.slot.times(event.slots)
        self.reserved.find(name, event.pool, event.offer.slot, event.groups)
        self.reserved.make_room(event.pool, amounts)
        self.ledger.reserve(event.pool, name, amounts)
        self.ledger.commit(event.pool, name, amounts)
        self.placement.find(name, event.offer.shape, (*(node for node in event.groups.values() if node), *event.nodes))
        workload = self._add(event.offer)
        workload.state, workload.pool = WorkloadState.RUNNING, event.pool
        workload.slots = workload.useful = event.slots

    def _add(self, offer: WorkloadOffered) -> Workload:
        self._arrivals += 1
        rules = self._settings.queue_of(offer.tenant)
        reserves = self.reserved.pools_for(offer.priority) if offer.gang is None else NO_POOLS
        key = offer.tenant, offer.shape, NO_POOL, reserves
        kind = self._kinds.get(key) or Kind(key=key, crowds=self._crowds, rules=rules)
        workload = self.workloads[offer.workload] = Workload(offer=offer, arrival=self._arrivals, kind=kind, rules=rules)
        return workload

    def _change_settings(self, settings: StageSettings) -> None:
        """Sort all queues again, and score the nodes again."""
        self._settings = settings
        self.placement.change_weights(settings.weights.as_weights())
        for workload in self.workloads.values():
            workload.rules = settings.queue_of(workload.offer.tenant)
        for (tenant, _, pool, _), kind in self._kinds.items():
            known = [self.workloads[name] for *_, name in kind.queue]
            rules = settings.queue_of(tenant) if pool == NO_POOL else NO_QUEUE
            kind.sort_again(rules, (workload.turn if pool == NO_POOL else workload.growth_turn for workload in known))
        self._strict_queues.sort_again(lambda turn: self.workloads[turn[-1]].turn)
        self._reopen_all()
        self._unexplained.update(dict.fromkeys(self._kinds))

    def _note_delay(self, event: PreemptionDelayed) -> None:
        workload = self.workloads.get(event.workload)
        if workload is not None and workload.delayed != event.detail:
            workload.delayed = event.detail
            self._unexplained[workload.key] = None

    def _change_order(self, workload: Workload, change: Callable[[TenantPath, Turn], tuple[Turn, ...]]) -> None:
        """Under `strict_order`, change the tenant's queue; try and explain its old and its new head again."""
        for turn in change(workload.offer.tenant, workload.turn) if workload.offer.preemption.in_order else ():
            other = self.workloads.get(turn[-1])
            if other is not None and other.key in self._kinds:
                self._unexplained[other.key] = None
                self._open.add(other.key)
        if workload.offer.preemption.in_order and self._strict_queues.first(workload.offer.tenant) is None:
            self._open.update(key for key in self._kinds if key[0] == workload.offer.tenant and key[2] != NO_POOL)

    def _queue(self, workload: Workload) -> None:
        """Queue the workload with its kind."""
        key = workload.key
        workload.state, workload.pool = WorkloadState.QUEUED, None
        workload.kind = self._kinds.setdefault(key, workload.kind)
        workload.kind.rules = workload.rules
        self._want_slots(workload.kind, workload.turn)
        self._unexplained[key] = None

    def _want_slots(self, kind: Kind, turn: Turn) -> None:
        """Add the workload to the kind. Nobody has looked for room while the kind had none."""
        if not kind.queue:
            self._lift_where_room_is(kind)
        kind.add(turn)
        self._open.add(kind.key)

    def _lift_where_room_is(self, kind: Kind) -> None:
        """Let the kind try the pools again that have refused it for want of room, and have room by now."""
        for pool in tuple(kind.crowded):
            if self._has_room(kind.room_in(pool)):
                kind.lift(pool)

    def _end_request(self, workload: Workload) -> None:
        """Note that its lease request is answered."""
        workload.kind.asking -= 1
        self._unexplained[workload.key] = None

    def _reopen(self, key: KindKey) -> None:
        self._kinds[key].reopen()
        self._open.add(key)

    def _reopen_all(self) -> None:
        """Try every kind again."""
        for key in self._kinds:
            self._reopen(key)

    def _quota_came(self, tenants: Iterable[TenantPath]) -> None:
        """Try the kinds of these tenants again that no lease was granted to."""
        for tenant in tenants:
            for key in self._unleased.pop(tenant, ()):
                if key in self._kinds:
                    self._reopen(key)
        self._capacity_came()

    def _refuse_lease(self, kind: Kind, pool: PoolName, refusal: tuple[Reason, str]) -> None:
        """Note that no lease was granted, until new quota is reported."""
        kind.refuse_lease(pool, refusal)
        self._unleased.setdefault(kind.key[0], {})[kind.key] = None

    def _start(self, event: LeaseGranted) -> AdmissionDecision:
        workload, pool = self._reserved(event.workload)
        reserved, used = self.ledger.pools[pool].reservations[event.workload], workload.offer.slot.times(event.slots)
        self.ledger.commit(pool, event.workload, used)
        self.reserved.keep(event.workload, event.slots)
        self.placement.keep(event.workload, event.slots)
        workload.state, workload.slots, workload.useful = WorkloadState.RUNNING, event.slots, workload.offer.width
        self._end_request(workload)
        self._change_order(workload, self._strict_queues.remove)
        self._want_growth(workload)
        if used != reserved:
            self._refuse_more(workload)
            self._capacity_came()
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
        self._release(event.workload)
        self._end_request(workload)
        self._queue(workload)
        self._change_order(workload, self._strict_queues.end_reservation)
        self._refuse_lease(workload.kind, pool, (event.reason, event.detail))
        self._capacity_came()

    def is_asked(self, decision: AcquireLease) -> bool:
        """Return whether the lease is still requested: a running workload that was to grow may have ended."""
        workload = self.workloads.get(decision.workload)
        return workload is not None and (not decision.is_growth or workload.asked > 0)

    def _is_growing(self, workload_id: StageId) -> bool:
        workload = self.workloads.get(workload_id)
        return workload is not None and workload.asked > 0

    def _want_growth(self, workload: Workload) -> None:
        """Queue the running workload for more slots, if it could use them."""
        self._leave_growth(workload)
        if workload.slots < workload.useful and workload.offer.slot and not workload.asked:
            key = workload.growth_key
            workload.growth = self._kinds.setdefault(key, Kind(key=key, crowds=self._crowds))
            self._want_slots(workload.growth, workload.growth_turn)

    def _leave_growth(self, workload: Workload) -> None:
        if workload.growth is not None and not workload.asked:
            workload.growth.remove(workload.growth_turn)
            workload.growth = None
            self._unexplained[workload.growth_key] = None

    def _refuse_more(self, workload: Workload) -> None:
        """Note that the lease does not cover more slots, until the federation reports new quota."""
        if workload.growth is not None and workload.pool is not None:
            detail = f"the lease covers {workload.slots} of {counted(workload.useful, 'slot')}"
            self._refuse_lease(workload.growth, workload.pool, (Reason.QUOTA_EXHAUSTED, detail))

    def _end_growth_request(self, workload: Workload) -> int:
        """Release the room for further slots; return for how many the lease was requested."""
        asked, workload.asked = workload.asked, 0
        if workload.growth is not None:
            workload.growth.asking -= 1
            workload.growth = None
        self._unexplained[workload.growth_key] = None
        self.ledger.release(_growth_of(workload.offer.workload))
        return asked

    def _grow(self, event: LeaseGranted) -> AdmissionDecision:
        workload = self.workloads[event.workload]
        asked, growth = self._end_growth_request(workload), _growth_of(event.workload)
        self.reserved.keep(growth, event.slots)
        self.placement.keep(growth, event.slots)
        nodes, groups = self.reserved.nodes_beside(growth), self.reserved.places_of(growth)
        self.placement.join(event.workload, growth)
        self.reserved.join(event.workload, growth)
        self._hold(workload, workload.slots + event.slots)
        self._want_growth(workload)
        if event.slots < asked:
            self._refuse_more(workload)
            self._capacity_came()
        return GrowWorkload(workload=event.workload, slots=event.slots, token=event.token, nodes=nodes, groups=groups)

    def _refuse_growth(self, event: LeaseRefused) -> None:
        workload = self.workloads[event.workload]
        self._end_growth_request(workload)
        self._release_nodes(_growth_of(event.workload))
        self._want_growth(workload)
        if workload.growth is not None and workload.pool is not None:
            self._refuse_lease(workload.growth, workload.pool, (event.reason, event.detail))
        self._capacity_came()

    def _hold(self, workload: Workload, slots: int) -> None:
        """Charge the pool and the nodes for this many slots of the running workload."""
        name, pool = workload.offer.workload, workload.pool or NO_POOL
        workload.slots = slots
        self.ledger.release(name)
        self.ledger.reserve(pool, name, workload.offer.slot.times(slots))
        self.ledger.commit(pool, name)
        self.placement.keep(name, slots)

    def _resize(self, workload: Workload, event: UsefulSlotsKnown | SlotsRetired) -> None:
        if isinstance(event, UsefulSlotsKnown):
            workload.useful = event.slots
        elif event.slots < workload.slots:
            self.reserved.give_back(event.workload, event.groups)
            self.reserved.keep(event.workload, event.slots)
            self.placement.withdraw(event.workload, event.gone)
            self._hold(workload, event.slots)
            self._capacity_came()
        self._want_growth(workload)

    def _reserved(self, workload_id: StageId) -> tuple[Workload, PoolName]:
        workload = self.workloads.get(workload_id)
        if workload is None or workload.state is not WorkloadState.RESERVED or workload.pool is None:
            raise IllegalTransition(f"{workload_id} has requested no lease")
        return workload, workload.pool

    def _drop(self, event: WorkloadEnded | WorkloadWithdrawn) -> list[AdmissionDecision]:
        workload = self.workloads.pop(event.workload, None)
        if workload is None:
            return []
        self._change_order(workload, self._strict_queues.remove)
        if workload.state is WorkloadState.QUEUED:
            workload.kind.remove(workload.turn)
        elif workload.state is WorkloadState.RESERVED:
            self._end_request(workload)
        elif workload.asked:
            self._end_growth_request(workload)
            self._release_nodes(_growth_of(event.workload))
        self._leave_growth(workload)
        self._gathering.pop(event.workload, None)
        self._unexplained[workload.key] = None
        if self._release(event.workload):
            self._capacity_came()
        return [ReleaseLease(workload=event.workload)] if workload.state is WorkloadState.RUNNING else []

    def _start_reservation(self, event: RoomPromised) -> list[AdmissionDecision]:
        """Reserve room that comes free in the pool. No effect if the workload has room by now, or is gone."""
        workload = self.workloads.get(event.workload)
        if workload is None or workload.state is not WorkloadState.QUEUED:
            return []
        workload.kind.remove(workload.turn)
        self._gathering[event.workload] = None
        workload.state, workload.pool, workload.delayed = WorkloadState.GATHERING, event.pool, ""
        workload.victims, workload.until_ms = event.victims, event.until_ms
        self.ledger.reserve(event.pool, event.workload, NOTHING)
        self._change_order(workload, self._strict_queues.start_reservation)
        return self._explain_one(workload, Reason.WAITING_FOR_VICTIMS, event.detail)

    def _end_reservation(self, event: PromiseEnded) -> None:
        workload = self.workloads.get(event.workload)
        if workload is not None and workload.state is WorkloadState.GATHERING:
            self._release(event.workload)
            del self._gathering[event.workload]
            self._queue(workload)
            self._change_order(workload, self._strict_queues.end_reservation)
            self._reopen(workload.key)
            self._capacity_came()

    def _capacity_came(self) -> None:
        """Lift refusals for want of room, where there is room when kinds are tried. Refused leases stand until new quota is reported.

        A kind that still does not fit keeps its refusal: wording it again for each ended stage would cost more than the stages. Where
        other kinds take the room, the first of those that waited for it is refused in new words.
        """
        self._has_freed = True

    def _has_room(self, wanted: CrowdKey) -> bool:
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
            workload = self.workloads.get(StageId(holder)) or self.workloads.get(StageId(holder.removesuffix(_GROWTH)))
            if workload is not None and workload.offer.slot:
                made += (workload.offer.slot.copies_in(amounts) or 0) - len(self.reserved.groups_of(StageId(holder)))
        return max(0, kept.spec.groups.max_dynamic - made)

    def _release(self, stage: StageId) -> bool:
        """Release what the stage holds of pools and nodes; return whether a pool has room because of it."""
        self._release_nodes(stage)
        return self.ledger.release(stage)

    def _release_nodes(self, stage: StageId) -> None:
        self.reserved.give_back(stage)
        self.placement.release(stage)

    def _admit(self) -> list[AdmissionDecision]:
        decisions: list[AdmissionDecision] = []
        self.reserved.fill()
        gathering = (self.workloads[name] for name in self._gathering)
        for workload in sorted(gathering, key=lambda one: aged(one.turn, one.rules, self._now_ms)):
            decisions.extend(self._gather(workload))
        decisions.extend(self._try_kinds())
        decisions.extend(self._explain())
        return decisions

    def _try_kinds(self) -> Iterable[AdmissionDecision]:
        """Try the first workload of each kind, the most urgent kind first, until every pool has refused each kind.

        Of the kinds that wait for the same room, only the first is among those that are tried. The next follows it as long as there is
        room.
        """
        now_ms = self._now_ms
        heap: list[_Trial] = [(kind.first_at(now_ms), key, ()) for key in self._open if (kind := self._kinds[key]).queue]
        heapify(heap)
        for freed in self._crowds if self._has_freed else ():
            self._follow(freed, heap)
        self._has_freed = False
        self._refusals.clear()
        while heap:
            turn, key, crowd = heappop(heap)
            kind = self._kinds[key]
            if crowd:
                if self._first_of(crowd) != (turn, key):
                    self._follow(crowd, heap)
                    continue  # It is tried already: for other room, or as a kind with a change.
                self._lift_where_room_is(kind)  # In all pools, of which its tenant may prefer another.
                kind.lift(crowd.pool)  # If kinds before it have taken the room, it is refused in new words.
            workload = self.workloads[turn[-1]]
            pool = self._try_to_grow(workload, kind) if key[2] != NO_POOL else self._try_to_start(workload)
            if pool is not None:
                kind.remove(kind.queue[0])
                yield self._reserve(workload, pool) if key[2] == NO_POOL else self._reserve_growth(workload, pool)
                self._refusals.clear()
                if kind.queue:
                    heappush(heap, (kind.first_at(now_ms), key, ()))
            self._unexplained[key] = None
            if crowd:
                self._follow(crowd, heap)
        self._open.clear()

    def _follow(self, crowd: CrowdKey, heap: list[_Trial]) -> None:
        """If there is room, let the first kind that waits for it be tried."""
        first = self._first_of(crowd) if self._has_room(crowd) else None
        if first is not None:
            heappush(heap, (*first, crowd))

    def _first_of(self, crowd: CrowdKey) -> tuple[Turn, KindKey] | None:
        """Return the first kind that waits for this room, with its turn as it compares with those of other kinds now."""
        first = self._crowds.first(crowd)
        return (aged(first[0], crowd.rules, self._now_ms), first[1]) if first is not None else None

    def _gather(self, workload: Workload) -> list[AdmissionDecision]:
        """Reserve room that has come free. With a whole slot and all victims stopped, request the lease."""
        pool = self.ledger.pool(workload.pool or PoolName(""))
        holder, slot = workload.offer.workload, workload.offer.slot
        room = pool.free + pool.reservations[holder]
        self._release(holder)
        if self._has_room(workload.kind.room_in(pool.spec.pool)) and self.workloads.keys().isdisjoint(workload.victims):
            del self._gathering[holder]
            return [self._reserve(workload, pool)]
        self.ledger.reserve(pool.spec.pool, holder, ResourceSet({name: min(units, room[name]) for name, units in slot.items()}))
        if self.placement.fits(pool.spec.pool, workload.offer.shape):
            self.placement.place(holder, pool.spec.pool, workload.offer.shape, 1)
        return []

    def _try_to_start(self, workload: Workload) -> Pool | None:
        if self.is_behind(workload):
            return None
        return self._try_pools(workload, workload.kind, self._pools_in_order(workload.offer.preemption.flavors))

    def _try_to_grow(self, workload: Workload, kind: Kind) -> Pool | None:
        if workload.offer.preemption.in_order and self._strict_queues.first(workload.offer.tenant) is not None:
            return None  # The head of the queue comes first.
        return self._try_pools(workload, kind, (self.ledger.pool(workload.pool or NO_POOL),))

    def _try_pools(self, workload: Workload, kind: Kind, pools: Iterable[Pool]) -> Pool | None:
        """Return the first of the pools with room for a slot, skipping pools that have refused the kind."""
        for pool in pools:
            name = pool.spec.pool
            if name in kind.refused_by:
                continue
            if self._has_room(kind.room_in(name)):
                return pool
            key = kind.shape, name, name in kind.reserves
            refusal = self._refusals.get(key)
            if refusal is None:
                refusal = self._refusals[key] = self._refusal(workload, pool)
            kind.refuse_room(name, refusal)
        return None

    def _refusal(self, workload: Workload, pool: Pool) -> tuple[Reason, str]:
        """Return why the pool has no room for a slot."""
        name, slot, shape = pool.spec.pool, workload.offer.slot, workload.offer.shape
        has_room, has_node = slot.copies_in(pool.free) != 0, self.placement.fits(name, shape)
        if self.placement.copies(name, shape) != 0 and not (has_room and has_node) and self._is_reserved_away(workload, pool):
            return Reason.CAPACITY_RESERVED, self._reserved_words(pool)
        if has_room and has_node:
            return Reason.GROUPS_AT_LIMIT, f"pool {name} has all the groups on demand that `dynamic_max` allows"
        is_for_nodes = self.placement.copies(name, shape) == 0 if not has_room else not has_node
        on_nodes = self.placement.refusal(name, shape) if is_for_nodes else None
        return on_nodes or _no_room(workload, pool, self._set_aside(name))

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

    def _pools_in_order(self, flavors: tuple[str, ...]) -> Iterable[Pool]:
        """Return the pools in the order of these flavors; ties, and other flavors at the end, in the order of the mesh."""
        pools = self.ledger.pools.values()
        if not flavors or len(pools) == 1:
            return pools
        ranks = {flavor: rank for rank, flavor in enumerate(flavors)}
        return sorted(pools, key=lambda pool: ranks.get(pool.spec.flavor, len(ranks)))

    def _reserve(self, workload: Workload, pool: Pool) -> AdmissionDecision:
        """Reserve as many useful slots as fit; the pool has room for one at least."""
        offer, name = workload.offer, pool.spec.pool
        demand = self._hold_slots(offer.workload, workload, pool, offer.width)
        self.ledger.reserve(name, offer.workload, offer.slot.times(demand))
        workload.state, workload.pool = WorkloadState.RESERVED, name
        workload.kind.asking += 1
        return AcquireLease(
            workload=offer.workload, tenant=offer.tenant, pool=name, flavor=pool.spec.flavor, slot=offer.slot, demand=demand
        )

    def _hold_slots(self, holder: StageId, workload: Workload, pool: Pool, most: int) -> int:
        """Take reserved groups and places on nodes for up to `most` slots; return for how many. The caller charges the pool."""
        slot, name = workload.offer.slot, pool.spec.pool
        copies, left = slot.copies_in(pool.free), self._dynamic_left(name, slot)
        taken = self.reserved.take(holder, name, slot, most) if name in workload.kind.reserves else 0
        more = min(most - taken, left) if copies is None else min(most - taken, left, copies)
        return taken + (self.placement.place(holder, name, workload.offer.shape, more) if more > 0 else 0)

    def _reserve_growth(self, workload: Workload, pool: Pool) -> AdmissionDecision:
        """Reserve as many further slots as fit; the pool has room for one at least."""
        offer, name = workload.offer, pool.spec.pool
        demand = workload.asked = self._hold_slots(_growth_of(offer.workload), workload, pool, workload.useful - workload.slots)
        self.ledger.reserve(name, _growth_of(offer.workload), offer.slot.times(demand))
        if workload.growth is not None:
            workload.growth.asking += 1
        return AcquireLease(
            workload=offer.workload,
            tenant=offer.tenant,
            pool=name,
            flavor=pool.spec.flavor,
            slot=offer.slot,
            demand=demand,
            is_growth=True,
        )

    def check(self) -> Iterator[str]:
        """Yield a message per queue that is not in the order of its workloads' present positions, and per kind with a wrong place."""
        crowded = {(kind.room_in(pool), kind.queue[0], key) for key, kind in self._kinds.items() if kind.queue for pool in kind.crowded}
        listed = {(crowd, turn, key) for crowd in self._crowds for turn, key in self._crowds.listed(crowd)}
        yield from (f"{key} waits for {crowd.shape} in {crowd.pool} as {turn}" for crowd, turn, key in crowded ^ listed)
        yield from (f"{crowd.pool} has room for {crowd.shape}, and kinds wait for it" for crowd in self._crowds if self._has_room(crowd))
        for (tenant, _, pool, _), kind in self._kinds.items():
            known = [self.workloads[name] for *_, name in kind.queue]
            turns = sorted(workload.turn if pool == NO_POOL else workload.growth_turn for workload in known)
            if kind.queue != turns or any(workload.rules != self._settings.queue_of(tenant) for workload in known):
                yield f"a queue of {tenant} is {kind.queue}, expected {turns}"

    def _set_aside(self, pool: PoolName) -> ResourceSet:
        """Return what workloads in GATHERING have reserved in the pool."""
        held = self.ledger.pools[pool].reservations
        return sum((held[name] for name in self._gathering if name in held), start=NOTHING)

    def _explain(self) -> Iterable[AdmissionDecision]:
        """Report new reasons for waiting. Skip kinds with a lease request: its answer will be the reason for all of the kind."""
        for key in [key for key in self._unexplained if key not in self._kinds or not self._kinds[key].asking]:
            del self._unexplained[key]
            kind = self._kinds.get(key)
            if kind is not None and not kind.queue:
                del self._kinds[key]
            elif kind is not None and key[2] == NO_POOL:
                explanation = kind.explanation(PASSING) if kind.refused_by else _BEHIND
                for *_, name in kind.queue:
                    workload = self.workloads[name]
                    because = _BEHIND if self.is_behind(workload) else explanation
                    if workload.delayed and because[0] in LACK_OF_ROOM:
                        because = (Reason.PREEMPTION_LIMIT, workload.delayed)
                    yield from self._explain_one(workload, *because)

    def _explain_one(self, workload: Workload, reason: Reason, detail: str) -> list[AdmissionDecision]:
        if workload.reported == (reason, detail):
            return []
        workload.reported = (reason, detail)
        return [ExplainWaiting(workload=workload.offer.workload, reason=reason, detail=detail)]


def _growth_of(stage: StageId) -> StageId:
    """Return the name under which pool and nodes hold room for further slots of the stage."""
    return StageId(f"{stage}{_GROWTH}")


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
