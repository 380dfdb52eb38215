"""Laws of reclaiming: the planner equals a plain reading of the rules that sorts all leases anew for each one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.planning import planner
from federation.planning.planning_state import PlannedDemand, PlannedLease, PlanningState, named
from federation.planning.reclaim_candidates import ReclaimCandidates
from federation.planning.values import Holding, Plan, PlannerDemand
from federation.quota.forest import ForestNode, QuotaForest
from federation.quota.policies import OnQuotaReduction, Policies, PreemptionMode, QueueSettings, Rules, Stop
from federation.quota.shares import ShareKey, dominant_share
from federation.tenants import FlavorResource, Quota
from mesh.core.reasons import Reason

NOW_MS = 10_000_000
FLAVORS, RESOURCES, MESHES = ("a100", "t4"), ("cpu", "gpu"), ("east", "north", "west")


class PlainBoard(PlanningState):
    """Board that tries whether anything above the leaves is scarce: all claims of a flavor in a tree, then one by one."""

    def raise_unopposed(self, claims, reason):
        rivals = {(self.forest.root(claim.node), claim.demand.flavor): None for claim in claims}
        return [
            claim
            for root, flavor in rivals
            for claim in self.one_by_one(
                [one for one in claims if (self.forest.root(one.node), one.demand.flavor) == (root, flavor)], reason
            )
        ]

    def one_by_one(self, claims: list[PlannedDemand], reason: Reason) -> list[PlannedDemand]:
        if any(claim.demand.is_crowded for claim in claims):
            return claims
        for claim in claims:
            self.charge(claim.node, claim.amounts(claim.slots))
        above = [(node, key) for claim in claims for node in self.forest.paths[claim.node][1:2] for key in claim.slot]  # And its sources.
        is_scarce = any(self.ledger.deficit(*one) > 0 or self.ledger.room(*one) < 0 for one in above)
        limited = {claim.node for claim in claims for key in claim.slot if self.ledger.deficit(claim.node, key) > 0}
        for claim in claims:
            self.charge(claim.node, claim.amounts(claim.slots), -1)
        for claim in () if is_scarce else claims:
            if (slots := self.slots_free(claim)) >= claim.least:
                self.raise_for(claim, slots, reason)
        return [claim for claim in claims if is_scarce or (claim.node in limited and claim.slots)]


class PlainReclaiming:
    """Reclaiming with shares as fractions, and without state between requests but the unanswered ones."""

    def __init__(
        self, planning_state: PlanningState, rules: Rules, reclaim_candidates: ReclaimCandidates, settings: Mapping[str, QueueSettings]
    ) -> None:
        self.planning_state, self.rules, self.reclaim_candidates, self.settings = planning_state, rules, reclaim_candidates, settings
        self.hopeless: list[object] = []

    def most(self, claim: PlannedDemand) -> int:
        """Return the room within the leaf's own limits, beyond which nobody lends."""
        if claim.demand.is_crowded or self.less_urgent(claim):
            return claim.slots
        slots = claim.slots
        for key, units in claim.slot.items():
            rows, use = self.planning_state.forest.rows(key), self.planning_state.ledger.use(claim.node, key)
            limit, kept, lent = rows.borrowing_limit[claim.node], rows.kept[claim.node], rows.lent[claim.node]
            if limit is not None:
                beyond = lent + limit - max(0, use - kept)
                room = max(0, kept - use) + (max(0, beyond) if self.rules.keeps_local else beyond)
                slots = min(slots, max(0, room) // units)
        return slots

    def free(self, claim: PlannedDemand, slots: int) -> tuple[int, tuple[PlannedLease, ...]]:
        needed, taken = claim.amounts(slots), []
        question = claim.node, claim.demand.priority, claim.demand.is_crowded and claim.demand.mesh, needed
        if question in self.hopeless:
            return 0, ()
        free, short = self.room_left(claim), {}
        for is_room in (True, False) if claim.demand.is_crowded else (False,):
            victim_leases = self.victim_leases(claim, needed)
            while (short := self.short_of(claim, needed, taken, free if is_room else None)) and (victim_lease := next(victim_leases, None)):
                lease, part = victim_lease[0], self.part_of(*victim_lease, short)
                is_here = lease.key[0] == claim.demand.mesh
                if not self.may_take(claim, lease):
                    continue
                if part and not (is_here and lease.node == claim.node and claim.demand.is_crowded) and (is_here or not is_room):
                    self.planning_state.lower(lease, part)
                    taken.append((lease, part))
            if short:
                break
        if not short and (taken or claim.demand.is_crowded):
            assert self.planning_state.ledger.fits(claim.node, needed)
            return slots, tuple(lease for lease, _ in taken)
        found = 0 if claim.demand.is_crowded or not taken else self.slots_that_fit(claim)
        kept: list[PlannedLease] = []
        for lease, part in reversed(taken):
            spare = {key[1]: self.planning_state.ledger.room(claim.node, key) - found * units for key, units in claim.slot.items()}
            back = {name: min(units, spare[name]) if found else units for name, units in part.items()}
            self.planning_state.lower(lease, {name: -units for name, units in back.items()})
            kept += [lease] if back != part else []
        if not found:
            self.hopeless.append(question)
        return found, tuple(kept)

    def slots_that_fit(self, claim: PlannedDemand) -> int:
        fitting = [slots for slots in range(claim.slots + 1) if self.planning_state.ledger.fits(claim.node, claim.amounts(slots))]
        return fitting[-1] if fitting[-1] >= claim.least else 0

    def share(self, node: int, extra: dict[FlavorResource, int] | None = None) -> ShareKey:
        return dominant_share(self.planning_state.ledger, node, extra).key

    def may_take(self, claim: PlannedDemand, lease: PlannedLease) -> bool:
        own = self.settings.get(claim.demand.tenant, QueueSettings(policies=Policies(reclaim=PreemptionMode.ANY))).policies.reclaim
        return (
            lease.node == claim.node
            or own is PreemptionMode.ANY
            or (own is not PreemptionMode.NEVER and lease.holding.priority < claim.demand.priority)
        )

    def room_left(self, claim: PlannedDemand) -> dict[str, int]:
        """Return the room on the claim's mesh, less the grants of this round, plus all that was reclaimed."""
        there = [
            lease
            for lease in self.planning_state.leases.values()
            if (lease.key[0], lease.key[2]) == (claim.demand.mesh, claim.demand.flavor)
        ]
        grown = {name: sum(one.target.get(name, 0) - one.holding.target.get(name, 0) for one in there) for name in RESOURCES}
        return {name: max(0, claim.demand.free.get(name, 0) - grown[name]) for name in RESOURCES}

    def short_of(self, claim: PlannedDemand, needed, taken, free: dict[str, int] | None) -> dict[FlavorResource, int]:
        if free is None:
            short = {key: self.missing(claim.node, key, units) for key, units in needed.items()}
        else:
            given = {key: sum(part.get(key[1], 0) for _, part in taken) for key in needed}
            short = {key: units - given[key] - free[key[1]] for key, units in needed.items()}
        return {key: units for key, units in short.items() if units > 0}

    def missing(self, node: int, key: FlavorResource, units: int) -> int:
        """Return all resources that would exceed a limit; none where the claim fits."""
        ledger = self.planning_state.ledger
        if ledger.fits(node, {key: units}) or not self.rules.keeps_local:
            return units - ledger.room(node, key)
        ledger.charge(node, {key: units})
        deficit = ledger.deficit(node, key)
        ledger.discharge(node, {key: units})
        return deficit

    def less_urgent(self, claim: PlannedDemand) -> list[PlannedLease]:
        own = self.planning_state.held_by.get((claim.node, claim.demand.flavor), [])
        within = self.settings[claim.demand.tenant].policies.within_queue if claim.demand.tenant in self.settings else PreemptionMode.ANY
        less = [lease for lease in own if lease.holding.priority < claim.demand.priority and self.reclaim_candidates.may_be_asked(lease)]
        return [] if within is PreemptionMode.NEVER else less

    def victim_leases(self, claim: PlannedDemand, needed) -> Iterator[tuple[PlannedLease, int | None, Sequence[ShareKey], Sequence[int]]]:
        yield from ((lease, None, (), ()) for lease in sorted(self.less_urgent(claim), key=lambda lease: self.rank(lease, claim.node)))
        for steps, (below, ancestor) in enumerate(pairwise(self.planning_state.forest.paths[claim.node]), start=1):
            if not claim.demand.is_crowded and not self.planning_state.ledger.fits(claim.node, needed, steps):
                return  # A limit below the ancestor holds for any victims.
            if not any(self.planning_state.ledger.would_borrow(below, key, units) for key, units in needed.items()):
                yield from ((lease, None, (), self.way(lease, ancestor)) for lease in self.in_turn(claim, below, ancestor, needed))
            elif not self.rules.fair_sharing:
                lesser = (lease for lease in self.in_turn(claim, below, ancestor, needed) if self.may_borrow_from(claim, lease))
                yield from ((lease, None, (), self.way(lease, ancestor)) for lease in lesser)
            else:
                share = self.share(below, needed)
                found = [
                    lease for lease in self.borrowing(claim, below, ancestor, needed) if self.share(self.under(lease, ancestor)) > share
                ]
                found.sort(key=lambda lease: self.rank(lease, ancestor))
                claimant = self.shares(below, needed)
                yield from ((lease, self.under(lease, ancestor), claimant, self.way(lease, ancestor)) for lease in found)

    def may_borrow_from(self, claim: PlannedDemand, lease: PlannedLease) -> bool:
        own = self.settings.get(claim.demand.tenant, QueueSettings()).policies
        is_low = lease.holding.priority < claim.demand.priority
        return own.borrow is not PreemptionMode.NEVER and is_low and lease.holding.priority <= (own.borrow_priority_max or 0)

    def way(self, lease: PlannedLease, ancestor: int) -> Sequence[int]:
        path = self.planning_state.forest.paths[lease.node]
        return path[: path.index(ancestor)]

    def in_turn(self, claim: PlannedDemand, below: int, ancestor: int, needed) -> Iterator[PlannedLease]:
        asked: list[PlannedLease] = []
        while left := [lease for lease in self.borrowing(claim, below, ancestor, needed) if lease not in asked]:
            asked.append(min(left, key=lambda lease: self.rank(lease, ancestor)))
            yield asked[-1]

    def borrowing(self, claim: PlannedDemand, below: int, ancestor: int, needed) -> list[PlannedLease]:
        ledger, paths = self.planning_state.ledger, self.planning_state.forest.paths
        found = [
            lease for lease in self.planning_state.leases.values() if ancestor in paths[lease.node][1:] and below not in paths[lease.node]
        ]
        found = [lease for lease in found if lease.key[2] == claim.demand.flavor and self.reclaim_candidates.may_be_asked(lease)]
        ways = [self.way(lease, ancestor) for lease in found]
        return [lease for lease, way in zip(found, ways, strict=True) if all(ledger.is_over(node, needed) for node in way)]

    def under(self, lease: PlannedLease, ancestor: int) -> int:
        path = self.planning_state.forest.paths[lease.node]
        return path[max(0, path.index(ancestor) - 1)]

    def rank(self, lease: PlannedLease, ancestor: int):
        holding, (is_endless, share) = lease.holding, self.share(self.under(lease, ancestor))
        lost_ms = NOW_MS - max(holding.since_ms, holding.saved_ms or 0) if self.rules.weighs_lost_work else 0
        return holding.priority, -is_endless, -share, lost_ms, -holding.token, lease.key

    def shares(self, node: int, extra: dict[FlavorResource, int]) -> list[ShareKey]:
        """Return the share of each resource, the largest first: the dominant share."""
        forest, borrowed = self.planning_state.forest, self.planning_state.ledger.borrowed(node, extra)
        weight, most = forest.weights[node], forest.lendable(forest.parents[node])
        ratios = [Fraction(borrowed.get(name, 0), most[name]) for name in RESOURCES if most.get(name, 0) > 0]
        return sorted(((int(ratio > 0 and not weight), ratio / (weight or 1)) for ratio in ratios), reverse=True)

    def lost(self, lease: PlannedLease, part: Mapping[str, int]) -> dict[FlavorResource, int]:
        """Return the loss if each piece of work used equal amounts: the scarcest resource counts for all."""
        held = lease.holding.target
        left = min(Fraction(lease.target[name] - units, held[name]) for name, units in part.items())
        return named(lease.key[2], {name: min(0, int(left * units) - lease.target[name]) for name, units in held.items()})

    def part_of(self, lease: PlannedLease, sibling: int | None, share: Sequence[ShareKey], spared: Sequence[int], short) -> dict[str, int]:
        excess = self.planning_state.ledger.excess
        part = {key[1]: min(units, lease.target.get(key[1], 0), *(excess(node, key) for node in spared)) for key, units in short.items()}
        halved = ({name: units >> times for name, units in part.items() if units >> times > 0} for times in range(64))
        return next(some for some in halved if not some or sibling is None or share <= self.shares(sibling, self.lost(lease, some)))


def world(random_stream: random.Random) -> dict[str, object]:
    """Return a tree of up to four levels, leases and demands at most of its leaves, and rules."""

    def limit() -> int | None:
        return random_stream.choice((None, None, 0, 1, 2, 4, 6))

    def quotas() -> dict[FlavorResource, Quota]:
        return {
            (flavor, name): Quota(nominal=random_stream.randint(0, 5), borrowing_limit=limit(), lending_limit=limit())
            for flavor in FLAVORS
            for name in RESOURCES
        }

    def slot() -> dict[str, int]:
        return random_stream.choice(({"cpu": 1, "gpu": 1}, {"cpu": 2, "gpu": 1}, {"cpu": 0, "gpu": 2}, {"gpu": 1}))

    nodes = [ForestNode(name="r", quotas={key: Quota(nominal=quota.nominal) for key, quota in quotas().items()})]
    parents = ["r"]
    for parent in parents:  # It grows while it is read.
        for number in range(random_stream.randint(1, 3)):
            is_queue = len(parent) >= random_stream.choice((1, 2, 3))
            weight = Fraction(random_stream.choice((0, 1, 1, 2, 3)), random_stream.choice((1, 1, 2)))
            nodes.append(ForestNode(name=f"{parent}{number}", parent=parent, quotas=quotas(), weight=weight, is_queue=is_queue))
            if not is_queue:
                parents.append(f"{parent}{number}")
    teams = [node.name for node in nodes if node.is_queue]
    places = [(mesh, team, flavor) for team in teams for mesh in MESHES for flavor in FLAVORS]
    holdings = [
        Holding(
            mesh=mesh,
            tenant=team,
            flavor=flavor,
            target={name: units * size for name, units in grain.items()},
            token=random_stream.randint(1, 99),
            priority=random_stream.randint(0, 2),
            since_ms=random_stream.choice((0, 0, 7, NOW_MS - 10)),
            saved_ms=random_stream.choice((None, 3_000)),
        )
        for mesh, team, flavor in places
        if random_stream.random() < 0.5
        for grain, size in [(slot(), random_stream.randint(1, 5))]
    ]
    demands = [
        PlannerDemand(
            mesh=mesh,
            tenant=team,
            flavor=flavor,
            slot=slot(),
            slots=random_stream.randint(1, 6),
            slots_min=random_stream.choice((1, 1, 2, 4)),
            priority=random_stream.randint(0, 2),
            since_ms=random_stream.randint(0, 3),
            is_crowded=random_stream.random() < 0.2,
            free={name: random_stream.randint(0, 2) for name in RESOURCES},
        )
        for mesh, team, flavor in places
        if random_stream.random() < 0.5
    ]
    tenant_policies = {
        team: QueueSettings(
            stop=random_stream.choice((Stop.NONE, Stop.NONE, Stop.DRAIN)),
            on_quota_reduction=random_stream.choice(list(OnQuotaReduction)),
            max_wait_ms=1_000,
            min_run_ms=random_stream.choice((None, None, 0, NOW_MS)),
            policies=Policies(
                within_queue=random_stream.choice((PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY)),
                reclaim=random_stream.choice((PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY, PreemptionMode.ANY, PreemptionMode.ANY)),
                borrow=random_stream.choice((PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY)),
                borrow_priority_max=random_stream.choice((0, 1)),
            ),
        )
        for team in teams
        if random_stream.random() < 0.4
    }
    rules = Rules(
        fair_sharing=random_stream.random() < 0.6,
        keeps_local=random_stream.random() < 0.8,
        weighs_lost_work=random_stream.random() < 0.7,
        min_run_ms=random_stream.choice((0, 1_000)),
    )
    return {"forest": QuotaForest(nodes), "holdings": holdings, "demands": demands, "rules": rules, "settings": tenant_policies}


def said(answer: Plan) -> list[list[str]]:
    """Return the decisions of a plan in an order of its own, and the time in reasons for unmet demand."""
    unmet = [(repr(one.demand), one.slots, one.reason) for one in answer.unmet]
    return [sorted(map(repr, part)) for part in (answer.lowered, answer.raised, unmet)]


@given(random_stream=st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_a_plan_is_the_same_as_by_a_plain_reading_of_the_rules(random_stream: random.Random):
    case = world(random_stream)
    answer = planner.plan(**case, now_ms=NOW_MS)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(planner, "Reclaiming", PlainReclaiming)
        plain.setattr(planner, "PlanningState", PlainBoard)
        expected = planner.plan(**case, now_ms=NOW_MS)  # type: ignore[arg-type]
    assert said(answer) == said(expected)
