"""Who gives way to a claim, and how much.

A claimant that stays within the quota of a subtree is entitled to what others outside of it have borrowed, in the nearest common
ancestor first. A claimant that borrows itself may take from a borrower of a greater share than it comes to, while it stays at or
below what the other is left with; without shares only what less urgent work has borrowed, and only if its tenant says so (`borrow`). No
node on the way from a lease to the common ancestor is brought below its own of what is taken, except by more urgent work of the same
tenant. Whose turn it is, `borrowers` tells.
Where the mesh itself is full, what is missing of room comes from leases of this mesh, and then what is missing of quota from anybody.

No two tenants can take from each other in turns: one who is entitled takes only what was borrowed and is within its own after,
and of two borrowers the one that has taken is never above the one that gave, or is the more urgent. What the one that gave is left with
is counted after its work has stopped: a lease that gives a half of one resource loses the half of all others, too. Between equal shares
those of the other resources decide, or what is dominant on both sides would let them exchange the rest for ever.
What one piece of work takes, leases do not tell; where it is much more than the part that was taken, and a tenant holds leases on
several meshes, three or more can still take in turns, each after the minimum run time only.

Source: the lease protocol's order of reclaim; Kueue's reclaim within a cohort, its `borrowWithinCohort` and final-share strategy; ADR 0018.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise

from federation.planning.board import Board, Claim, Lease
from federation.planning.borrowers import Borrowers, Way
from federation.planning.values import Units
from federation.quota.policies import Preempt, QueueSettings, Rules
from federation.tenants import FlavorResource
from mesh.ids import MeshId

_Amounts = Mapping[FlavorResource, int]
_Taken = list[tuple[Lease, dict[str, int]]]
_Question = tuple[int, int, MeshId | None, tuple[tuple[FlavorResource, int], ...]]  #: Leaf, priority, the mesh where it is full, amounts.


@dataclass(slots=True)
class _Taker:
    """A claimant that borrows, and takes by share."""

    node: int  #: Its own below the common ancestor.
    needed: Units  #: Of the flavor.
    share: int  #: With all that it needs.
    ranks: list[int] = field(default_factory=list)  #: As the share, of every resource; counted when first asked for.


#: A lease that may have to give way; the nodes that are not brought below their own, up to the one right below the common ancestor; and
#: below whom the last of these is not brought either. None: shares do not matter.
_Giver = tuple[Lease, Way, _Taker | None]


@dataclass(slots=True)
class Reclaiming:
    """Over one board, for one round."""

    board: Board
    rules: Rules
    borrowers: Borrowers
    settings: Mapping[str, QueueSettings]  #: By path; of a tenant without any, less urgent work gives way.
    #: Nobody gives way to so much at this leaf: what was found once in a round holds for equal claims, as targets only rise after.
    _hopeless: set[_Question] = field(default_factory=set)

    def free(self, claim: Claim, slots: int) -> tuple[int, tuple[Lease, ...]]:
        """Lower others' targets until so many slots fit, or as many of them as others have to give; how many, and the leases that give way,
        some perhaps twice.

        Where fewer fit, whoever gives keeps no less than the claimant would have with all of them: so the rest may be had by a question
        for less. On a full mesh it is all of them or none.
        """
        needed = claim.amounts(slots)
        mesh = claim.want.mesh if claim.want.is_crowded else None
        question = _question(claim, needed)
        if question in self._hopeless:
            return 0, ()
        taken: _Taken = []
        if (mesh is not None and not self._makes_room(claim, needed, taken)) or not self._frees_quota(claim, needed, taken):
            slots = self.board.slots_free(claim) if mesh is None else 0
            slots = slots if slots >= claim.least else 0
            self._put_back(claim, slots, taken)
        if slots and (taken or mesh is not None):  # Where room was thought to be taken, and is not, nobody has to give any.
            return slots, tuple([lease for lease, part in taken if any(part.values())])
        self._hopeless.add(question)
        return 0, ()

    def with_the_young(self) -> Reclaiming:
        """The same, as if nothing were too young to be asked."""
        return Reclaiming(self.board, self.rules, self.borrowers.of_any_age(), self.settings)

    def needs_the_young(self, claim: Claim) -> bool:
        """Would the fewest slots that are of use fit if all of these gave way, and is one of those too young? Nobody's target changes."""
        slots = max(1, claim.least)
        needed = claim.amounts(slots)
        question = _question(claim, needed)
        if question in self._hopeless or slots > min(self.most(claim), self.board.slots_in_room(claim)):
            return False
        taken: _Taken = []
        is_enough = (not claim.want.is_crowded or self._makes_room(claim, needed, taken)) and self._frees_quota(claim, needed, taken)
        for lease, part in reversed(taken):
            self.board.lower(lease, {name: -units for name, units in part.items()})
        if not is_enough:
            self._hopeless.add(question)
        return is_enough and any(self.borrowers.is_too_young(lease) for lease, _ in taken)

    def _put_back(self, claim: Claim, slots: int, taken: _Taken) -> None:
        """Leave no more taken than these slots need: who was asked last gets it back first."""
        room = self.board.ledger.room
        for lease, part in reversed(taken):
            back = dict(part)
            for key, units in claim.slot.items() if slots else ():
                back[key[1]] = min(part.get(key[1], 0), room(claim.node, key) - slots * units)
            self.board.lower(lease, {name: -units for name, units in back.items()})
            for name, units in back.items():
                part[name] = part.get(name, 0) - units

    def most(self, claim: Claim) -> int:
        """More slots than these no others can free: what limits the claimant itself stays, whoever gives way."""
        if claim.want.is_crowded or self._less_urgent(claim):
            return claim.slots
        return self.board.slots_free(claim, 1)

    def _makes_room(self, claim: Claim, needed: _Amounts, taken: _Taken) -> bool:
        """Does the mesh have room, with what others there give of what it has not got?"""
        want, grown = claim.want, self.board.grown[claim.want.mesh, claim.want.flavor]
        free = {key: max(0, want.free.get(key[1], 0) - grown[key[1]]) for key in needed}
        short = {key: units - free[key] for key, units in needed.items() if units > free[key]}
        for giver in self._givers(claim, needed, short) if short else ():
            lease = giver[0]
            if lease.key[0] == want.mesh and lease.node != claim.node:
                part = self._take(giver, short, taken)
                for key in [key for key in short if key[1] in part]:
                    short[key] -= part[key[1]]
                    if not short[key]:
                        del short[key]
                if not short:
                    break
        return not short

    def _frees_quota(self, claim: Claim, needed: _Amounts, taken: _Taken) -> bool:
        """Is there quota, with what others give of what is missing?"""
        short: dict[FlavorResource, int] = {}
        self._count_short(claim, needed, short, needed)
        for giver in self._givers(claim, needed, short) if short else ():
            if claim.want.is_crowded and giver[0].node == claim.node and giver[0].key[0] == claim.want.mesh:
                continue  # The very lease that is to grow: what to stop within it the mesh decides itself.
            part = self._take(giver, short, taken)
            if part:
                self._count_short(claim, needed, short, [key for key in short if key[1] in part])
                if not short:
                    break
        return not short

    def _count_short(self, claim: Claim, needed: _Amounts, short: dict[FlavorResource, int], keys: Iterable[FlavorResource]) -> None:
        """Write down what is still missing of quota for these keys."""
        for key in keys:
            missing = self.board.ledger.missing(claim.node, key, needed[key])
            if missing > 0:
                short[key] = missing
            else:
                short.pop(key, None)

    def _take(self, giver: _Giver, short: _Amounts, taken: _Taken) -> dict[str, int]:
        """Lower the giver's target by its part."""
        part = self._part_of(giver, short)
        if part:
            self.board.lower(giver[0], part)
            taken.append((giver[0], part))
        return part

    def _givers(self, claim: Claim, needed: _Amounts, short: _Amounts) -> Iterable[_Giver]:
        """Leases that may have to give way, in order; none of those who could give without end and not help."""
        own = self.settings.get(claim.want.tenant)
        reclaim = Preempt.ANY if own is None else own.policies.reclaim  # Of whom nobody said anything, all others' work gives way.
        others: Iterable[_Giver] = () if reclaim is Preempt.NEVER else self._others(claim, needed, short)
        if reclaim is not Preempt.ANY:
            others = (giver for giver in others if giver[0].holding.priority < claim.want.priority)
        less_urgent = self._less_urgent(claim)  # Within a tenant priorities alone decide.
        return chain([(lease, (), None) for lease in less_urgent], others) if less_urgent else others

    def _others(self, claim: Claim, needed: _Amounts, short: _Amounts) -> Generator[_Giver, None, None]:
        """Of other tenants, the nearest first."""
        ledger, shares, paths = self.board.ledger, self.board.shares, self.board.forest.paths
        units = {name: amount for (_, name), amount in needed.items()}
        for steps, (below, ancestor) in enumerate(pairwise(paths[claim.node]), start=1):
            if not claim.want.is_crowded and not ledger.fits(claim.node, needed, steps):
                return  # Nobody outside can help. Where room is made first, what is below may still give quota after.
            if ledger.stays_within_own(below, needed):
                for lease, way in self.borrowers.below(ancestor, claim, short, but=below):
                    yield lease, way, None
            elif not self.rules.fair_sharing:
                yield from self._less_urgent_borrowers(claim, self.borrowers.below(ancestor, claim, short, but=below))
            else:
                # Asked for once: what others give away does not change the claimant's share with all that it needs.
                taker = _Taker(below, units, shares.rank_with(below, claim.want.flavor, units))
                for lease, way in self.borrowers.below(ancestor, claim, short, but=below, above=taker.share):
                    yield lease, way, taker

    def _less_urgent_borrowers(self, claim: Claim, borrowers: Iterable[tuple[Lease, Way]]) -> Generator[_Giver, None, None]:
        """Those whose work is less urgent than the claim, and no more urgent than its tenant says; the least urgent stand first.

        Source: Kueue's `borrowWithinCohort`.
        """
        own = self.settings.get(claim.want.tenant)
        if own is None or own.policies.borrow is Preempt.NEVER:
            return
        most = own.policies.borrow_priority_max
        for lease, way in borrowers:
            priority = lease.holding.priority
            if priority >= claim.want.priority or (most is not None and priority > most):
                return
            yield lease, way, None

    def _less_urgent(self, claim: Claim) -> list[Lease]:
        """Of the same tenant, unless it wants no such exchange."""
        leases = self.board.held_by.get((claim.node, claim.want.flavor))
        if not leases:
            return []
        own = self.settings.get(claim.want.tenant)
        if own is not None and own.policies.within_queue is Preempt.NEVER:
            return []
        less = [lease for lease in leases if lease.holding.priority < claim.want.priority and self.borrowers.may_be_asked(lease)]
        return sorted(less, key=lambda lease: self.borrowers.rank(lease, claim.node)) if len(less) > 1 else less

    def _part_of(self, giver: _Giver, short: _Amounts) -> dict[str, int]:
        """What the lease gives of what is short: of each resource no more than that, nor than who is spared has borrowed.

        What of its work has to stop for it, and what that frees of other resources, is its mesh's business.
        """
        lease, spared, taker = giver
        part: dict[str, int] = {}
        for key, units in short.items():
            most = self.board.ledger.borrowed_by_all(spared, key, min(units, lease.target.get(key[1], 0)))
            if most > 0:
                part[key[1]] = most
        while part and taker is not None and not self._stays_fair(lease, spared[-1], taker, part):
            part = {name: units // 2 for name, units in part.items() if units > 1}
        return part

    def _stays_fair(self, lease: Lease, node: int, taker: _Taker, part: Units) -> bool:
        """Is the claimant's share at or below what the node is left with when the lease's work has stopped?"""
        shares, flavor, lost = self.board.shares, lease.key[2], _lost_with(lease, part)
        left = shares.rank_with(node, flavor, lost)
        if taker.share != left:
            return taker.share < left
        taker.ranks = taker.ranks or shares.ranks_with(taker.node, flavor, taker.needed)
        return taker.ranks <= shares.ranks_with(node, flavor, lost)


def _question(claim: Claim, needed: _Amounts) -> _Question:
    return claim.node, claim.want.priority, claim.want.mesh if claim.want.is_crowded else None, tuple(needed.items())


def _lost_with(lease: Lease, part: Units) -> Units:
    """By how much the target of each resource comes down, below 0, when work stops until this part is free: all resources of the lease
    shrink in proportion to the one of which most is given, with what was given before in the round.
    """
    held, target = lease.holding.target, lease.target
    left, whole = 1, 1
    for name, units in part.items():
        if (target[name] - units) * whole < left * held[name]:
            left, whole = target[name] - units, held[name]
    return {name: more for name, units in held.items() if (more := units * left // whole - target[name]) < 0}
