"""What a mesh holds, and what of it is spent: the child's own book, so that it need not ask the ledger for every stage.

A stage is charged here to the lease of its tenant and flavor. The book never lets more be spent than a lease holds and
aims at, nor more than the mesh has said it will keep: what it offers to give back counts as gone from the moment of
offering, whether an answer comes or not. A part of a lease may be held for a stage that others of its tenant stop for:
it is not spent on any other and not given back as idle, but what the ledger takes away it takes. Leases are replaced by
newer versions only, so answers may come late or twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from federation.leases import ROWS_MAX, TOLD_MAX, Kept, Lease, Pays, Told, Want
from mesh.ids import FlavorName, StageId, TenantPath
from mesh.resources import NOTHING, ResourceSet

LeaseKey = tuple[TenantPath, FlavorName]


@dataclass(slots=True)
class _Account:
    """One lease, and what it pays for."""

    lease: Lease | None = None
    spent: dict[StageId, ResourceSet] = field(default_factory=dict)  #: In the order in which it was spent.
    in_use: ResourceSet = NOTHING  #: The sum of what is spent.
    held: dict[StageId, ResourceSet] = field(default_factory=dict)  #: For stages that have not started, of what is free or comes free.
    offered: ResourceSet | None = None  #: No more than this is kept, as was offered; None: nothing was offered.
    moved_ms: int = 0  #: When something was last spent or came back.
    patient_ms: int = 0  #: Until when the ledger waits for work that is too young to be stopped.

    def spend(self, stage: StageId, amounts: ResourceSet) -> None:
        """From now on the stage is paid for."""
        self.put_back(stage)
        self.spent[stage] = amounts
        self.in_use += amounts

    def put_back(self, stage: StageId) -> None:
        """It is not paid for any more."""
        self.in_use -= self.spent.pop(stage, NOTHING)

    @property
    def is_empty(self) -> bool:
        """There is nothing to know of it."""
        return self.lease is None and not self.spent and not self.held

    @property
    def is_needed(self) -> bool:
        """It is held, and pays for something or is to."""
        return self.lease is not None and bool(self.spent or self.held)

    @property
    def grows(self) -> bool:
        """A plan lets it hold more than it does."""
        return self.lease is not None and not self.lease.target <= self.lease.held

    @property
    def shrinks(self) -> bool:
        """It holds more than it may."""
        return self.lease is not None and not self.lease.held <= self.lease.target

    @property
    def kept(self) -> ResourceSet:
        """What it has to hold, for all that is spent of it or held for somebody."""
        return NOTHING if self.lease is None else _least(self.lease.held, self.in_use + self.held_but(None))

    @property
    def is_loose(self) -> bool:
        """A part of it could be given back."""
        return self.lease is not None and (self.grows or self.kept != self.lease.held)

    @property
    def limit(self) -> ResourceSet:
        """What may be in use."""
        if self.lease is None:
            return NOTHING
        spendable = self.lease.spendable
        return spendable if self.offered is None else _least(spendable, self.offered)

    def spare(self, stage: StageId | None = None) -> dict[str, int]:
        """What may be spent on top of what is, by this stage; below zero where more is held for others than has come free."""
        taken, limit = self.in_use + self.held_but(stage), self.limit
        return {name: limit[name] - taken[name] for name in {*limit, *taken}}

    def held_but(self, stage: StageId | None) -> ResourceSet:
        """What is held for others than this stage."""
        return sum_of(amounts for holder, amounts in self.held.items() if holder != stage)


@dataclass(frozen=True, slots=True)
class Overdraft:
    """A lease that pays for more than it may."""

    limit: ResourceSet
    spent: dict[StageId, ResourceSet]  #: In the order in which it was spent.
    patient_ms: int  #: Until then what is too young may go on.


class LeaseBalance:
    """The leases of one session and what they pay for.

    A mesh may have a thousand of them, and looks into the book for each stage that starts or ends: so nothing that happens to one
    lease goes through all. Those that something follows from are named beside the accounts.
    """

    def __init__(self) -> None:
        self._accounts: dict[LeaseKey, _Account] = {}
        self._payers: dict[StageId, LeaseKey] = {}
        self._holders: dict[StageId, LeaseKey] = {}  #: Of which lease something is held for a stage.
        self._loose: set[LeaseKey] = set()  #: See `_Account.is_loose`.
        self._shrinking: set[LeaseKey] = set()  #: See `_Account.shrinks`.
        self._moved: set[LeaseKey] = set()  #: May pay for something else than the ledger knows.
        self._doubted: set[LeaseKey] = set()  #: Told since it was last asked whether they are overdrawn, or overdrawn then.

    def _note(self, key: LeaseKey) -> None:
        """Something has changed of this lease."""
        account = self._accounts[key]
        self._moved.add(key)
        if account.is_empty:
            del self._accounts[key]
        for named, belongs in ((self._loose, account.is_loose), (self._shrinking, account.shrinks)):
            if belongs:
                named.add(key)
            else:
                named.discard(key)

    # ---- what the ledger tells

    def take_in(self, told: Told, named: Iterable[LeaseKey] = (), patient_ms: Callable[[int], int] = lambda _: 0) -> None:
        """Note the leases that were told. Those that were named in the question and are not in the answer are gone.

        Args:
            patient_ms: Until when young work may go on under a lease that has to shrink within so many milliseconds.
        """
        answered = {(lease.tenant, lease.flavor): lease for lease in told.leases}
        for key, lease in answered.items():
            account = self._accounts.setdefault(key, _Account())
            if account.lease is None or lease.version > account.lease.version:
                account.lease, account.offered = lease, None
                account.patient_ms = patient_ms(lease.shrink_ms) if lease.shrink_ms is not None else 0
        for key in {*named} - answered.keys() & self._accounts.keys():
            account = self._accounts[key]
            account.lease, account.offered, account.patient_ms = None, None, 0
        for key in answered.keys() | {*named} & self._accounts.keys():
            self._doubted.add(key)
            self._note(key)

    # ---- spending

    def lease(self, key: LeaseKey) -> Lease | None:
        """The lease, as far as it is known."""
        account = self._accounts.get(key)
        return account.lease if account is not None else None

    def payer(self, stage: StageId) -> Lease | None:
        """The lease that pays for the stage; None when nothing does."""
        key = self._payers.get(stage)
        return self.lease(key) if key is not None else None

    def room(self, key: LeaseKey, slot: ResourceSet, stage: StageId | None = None) -> int:
        """Slots that could be spent now, on this stage: what is held for others is not counted."""
        spare = self.spare(key, stage)
        return min((max(0, spare.get(name, 0)) // units for name, units in slot.items()), default=0)

    def spare(self, key: LeaseKey, stage: StageId | None = None) -> dict[str, int]:
        """Units that could be spent now, on this stage; below zero where more is held for others than has come free."""
        account = self._accounts.get(key)
        return account.spare(stage) if account is not None else {}

    def spent_on(self, stage: StageId, key: LeaseKey) -> ResourceSet:
        """What the lease pays for the stage."""
        account = self._accounts.get(key)
        return account.spent.get(stage, NOTHING) if account is not None else NOTHING

    def missing(self, key: LeaseKey, slot: ResourceSet, stage: StageId | None = None) -> ResourceSet:
        """What has to be added so that one more slot could be spent on this stage: a slot, less the part of one that lies idle."""
        spare, whole = self.spare(key, stage), self.room(key, slot, stage)
        idle = {name: max(0, spare.get(name, 0)) - whole * units for name, units in slot.items()}
        return ResourceSet({name: max(0, units - idle[name]) for name, units in slot.items()})

    def paid(self, key: LeaseKey) -> tuple[StageId, ...]:
        """The stages that the lease pays for."""
        account = self._accounts.get(key)
        return tuple(account.spent) if account is not None else ()

    def hold(self, stage: StageId, key: LeaseKey, amounts: ResourceSet) -> None:
        """Keep so much of the lease for the stage, of what is free or comes free, until it is spent or the hold is dropped.

        One hold per stage: the later one counts.
        """
        self.drop_hold(stage)
        self._accounts.setdefault(key, _Account()).held[stage] = amounts
        self._holders[stage] = key
        self._note(key)

    def holds_for_others(self, key: LeaseKey, slot: ResourceSet, stage: StageId) -> bool:
        """Could a slot be spent on the stage, if nothing were held for others?"""
        account = self._accounts.get(key)
        return account is not None and slot + account.in_use <= account.limit and bool(account.held_but(stage))

    def drop_hold(self, stage: StageId) -> None:
        """Nothing is held for the stage any more."""
        key = self._holders.pop(stage, None)
        if key is not None:
            del self._accounts[key].held[stage]
            self._note(key)

    def drop_holds(self, but: Collection[StageId]) -> None:
        """Nothing is held any more for any stage but these."""
        for stage in [stage for stage in self._holders if stage not in but]:
            self.drop_hold(stage)

    def spend(self, stage: StageId, key: LeaseKey, amounts: ResourceSet, now_ms: int) -> None:
        """Let the lease pay for the stage; `room` has said that it can."""
        account = self._accounts[key]
        account.spend(stage, amounts)
        account.moved_ms = now_ms
        self._payers[stage] = key
        if self._holders.get(stage) == key:
            self.drop_hold(stage)
        self._note(key)

    def put_back(self, stage: StageId, now_ms: int) -> LeaseKey | None:
        """Nothing of the stage runs any more; the lease that paid for it, None when none did."""
        key = self._payers.pop(stage, None)
        if key is not None:
            account = self._accounts[key]
            account.put_back(stage)
            account.moved_ms = now_ms
            self._note(key)
        return key

    # ---- what the ledger is to know of it

    def pays(self, priority_of: Callable[[StageId], int]) -> tuple[Pays, ...]:
        """Of leases that pay for something and have another priority than the ledger knows. One that lies idle keeps its own."""
        found: list[Pays] = []
        for key in sorted(self._moved):
            account = self._accounts.get(key)
            priority = max(map(priority_of, account.spent), default=None) if account is not None else None
            if account is None or account.lease is None or priority in (None, account.lease.priority):
                self._moved.discard(key)
            elif priority is not None:
                found.append(Pays(tenant=key[0], flavor=key[1], priority=priority))
        return tuple(found[:TOLD_MAX])

    def note_told(self, told: Iterable[Pays]) -> None:
        """The ledger has heard this."""
        for pays in told:
            account = self._accounts.get((pays.tenant, pays.flavor))
            if account is not None and account.lease is not None:
                account.lease = replace(account.lease, priority=pays.priority)

    # ---- giving back

    def offer_idle(
        self,
        now_ms: int,
        idle_ms: int,
        keep: LeaseKey | None = None,
        waits_for: Callable[[LeaseKey], bool] | None = None,
        most: int = ROWS_MAX,
    ) -> tuple[Kept, ...]:
        """Offer all that nothing was spent of for so long, and nothing came back to; what was offered before is offered again, and first.

        With what is offered goes the target above it. That of a lease that a plan lets grow is kept while somebody waits for it: it
        is not whole yet, and may be of use only then. When nobody does, it would be kept from others for ever, and is given up.

        Args:
            idle_ms: How long it has to have lain idle.
            keep: A lease of which nothing is offered.
            waits_for: Does any stage wait for this lease? None: for each that grows one does.
            most: Of so many leases. What is not sent must not be offered: it would count as gone, and nobody would have got it.
        """
        offers: list[Kept] = []
        for key in sorted(self._loose, key=lambda key: (self._accounts[key].offered is None, key)):
            if len(offers) == most:
                break
            account = self._accounts[key]
            lease = account.lease
            is_due = account.offered is not None or now_ms - account.moved_ms >= idle_ms
            if lease is None or key == keep or not is_due:
                continue
            if account.grows and account.offered is None and (waits_for is None or waits_for(key)):
                continue
            account.offered = account.kept
            offers.append(Kept(tenant=key[0], flavor=key[1], version=lease.version, amounts=account.offered))
        return tuple(offers)

    def acks(self) -> tuple[Kept, ...]:
        """Leases above their target that the mesh does not exceed any more."""
        shrinking = ((key, self._accounts[key]) for key in sorted(self._shrinking))
        return tuple(
            Kept(tenant=key[0], flavor=key[1], version=account.lease.version, amounts=account.in_use)
            for key, account in shrinking
            if account.lease is not None and account.in_use <= account.lease.target
        )

    def overdrawn(self) -> tuple[Overdraft, ...]:
        """Leases that pay for more than they may. A lease becomes one of them only by what the ledger tells."""
        doubted = ((key, self._accounts[key]) for key in sorted(self._doubted & self._accounts.keys()))
        found = {key: account for key, account in doubted if not account.in_use <= account.limit}
        self._doubted = set(found)
        return tuple(Overdraft(account.limit, dict(account.spent), account.patient_ms) for account in found.values())

    def has_place_for(self, key: LeaseKey) -> bool:
        """May this lease pay for something? All that pay have to be told in one heartbeat to a ledger that learns."""
        account = self._accounts.get(key)
        if (account is not None and (account.spent or account.held)) or len(self._accounts) < TOLD_MAX:
            return True
        return sum(other.lease is not None and other is not account for other in self._accounts.values()) < TOLD_MAX

    @property
    def is_full(self) -> bool:
        """There are as many leases as there may be, and none of them could be given up for another one."""
        return len(self._accounts) >= TOLD_MAX and sum(account.is_needed for account in self._accounts.values()) >= TOLD_MAX

    def claims(self) -> tuple[Lease, ...]:
        """All that is held, for a ledger that learns.

        By plan there may be more leases than may be told. Then those that pay for nothing are offered instead: what is not told is gone.
        """
        held = {key: account for key, account in sorted(self._accounts.items()) if account.lease is not None}
        idle = [key for key, account in held.items() if not account.spent and not account.held]
        for key in idle[: max(0, len(held) - TOLD_MAX)]:
            held.pop(key).offered = NOTHING
        return tuple(account.lease for account in held.values() if account.lease is not None)

    def want(self, key: LeaseKey, slot: ResourceSet, slots: int, priority: int) -> Want:
        """The question for so many more slots."""
        lease = self.lease(key)
        version = lease.version if lease is not None else 0
        return Want(tenant=key[0], flavor=key[1], slot=slot, slots=slots, priority=priority, version=version)


def sum_of(amounts: Iterable[ResourceSet]) -> ResourceSet:
    """All of them together."""
    total: dict[str, int] = {}
    for part in amounts:
        for name, units in part.items():
            total[name] = total.get(name, 0) + units
    return ResourceSet(total)


def _least(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    """The lesser amount of each resource."""
    return ResourceSet({name: min(units, other[name]) for name, units in one.items()})
