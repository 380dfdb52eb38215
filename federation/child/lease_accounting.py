"""Lease accounting of a mesh: amounts held and spent, so that the child need not ask the ledger for every stage.

Each stage is charged to the lease of its tenant and flavor. Spending never exceeds what the lease holds and its target, nor what the
mesh has offered to keep: an offered part counts as gone from the moment of the offer, with or without a response. A part of a lease
may be held for a stage that preempts others of its tenant. No other stage can spend a held part, and the mesh does not return it as
idle, but the ledger may still take it. Only newer versions replace a lease, so responses may arrive late or twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from federation.leases import ROWS_MAX, ROWS_SENT_MAX, Lease, LeaseAck, LeaseUse, LedgerResponse, QuotaDemand
from mesh.core.ids import FlavorName, StageId, TenantPath
from mesh.core.resources import NOTHING, ResourceSet

LeaseKey = tuple[TenantPath, FlavorName]


@dataclass(slots=True)
class _Account:
    """One lease, and the stages that it pays for."""

    lease: Lease | None = None
    spent: dict[StageId, ResourceSet] = field(default_factory=dict)  #: In the order of spending.
    in_use: ResourceSet = NOTHING  #: The sum of `spent`.
    held: dict[StageId, ResourceSet] = field(default_factory=dict)  #: For stages that have not started.
    offered: ResourceSet | None = None  #: The amount that the mesh offered to keep; None: nothing was offered.
    moved_ms: int = 0  #: When something was last spent or returned.
    settled: int = 0  #: Version of the lease whose victims need not stop any more.
    patient_ms: int = 0  #: Until when the ledger waits for stages within their minimum run time.

    def spend(self, stage: StageId, amounts: ResourceSet) -> None:
        self.put_back(stage)
        self.spent[stage] = amounts
        self.in_use += amounts

    def put_back(self, stage: StageId) -> None:
        self.in_use -= self.spent.pop(stage, NOTHING)

    @property
    def is_empty(self) -> bool:
        """The account carries no information and may be dropped."""
        return self.lease is None and not self.spent and not self.held

    @property
    def is_needed(self) -> bool:
        """The mesh has the lease, and spends or holds a part of it."""
        return self.lease is not None and bool(self.spent or self.held)

    @property
    def grows(self) -> bool:
        """A plan lets the lease hold more than it does."""
        return self.lease is not None and not self.lease.target <= self.lease.held

    @property
    def shrinks(self) -> bool:
        """The lease holds more than its target."""
        return self.lease is not None and not self.lease.held <= self.lease.target

    @property
    def displaces(self) -> bool:
        """Plans stop stages of the lease for others of its tenant: it names victims, and need not shrink."""
        return self.lease is not None and bool(self.lease.victims) and not self.shrinks and self.settled != self.lease.version

    @property
    def kept(self) -> ResourceSet:
        """The amount that the lease needs for all spent and held parts."""
        return NOTHING if self.lease is None else _least(self.lease.held, self.in_use + self.held_but(None))

    @property
    def is_loose(self) -> bool:
        """A part of the lease could be returned."""
        return self.lease is not None and (self.grows or self.kept != self.lease.held)

    @property
    def limit(self) -> ResourceSet:
        """The greatest amount that may be in use."""
        if self.lease is None:
            return NOTHING
        spendable = self.lease.spendable
        return spendable if self.offered is None else _least(spendable, self.offered)

    def spare(self, stage: StageId | None = None) -> dict[str, int]:
        """Return the amounts that the stage could spend now; negative where more is held for others than has come free."""
        taken, limit = self.in_use + self.held_but(stage), self.limit
        return {name: limit[name] - taken[name] for name in {*limit, *taken}}

    def held_but(self, stage: StageId | None) -> ResourceSet:
        """Return the sum of all holds but this stage's."""
        return sum_of(amounts for holder, amounts in self.held.items() if holder != stage)


@dataclass(frozen=True, slots=True)
class Overdraft:
    """A lease that pays for more than its limit."""

    limit: ResourceSet
    spent: dict[StageId, ResourceSet]  #: In the order of spending.
    patient_ms: int  #: Until then stages within their minimum run time may continue.
    victims: frozenset[int] = frozenset()  #: Claim tokens of the stages that plans stop first.


