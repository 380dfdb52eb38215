"""Planning state of a round: every lease with its target so far and the work that it pays for, over a ledger of all targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from federation.planning.values import Holding, LeaseKey, PlannerDemand, Target, Units
from federation.quota.forest import QuotaForest
from federation.quota.ledger import Amounts, SlotQuota
from federation.quota.policies import UNNAMED, QueueSettings, Rules
from federation.quota.preemption.candidates import Victim
from federation.quota.snapshot import QuotaSnapshot
from federation.quota.workloads import NO_COUNTS, Running, Workload
from federation.snapshot import RunningView
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.resources import AMOUNT_MAX
from mesh.stages.hosting import parts_of

_PLACE = attrgetter("mesh", "tenant", "flavor")
#: Holding of a lease made in the round; the lease's key names its mesh, tenant and flavor.
_UNHELD = Holding(mesh=MeshId(""), tenant=TenantPath(""), flavor=FlavorName(""), target={})


#: Idle quota goes before any work.
_IDLE_PRIORITY = -(2**53)
#: Of several reasons for one lowered lease the gravest counts; no part of a quota reduction may wait.
_GRAVITY = {Reason.PREEMPTED_WITHIN_TENANT: 1, Reason.QUOTA_RECLAIMED: 2, Reason.QUOTA_REDUCED: 3}


class _Settings(dict[int, QueueSettings]):
    """Settings by leaf."""

    def __missing__(self, node: int) -> QueueSettings:
        return UNNAMED


@dataclass(slots=True)
class PlannedLease:
    """A lease during a round."""

    key: LeaseKey
    node: int  #: Index in the forest of the leaf that is charged.
    holding: Holding
    target: dict[str, int]
    grown: defaultdict[str, int]  #: Growth in this round of all leases of the flavor on the mesh together.
    reason: Reason = Reason.QUOTA_FREE
    has_grown: bool = False  #: In this round.
    has_given: bool = False  #: Lowered in this round, even if raised again later.
    victims: dict[int, None] = field(default_factory=dict)  #: Claims of the stages that this round stops, or of which it reclaims slots.


@dataclass(slots=True)
class PlannedDemand:
    """A demand during a round."""

    demand: PlannerDemand
    node: int
    slots: int  #: Slots still missing.
    least: int  #: The fewest slots that are of use.
    slot: dict[FlavorResource, int]  #: Amounts of one slot, without zeros.
    quota: SlotQuota  #: The same at the leaf.
    lease: PlannedLease | None = None  #: The lease that has grown for the claim.
    unbooked: int = 0  #: Slots of this growth that its target lacks so far.
    is_kept: bool = False  #: Waiting beyond its `max_wait`: room is reserved for the claim, and the rest of the round skips it.

    def amounts(self, slots: int) -> dict[FlavorResource, int]:
        """Return the amounts of so many slots."""
        return {key: slots * units for key, units in self.slot.items()}


class PlanningState:
    """Planning state of one round.

    Args:
        settings: Settings by path.
    """

    def __init__(
        self,
        forest: QuotaForest,
        holdings: Iterable[Holding],
        *,
        rules: Rules,
        settings: Mapping[str, QueueSettings],
        now_ms: int,
    ) -> None:
        self.forest = forest
        by_leaf = _Settings({forest.queue_of(path): known for path, known in settings.items() if path in forest.index})
        self.quota = QuotaSnapshot(forest, rules, by_leaf, now_ms=now_ms, is_momentary=True)
        self.ledger, self.shares = self.quota.ledger, self.quota.shares
        self.leases: dict[LeaseKey, PlannedLease] = {}
        self.grown: defaultdict[tuple[MeshId, FlavorName], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._payers: dict[str, PlannedLease] = {}  #: By id of the running work.
        self._grown_claims: list[PlannedDemand] = []  #: Those with growth that is not booked.
        leases = [
            self._add(forest.queue_of(holding.tenant), _PLACE(holding), holding, dict(holding.target))
            for holding in sorted(holdings, key=_PLACE)
        ]
        self.ledger.charge_all((lease.node, lease.key[2], lease.target, 1) for lease in leases)
        self._has_work_listed = False

    def list_work(self) -> None:
        """List the work of all holdings; called before work is looked at, so a round without a search does not pay for it."""
        if self._has_work_listed:
            return
        self._has_work_listed = True
        for lease in self.leases.values():
            if not lease.holding.is_fixed and any(lease.holding.target.values()):
                self.quota.list_later(lease.node, lease.key[2], lease.key[0], partial(self._work_of, lease))

    def _add(self, node: int, key: LeaseKey, holding: Holding, target: dict[str, int]) -> PlannedLease:
        """Add a lease without charging it."""
        mesh, _, flavor = key
        self.leases[key] = lease = PlannedLease(key, node, holding, target, self.grown[mesh, flavor])
        return lease

    def _work_of(self, lease: PlannedLease) -> list[Running]:
        """Return the work that the lease's target covered before the round; the rest of it is idle. Other work is stopping already."""
        holding, flavor = lease.holding, lease.key[2]
        queue, payers, found = self.forest.names[lease.node], self._payers, list[Running]()
        covered, left = _covered(holding)
        for view in covered:
            whole = _running(view, queue, holding)
            for running in (whole,) if view.slots == 1 else _parts(view, whole):
                payers[running.workload.workload] = lease
                found.append(running)
        idle = holding.idle
        unused = left if idle is None else {name: min(units, idle.get(name, 0)) for name, units in left.items()}
        rest = {(flavor, name): units for name, units in unused.items() if units > 0}
        if rest:
            found.append(self._idle(lease, rest))
        return found

    def _list_idle(self, lease: PlannedLease, amounts: Amounts) -> None:
        """List quota that is charged and pays for nothing; it joins what is idle of the lease already."""
        if not amounts:
            return
        known = self.quota.running.get(lease.node, {}).get(_name_of(lease))
        if known is not None:
            amounts = {key: known.amounts.get(key, 0) + amounts.get(key, 0) for key in {*known.amounts, *amounts}}
        self.quota.list_running(self._idle(lease, amounts))

    def _idle(self, lease: PlannedLease, amounts: Amounts) -> Running:
        """Return the idle quota of the lease as work."""
        name, since_ms = _name_of(lease), lease.holding.since_ms
        self._payers[name] = lease
        workload = Workload(workload=name, queue=self.forest.names[lease.node], created_ms=since_ms, priority=_IDLE_PRIORITY)
        return Running(workload=workload, amounts=amounts, since_ms=since_ms, mesh=lease.key[0], is_divisible=True)

    def withdraw_promises(self) -> None:
        """Lower the targets that promise growth beyond reduced limits: nobody could grant it, and it would block the room of its mesh."""
        for lease in self.leases.values():
            for name, units in lease.holding.promised.items():
                beyond = min(units, self.ledger.deficit(lease.node, (lease.key[2], name)))
                if beyond > 0:
                    self.charge(lease.node, {(lease.key[2], name): beyond}, -1)
                    lease.target[name] -= beyond
                    lease.grown[name] -= beyond
                    lease.has_given, lease.reason = True, Reason.QUOTA_REDUCED

    # ---- victims

    def evict(self, victims: Iterable[Victim], reason: Reason) -> None:
        """Remove the victims and lower the targets of their leases."""
        for victim in victims:
            self.quota.remove(victim.running)
            self._lower(victim, reason)

    def lower_for(self, victims: Iterable[Victim]) -> set[int]:
        """Lower the targets of the leases of victims that are removed already; return their leaves."""
        leaves: set[int] = set()
        for victim in victims:
            leaves.add(self._lower(victim, _reason_of(victim)).node)
        return leaves

    def give_back(self, victims: Sequence[Victim], claim: PlannedDemand, needed: Amounts) -> None:
        """Return what the claim does not need, the last victim first: idle quota, and what its own lease gets back with its own victims.

        Args:
            needed: Amounts that the claim was charged.
        """
        demand, payers = claim.demand, self._payers
        own = self.leases.get((demand.mesh, demand.tenant, demand.flavor))
        returning = [one for one in victims if one.running.is_divisible or payers[one.running.workload.workload] is own]
        if not returning:
            return
        self.charge(claim.node, needed, -1)
        for victim in reversed(returning):
            room = self.grown_room(claim) if demand.is_crowded else {}
            free = {key: min(self.ledger.room(claim.node, key), room.get(key, AMOUNT_MAX)) - units for key, units in needed.items()}
            self._return(victim, {key: min(units, free.get(key, units)) for key, units in victim.running.amounts.items()})
        self.charge(claim.node, needed)

    def give_back_all(self, victims: Iterable[Victim]) -> None:
        """Return the idle quota of victims that fits within the limits, the last victim first."""
        for victim in reversed(list(victims)):
            if victim.running.is_divisible:
                node = self.quota.node_of(victim.running)
                self._return(victim, {key: min(units, self.ledger.available(node, key)) for key, units in victim.running.amounts.items()})

    def _return(self, victim: Victim, amounts: Amounts) -> None:
        kept = {key: units for key, units in amounts.items() if units > 0}
        lease = self._payers[victim.running.workload.workload]
        self.charge(lease.node, kept)
        self._list_idle(lease, kept)
        for (_, name), units in kept.items():
            lease.target[name] += units
            lease.grown[name] += units

    def _lower(self, victim: Victim, reason: Reason) -> PlannedLease:
        """Lower the target of the victim's lease, and return the lease."""
        running = victim.running
        lease = self._payers[running.workload.workload]
        for (_, name), units in running.amounts.items():
            lease.target[name] -= units
            lease.grown[name] -= units
        lease.has_given = True
        if _GRAVITY.get(reason, 0) >= _GRAVITY.get(lease.reason, 0):
            lease.reason = reason
        if running.claim:
            lease.victims[running.claim] = None
        return lease

    def drain(self, lease: PlannedLease) -> None:
        """Lower the target to nothing."""
        for running in [running for running in self.quota.work_of(lease.node) if self._payers[running.workload.workload] is lease]:
            self.quota.remove(running)
            for (_, name), units in running.amounts.items():
                lease.target[name] -= units
                lease.grown[name] -= units
        rest = {(lease.key[2], name): units for name, units in lease.target.items()}  # Promised, or of stages that are stopping.
        self.charge(lease.node, rest, -1)
        for name, units in lease.target.items():
            lease.grown[name] -= units
        lease.target.clear()
        lease.has_given, lease.reason = True, Reason.TENANT_DRAINED

    # ---- claims

    def claim(self, demand: PlannerDemand) -> PlannedDemand:
        """Return the claim of the demand.

        Raises:
            UnknownTenant: The forest lacks the demand's tenant.
        """
        slot = {(demand.flavor, name): units for name, units in demand.slot.items() if units}
        least = min(demand.slots, demand.slots_min)
        node = self.forest.queue_of(demand.tenant)
        return PlannedDemand(demand, node, demand.slots, least, slot, SlotQuota(self.ledger, node, slot))

    def raise_for(self, claim: PlannedDemand, slots: int, reason: Reason) -> None:
        """Grow the claim's lease by so many slots; make the lease if there is none."""
        claim.quota.charge(slots)
        self.quota.rows.note(claim.node)
        self.give(claim, slots, reason)

    def raise_unopposed(self, claims: Iterable[PlannedDemand], reason: Reason) -> list[PlannedDemand]:
        """Meet all demands of a flavor in one tree if only the leaves' own limits can oppose them; return the claims that are left.

        The check charges all demands at once. If no limit above a leaf is exceeded, the order of the claims makes no difference; only
        claims of leaves that exceed their own limits are left. Otherwise all claims of the flavor in this tree are left. All are left as
        well if one of them wants a full mesh, since room there is given claim by claim.
        """
        rivals: defaultdict[tuple[int, FlavorName], list[PlannedDemand]] = defaultdict(list)
        for claim in claims:
            rivals[self.forest.root(claim.node), claim.demand.flavor].append(claim)
        return [claim for (root, _), some in rivals.items() for claim in self._opposed(root, some, reason)]

    def _opposed(self, root: int, claims: list[PlannedDemand], reason: Reason) -> list[PlannedDemand]:
        """Return the claims of one flavor in one tree that are left."""
        if any(claim.demand.is_crowded for claim in claims) or self._are_too_many(root, claims):
            return claims
        self._charge_all(claims, 1)
        wanted = {(claim.node, key) for claim in claims for key in claim.slot}
        is_room_above = all(self._is_within_limits(node, key) for node, key in {(self.forest.parents[node], key) for node, key in wanted})
        if is_room_above:
            wanted = {(node, key) for node, key in wanted if self._has_limits(node, key) and not self._is_within_limits(node, key)}
        leaves = {node for node, _ in wanted}
        left = [claim for claim in claims if claim.node in leaves]
        self._charge_all(left, -1)
        for claim in claims:
            if claim.node not in leaves:
                self.give(claim, claim.slots, reason)
            elif is_room_above and (slots := self.slots_free(claim)) >= claim.least:
                self.raise_for(claim, slots, reason)
        return [claim for claim in left if claim.slots]

    def _are_too_many(self, root: int, claims: Sequence[PlannedDemand]) -> bool:
        """Return whether the root has too little for the claims that would reach it in full."""
        wanted: defaultdict[FlavorResource, int] = defaultdict(int)
        ledger, keys = self.ledger, {key for claim in claims for key in claim.slot}
        narrow = {key: self.forest.rows(key).narrow for key in keys if not ledger.passes_on((key,))}
        for claim in claims:
            for key, units in claim.slot.items():
                if root != claim.node and not (key in narrow and narrow[key][claim.node]):
                    wanted[key] += claim.slots * units
        return any(units > ledger.room(root, key) for key, units in wanted.items())

    def _charge_all(self, claims: Sequence[PlannedDemand], times: int) -> None:
        """Charge all demands, `times` times."""
        self.ledger.charge_all((claim.node, claim.demand.flavor, claim.demand.slot, claim.slots * times) for claim in claims)
        for node in {claim.node for claim in claims}:
            self.quota.rows.note(node)

    def _has_limits(self, leaf: int, key: FlavorResource) -> bool:
        """Return whether the leaf can exceed its limits while its parent does not."""
        return self.forest.parents[leaf] < 0 or leaf in self.forest.rows(key).narrow[leaf]

    def _is_within_limits(self, node: int, key: FlavorResource) -> bool:
        return node < 0 or self.ledger.is_within_limits(node, (key,))

    def give(self, claim: PlannedDemand, slots: int, reason: Reason) -> None:
        """Grow the claim's lease by slots that are charged already; make the lease if there is none."""
        demand, lease = claim.demand, claim.lease
        if lease is None:
            key = demand.mesh, demand.tenant, demand.flavor
            claim.lease = lease = self.leases.get(key) or self._add(claim.node, key, _UNHELD, {})
        if not claim.unbooked:
            self._grown_claims.append(claim)
        claim.unbooked += slots
        if not lease.has_given:  # Otherwise the reason of the lowering stays, since it decides whether work may continue for a while.
            lease.reason = reason
        lease.has_grown = True
        claim.slots = left = claim.slots - slots
        if left < demand.slots_min:
            claim.least = left

    def _book(self) -> None:
        """Add the growth since the last call to targets and rooms. A claim grows portion by portion, and few rounds look in between."""
        for claim in self._grown_claims:
            slots, claim.unbooked = claim.unbooked, 0
            assert claim.lease is not None  # noqa: S101  it has grown
            target, grown = claim.lease.target, claim.lease.grown
            for name, units in claim.demand.slot.items():
                more = slots * units
                target[name] = target.get(name, 0) + more
                grown[name] += more
        self._grown_claims.clear()

    def charge(self, node: int, amounts: Mapping[FlavorResource, int], times: int = 1) -> None:
        """Charge the amounts to the leaf, `times` times, whichever lease holds them."""
        self.ledger.charge(node, amounts, times)
        self.quota.rows.note(node)

    def grown_room(self, claim: PlannedDemand) -> dict[FlavorResource, int]:
        """Return the room that a crowded mesh has for the claim, with what this round has freed and given there."""
        self._book()
        demand, grown = claim.demand, self.grown[claim.demand.mesh, claim.demand.flavor]
        return {key: max(0, demand.free.get(key[1], 0) - grown[key[1]]) for key in claim.slot}

    def slots_free(self, claim: PlannedDemand) -> int:
        """Return how many of the missing slots have free quota."""
        return claim.quota.free(claim.slots)

    def slots_in_room(self, claim: PlannedDemand) -> int:
        """Return how many of the missing slots the mesh has room for, beside the growth of leases there in this round."""
        demand = claim.demand
        if demand.room is None:
            return claim.slots
        self._book()
        grown = self.grown[demand.mesh, demand.flavor]
        return max(0, min([claim.slots, *((demand.room.get(name, 0) - grown[name]) // units for (_, name), units in claim.slot.items())]))

    def slots_of_own(self, claim: PlannedDemand) -> int:
        """Return how many of the missing slots the tenant's own quota covers, even where others have borrowed it."""
        return claim.quota.own(claim.slots)

    def targets(self) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
        """Return the targets of all changed leases: those that lose some resource, and those that only grow.

        The first list includes a drained tenant's lease that is already shrinking, since the ledger may have given it time that it no
        longer has.
        """
        self._book()
        lowered: list[Target] = []
        raised: list[Target] = []
        for lease in self.leases.values():
            if not lease.has_grown and not lease.has_given:
                continue
            before, after = _without_zeros(lease.holding.target), _without_zeros(lease.target)
            is_hurried = lease.reason is Reason.TENANT_DRAINED and lease.holding.is_giving
            if after != before or is_hurried or lease.victims:
                has_less = is_hurried or (lease.has_given and any(after.get(name, 0) < units for name, units in before.items()))
                side = lowered if has_less else raised
                side.append(Target(*lease.key, after, lease.reason, tuple(lease.victims)))
        return tuple(lowered), tuple(raised)


def _without_zeros(units: Units) -> Units:
    return units if 0 not in units.values() else {name: amount for name, amount in units.items() if amount}


def _covered(holding: Holding) -> tuple[Sequence[RunningView], dict[str, int]]:
    """Return the work of a lease that its target covers, and the rest of the target.

    If it does not cover all, the stages come first that the mesh would stop last.
    """
    left = dict(holding.target)
    for view in holding.running:
        for name, units in view.amounts.items():
            left[name] = left.get(name, 0) - units
    if not left or min(left.values()) >= 0:
        return holding.running, left
    left, covered = dict(holding.target), list[RunningView]()
    for view in sorted(holding.running, key=lambda view: (view.is_leaving, -view.priority, view.token)):
        if all(units <= left.get(name, 0) for name, units in view.amounts.items()):
            covered.append(view)
            for name, units in view.amounts.items():
                left[name] -= units
    return covered, left


def _name_of(lease: PlannedLease) -> str:
    """Return the name of the lease's idle quota as work."""
    return "|".join(lease.key)


def _running(view: RunningView, queue: str, holding: Holding) -> Running:
    flavor = view.flavor
    amounts = {(flavor, name): units for name, units in view.amounts.items()}
    # By position, since keywords take twice as long.
    workload = Workload(view.stage, queue, view.created_ms, (), view.priority)
    rest = NO_COUNTS, view.mesh, view.token, holding.since_ms, holding.is_protected
    return Running(workload, amounts, view.since_ms, view.saved_ms, view.is_leaving, *rest)


def _parts(view: RunningView, whole: Running) -> Iterator[Running]:
    """Yield the parts of a running stage that its mesh can take back one by one."""
    parts = parts_of(view.slots)
    for number, slots in enumerate(parts):
        amounts = {(view.flavor, name): units for name, units in view.amounts_of(slots).items()}
        yield whole._replace(workload=whole.workload._replace(workload=f"{view.stage}#{number:02}"), amounts=amounts)


def _reason_of(victim: Victim) -> Reason:
    return victim.reason if victim.reason is Reason.PREEMPTED_WITHIN_TENANT else Reason.QUOTA_RECLAIMED
