"""Planning state of a round: every lease with its target so far, over a ledger with the sums of all targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from federation.planning.values import Holding, PlannerDemand, Target, Units
from federation.quota.forest import QuotaForest
from federation.quota.ledger import QuotaLedger
from federation.quota.share_ranks import ShareRanks
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName, MeshId, TenantPath
from mesh.core.reasons import Reason

LeaseKey = tuple[MeshId, TenantPath, FlavorName]
_PLACE = attrgetter("mesh", "tenant", "flavor")
#: Holding of a lease made in the round; the lease's key names its mesh, tenant and flavor.
_UNHELD = Holding(mesh=MeshId(""), tenant=TenantPath(""), flavor=FlavorName(""), target={})


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


@dataclass(slots=True)
class PlannedDemand:
    """A want during a round."""

    demand: PlannerDemand
    node: int
    slots: int  #: Slots still missing.
    least: int  #: The fewest slots that are of use.
    slot: dict[FlavorResource, int] = field(default_factory=dict)  #: Amounts of one slot, without zeros.
    lease: PlannedLease | None = None  #: The lease that has grown for the claim.
    is_kept: bool = False  #: Waiting beyond its `max_wait`: room is reserved for the claim, and the rest of the round skips it.

    def amounts(self, slots: int) -> dict[FlavorResource, int]:
        """Return the amounts of so many slots."""
        return {key: slots * units for key, units in self.slot.items()}


class PlanningState:
    """Planning state of one round.

    Args:
        keeps_local: As in `QuotaLedger`.
    """

    def __init__(self, forest: QuotaForest, holdings: Iterable[Holding], *, keeps_local: bool) -> None:
        self.forest = forest
        self.ledger = QuotaLedger(forest, keeps_local=keeps_local)
        self.leases: dict[LeaseKey, PlannedLease] = {}
        self.held_by: defaultdict[tuple[int, FlavorName], list[PlannedLease]] = defaultdict(list)  #: By leaf, before the round.
        self.moved: dict[int, set[int]] = {}  #: Watched nodes to their children whose use has changed; the reader clears the set.
        self.grown: defaultdict[tuple[MeshId, FlavorName], defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.shares = ShareRanks(self.ledger)
        leases = [
            self._add(forest.queue_of(holding.tenant), _PLACE(holding), holding, dict(holding.target))
            for holding in sorted(holdings, key=_PLACE)
        ]
        for lease in leases:
            self.held_by[lease.node, lease.key[2]].append(lease)
        self.ledger.charge_all((lease.node, lease.key[2], lease.target, 1) for lease in leases)

    def _add(self, node: int, key: LeaseKey, holding: Holding, target: dict[str, int]) -> PlannedLease:
        """Add a lease without charging it."""
        mesh, _, flavor = key
        self.leases[key] = lease = PlannedLease(key, node, holding, target, self.grown[mesh, flavor])
        return lease

    def claim(self, demand: PlannerDemand) -> PlannedDemand:
        """Return the claim of the want.

        Raises:
            UnknownTenant: The forest lacks the want's tenant.
        """
        slot = {(demand.flavor, name): units for name, units in demand.slot.items() if units}
        least = min(demand.slots, demand.slots_min)
        return PlannedDemand(demand, self.forest.queue_of(demand.tenant), demand.slots, least, slot)

    def raise_for(self, claim: PlannedDemand, slots: int, reason: Reason) -> None:
        """Grow the claim's lease by so many slots; make the lease if there is none."""
        self.charge(claim.node, claim.slot, slots)
        self._give(claim, slots, reason)

    def raise_unopposed(self, claims: Iterable[PlannedDemand], reason: Reason) -> list[PlannedDemand]:
        """Give the wants of one flavor in one tree in full if only the leaves' own limits can oppose them; return the claims that are left.

        The check charges all wants at once. If no limit above a leaf is exceeded, the order of the claims makes no difference; only
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
                self._give(claim, claim.slots, reason)
            elif is_room_above and (slots := self.slots_free(claim)) >= claim.least:
                self.raise_for(claim, slots, reason)
        return [claim for claim in left if claim.slots]

    def _are_too_many(self, root: int, claims: Iterable[PlannedDemand]) -> bool:
        """Return whether the root has too little for the claims that pass every node below the root in full."""
        wanted: defaultdict[FlavorResource, int] = defaultdict(int)
        narrow = {key: self.forest.rows(key).narrow for key in {key for claim in claims for key in claim.slot}}
        for claim in claims:
            for key, units in claim.slot.items():
                if root != claim.node and not narrow[key][claim.node]:
                    wanted[key] += claim.slots * units
        return any(units > self.ledger.room(root, key) for key, units in wanted.items())

    def _charge_all(self, claims: Sequence[PlannedDemand], times: int) -> None:
        """Charge all wants, `times` times."""
        self.ledger.charge_all((claim.node, claim.demand.flavor, claim.demand.slot, claim.slots * times) for claim in claims)
        for node in {claim.node for claim in claims} if self.moved else ():
            self._send(node)

    def _has_limits(self, leaf: int, key: FlavorResource) -> bool:
        """Return whether the leaf can exceed its limits while its parent does not."""
        return self.forest.parents[leaf] < 0 or leaf in self.forest.rows(key).narrow[leaf]

    def _is_within_limits(self, node: int, key: FlavorResource) -> bool:
        """Return whether the node's charges are within its limits. Room alone does not show this: a deficit above may count as 0 for it."""
        return node < 0 or (self.ledger.deficit(node, key) == 0 and (self.ledger.keeps_local or self.ledger.room(node, key) >= 0))

    def _give(self, claim: PlannedDemand, slots: int, reason: Reason) -> None:
        demand, lease = claim.demand, claim.lease
        if lease is None:
            key = demand.mesh, demand.tenant, demand.flavor
            claim.lease = lease = self.leases.get(key) or self._add(claim.node, key, _UNHELD, {})
        target, grown = lease.target, lease.grown
        for name, units in demand.slot.items():
            more = slots * units
            target[name] = target.get(name, 0) + more
            grown[name] += more
        if not lease.has_given:  # Otherwise the reason of the lowering stays, since it decides whether work may continue for a while.
            lease.reason = reason
        lease.has_grown = True
        claim.slots -= slots
        claim.least = min(claim.slots, demand.slots_min)

    def lower(self, lease: PlannedLease, part: Units) -> None:
        """Lower the lease's target by the part; a negative part raises it again."""
        for name, units in part.items():
            lease.target[name] = lease.target.get(name, 0) - units
            lease.grown[name] -= units
        lease.has_given = True
        self.charge(lease.node, named(lease.key[2], part), -1)

    def charge(self, node: int, amounts: Mapping[FlavorResource, int], times: int = 1) -> None:
        """Charge the amounts to the leaf, `times` times, whichever lease holds them."""
        self.ledger.charge(node, amounts, times)
        if self.moved:
            self._send(node)

    def _send(self, node: int) -> None:
        """Record that the use of the leaf and its ancestors has changed."""
        for below, above in pairwise(self.forest.paths[node]):
            watched = self.moved.get(above)
            if watched is not None:
                watched.add(below)

    def slots_free(self, claim: PlannedDemand, steps: int | None = None) -> int:
        """Return how many of the missing slots have free quota; `steps` as in `QuotaLedger.room`."""
        slots = claim.slots
        for key, units in claim.slot.items():
            room = self.ledger.room(claim.node, key, steps)
            if room < units:
                return 0
            if room < slots * units:
                slots = room // units
        return slots

    def slots_in_room(self, claim: PlannedDemand) -> int:
        """Return how many of the missing slots the mesh has room for, beside the growth of leases there in this round."""
        demand, grown = claim.demand, self.grown[claim.demand.mesh, claim.demand.flavor]
        if demand.room is None:
            return claim.slots
        return max(0, min([claim.slots, *((demand.room.get(name, 0) - grown[name]) // units for (_, name), units in claim.slot.items())]))

    def slots_of_own(self, claim: PlannedDemand) -> int:
        """Return how many of the missing slots the tenant's own quota covers, even where others have borrowed it."""
        slots = claim.slots
        for key, units in claim.slot.items():
            own = -self.ledger.excess(claim.node, key)
            if own < units:
                return 0
            if own < slots * units:
                slots = own // units
        return slots

    def targets(self) -> tuple[tuple[Target, ...], tuple[Target, ...]]:
        """Return the targets of all changed leases: those that lose some resource, and those that only grow.

        The first list includes a drained tenant's lease that is already shrinking, since the ledger may have given it time that it no
        longer has.
        """
        lowered: list[Target] = []
        raised: list[Target] = []
        for lease in self.leases.values():
            if not lease.has_grown and not lease.has_given:
                continue
            before, after = _without_zeros(lease.holding.target), _without_zeros(lease.target)
            is_hurried = lease.reason is Reason.TENANT_DRAINED and lease.holding.is_giving
            if after != before or is_hurried:
                has_less = is_hurried or (lease.has_given and any(after.get(name, 0) < units for name, units in before.items()))
                side = lowered if has_less else raised
                side.append(Target(*lease.key, after, lease.reason))
        return tuple(lowered), tuple(raised)


def _without_zeros(units: Units) -> Units:
    return units if 0 not in units.values() else {name: amount for name, amount in units.items() if amount}


def named(flavor: FlavorName, units: Units) -> dict[FlavorResource, int]:
    """Return the amounts with each resource named by flavor and resource."""
    return {(flavor, name): amount for name, amount in units.items()}