class LeaseAccounting:
    """The leases of one session and the stages that they pay for.

    A mesh may have a thousand leases and reads them for each stage that starts or ends. So no change of one lease loops over all: sets
    beside the accounts name the leases that need work.
    """

    def __init__(self) -> None:
        self._accounts: dict[LeaseKey, _Account] = {}
        self._payers: dict[StageId, LeaseKey] = {}
        self._holders: dict[StageId, LeaseKey] = {}  #: The lease of which a part is held for the stage.
        self._loose: set[LeaseKey] = set()  #: Leases with `_Account.is_loose`.
        self._shrinking: set[LeaseKey] = set()  #: Leases with `_Account.shrinks`.
        self._displacing: set[LeaseKey] = set()  #: Leases with `_Account.displaces`.
        self._moved: set[LeaseKey] = set()  #: Leases whose stages may have another priority than the ledger knows.
        self._doubted: set[LeaseKey] = set()  #: Leases that changed since the last overdraft check, or were overdrawn then.

    def _note(self, key: LeaseKey) -> None:
        """Update the sets after a change of this lease."""
        account = self._accounts[key]
        self._moved.add(key)
        if account.is_empty:
            del self._accounts[key]
        kinds = ((self._loose, account.is_loose), (self._shrinking, account.shrinks), (self._displacing, account.displaces))
        for named, belongs in kinds:
            if belongs:
                named.add(key)
            else:
                named.discard(key)

    # ---- responses of the ledger

    def apply(self, response: LedgerResponse, named: Iterable[LeaseKey] = (), patient_ms: Callable[[int], int] = lambda _: 0) -> None:
        """Store the leases of a ledger's response. A lease in `named` that the response lacks is gone.

        Args:
            patient_ms: Return until when stages within their minimum run time may continue under a lease that has to shrink within so
                many milliseconds.
        """
        leases = {(lease.tenant, lease.flavor): lease for lease in response.leases}
        for key, lease in leases.items():
            account = self._accounts.setdefault(key, _Account())
            if account.lease is None or lease.version > account.lease.version:
                account.lease, account.offered = lease, None
                account.patient_ms = patient_ms(lease.shrink_ms) if lease.shrink_ms is not None else 0
        for key in {*named} - leases.keys() & self._accounts.keys():
            account = self._accounts[key]
            account.lease, account.offered, account.patient_ms = None, None, 0
        for key in leases.keys() | {*named} & self._accounts.keys():
            self._doubted.add(key)
            self._note(key)

    # ---- spending

    def lease(self, key: LeaseKey) -> Lease | None:
        """Return the lease; None if the mesh does not have it."""
        account = self._accounts.get(key)
        return account.lease if account is not None else None

    def payer(self, stage: StageId) -> Lease | None:
        """Return the lease that pays for the stage; None if none does."""
        key = self._payers.get(stage)
        return self.lease(key) if key is not None else None

    def room(self, key: LeaseKey, slot: ResourceSet, stage: StageId | None = None) -> int:
        """Return the number of slots that the stage could spend now; holds for others do not count."""
        spare = self.spare(key, stage)
        return min((max(0, spare.get(name, 0)) // units for name, units in slot.items()), default=0)

    def spare(self, key: LeaseKey, stage: StageId | None = None) -> dict[str, int]:
        """Return the units that the stage could spend now; negative where more is held for others than has come free."""
        account = self._accounts.get(key)
        return account.spare(stage) if account is not None else {}

    def spent_on(self, stage: StageId, key: LeaseKey) -> ResourceSet:
        account = self._accounts.get(key)
        return account.spent.get(stage, NOTHING) if account is not None else NOTHING

    def missing(self, key: LeaseKey, slot: ResourceSet, stage: StageId | None = None) -> ResourceSet:
        """Return the amount that one more slot for this stage lacks: a slot less the idle part of one."""
        spare, whole = self.spare(key, stage), self.room(key, slot, stage)
        idle = {name: max(0, spare.get(name, 0)) - whole * units for name, units in slot.items()}
        return ResourceSet({name: max(0, units - idle[name]) for name, units in slot.items()})

    def paid(self, key: LeaseKey) -> tuple[StageId, ...]:
        account = self._accounts.get(key)
        return tuple(account.spent) if account is not None else ()

    def hold(self, stage: StageId, key: LeaseKey, amounts: ResourceSet) -> None:
        """Hold a part of the lease for the stage, free or still to come free, until it is spent or the hold is dropped.

        A stage has one hold: a new one replaces the old.
        """
        self.drop_hold(stage)
        self._accounts.setdefault(key, _Account()).held[stage] = amounts
        self._holders[stage] = key
        self._note(key)

    def holds_for_others(self, key: LeaseKey, slot: ResourceSet, stage: StageId) -> bool:
        """Return whether only holds for others keep the stage from spending a slot."""
        account = self._accounts.get(key)
        return account is not None and slot + account.in_use <= account.limit and bool(account.held_but(stage))

    def drop_hold(self, stage: StageId) -> None:
        key = self._holders.pop(stage, None)
        if key is not None:
            del self._accounts[key].held[stage]
            self._note(key)

    def drop_holds(self, but: Collection[StageId]) -> None:
        """Drop the holds of all stages but these."""
        for stage in [stage for stage in self._holders if stage not in but]:
            self.drop_hold(stage)

    def spend(self, stage: StageId, key: LeaseKey, amounts: ResourceSet, now_ms: int) -> None:
        """Charge the stage to the lease. The caller has checked `room`."""
        account = self._accounts[key]
        account.spend(stage, amounts)
        account.moved_ms = now_ms
        self._payers[stage] = key
        if self._holders.get(stage) == key:
            self.drop_hold(stage)
        self._note(key)

    def put_back(self, stage: StageId, now_ms: int) -> LeaseKey | None:
        """Release the stage's amounts in its lease; return the key of that lease, or None if no lease paid."""
        key = self._payers.pop(stage, None)
        if key is not None:
            account = self._accounts[key]
            account.put_back(stage)
            account.moved_ms = now_ms
            self._note(key)
        return key

    def shrink(self, stage: StageId, amounts: ResourceSet, now_ms: int) -> LeaseKey | None:
        """Charge the stage for these amounts only; return the key of the lease that pays, or None if none does."""
        key = self._payers.get(stage)
        if key is not None and amounts <= self.spent_on(stage, key):
            self.spend(stage, key, amounts, now_ms)
        return key

    # ---- reports to the ledger

    def lease_uses(self, priority_of: Callable[[StageId], int]) -> tuple[LeaseUse, ...]:
        """Return the leases with another priority than the ledger knows. An idle lease keeps its last priority."""
        found: list[LeaseUse] = []
        for key in sorted(self._moved):
            account = self._accounts.get(key)
            priority = max(map(priority_of, account.spent), default=None) if account is not None else None
            if account is None or account.lease is None or priority in (None, account.lease.priority):
                self._moved.discard(key)
            elif priority is not None:
                found.append(LeaseUse(tenant=key[0], flavor=key[1], priority=priority))
        return tuple(found[:ROWS_SENT_MAX])

    def note_reported(self, lease_uses: Iterable[LeaseUse]) -> None:
        """Record that the ledger has accepted these priorities."""
        for use in lease_uses:
            account = self._accounts.get((use.tenant, use.flavor))
            if account is not None and account.lease is not None:
                account.lease = replace(account.lease, priority=use.priority)

    # ---- returning quota

    def offer_idle(
        self,
        now_ms: int,
        idle_ms: int,
        keep: LeaseKey | None = None,
        waits_for: Callable[[LeaseKey], bool] | None = None,
        most: int = ROWS_MAX,
    ) -> tuple[LeaseAck, ...]:
        """Offer to return all parts that have been idle for `idle_ms`; earlier offers are repeated first.

        An offer also gives up the lease's higher target. A lease that a plan lets grow, or in which it stops stages for others of the
        tenant, is kept while a stage waits for it, since the stage may need the whole. If no stage waits, the lease is offered, or others
        would never get its quota.

        Args:
            idle_ms: Required idle time in milliseconds.
            keep: A lease of which nothing is offered.
            waits_for: Return whether any stage waits for this lease. None: every growing lease has a waiting stage.
            most: Maximum number of offers. An offer that is not sent would count as gone although nobody received it.
        """
        offers: list[LeaseAck] = []
        for key in sorted(self._loose, key=lambda key: (self._accounts[key].offered is None, key)):
            if len(offers) == most:
                break
            account = self._accounts[key]
            lease = account.lease
            is_due = account.offered is not None or now_ms - account.moved_ms >= idle_ms
            if lease is None or key == keep or not is_due:
                continue
            is_planned = account.grows or account.displaces
            if is_planned and account.offered is None and (waits_for is None or waits_for(key)):
                continue
            account.offered = account.kept
            offers.append(LeaseAck(tenant=key[0], flavor=key[1], version=lease.version, amounts=account.offered))
        return tuple(offers)

    def acks(self) -> tuple[LeaseAck, ...]:
        """Return the leases above their target whose use has shrunk to it."""
        shrinking = ((key, self._accounts[key]) for key in sorted(self._shrinking))
        return tuple(
            LeaseAck(tenant=key[0], flavor=key[1], version=account.lease.version, amounts=account.in_use)
            for key, account in shrinking
            if account.lease is not None and account.in_use <= account.lease.target
        )

    def overdrawn(self) -> tuple[Overdraft, ...]:
        """Return the leases that pay for more than their limit. Only a response of the ledger can overdraw a lease."""
        doubted = ((key, self._accounts[key]) for key in sorted(self._doubted & self._accounts.keys()))
        found = {key: account for key, account in doubted if not account.in_use <= account.limit}
        self._doubted = set(found)
        return tuple(
            Overdraft(account.limit, dict(account.spent), account.patient_ms, frozenset(account.lease.victims if account.lease else ()))
            for account in found.values()
        )

    def displaced(self) -> dict[LeaseKey, frozenset[int]]:
        """Return the leases whose plans stop stages for more urgent ones of the tenant, with the claim tokens of these victims."""
        leases = ((key, self.lease(key)) for key in sorted(self._displacing))
        return {key: frozenset(lease.victims) for key, lease in leases if lease is not None}

    def settle_displaced(self, key: LeaseKey) -> None:
        """Record that no victim of the lease's present version has to stop any more: all have ended, or nobody waits for their quota."""
        account = self._accounts[key]
        account.settled = account.lease.version if account.lease is not None else 0
        self._note(key)

    def has_place_for(self, key: LeaseKey, beside: int = 0) -> bool:
        """Return whether the lease may pay for something. One heartbeat has to carry all paying leases to a ledger that recovers.

        Args:
            beside: Further leases that are about to be made.
        """
        account = self._accounts.get(key)
        if (account is not None and (account.spent or account.held)) or len(self._accounts) + beside < ROWS_SENT_MAX:
            return True
        if beside:
            return False
        return sum(other.lease is not None and other is not account for other in self._accounts.values()) < ROWS_SENT_MAX

    @property
    def is_full(self) -> bool:
        """The mesh has as many leases as it may, and needs each of them."""
        return len(self._accounts) >= ROWS_SENT_MAX and sum(account.is_needed for account in self._accounts.values()) >= ROWS_SENT_MAX

    def claims(self) -> tuple[Lease, ...]:
        """Return all held leases, for a ledger that recovers; without victims, which would make the call too large.

        A plan may give the mesh more leases than one heartbeat may carry. Leases beyond that limit that pay for nothing are offered back,
        since the ledger drops a lease that is not reported.
        """
        held = {key: account for key, account in sorted(self._accounts.items()) if account.lease is not None}
        idle = [key for key, account in held.items() if not account.spent and not account.held]
        for key in idle[: max(0, len(held) - ROWS_SENT_MAX)]:
            held.pop(key).offered = NOTHING
        return tuple(replace(account.lease, victims=()) for account in held.values() if account.lease is not None)

    def demand(self, key: LeaseKey, slot: ResourceSet, slots: int, priority: int) -> QuotaDemand:
        """Return the request for so many more slots."""
        lease = self.lease(key)
        version = lease.version if lease is not None else 0
        return QuotaDemand(tenant=key[0], flavor=key[1], slot=slot, slots=slots, priority=priority, version=version)

    def check(self) -> list[str]:
        """Return a message per broken invariant; empty when all hold. Cost is linear in the number of leases."""
        accounts = self._accounts
        over = {key for key, account in accounts.items() if not account.in_use <= account.limit}
        checks = {
            "sums": all(account.in_use == sum_of(account.spent.values()) for account in accounts.values()),
            "accounts without content": not any(account.is_empty for account in accounts.values()),
            "payers": self._payers == {stage: key for key, account in accounts.items() for stage in account.spent},
            "holders": self._holders == {stage: key for key, account in accounts.items() for stage in account.held},
            "loose leases": self._loose == {key for key, account in accounts.items() if account.is_loose},
            "shrinking leases": self._shrinking == {key for key, account in accounts.items() if account.shrinks},
            "displacing leases": self._displacing == {key for key, account in accounts.items() if account.displaces},
            "overdrawn leases": over <= self._doubted,
        }
        return [f"the {name} differ from the leases" for name, holds in checks.items() if not holds]


def sum_of(amounts: Iterable[ResourceSet]) -> ResourceSet:
    total: dict[str, int] = {}
    for part in amounts:
        for name, units in part.items():
            total[name] = total.get(name, 0) + units
    return ResourceSet(total)


def _least(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    """Return the lesser amount of each resource."""
    return ResourceSet({name: min(units, other[name]) for name, units in one.items()})
