"""Lease client of a mesh: spends the leases at hand, and asks the ledger only for what these do not cover.

The mesh offers idle quota back after a while; at once if others want quota, or if the ledger has nothing left for another tenant of
the mesh. So no stage is preempted for quota that the mesh itself leaves idle. An offered part counts as gone until the ledger responds.

A mesh holds no more leases than one heartbeat can carry. If a recovering ledger received fewer leases than pay for running stages, the
others' stages would have to end. A stage that needs one more lease waits until another lease is free.

A refusal is valid until the next pass over the queue, so stages with the same need cost one call. After a call without a response the
mesh does not ask again until a heartbeat is acknowledged: one call per queued stage would outlast the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from federation.child.child_session import ChildSession
from federation.child.child_state import ChildState
from federation.child.deadlines import Permission
from federation.child.guard import NEVER, Guard
from federation.child.lease_accounting import LeaseKey
from federation.errors import EpochChanged, SessionLost
from federation.leases import ROWS_SENT_MAX, Granted, LeaseLedger, LeaseRefused, LedgerResponse, LookAgain, QuotaDemand
from mesh.core.clock import Clock
from mesh.core.ids import StageId
from mesh.core.pools import PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import gang_size
from mesh.errors import MeshError
from mesh.stages import admission_events as events
from mesh.stages.admission_decisions import AcquireLease
from mesh.stages.workloads import Workload

_NEVER_MS = 2**53


@dataclass(slots=True, kw_only=True)
class LeaseClient:
    """Lease client of one mesh.

    Args:
        obey_leases: Called after each response of the ledger, to preempt stages that leases do not pay for any more.
    """

    child_state: ChildState
    child_session: ChildSession
    ledger: LeaseLedger
    clock: Clock
    guard: Guard
    obey_leases: Callable[[], None]
    headroom: dict[LeaseKey, dict[str, int]] = field(default_factory=dict)
    """By how much the ledger would have let a refused lease grow; valid as long as the refusal."""
    _refused: dict[tuple[LeaseKey, ResourceSet, bool], LeaseRefused] = field(default_factory=dict)
    """By lease and slot; True: refused to work that runs and would grow, which says nothing about work that waits."""
    _is_full: bool = False  #: No lease could be returned for another one; valid until the next pass, or until quota is returned.

    def apply(self, response: LedgerResponse, named: Iterable[LeaseKey] = ()) -> None:
        """Apply a response of the ledger; `named` lists the leases that the request was about."""
        self.child_session.apply(response)
        self.child_state.accounting.apply(response, named, self._patient_ms)
        self.obey_leases()

    def _patient_ms(self, shrink_ms: int) -> int:
        """Return until when young stages may continue; one time to live remains for stopping, as for every other stage that has to stop."""
        return self.clock.monotonic_ms() + shrink_ms - self.child_session.held().ttl_ms

    def forget_refusals(self) -> None:
        """Forget the ledger's refusals, so that the next pass asks again."""
        self._refused.clear()
        self.headroom.clear()
        self._is_full = False

    def put_back(self, stage: StageId) -> events.LeaseCameFree | events.RoomMayHaveCome | None:
        """Release the stage's amounts in its lease, and lift that lease's refusals. None: no lease paid."""
        return self._came_free(self.child_state.accounting.put_back(stage, self.clock.monotonic_ms()))

    def shrink(self, stage: StageId, amounts: ResourceSet) -> events.LeaseCameFree | events.RoomMayHaveCome | None:
        """Charge the stage's lease for these amounts only, and lift that lease's refusals. None: no lease pays."""
        return self._came_free(self.child_state.accounting.shrink(stage, amounts, self.clock.monotonic_ms()))

    def _came_free(self, key: LeaseKey | None) -> events.LeaseCameFree | events.RoomMayHaveCome | None:
        if key is None:
            return None
        for refused in [refused for refused in self._refused if refused[0] == key]:
            del self._refused[refused]
        self.headroom.pop(key, None)
        was_full, self._is_full = self._is_full, False
        return events.RoomMayHaveCome() if was_full else events.LeaseCameFree(tenant=key[0])

    def offer(self, idle_ms: int, keep: LeaseKey | None = None) -> bool:
        """Offer quota back that has been idle for `idle_ms`, except the lease `keep`; return whether there was any.

        Raises:
            SessionLost: The session is lost; other errors of `LeaseLedger.release` pass through.
        """
        parts = self.child_state.accounting.offer_idle(self.clock.monotonic_ms(), idle_ms, keep, self.child_state.is_waited_for)
        if parts:
            self.apply(self.ledger.release(self.child_session.held(), parts), [(part.tenant, part.flavor) for part in parts])
        return bool(parts)

    def acquire(self, wanted: AcquireLease) -> events.LeaseGranted | events.LeaseRefused:
        """Pay from the tenant's lease; ask the ledger for growth if the lease does not cover the request.

        Raises:
            SessionLost: The session is lost. Other errors of the ledger become refusals.
        """
        key, accounting = (wanted.tenant, wanted.flavor), self.child_state.accounting
        if self.child_session.permission(self.clock.monotonic_ms()) is not Permission.PROVED:
            return _refusal(wanted, Reason.LEDGER_UNREACHABLE, "the session has not been renewed for too long to start new work")
        if not wanted.slot:
            return events.LeaseGranted(workload=wanted.workload, slots=wanted.demand, token=0)
        if not self._has_place_for(key):
            return _refusal(
                wanted, Reason.LEASES_AT_LIMIT, f"the mesh holds {ROWS_SENT_MAX:,} leases, the maximum, and all of them are in use"
            )
        short = wanted.demand - accounting.room(key, wanted.slot, wanted.workload)
        refused = self._ask(wanted, key, short) if short > 0 else None
        slots = min(wanted.demand, accounting.room(key, wanted.slot, wanted.workload))
        if slots == 0 and accounting.holds_for_others(key, wanted.slot, wanted.workload):
            detail = f"the rest of the lease of {wanted.tenant} is held for more urgent stages that preempt others"
            return _refusal(wanted, Reason.CAPACITY_RESERVED, detail)
        if slots == 0:
            return refused or _refusal(wanted, Reason.QUOTA_EXHAUSTED, "the lease changed during the request; the next pass asks again")
        paid = accounting.spent_on(wanted.workload, key) if wanted.is_growth else NOTHING
        accounting.spend(wanted.workload, key, paid + wanted.slot.times(slots), self.clock.monotonic_ms())
        lease = accounting.lease(key)
        return events.LeaseGranted(workload=wanted.workload, slots=slots, token=lease.token if lease is not None else 0)

    def ask_together(self, wanted: Iterable[AcquireLease]) -> None:
        """Ask the ledger in one call for the first stage of each lease that does not cover it; `acquire` then finds the answers.

        The ledger so sees all tenants of the mesh that would borrow a flavor, whichever of them goes first here.

        Raises:
            SessionLost: The session is lost.
        """
        accounting = self.child_state.accounting
        if self.child_session.is_cut_off or self.child_session.permission(self.clock.monotonic_ms()) is not Permission.PROVED:
            return
        asked: dict[LeaseKey, tuple[AcquireLease, QuotaDemand]] = {}
        for one in wanted:
            key = one.tenant, one.flavor
            short = one.demand - accounting.room(key, one.slot, one.workload) if one.slot else 0
            if short > 0 and key not in asked and self._refusal_of(key, one) is None and accounting.has_place_for(key, len(asked)):
                missing = accounting.missing(key, one.slot, one.workload)
                asked[key] = one, self._demand(key, missing, short if missing == one.slot else 1, one)
        if len({flavor for _, flavor in asked}) == len(asked):
            return  # Nobody here competes.
        try:
            self.offer(_NEVER_MS)
            self.child_session.demands = None
            acquired = self.ledger.acquire(self.child_session.held(), tuple(demand for _, demand in asked.values()))
        except SessionLost:
            raise
        except MeshError as gone:
            self.guard.note(gone)
            return
        self.apply(acquired.response)
        for (key, (one, demand)), answer in zip(asked.items(), acquired.answers, strict=True):
            if isinstance(answer, Granted):
                accounting.hold(one.workload, key, one.slot.times(min(one.demand, accounting.room(key, one.slot, one.workload))))
            elif isinstance(answer, LeaseRefused) and answer.reason is not Reason.QUOTA_EXHAUSTED:  # Idle quota of the mesh may help there.
                self._refused[key, one.slot, one.is_growth] = _of_whole_slot(answer, one.slot, demand.slot)

    def grow(self, workload: Workload, pool: PoolSpec, amounts: ResourceSet) -> bool:
        """Ask the ledger to let the lease that pays in the pool grow, and hold the growth for the workload; return whether it grew.

        Raises:
            SessionLost: The session is lost.
        """
        offer, key = workload.offer, (workload.offer.tenant, pool.flavor)
        if not self._has_place_for(key):
            return False
        self.child_state.accounting.hold(offer.workload, key, offer.slot)  # The hold keeps the granted amount from counting as idle.
        wanted = AcquireLease(workload=offer.workload, tenant=offer.tenant, pool=pool.pool, flavor=pool.flavor, slot=amounts, demand=1)
        refused = self._ask(wanted, key, 1, is_missing=True)
        if refused is not None:
            self.child_state.accounting.drop_hold(offer.workload)
        return refused is None

    def _has_place_for(self, key: LeaseKey) -> bool:
        """Return whether the mesh may pay from this lease. At the lease limit, offer idle leases back, once per pass."""
        has_place = self.child_state.accounting.has_place_for(key)
        if has_place or self._is_full:
            return has_place
        try:
            self.offer(0, keep=key)
        except SessionLost:
            raise
        except MeshError as gone:
            self.guard.note(gone)
        self._is_full = not self.child_state.accounting.has_place_for(key)
        return not self._is_full

    def _refusal_of(self, key: LeaseKey, wanted: AcquireLease) -> LeaseRefused | None:
        """Return the ledger's refusal that holds for the request too."""
        found = self._refused.get((key, wanted.slot, False))
        return found if found is not None or not wanted.is_growth else self._refused.get((key, wanted.slot, True))

    def _ask(self, wanted: AcquireLease, key: LeaseKey, slots: int, *, is_missing: bool = False) -> events.LeaseRefused | None:
        """Ask the ledger for more; return None if it granted some. With `is_missing` the slot is the missing amount, whatever lies idle."""
        if self.child_session.is_cut_off:
            return _refusal(wanted, Reason.LEDGER_UNREACHABLE, "the ledger did not respond to the last request")
        refused = self._refusal_of(key, wanted)
        try:
            if refused is None:
                refused = self._ask_for(key, wanted, slots, is_missing=is_missing)
        except SessionLost:
            raise
        except MeshError as gone:
            self.guard.note(gone)
            return _refusal(wanted, *_in_words(gone))
        if refused is None:
            return None
        self._refused[key, wanted.slot, wanted.is_growth] = refused
        return _refusal(wanted, refused.reason, refused.in_words())

    def _ask_for(self, key: LeaseKey, wanted: AcquireLease, slots: int, *, is_missing: bool) -> LeaseRefused | None:
        """Ask up to three times, and return the refusal, if any.

        A repetition is needed if the lease differed from this mesh's version, if the mesh has returned its own idle quota, or if further
        slots are wanted after a first one that was partly idle.
        """
        refused: LeaseRefused | None = None
        slot, stage = wanted.slot, wanted.workload
        self.offer(_NEVER_MS)  # An offer without a response may have taken effect; the request needs the lease as it is.
        for _ in range(3):
            missing = slot if is_missing else self.child_state.accounting.missing(key, slot, stage)
            more = slots if missing == slot else 1
            answer = self._question(key, missing, more, wanted)
            if isinstance(answer, Granted) and more < slots:
                slots -= more
                continue
            if isinstance(answer, Granted) or (not is_missing and self.child_state.accounting.room(key, slot, stage) >= slots):
                return None
            refused = _of_whole_slot(answer, slot, missing) if isinstance(answer, LeaseRefused) else None
            if refused is not None and not (refused.reason is Reason.QUOTA_EXHAUSTED and self.offer(0, keep=key)):
                break
        return refused

    def _question(self, key: LeaseKey, slot: ResourceSet, slots: int, wanted: AcquireLease) -> Granted | LookAgain | LeaseRefused:
        demand = self._demand(key, slot, slots, wanted)
        self.child_session.demands = None  # With or without a response, the ledger may now have another demand on record.
        acquired = self.ledger.acquire(self.child_session.held(), (demand,))
        (answer,) = acquired.answers
        self.apply(acquired.response, [key] if isinstance(answer, LookAgain) else [])
        if isinstance(answer, LeaseRefused) and answer.reason is Reason.QUOTA_EXHAUSTED and not wanted.is_growth:
            self.headroom.setdefault(key, {})[answer.resource] = answer.available
        return answer

    def _demand(self, key: LeaseKey, slot: ResourceSet, slots: int, wanted: AcquireLease) -> QuotaDemand:
        child_state, stage = self.child_state, wanted.workload
        pays_for = max(map(child_state.priority_of, (stage, *child_state.accounting.paid(key))))
        since_ms = child_state.waits_since_ms(stage)
        waited_ms = None if since_ms is None else max(0, self.clock.monotonic_ms() - since_ms)
        demand = child_state.accounting.demand(key, slot, slots, child_state.priority_of(stage))
        workload = child_state.admission.workloads.get(stage)
        if workload is not None:
            whole = workload.offer.slot if workload.offer.slot != slot else NOTHING
            offer = workload.offer
            demand = replace(demand, whole=whole, gang_size=gang_size(offer.gang), created_ms=offer.created_ms)
        return replace(demand, pays_for=pays_for, waited_ms=waited_ms, is_growth=wanted.is_growth)


def _in_words(gone: MeshError) -> tuple[Reason, str]:
    """Return the reason and detail for the stage that waits."""
    if isinstance(gone, EpochChanged):
        return Reason.LEDGER_RECOVERING, "the ledger has begun another epoch"
    return (Reason.REQUEST_INVALID if isinstance(gone, NEVER) else Reason.LEDGER_UNREACHABLE), str(gone)


def _refusal(wanted: AcquireLease, reason: Reason, detail: str) -> events.LeaseRefused:
    return events.LeaseRefused(workload=wanted.workload, reason=reason, detail=detail)


def _of_whole_slot(refused: LeaseRefused, slot: ResourceSet, missing: ResourceSet) -> LeaseRefused:
    """Restate a refusal of a missing part for a whole slot, which includes the idle part."""
    short = refused.resource
    return replace(refused, wanted=slot[short], available=max(0, refused.available) + slot[short] - missing[short]) if short else refused
