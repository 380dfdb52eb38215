"""What a mesh pays with: the leases at hand, and the ledger, which is asked for no more than these do not cover.

What lies idle is offered back after a while, or at once where others want it, or where the ledger has no more to give to another
tenant of the mesh: of what the mesh itself leaves idle nobody has to stop. What was offered counts as gone until there is an answer.

A mesh holds no more leases than it can tell in one heartbeat: if a ledger that learns were told of fewer than pay for what runs, that
work would have to end. Who would need one more waits until another one has come free.

A refusal holds until the queue is looked at again: stages of the same need are not asked for one by one. A ledger that did not
answer is not asked again before it has answered a heartbeat: asking for each queued stage in turn would take longer than the
session lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from federation.child.balance import LeaseKey, Overdraft
from federation.child.books import Books
from federation.child.deadlines import Permission
from federation.child.guard import NEVER, Guard
from federation.child.tenure import Tenure
from federation.errors import EpochChanged, SessionLost
from federation.leases import TOLD_MAX, Granted, LeaseLedger, LeaseRefused, LookAgain, Told
from mesh import admission_events as events
from mesh.admission import Workload
from mesh.admission_decisions import AcquireLease
from mesh.clock import Clock
from mesh.errors import MeshError
from mesh.ids import StageId
from mesh.pools import PoolSpec
from mesh.reasons import Reason
from mesh.resources import ResourceSet

_NEVER_MS = 2**53


@dataclass(slots=True, kw_only=True)
class Purse:
    """The leases of one mesh.

    Args:
        overdrawn: Is told of each lease that pays for more than it may.
    """

    books: Books
    tenure: Tenure
    ledger: LeaseLedger
    clock: Clock
    guard: Guard
    overdrawn: Callable[[Overdraft], None]
    headroom: dict[LeaseKey, dict[str, int]] = field(default_factory=dict)
    """By how much less the ledger would have let a lease grow than it refused; as long as the refusal holds."""
    _refused: dict[tuple[LeaseKey, ResourceSet], LeaseRefused] = field(default_factory=dict)
    _is_full: bool = False  #: There was no lease to give back for another one; as long as the refusals hold, or nothing comes back.

    def take_in(self, told: Told, named: Iterable[LeaseKey] = ()) -> None:
        """What any answer of the ledger tells; `named`: the leases that the question was about."""
        self.tenure.take_in(told)
        self.books.balance.take_in(told, named, self._patient_ms)
        for overdraft in self.books.balance.overdrawn():
            self.overdrawn(overdraft)

    def _patient_ms(self, shrink_ms: int) -> int:
        """So that what stops then has the time of a whole session left to end, as everything else that has to stop."""
        return self.clock.monotonic_ms() + shrink_ms - self.tenure.held().ttl_ms

    def forget_refusals(self) -> None:
        """What was refused is worth another question."""
        self._refused.clear()
        self.headroom.clear()
        self._is_full = False

    def put_back(self, stage: StageId) -> events.LeaseCameFree | events.RoomMayHaveCome | None:
        """What the stage took may be spent on those that wait for it: whose refusals that lifts. None: nothing paid for it."""
        key = self.books.balance.put_back(stage, self.clock.monotonic_ms())
        if key is None:
            return None
        for refused in [refused for refused in self._refused if refused[0] == key]:
            del self._refused[refused]
        self.headroom.pop(key, None)
        was_full, self._is_full = self._is_full, False
        return events.RoomMayHaveCome() if was_full else events.LeaseCameFree(tenant=key[0])

    def offer(self, idle_ms: int, keep: LeaseKey | None = None) -> bool:
        """Give back what lies idle for so long, but for one lease; was there any?

        Raises:
            SessionLost: And whatever else `LeaseLedger.release` may raise.
        """
        parts = self.books.balance.offer_idle(self.clock.monotonic_ms(), idle_ms, keep, self.books.is_waited_for)
        if parts:
            self.take_in(self.ledger.release(self.tenure.held(), parts), [(part.tenant, part.flavor) for part in parts])
        return bool(parts)

    def acquire(self, wanted: AcquireLease) -> events.LeaseGranted | events.LeaseRefused:
        """Pay from the lease of the tenant, which the ledger makes larger when it does not cover all that is wanted.

        Raises:
            SessionLost: And whatever else `LeaseLedger.acquire` may raise, but that it does not answer.
        """
        key, balance = (wanted.tenant, wanted.flavor), self.books.balance
        if self.tenure.permission(self.clock.monotonic_ms()) is not Permission.PROVED:
            return _refusal(wanted, Reason.LEDGER_UNREACHABLE, "the session has not been renewed for too long to begin anything new")
        if not wanted.slot:
            return events.LeaseGranted(workload=wanted.workload, slots=wanted.want, token=0)
        if not self._has_place_for(key):
            return _refusal(
                wanted, Reason.LEASES_AT_LIMIT, f"the mesh holds {TOLD_MAX:,} leases, as many as it may, and all of them are in use"
            )
        short = wanted.want - balance.room(key, wanted.slot, wanted.workload)
        refused = self._ask(wanted, key, short) if short > 0 else None
        slots = min(wanted.want, balance.room(key, wanted.slot, wanted.workload))
        if slots == 0 and balance.holds_for_others(key, wanted.slot, wanted.workload):
            detail = f"what the lease of {wanted.tenant} has left is set aside for more urgent work, for which others stop"
            return _refusal(wanted, Reason.ROOM_RESERVED, detail)
        if slots == 0:
            return refused or _refusal(wanted, Reason.QUOTA_EXHAUSTED, "the lease has changed")
        balance.spend(wanted.workload, key, wanted.slot.times(slots), self.clock.monotonic_ms())
        lease = balance.lease(key)
        return events.LeaseGranted(workload=wanted.workload, slots=slots, token=lease.token if lease is not None else 0)

    def grow(self, workload: Workload, pool: PoolSpec, amounts: ResourceSet) -> bool:
        """Does the lease that pays in the pool grow by so much, without anybody's stopping? Then it is held for the workload.

        Raises:
            SessionLost: As `acquire`.
        """
        offer, key = workload.offer, (workload.offer.tenant, pool.flavor)
        if not self._has_place_for(key):
            return False
        self.books.balance.hold(offer.workload, key, offer.slot)  # What is granted is not idle.
        wanted = AcquireLease(workload=offer.workload, tenant=offer.tenant, pool=pool.pool, flavor=pool.flavor, slot=amounts, want=1)
        refused = self._ask(wanted, key, 1, is_missing=True)
        if refused is not None:
            self.books.balance.drop_hold(offer.workload)
        return refused is None

    def _has_place_for(self, key: LeaseKey) -> bool:
        """May the mesh pay from this lease? What lies idle is given back for it; where nothing does, that is not looked for twice."""
        has_place = self.books.balance.has_place_for(key)
        if has_place or self._is_full:
            return has_place
        try:
            self.offer(0, keep=key)
        except SessionLost:
            raise
        except MeshError as gone:
            self.guard.note(gone)
        self._is_full = not self.books.balance.has_place_for(key)
        return not self._is_full

    def _ask(self, wanted: AcquireLease, key: LeaseKey, slots: int, *, is_missing: bool = False) -> events.LeaseRefused | None:
        """Ask the ledger for more; None when it granted some. `is_missing`: the slot is what is missing, whatever lies idle."""
        if self.tenure.is_cut_off:
            return _refusal(wanted, Reason.LEDGER_UNREACHABLE, "it did not answer the last question")
        refused = self._refused.get((key, wanted.slot))
        try:
            if refused is None:
                refused = self._ask_for(key, wanted.slot, slots, wanted.workload, is_missing=is_missing)
        except SessionLost:
            raise
        except MeshError as gone:
            self.guard.note(gone)
            return _refusal(wanted, *_in_words(gone))
        if refused is None:
            return None
        self._refused[key, wanted.slot] = refused
        return _refusal(wanted, refused.reason, refused.in_words())

    def _ask_for(self, key: LeaseKey, slot: ResourceSet, slots: int, stage: StageId, *, is_missing: bool) -> LeaseRefused | None:
        """Up to three questions: another one when the lease was not as we thought, after we gave back what lay idle ourselves, or
        for further slots when the first needed only a part, since the rest of it lay idle."""
        refused: LeaseRefused | None = None
        self.offer(_NEVER_MS)  # What was offered and not answered may be taken or not: now we ask, so we have to know.
        for _ in range(3):
            missing = slot if is_missing else self.books.balance.missing(key, slot, stage)
            more = slots if missing == slot else 1
            answer = self._question(key, missing, more, stage)
            if isinstance(answer, Granted) and more < slots:
                slots -= more
                continue
            if isinstance(answer, Granted) or (not is_missing and self.books.balance.room(key, slot, stage) >= slots):
                return None
            refused = _of_whole_slot(answer, slot, missing) if isinstance(answer, LeaseRefused) else None
            if refused is not None and not (refused.reason is Reason.QUOTA_EXHAUSTED and self.offer(0, keep=key)):
                break
        return refused

    def _question(self, key: LeaseKey, slot: ResourceSet, slots: int, stage: StageId) -> Granted | LookAgain | LeaseRefused:
        books = self.books
        pays_for = max(map(books.priority_of, (stage, *books.balance.paid(key))))
        since_ms = books.waits_since_ms(stage)
        waited_ms = None if since_ms is None else max(0, self.clock.monotonic_ms() - since_ms)
        want = replace(books.balance.want(key, slot, slots, books.priority_of(stage)), pays_for=pays_for, waited_ms=waited_ms)
        self.tenure.wants = None  # Whatever the answer, and if there is none: what the ledger has noted may be different now.
        acquired = self.ledger.acquire(self.tenure.held(), (want,))
        (answer,) = acquired.answers
        self.take_in(acquired.told, [key] if isinstance(answer, LookAgain) else [])
        if isinstance(answer, LeaseRefused) and answer.reason is Reason.QUOTA_EXHAUSTED:
            self.headroom.setdefault(key, {})[answer.resource] = answer.available
        return answer


def _in_words(gone: MeshError) -> tuple[Reason, str]:
    """What the stage is told that was asked for."""
    if isinstance(gone, EpochChanged):
        return Reason.LEDGER_LEARNING, "the ledger began another epoch"
    return (Reason.REQUEST_INVALID if isinstance(gone, NEVER) else Reason.LEDGER_UNREACHABLE), str(gone)


def _refusal(wanted: AcquireLease, reason: Reason, detail: str) -> events.LeaseRefused:
    return events.LeaseRefused(workload=wanted.workload, reason=reason, detail=detail)


def _of_whole_slot(refused: LeaseRefused, slot: ResourceSet, missing: ResourceSet) -> LeaseRefused:
    """The answer to the question for what is missing, in words of whole slots: what lies idle may be taken as well."""
    short = refused.resource
    return replace(refused, wanted=slot[short], available=max(0, refused.available) + slot[short] - missing[short]) if short else refused
