"""Choice of victims for a claim, and how much each gives.

A claimant within the quota of a subtree is entitled to the part of it that others outside have borrowed; the nearest common ancestor
comes first. A claimant that borrows may take from a borrower of a greater share, while the claimant's share stays at or below the share
that the other is left with. Without fair sharing a borrowing claimant takes only from less urgent work, and only if its tenant's policy
(`borrow`) says so. Reclaim never takes a node between a lease and the common ancestor below its own quota, except for more urgent work of
the same tenant. `reclaim_candidates` decides the order. On a full mesh, missing room comes from leases of this mesh first; then missing
quota
comes from any lease.

Two tenants cannot take from each other for ever. An entitled claimant takes only borrowed quota and is within its own quota afterwards.
Of two borrowers, the taker never ends above the giver, or the taker is more urgent. The giver's remaining share is counted after its work
has stopped: a lease that gives half of one resource loses half of all others, too. Equal shares are compared by the other resources;
otherwise two tenants with the same dominant share would exchange the rest for ever. Leases do not show the size of single stages. If a
stage is much larger than the reclaimed part, and a tenant holds leases on several meshes, three or more tenants can still take from each
other in a cycle, each only after the minimum run time.

Source: the lease protocol's order of reclaim; Kueue's reclaim within a cohort, its `borrowWithinCohort` and final-share strategy;
ADR 0018.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise

from federation.planning.planning_state import PlannedDemand, PlannedLease, PlanningState
from federation.planning.reclaim_candidates import ReclaimCandidates, Way
from federation.planning.values import Units
from federation.quota.policies import PreemptionMode, QueueSettings, Rules
from federation.tenants import FlavorResource
from mesh.core.ids import MeshId

_Amounts = Mapping[FlavorResource, int]
_Taken = list[tuple[PlannedLease, dict[str, int]]]
_Question = tuple[int, int, MeshId | None, tuple[tuple[FlavorResource, int], ...]]  #: Leaf, priority, the mesh if it is full, amounts.


@dataclass(slots=True)
class _Claimant:
    """A claimant that borrows, and takes by share."""

    node: int  #: The claimant's node right below the common ancestor.
    needed: Units  #: Amounts of the flavor.
    share: int  #: Share including all that it needs.
    ranks: list[int] = field(default_factory=list)  #: The shares of every resource; computed on first use.


#: A victim; the nodes that stay at or above their own quota, up to the one right below the common ancestor; and the taker, whose share
#: must not exceed the last node's. None: shares do not matter.
_VictimLease = tuple[PlannedLease, Way, _Claimant | None]


@dataclass(slots=True)
class Reclaiming:
    """Reclaim over the planning state of one round."""

    planning_state: PlanningState
    rules: Rules
    reclaim_candidates: ReclaimCandidates
    settings: Mapping[str, QueueSettings]  #: By path. For a tenant without settings, `reclaim` takes from any work.
    #: Claims for which reclaim failed in this round; equal claims fail as well, since targets only rise afterwards.
    _unsatisfiable: set[_Question] = field(default_factory=set)

    def free(self, claim: PlannedDemand, slots: int) -> tuple[int, tuple[PlannedLease, ...]]:
        """Lower others' targets until so many slots fit, or as many of them as possible.

        If fewer fit, each victim keeps no less than the claimant would have with all of them; a further call for fewer slots may get the
        rest. On a full mesh it is all slots or none.

        Returns:
            The number of slots, and the victims' leases, some perhaps twice.
        """
        needed = claim.amounts(slots)
        mesh = claim.demand.mesh if claim.demand.is_crowded else None
        question = _question(claim, needed)
        if question in self._unsatisfiable:
            return 0, ()
        taken: _Taken = []
        if (mesh is not None and not self._makes_room(claim, needed, taken)) or not self._frees_quota(claim, needed, taken):
            slots = self.planning_state.slots_free(claim) if mesh is None else 0
            slots = slots if slots >= claim.least else 0
            self._put_back(claim, slots, taken)
        if slots and (taken or mesh is not None):  # If the mesh has room after all, no victim is needed.
            return slots, tuple([lease for lease, part in taken if any(part.values())])
        self._unsatisfiable.add(question)
        return 0, ()

    def with_the_young(self) -> Reclaiming:
        """Return the same with leases within their minimum run time."""
        return Reclaiming(self.planning_state, self.rules, self.reclaim_candidates.of_any_age(), self.settings)

    def needs_the_young(self, claim: PlannedDemand) -> bool:
        """Return whether the fewest useful slots need a victim within its minimum run time. All targets stay as they are."""
        slots = max(1, claim.least)
        needed = claim.amounts(slots)
        question = _question(claim, needed)
        if question in self._unsatisfiable or slots > min(self.most(claim), self.planning_state.slots_in_room(claim)):
            return False
        taken: _Taken = []
        is_enough = (not claim.demand.is_crowded or self._makes_room(claim, needed, taken)) and self._frees_quota(claim, needed, taken)
        for lease, part in reversed(taken):
            self.planning_state.lower(lease, {name: -units for name, units in part.items()})
        if not is_enough:
            self._unsatisfiable.add(question)
        return is_enough and any(self.reclaim_candidates.is_too_young(lease) for lease, _ in taken)

    def _put_back(self, claim: PlannedDemand, slots: int, taken: _Taken) -> None:
        """Undo what these slots do not need; the last victim gets its part back first."""
        room = self.planning_state.ledger.room
        for lease, part in reversed(taken):
            back = dict(part)
            for key, units in claim.slot.items() if slots else ():
                back[key[1]] = min(part.get(key[1], 0), room(claim.node, key) - slots * units)
            self.planning_state.lower(lease, {name: -units for name, units in back.items()})
            for name, units in back.items():
                part[name] = part.get(name, 0) - units

    def most(self, claim: PlannedDemand) -> int:
        """Return the most slots that reclaim can free, since no victim lifts the claimant's own limits."""
        if claim.demand.is_crowded or self._less_urgent(claim):
            return claim.slots
        return self.planning_state.slots_free(claim, 1)

    def _makes_room(self, claim: PlannedDemand, needed: _Amounts, taken: _Taken) -> bool:
        """Reclaim missing room from leases of the same mesh; return whether there is enough."""
        demand, grown = claim.demand, self.planning_state.grown[claim.demand.mesh, claim.demand.flavor]
        free = {key: max(0, demand.free.get(key[1], 0) - grown[key[1]]) for key in needed}
        short = {key: units - free[key] for key, units in needed.items() if units > free[key]}
        for victim_lease in self._victim_leases(claim, needed, short) if short else ():
            lease = victim_lease[0]
            if lease.key[0] == demand.mesh and lease.node != claim.node:
                part = self._take(victim_lease, short, taken)
                for key in [key for key in short if key[1] in part]:
                    short[key] -= part[key[1]]
                    if not short[key]:
                        del short[key]
                if not short:
                    break
        return not short

    def _frees_quota(self, claim: PlannedDemand, needed: _Amounts, taken: _Taken) -> bool:
        """Reclaim missing quota; return whether there is enough."""
        short: dict[FlavorResource, int] = {}
        self._count_short(claim, needed, short, needed)
        for victim_lease in self._victim_leases(claim, needed, short) if short else ():
            if claim.demand.is_crowded and victim_lease[0].node == claim.node and victim_lease[0].key[0] == claim.demand.mesh:
                continue  # The mesh itself preempts within the lease that is to grow.
            part = self._take(victim_lease, short, taken)
            if part:
                self._count_short(claim, needed, short, [key for key in short if key[1] in part])
                if not short:
                    break
        return not short

    def _count_short(
        self, claim: PlannedDemand, needed: _Amounts, short: dict[FlavorResource, int], keys: Iterable[FlavorResource]
    ) -> None:
        """Update the missing quota for these keys."""
        for key in keys:
            missing = self.planning_state.ledger.missing(claim.node, key, needed[key])
            if missing > 0:
                short[key] = missing
            else:
                short.pop(key, None)

    def _take(self, victim_lease: _VictimLease, short: _Amounts, taken: _Taken) -> dict[str, int]:
        """Lower the victim's target by its part."""
        part = self._part_of(victim_lease, short)
        if part:
            self.planning_state.lower(victim_lease[0], part)
            taken.append((victim_lease[0], part))
        return part

    def _victim_leases(self, claim: PlannedDemand, needed: _Amounts, short: _Amounts) -> Iterable[_VictimLease]:
        """Return the candidates in order, without those that cannot help however much they give."""
        own = self.settings.get(claim.demand.tenant)
        reclaim = PreemptionMode.ANY if own is None else own.policies.reclaim  # Without settings, work of all other tenants is a candidate.
        others: Iterable[_VictimLease] = () if reclaim is PreemptionMode.NEVER else self._others(claim, needed, short)
        if reclaim is not PreemptionMode.ANY:
            others = (victim_lease for victim_lease in others if victim_lease[0].holding.priority < claim.demand.priority)
        less_urgent = self._less_urgent(claim)  # Within a tenant only priorities count.
        return chain([(lease, (), None) for lease in less_urgent], others) if less_urgent else others

    def _others(self, claim: PlannedDemand, needed: _Amounts, short: _Amounts) -> Generator[_VictimLease, None, None]:
        """Yield candidates of other tenants, the nearest first."""
        ledger, shares, paths = self.planning_state.ledger, self.planning_state.shares, self.planning_state.forest.paths
        units = {name: amount for (_, name), amount in needed.items()}
        for steps, (below, ancestor) in enumerate(pairwise(paths[claim.node]), start=1):
            if not claim.demand.is_crowded and not ledger.fits(claim.node, needed, steps):
                return  # No tenant outside can help. On a full mesh, tenants below may still give quota after the reclaim of room.
            if ledger.stays_within_own(below, needed):
                for lease, way in self.reclaim_candidates.below(ancestor, claim, short, but=below):
                    yield lease, way, None
            elif not self.rules.fair_sharing:
                yield from self._less_urgent_borrowers(claim, self.reclaim_candidates.below(ancestor, claim, short, but=below))
            else:
                # One query: reclaim does not change the claimant's share with all that it needs.
                claimant = _Claimant(below, units, shares.rank_with(below, claim.demand.flavor, units))
                for lease, way in self.reclaim_candidates.below(ancestor, claim, short, but=below, above=claimant.share):
                    yield lease, way, claimant

    def _less_urgent_borrowers(
        self, claim: PlannedDemand, reclaim_candidates: Iterable[tuple[PlannedLease, Way]]
    ) -> Generator[_VictimLease, None, None]:
        """Yield borrowers with less urgent work than the claim, up to the priority limit of its tenant; the least urgent come first.

        Source: Kueue's `borrowWithinCohort`.
        """
        own = self.settings.get(claim.demand.tenant)
        if own is None or own.policies.borrow is PreemptionMode.NEVER:
            return
        most = own.policies.borrow_priority_max
        for lease, way in reclaim_candidates:
            priority = lease.holding.priority
            if priority >= claim.demand.priority or (most is not None and priority > most):
                return
            yield lease, way, None

    def _less_urgent(self, claim: PlannedDemand) -> list[PlannedLease]:
        """Return less urgent leases of the same tenant, unless its policy forbids preemption within the queue."""
        leases = self.planning_state.held_by.get((claim.node, claim.demand.flavor))
        if not leases:
            return []
        own = self.settings.get(claim.demand.tenant)
        if own is not None and own.policies.within_queue is PreemptionMode.NEVER:
            return []
        less = [lease for lease in leases if lease.holding.priority < claim.demand.priority and self.reclaim_candidates.may_be_asked(lease)]
        return sorted(less, key=lambda lease: self.reclaim_candidates.rank(lease, claim.node)) if len(less) > 1 else less

    def _part_of(self, victim_lease: _VictimLease, short: _Amounts) -> dict[str, int]:
        """Return the part of the missing amounts that the lease gives: per resource at most what the spared nodes have borrowed.

        Which stages stop, and what they free of other resources, is left to the mesh.
        """
        lease, spared, claimant = victim_lease
        part: dict[str, int] = {}
        for key, units in short.items():
            most = self.planning_state.ledger.borrowed_by_all(spared, key, min(units, lease.target.get(key[1], 0)))
            if most > 0:
                part[key[1]] = most
        while part and claimant is not None and not self._stays_fair(lease, spared[-1], claimant, part):
            part = {name: units // 2 for name, units in part.items() if units > 1}
        return part

    def _stays_fair(self, lease: PlannedLease, node: int, claimant: _Claimant, part: Units) -> bool:
        """Return whether the claimant's share is at or below the node's share after the lease's work has stopped."""
        shares, flavor, lost = self.planning_state.shares, lease.key[2], _lost_with(lease, part)
        left = shares.rank_with(node, flavor, lost)
        if claimant.share != left:
            return claimant.share < left
        claimant.ranks = claimant.ranks or shares.ranks_with(claimant.node, flavor, claimant.needed)
        return claimant.ranks <= shares.ranks_with(node, flavor, lost)


def _question(claim: PlannedDemand, needed: _Amounts) -> _Question:
    return claim.node, claim.demand.priority, claim.demand.mesh if claim.demand.is_crowded else None, tuple(needed.items())


def _lost_with(lease: PlannedLease, part: Units) -> Units:
    """Return the change of the target (negative) per resource when work stops until this part is free.

    All resources of the lease shrink in proportion to the one of which most is given, including earlier parts in the round.
    """
    held, target = lease.holding.target, lease.target
    left, whole = 1, 1
    for name, units in part.items():
        if (target[name] - units) * whole < left * held[name]:
            left, whole = target[name] - units, held[name]
    return {name: more for name, units in held.items() if (more := units * left // whole - target[name]) < 0}
