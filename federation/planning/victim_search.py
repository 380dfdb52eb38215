"""Search for the work that is stopped for a claim, with the rules of `federation.quota.preemption`."""

from __future__ import annotations

from federation.planning.planning_state import PlannedDemand, PlanningState
from federation.quota.flavors import may_preempt
from federation.quota.ledger import Amounts
from federation.quota.policies import PreemptionMode
from federation.quota.preemption.candidates import Victim, candidates_in, protection
from federation.quota.preemption.choice import victims_for
from federation.quota.snapshot import Ask
from federation.quota.workloads import Workload

#: Time in which a mesh with less urgent stages of the tenant may make room by itself.
MESH_TRIES_MS = 5_000
#: Leaf, priority, the mesh if it is full or some work is protected, amounts, and the creation if equals are compared by it.
_Question = tuple[object, ...]


class VictimSearch:
    """Searches of one round. Each leaves the planning state as it was."""

    def __init__(self, planning_state: PlanningState) -> None:
        self._planning_state, self._quota = planning_state, planning_state.quota
        self._protects = any(lease.holding.is_protected for lease in planning_state.leases.values())
        #: Questions without an answer in this round; equal claims fail as well, since targets only rise afterwards.
        self._unsatisfiable: set[_Question] = set()

    def victims(self, claim: PlannedDemand, slots: int) -> tuple[Victim, ...] | None:
        """Return the work to stop so that so many slots fit, empty if they fit already; None if no preemption helps."""
        amounts = claim.amounts(slots)
        question = self._question(claim, amounts)
        if question in self._unsatisfiable:
            return None
        mark = self._quota.mark()
        found = self._search(claim, amounts)
        self._quota.undo(mark)
        if found is None:
            self._unsatisfiable.add(question)
        return found

    def needs_the_young(self, claim: PlannedDemand) -> bool:
        """Return whether the fewest useful slots need a victim within its minimum run time."""
        slots = max(1, claim.least)
        if slots > self._planning_state.slots_in_room(claim):
            return False
        mark = self._quota.mark()
        self._quota.protects_young = False
        found = self._search(claim, claim.amounts(slots))
        self._quota.undo(mark)
        self._quota.protects_young = True
        return any(protection(self._quota, victim.running) is not None for victim in found or ())

    def _search(self, claim: PlannedDemand, amounts: Amounts) -> tuple[Victim, ...] | None:
        workload = Workload(
            workload=f"{claim.demand.mesh}|{claim.demand.tenant}|{claim.demand.flavor}|",
            queue=self._planning_state.forest.names[claim.node],
            created_ms=claim.demand.created_ms or claim.demand.since_ms,
            priority=claim.demand.priority,
        )
        for_room = self._for_room(claim, workload, amounts) if claim.demand.is_crowded else ()
        if for_room is None:
            return None
        for victim in for_room:
            self._quota.remove(victim.running)
        room = self._quota.ledger.room
        short = frozenset(key for key, units in amounts.items() if units > room(claim.node, key))
        if not short:
            return for_room
        if not all(may_preempt(self._quota, claim.node, key, amounts[key]) for key in short):
            return None
        ask = Ask(workload=workload, node=claim.node, amounts=amounts, needed=short, home=claim.demand.mesh)
        for_quota = victims_for(self._quota, ask)
        return (*for_room, *for_quota) if for_quota else None

    def _for_room(self, claim: PlannedDemand, workload: Workload, amounts: Amounts) -> tuple[Victim, ...] | None:
        """Return the work to stop on the claim's full mesh; none of the own tenant if the mesh limits that preemption."""
        room = self._planning_state.grown_room(claim)
        short = frozenset(key for key, units in amounts.items() if units > room[key])
        if not short:
            return ()
        mesh = claim.demand.mesh
        ask = Ask(workload=workload, node=claim.node, amounts=amounts, needed=short, mesh=mesh, home=mesh)
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
