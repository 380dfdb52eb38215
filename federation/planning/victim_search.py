"""Search for the work that is stopped for a claim, with the rules of `federation.quota.preemption`."""

from __future__ import annotations

from collections.abc import Iterator

from federation.planning.planning_state import PlannedDemand, PlanningState
from federation.quota.flavors import may_preempt
from federation.quota.ledger import Amounts
from federation.quota.policies import PreemptionMode
from federation.quota.preemption.candidates import Victim, candidates_in, protection
from federation.quota.preemption.choice import victims_for
from federation.quota.preemption.fair import Outlook, make_room
from federation.quota.snapshot import Ask
from federation.quota.workloads import Workload
from federation.tenants import FlavorResource

#: Time in which a mesh with less urgent stages of the tenant may make room by itself.
MESH_TRIES_MS = 5_000
#: Leaf, priority, the mesh if it is full or some work is protected, amounts, and the creation if equals are compared by it.
_Question = tuple[object, ...]


def attempts(slots: int, least: int) -> Iterator[int]:
    """Yield the numbers of slots to ask for while nothing is found: all of them, then half of the rest, not less than `least`."""
    ask = slots
    while slots >= least:
        yield ask
        slots = ask - 1
        ask = max(least, -(-slots // 2))


class VictimSearch:
    """Searches of one round."""

    def __init__(self, planning_state: PlanningState) -> None:
        self._planning_state, self._quota = planning_state, planning_state.quota
        self._protects = any(lease.holding.is_protected for lease in planning_state.leases.values())
        #: Questions without an answer in this round; equal claims fail as well, since targets only rise afterwards.
        self._unsatisfiable: set[_Question] = set()
        #: Outlook of the claim that is searched for, and the keys that it lacks; None once the planning state has changed.
        self._outlook: tuple[PlannedDemand, frozenset[FlavorResource], Outlook] | None = None

    def make_room(self, claim: PlannedDemand, slots: int) -> tuple[Victim, ...] | None:
        """Stop work so that so many slots fit, and charge them; return the victims, none if the slots fit already.

        Returns:
            None, with nothing changed, if no preemption helps.
        """
        amounts = claim.amounts(slots)
        question = self._question(claim, amounts)
        if question in self._unsatisfiable:
            return None
        if claim.demand.is_crowded:
            self._outlook = None  # It was made without the victims on the mesh.
        mark = self._quota.mark()
        found = self._search(claim, amounts)
        if found is None:
            self._quota.undo(mark)
            self._unsatisfiable.add(question)
        else:
            self._outlook = None
        return found

    def is_hopeless(self, claim: PlannedDemand, slots: int) -> bool:
        """Return whether no preemption helps, for none of the `attempts` at so many slots. False: a search has to tell."""
        quota, least = self._quota, max(1, claim.least)
        self._outlook = None
        if claim.demand.is_crowded or not quota.rules.fair_sharing:
            return False
        self._planning_state.list_work()
        room = quota.ledger.room
        rooms = {key: room(claim.node, key) for key in claim.slot}
        short = frozenset([key for key, units in claim.slot.items() if units * slots > rooms[key]])
        if not short or any(claim.slot[key] * least <= rooms[key] for key in short):
            return False  # Fewer slots lack nothing, or other keys.
        amounts = claim.amounts(least)
        may = all(may_preempt(quota, claim.node, key, amounts[key]) for key in short)
        if may and not self._outlook_of(claim, short).is_hopeless(amounts):
            return False
        self._unsatisfiable.update(self._question(claim, claim.amounts(ask)) for ask in attempts(slots, least))
        return True

    def needs_the_young(self, claim: PlannedDemand) -> bool:
        """Return whether the fewest useful slots need a victim within its minimum run time."""
        slots = max(1, claim.least)
        if slots > self._planning_state.slots_in_room(claim):
            return False
        mark = self._quota.mark()
        self._outlook = None
        self._quota.protects_young = False
        found = self._search(claim, claim.amounts(slots))
        self._quota.undo(mark)
        self._outlook = None
        self._quota.protects_young = True
        return any(protection(self._quota, victim.running) is not None for victim in found or ())

    def _search(self, claim: PlannedDemand, amounts: Amounts) -> tuple[Victim, ...] | None:
        """Return `make_room`; if it is None, the caller undoes the changes."""
        self._planning_state.list_work()
        for_room = self._for_room(claim, amounts) if claim.demand.is_crowded else ()
        if for_room is None:
            return None
        for victim in for_room:
            self._quota.remove(victim.running)
        room = self._quota.ledger.room
        short = frozenset([key for key, units in amounts.items() if units > room(claim.node, key)])
        if not short:
            self._quota.charge(claim.node, amounts)
            return for_room
        if not all(may_preempt(self._quota, claim.node, key, amounts[key]) for key in short):
            return None
        for_quota = self._for_quota(claim, amounts, short)
        return (*for_room, *for_quota) if for_quota else None

    def _for_quota(self, claim: PlannedDemand, amounts: Amounts, short: frozenset[FlavorResource]) -> tuple[Victim, ...]:
        """Stop work anywhere and charge the claim; no victims, with nothing changed, if no preemption helps."""
        quota = self._quota
        if quota.rules.fair_sharing and self._outlook_of(claim, short).is_hopeless(amounts):
            return ()
        ask = self._ask(claim, amounts, short)
        if quota.rules.fair_sharing:
            return make_room(quota, ask)
        victims = victims_for(quota, ask)
        if victims:
            for victim in victims:
                quota.remove(victim.running)
            quota.charge(claim.node, amounts)
        return victims

    def _outlook_of(self, claim: PlannedDemand, short: frozenset[FlavorResource]) -> Outlook:
        """Return the outlook of the fewest useful slots, and thereby of more; made anew for another claim, and after changes."""
        known = self._outlook
        if known is None or known[0] is not claim or known[1] != short:
            ask = self._ask(claim, claim.amounts(max(1, claim.least)), short)
            self._outlook = known = claim, short, Outlook(self._quota, ask)
        return known[2]

    def _ask(self, claim: PlannedDemand, amounts: Amounts, short: frozenset[FlavorResource], mesh: str = "") -> Ask:
        demand = claim.demand
        workload = Workload(
            workload=f"{demand.mesh}|{demand.tenant}|{demand.flavor}|",
            queue=self._planning_state.forest.names[claim.node],
            created_ms=demand.created_ms or demand.since_ms,
            priority=demand.priority,
        )
        return Ask(workload=workload, node=claim.node, amounts=amounts, needed=short, mesh=mesh, home=demand.mesh)

    def _for_room(self, claim: PlannedDemand, amounts: Amounts) -> tuple[Victim, ...] | None:
        """Return the work to stop on the claim's full mesh; none of the own tenant if the mesh limits that preemption."""
        room = self._planning_state.grown_room(claim)
        short = frozenset(key for key, units in amounts.items() if units > room[key])
        if not short:
            return ()
        ask = self._ask(claim, amounts, short, claim.demand.mesh)
        own = list(candidates_in(self._quota, ask, claim.node, self._quota.settings[claim.node].policies.within_queue))
        suffice = all(room[key] + sum(running.amounts.get(key, 0) for running in own) >= amounts[key] for key in short)
        if suffice and self._quota.now_ms - claim.demand.since_ms < MESH_TRIES_MS:
            return None  # The mesh preempts by itself, within the lease that it holds; where its pools allow it, at once.
        self._quota.rooms[ask.mesh] = room
        found = victims_for(self._quota, ask._replace(spares_own=claim.demand.is_limited))
        del self._quota.rooms[ask.mesh]
        return found or None

    def _question(self, claim: PlannedDemand, amounts: Amounts) -> _Question:
        demand = claim.demand
        by_age = self._quota.settings[claim.node].policies.within_queue is PreemptionMode.LOWER_OR_NEWER
        return (
            claim.node,
            demand.priority,
            demand.mesh if demand.is_crowded or self._protects else None,
            tuple(amounts.items()),
            (demand.created_ms or demand.since_ms) if by_age else None,
        )
