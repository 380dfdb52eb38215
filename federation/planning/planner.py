"""The planner: the share of each tenant over all meshes, as targets for their leases.

A round sees all leases and all wants at one instant. The round gives free quota in fair order, and reclaims borrowed quota for tenants
that are entitled to more. Both are targets only: the ledger grows a lease when there is room, and shrinks a lease when its mesh has
released the quota. No other tenant can take quota freed for a claim, since no other target rises. Two planners at once waste work and
break nothing: the ledger compares versions and checks every sum again.

The order: first the wants that tenants' own quotas cover, the most urgent first, with reclaim where others have borrowed. Then,
priority by priority, the quota that may be borrowed, each time to the claim with the least dominant share, or the least past use where
past use counts (`tournament` explains how both combine).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from federation.planning.planning_state import PlannedDemand, PlanningState
from federation.planning.reclaim_candidates import ReclaimCandidates
from federation.planning.reclaiming import Reclaiming
from federation.planning.tournament import Tournament
from federation.planning.values import Holding, Plan, PlannerDemand, Unmet
from federation.quota.forest import QuotaForest
from federation.quota.past_use import NO_PAST, PastUse
from federation.quota.policies import MESH, OnQuotaReduction, QueueSettings, Rules, Stop
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
    tells_young: bool = False,
) -> Plan:
    """Return the targets of all leases that have to change.

    Args:
        forest: The tenants' limits and weights.
        holdings: Every lease with something held or promised, one per (mesh, tenant, flavor).
        wants: Demand beyond the holdings; any number per (mesh, tenant, flavor).
        now_ms: On the ledger's clock, as are all times of holdings and wants.
        rules: Minimum run time, shares, weighing of lost work.
        settings: Settings by path, of tenants that are held or drained, are evicted on a quota reduction, or have a longest wait.
        past: Past use of the tenants, by leaves of the forest.
        tells_young: Explain unmet wants that wait only for victims within their minimum run time. This doubles the cost of an unmet want,
            and is for people.

    Raises:
        UnknownTenant: A holding or a want names a tenant that is not in the forest.
    """
    planning_state = PlanningState(forest, holdings, keeps_local=rules.keeps_local)
    stopped = _Stopped(forest, settings)
    reclaim_candidates = ReclaimCandidates(planning_state, rules, now_ms, settings)
    _drain(planning_state, stopped)
    _cut(planning_state, reclaim_candidates, settings)
    return _Round(
        planning_state, Reclaiming(planning_state, rules, reclaim_candidates, settings), settings, now_ms, past, tells_young=tells_young
    ).run(demands, stopped)


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
        if stopped.of(lease.key[1]) is Stop.DRAIN:
            planning_state.lower(lease, dict(lease.target))
            lease.reason = Reason.TENANT_DRAINED


def _cut(planning_state: PlanningState, reclaim_candidates: ReclaimCandidates, settings: Mapping[str, QueueSettings]) -> None:
    """Evict the part above reduced limits, per resource, of tenants that chose eviction; leave the other tenants to reclaim."""
    choice = {tenant for tenant, known in settings.items() if known.on_quota_reduction is OnQuotaReduction.EVICT}
    by_choice = (
        [lease for lease in planning_state.leases.values() if lease.key[1] in choice and not lease.holding.is_fixed] if choice else ()
    )
    for lease in sorted(by_choice, key=lambda lease: reclaim_candidates.rank(lease, planning_state.forest.root(lease.node))):
        above = {name: min(units, planning_state.ledger.deficit(lease.node, (lease.key[2], name))) for name, units in lease.target.items()}
        if any(above.values()):
            planning_state.lower(lease, above)
            lease.reason = Reason.QUOTA_REDUCED


class _Round:
    def __init__(
        self,
        planning_state: PlanningState,
        reclaiming: Reclaiming,
        settings: Mapping[str, QueueSettings],
        now_ms: int,
        past: PastUse,
        *,
        tells_young: bool,
    ) -> None:
        self._planning_state = planning_state
        self._reclaiming = reclaiming
        self._settings = settings
        self._now_ms = now_ms
        self._past = past
        self._with_the_young = reclaiming.with_the_young() if tells_young else None
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
        equals: defaultdict[int, list[PlannedDemand]] = defaultdict(list)  # The most urgent first, in the order of the claims.
        for claim in claims:
            if claim.slots:
                equals[claim.demand.priority].append(claim)
        for some in equals.values():
            self._lend(some)
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
        return known is not None and known.max_wait_ms is not None and self._now_ms - demand.since_ms >= known.max_wait_ms

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
        """Lend among claims of one priority: in full, or pick by pick where there is not enough for all."""
        opposed = self._planning_state.raise_unopposed(claims, Reason.QUOTA_FREE)
        tournament = Tournament(self._planning_state, opposed, self._past, is_by_shares=self._reclaiming.rules.fair_sharing)
        while (claim := tournament.next()) is not None:
            slots = min(self._planning_state.slots_free(claim), max(claim.least, -(-claim.slots // PORTIONS)))
            if slots >= claim.least and not claim.demand.is_crowded:
                self._planning_state.raise_for(claim, slots, Reason.QUOTA_FREE)
                tournament.settle(claim, is_over=claim.slots == 0)
            else:
                victim_leases = self._reclaim(claim, claim.slots)
                if claim.slots:
                    self._unmet.append(self._explain(claim))
                tournament.settle(claim, is_over=True)
                tournament.refresh(victim_leases)

    def _reclaim(self, claim: PlannedDemand, slots: int) -> set[int]:
        """Reclaim as many of these slots as possible, if at least the fewest that are of use; return the leaves that lose quota.

        The first attempt is for all slots. If that is too many, each further attempt is for half of the rest: with fewer slots the
        claimant's share is lower, and more leases have a greater one. Nothing is reclaimed for slots whose room on the mesh has gone to
        another claim.
        """
        leaves: set[int] = set()
        ask = slots = min(slots, self._reclaiming.most(claim), self._planning_state.slots_in_room(claim))
        while slots >= max(1, claim.least):
            freed, victim_leases = self._reclaiming.free(claim, ask)
            slots = slots - freed if freed == ask else ask - freed - 1
            if freed:
                for lease in victim_leases:
                    if lease.reason is not Reason.QUOTA_REDUCED:  # No part of a quota reduction may wait.
                        lease.reason = Reason.QUOTA_RECLAIMED
                    leaves.add(lease.node)
                self._planning_state.raise_for(claim, freed, Reason.QUOTA_FREED)
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
        if self._with_the_young is None or not self._with_the_young.needs_the_young(claim):
            return ""
        return " yet: candidates are within their `min_run`"


def _urgency(claim: PlannedDemand) -> tuple[int, int, str, str, str]:
    demand = claim.demand
    return -demand.priority, demand.since_ms, demand.mesh, demand.tenant, demand.flavor
