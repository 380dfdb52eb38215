"""The planner: the share of each tenant over all meshes, as targets for their leases.

A round sees all leases, the work that they pay for, and all demands at one instant. It gives free quota in the order of the rules, and
reclaims quota by stopping work that the rules let a claimant preempt. Both are targets only: the ledger grows a lease when there is room,
and shrinks a lease when its mesh has released the quota. No other tenant can take quota freed for a claim, since no other target rises.
Two planners at once waste work and break nothing: the ledger compares versions and checks every sum again.

The order: first the demands that tenants' own quotas cover, the most urgent first, with reclaim where others have borrowed. Then the
quota that may be borrowed: with fair sharing to the claim with the least dominant share, otherwise to the one that borrows from the lowest
subtree, then by priority (`federation.quota.order`). `federation.quota.preemption` chooses the victims. On a full mesh, missing room comes
from work on this mesh first; then missing quota comes from any work.

Two tenants cannot take from each other for ever. An entitled claimant takes only borrowed quota and is within its own quota afterwards.
Of two borrowers, the preemptor ends below what the victim had, or it is more urgent. Within a tenant (priority, age) decides strictly.

Source: ADR 0018, ADR 0036; Kueue's scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from federation.planning.planning_state import PlannedDemand, PlanningState
from federation.planning.values import Holding, Plan, PlannerDemand, Unmet
from federation.planning.victim_search import VictimSearch
from federation.quota.forest import QuotaForest
from federation.quota.order import Head, ShareOrder
from federation.quota.past_use import NO_PAST, PastUse
from federation.quota.policies import MESH, QueueSettings, Rules, Stop
from federation.quota.preemption.quota_reductions import reduction_victims
from federation.tenants import FlavorResource
from mesh.core.reasons import Reason
from mesh.core.resources import format_units

#: Each pick gives a claim a quarter of its missing slots, so that others of the same share get theirs beside it.
PORTIONS = 4
_NO_SETTINGS: Mapping[str, QueueSettings] = {}


def plan(
    forest: QuotaForest,
    holdings: Iterable[Holding],
    demands: Iterable[PlannerDemand],
    *,
    now_ms: int,
    rules: Rules = MESH,
    settings: Mapping[str, QueueSettings] = _NO_SETTINGS,
    past: PastUse = NO_PAST,
    with_young: bool = False,
) -> Plan:
    """Return the targets of all leases that have to change.

    Args:
        forest: The tenants' limits and weights.
        holdings: Every lease with something held or promised, one per (mesh, tenant, flavor).
        demands: Demand beyond the holdings; any number per (mesh, tenant, flavor).
        now_ms: On the ledger's clock, as are all times of holdings and demands.
        rules: Order, strategies, minimum run time, weighing of lost work.
        settings: Settings by path. A tenant without settings reclaims from any borrower and preempts its own less urgent work.
        past: Past use of the tenants, by leaves of the forest.
        with_young: Explain unmet demands that wait only for victims within their minimum run time. This doubles the cost of an unmet
            demand, and is for people.

    Raises:
        UnknownTenant: A holding or a demand names a tenant that is not in the forest.
    """
    planning_state = PlanningState(forest, holdings, rules=rules, settings=settings, now_ms=now_ms)
    stopped = _Stopped(forest, settings)
    if settings:
        planning_state.list_work()  # Tenants may be drained, or evict work after a quota reduction.
    planning_state.withdraw_promises()
    _drain(planning_state, stopped)
    _reduce(planning_state)
    return _Round(planning_state, settings, past, with_young=with_young).run(demands, stopped)


class _Stopped:
    """Tenants that admit nothing new: stopped tenants, and all tenants below them."""

    def __init__(self, forest: QuotaForest, settings: Mapping[str, QueueSettings]) -> None:
        self._forest = forest
        self._own = {tenant: known.stop for tenant, known in settings.items() if known.stop is not Stop.NONE}

    @property
    def is_any(self) -> bool:
        """Whether any tenant is stopped."""
        return bool(self._own)

    def of(self, tenant: str) -> Stop:
        """Return the stop that is in force for the tenant; a drain anywhere above outranks a hold."""
        if not self._own:
            return Stop.NONE
        above = {self._own.get(self._forest.tenant_of(node), Stop.NONE) for node in self._forest.paths[self._forest.queue_of(tenant)]}
        return Stop.DRAIN if Stop.DRAIN in above else Stop.HOLD if Stop.HOLD in above else Stop.NONE


def _drain(planning_state: PlanningState, stopped: _Stopped) -> None:
    for lease in planning_state.leases.values() if stopped.is_any else ():
        if stopped.of(lease.key[1]) is Stop.DRAIN and not lease.holding.is_fixed:
            planning_state.drain(lease)


def _reduce(planning_state: PlanningState) -> None:
    """Evict the work above reduced limits of tenants that chose eviction; leave the other tenants to reclaim."""
    victims = reduction_victims(planning_state.quota)
    planning_state.evict(victims, Reason.QUOTA_REDUCED)
    planning_state.give_back_all(victims)


class _Round:
    def __init__(self, planning_state: PlanningState, settings: Mapping[str, QueueSettings], past: PastUse, *, with_young: bool) -> None:
        self._planning_state = planning_state
        self._quota = planning_state.quota
        self._search = VictimSearch(planning_state)
        self._settings = settings
        self._past = past
        self._with_young = with_young
        self._unmet: list[Unmet] = []

    def run(self, demands: Iterable[PlannerDemand], stopped: _Stopped) -> Plan:
        claims: list[PlannedDemand] = []
        for demand in demands:
            stop = stopped.of(demand.tenant)
            if stop is not Stop.NONE:
                reason = Reason.TENANT_DRAINED if stop is Stop.DRAIN else Reason.TENANT_SUSPENDED
                self._unmet.append(
                    Unmet(demand=demand, slots=demand.slots, reason=reason, detail=f"tenant {demand.tenant} admits no new work")
                )
            else:
                claims.append(self._planning_state.claim(demand))
        claims.sort(key=_urgency)
        kept = self._serve_overdue(claims)
        for claim in claims:
            self._cover(claim)
        self._lend([claim for claim in claims if claim.slots])
        for claim, amounts in kept:
            self._planning_state.charge(claim.node, {key: -units for key, units in amounts.items()})
        lowered, raised = self._planning_state.targets()
        return Plan(lowered=lowered, raised=raised, unmet=tuple(self._unmet))

    def _serve_overdue(self, claims: list[PlannedDemand]) -> list[tuple[PlannedDemand, Mapping[FlavorResource, int]]]:
        """Serve one slot of each tree's longest overdue claim (beyond its `max_wait`) first; reserve its room if the slot does not fit.

        On a full mesh a reservation of quota does not help. A claim there is first in the order of reclaim on that mesh; if reclaim
        fails, the next overdue claim is tried.
        """
        kept: list[tuple[PlannedDemand, Mapping[FlavorResource, int]]] = []
        if not self._settings:
            return kept  # No tenant has a longest wait.
        seen: set[int] = set()
        overdue = sorted((claim for claim in claims if self._is_overdue(claim.demand)), key=lambda claim: _urgency(claim)[1:])
        for claim in overdue:
            root = self._planning_state.forest.root(claim.node)
            if root in seen or not claim.slots:
                continue
            if claim.demand.is_crowded:
                seen.update({root} if self._reclaim(claim, claim.least) else ())
                continue
            seen.add(root)
            if self._planning_state.slots_free(claim) >= claim.least:
                self._planning_state.raise_for(claim, claim.least, Reason.QUOTA_FREE)
            elif not self._reclaim(claim, claim.least) and self._could_hold(claim):
                amounts = claim.amounts(claim.least)
                self._planning_state.charge(claim.node, amounts)
                kept.append((claim, amounts))
                claim.is_kept = True
                self._unmet.append(self._explain(claim))
        claims[:] = [claim for claim in claims if not claim.is_kept]
        return kept

    def _is_overdue(self, demand: PlannerDemand) -> bool:
        known = self._settings.get(demand.tenant)
        return known is not None and known.max_wait_ms is not None and self._quota.now_ms - demand.since_ms >= known.max_wait_ms

    def _could_hold(self, claim: PlannedDemand) -> bool:
        slots = claim.demand.slots_min
        return all(self._planning_state.forest.rows(key).potential[claim.node] >= slots * units for key, units in claim.slot.items())

    def _cover(self, claim: PlannedDemand) -> None:
        """Give the slots that the tenant's own quota covers; reclaim the part that others have borrowed."""
        own = min(claim.slots, self._planning_state.slots_of_own(claim))
        if own < claim.least:
            return
        free = 0 if claim.demand.is_crowded else min(own, self._planning_state.slots_free(claim))
        if free >= claim.least:
            self._planning_state.raise_for(claim, free, Reason.QUOTA_FREE)
            own -= free
        if own >= max(1, claim.least):
            self._reclaim(claim, own)

    def _lend(self, claims: list[PlannedDemand]) -> None:
        """Lend: in full where there is enough for all, otherwise in the order of the rules."""
        opposed = self._planning_state.raise_unopposed(claims, Reason.QUOTA_FREE)
        if self._quota.rules.fair_sharing:
            self._lend_by_shares(opposed)
        else:
            for claim in sorted(opposed, key=self._level):
                slots = min(claim.slots, self._planning_state.slots_free(claim))
                if slots >= claim.least and not claim.demand.is_crowded:
                    self._planning_state.raise_for(claim, slots, Reason.QUOTA_FREE)
                if claim.slots:
                    self._reclaim(claim, claim.slots)
                if claim.slots:
                    self._unmet.append(self._explain(claim))

    def _level(self, claim: PlannedDemand) -> tuple[object, ...]:
        """Return the classical order: the lowest subtree that holds a slot, past use, urgency."""
        ledger = self._quota.ledger
        level = max((ledger.height_that_holds(claim.node, key, units)[0] for key, units in claim.slot.items()), default=0)
        return level, self._past.of(claim.node), *_urgency(claim)

    def _lend_by_shares(self, claims: list[PlannedDemand]) -> None:
        """Lend portion by portion, each to the claim with the least share."""
        lines: defaultdict[int, list[PlannedDemand]] = defaultdict(list)
        for claim in reversed(claims):  # The most urgent last.
            lines[claim.node].append(claim)
        order = ShareOrder(self._quota, [_head(line[-1]) for line in lines.values()], self._past)
        while (head := order.next()) is not None:
            claim = head.item
            line, least, portion = lines[head.queue], claim.least, -(-claim.slots // PORTIONS)
            slots = 0 if claim.demand.is_crowded else claim.quota.free(portion if portion > least else least)  # noqa: FURB136
            leaves: Collection[int] = ()
            if slots and slots >= least:
                self._planning_state.raise_for(claim, slots, Reason.QUOTA_FREE)
            else:
                leaves = self._reclaim(claim, claim.slots)
                if claim.slots:
                    self._unmet.append(self._explain(claim))
                    claim.slots = 0
            if not claim.slots:
                line.pop()
            is_same = bool(claim.slots) and claim.least == least
            order.settle(head, head if is_same else _head(line[-1]) if line else None)
            if leaves:
                order.refresh(leaves)

    def _reclaim(self, claim: PlannedDemand, slots: int) -> set[int]:
        """Reclaim as many of these slots as possible, if at least the fewest that are of use; return the leaves that lose quota.

        The first attempt is for all slots. If that is too many, each further attempt is for half of the rest: with fewer slots the
        claimant's share is lower, and more work has a greater one. Nothing is reclaimed for slots whose room on the mesh has gone to
        another claim.
        """
        leaves: set[int] = set()
        ask = slots = min(slots, self._planning_state.slots_in_room(claim))
        if slots >= max(1, claim.least) and self._search.is_hopeless(claim, slots):
            return leaves
        while slots >= max(1, claim.least):
            victims = self._search.make_room(claim, ask)
            if victims is None:
                slots = ask - 1
            else:
                slots -= ask
                leaves |= self._planning_state.lower_for(victims)
                self._planning_state.give_back(victims, claim, claim.amounts(ask))
                self._planning_state.give(claim, ask, Reason.QUOTA_FREED)
            ask = max(claim.least, -(-slots // 2))
        return leaves

    def _explain(self, claim: PlannedDemand) -> Unmet:
        demand = claim.demand
        for key, units in claim.slot.items():
            most = self._planning_state.forest.rows(key).potential[claim.node]
            if most < units * demand.slots_min:
                detail = f"the limits of {demand.tenant} allow at most {format_units(key[1], most)} {key[1]} of {demand.flavor}"
                return Unmet(demand=demand, slots=claim.slots, reason=Reason.QUOTA_TOO_SMALL, detail=detail)
        if demand.is_crowded and any(units > demand.free.get(name, 0) for name, units in demand.slot.items()):
            detail = f"mesh {demand.mesh} is full, and no work there may be preempted for {demand.tenant}{self._not_yet(claim)}"
            return Unmet(demand=demand, slots=claim.slots, reason=Reason.POOL_BUSY, detail=detail)
        if self._planning_state.slots_in_room(claim) < 1:
            detail = f"claims before {demand.tenant} take all the room of mesh {demand.mesh}"
            return Unmet(demand=demand, slots=claim.slots, reason=Reason.POOL_BUSY, detail=detail)
        left = ", ".join(
            f"{format_units(key[1], self._planning_state.ledger.available(claim.node, key))} {key[1]}" for key in sorted(claim.slot)
        )
        detail = f"{demand.tenant} has {left} of {demand.flavor} left, and no work may be preempted for it{self._not_yet(claim)}"
        return Unmet(demand=demand, slots=claim.slots, reason=Reason.QUOTA_EXHAUSTED, detail=detail)

    def _not_yet(self, claim: PlannedDemand) -> str:
        """Return the end of the sentence that no work may be preempted."""
        if not self._with_young or not self._search.needs_the_young(claim):
            return ""
        return " yet: candidates are within their `min_run`"


def _urgency(claim: PlannedDemand) -> tuple[int, int, str, str, str]:
    demand = claim.demand
    return -demand.priority, demand.created_ms or demand.since_ms, demand.mesh, demand.tenant, demand.flavor


def _head(claim: PlannedDemand) -> Head[PlannedDemand]:
    demand = claim.demand
    return Head(
        queue=claim.node,
        amounts=claim.amounts(max(1, claim.least)),
        priority=demand.priority,
        created_ms=demand.created_ms or demand.since_ms,
        name=f"{demand.mesh}|{demand.tenant}|{demand.flavor}",
        item=claim,
    )
