"""Who gives way to a claim, and how much.

A claimant that stays within the quota of a subtree is entitled to what others outside of it have borrowed, in the nearest common
ancestor first. A claimant that borrows itself may take from a borrower only while its share stays at or below what the other is
left with. Nobody is brought below its own, except by more urgent work of the same tenant. In each ancestor the order is: the
lowest priority, the largest dominant share, what loses least work, the newest grant.

No two tenants can take from each other in turns: one who is entitled takes only what was borrowed and is within its own after,
and of two borrowers the one that has taken is never above the one that gave.

Source: the lease protocol's order of reclaim; Kueue's reclaim within a cohort and its final-share strategy; ADR 0018.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from federation.planning.board import Board, Claim, Lease, named
from federation.quota.policies import Rules
from federation.tenants import FlavorResource

_Amounts = Mapping[FlavorResource, int]


@dataclass(slots=True)
class Reclaiming:
    """Over one board, for one round."""

    board: Board
    rules: Rules
    now_ms: int
    #: Nobody gives way to so much at this leaf: what was found once in a round holds for equal claims, as targets only rise after.
    _hopeless: set[tuple[int, int, tuple[tuple[FlavorResource, int], ...]]] = field(default_factory=set)

    def free(self, claim: Claim, slots: int) -> tuple[Lease, ...]:
        """Lower others' targets until so many slots fit; the leases that give way. When that cannot be, nobody does."""
        needed = claim.amounts(slots)
        question = claim.node, claim.want.priority, tuple(needed.items())
        if question in self._hopeless:
            return ()
        taken: list[tuple[Lease, dict[str, int]]] = []
        for lease, is_entitled in self._givers(claim, needed):
            short = {key: units - self.board.ledger.available(claim.node, key) for key, units in needed.items()}
            short = {key: units for key, units in short.items() if units > 0}
            if not short:
                break
            part = self._part_of(lease, short, needed, claim, is_entitled=is_entitled)
            if part:
                self.board.lower(lease, part)
                taken.append((lease, part))
        if taken and self.board.ledger.fits(claim.node, needed):
            return tuple(lease for lease, _ in taken)
        for lease, part in reversed(taken):
            self.board.lower(lease, {name: -units for name, units in part.items()})
        self._hopeless.add(question)
        return ()

    def _givers(self, claim: Claim, needed: _Amounts) -> Iterator[tuple[Lease, bool]]:
        """Leases that may have to give way, in order, each with: is the claimant entitled to it, whatever the shares?"""
        flavor = claim.want.flavor
        own = (lease for lease in self.board.leases_of[claim.node, flavor] if lease.holding.priority < claim.want.priority)
        yield from ((lease, True) for lease in self._in_order(own, depth=0))
        ledger, path = self.board.ledger, self.board.forest.paths[claim.node]
        for below, ancestor in pairwise(path):
            is_entitled = not any(ledger.would_borrow(below, key, units) for key, units in needed.items())
            if not is_entitled and not self.rules.fair_sharing:
                continue
            least = -1 if is_entitled else self.board.share_with(below, needed)
            leaves = self._borrowers(ancestor, below, needed, least)
            leases = (lease for leaf in leaves for lease in self.board.leases_of[leaf, flavor])
            depth = len(self.board.forest.paths[ancestor])
            yield from ((lease, is_entitled) for lease in self._in_order(leases, depth=depth))

    def _borrowers(self, ancestor: int, below: int, keys: _Amounts, least: int) -> list[int]:
        """Leaves under the ancestor, not under `below`, that use more than their own, and so does every node between; only where the
        share right under the ancestor is not under `least`."""
        over, children = self.board.ledger.nodes_over(keys), self.board.forest.children
        pending = [child for child in children[ancestor] if child in over and child != below and self.board.share(child) >= least]
        found: list[int] = []
        while pending:
            node = pending.pop()
            if not children[node]:
                found.append(node)
            pending.extend(child for child in children[node] if child in over)
        return found

    def _in_order(self, leases: Iterable[Lease], *, depth: int) -> list[Lease]:
        """Those that may be asked; shares are compared that many nodes below the root. What a round has given is not taken back in it."""

        def order(lease: Lease) -> tuple[object, ...]:
            holding, path = lease.holding, self.board.forest.paths[lease.node]
            share = self.board.share(path[max(0, len(path) - depth - 1)])
            lost_ms = self.now_ms - max(holding.since_ms, holding.saved_ms or 0) if self.rules.weighs_lost_work else 0
            return holding.priority, -share, lost_ms, -holding.token, lease.key

        old_ms = self.now_ms - self.rules.min_run_ms
        return sorted((lease for lease in leases if _may_be_asked(lease, old_ms)), key=order)

    def _part_of(self, lease: Lease, short: _Amounts, needed: _Amounts, claim: Claim, *, is_entitled: bool) -> dict[str, int]:
        """What the lease gives of what is short: whole slots of its own, and not more than its tenant has borrowed."""
        is_inside = lease.node == claim.node  # Within a tenant priorities alone decide.
        slot = {name: units for name, units in lease.holding.slot.items() if units} or dict.fromkeys((name for _, name in short), 1)
        wanted = max((-(-units // slot[name]) for (_, name), units in short.items() if name in slot), default=0)
        wanted = min([wanted, *(lease.target.get(name, 0) // units for name, units in slot.items())])
        if not is_inside:
            flavor = lease.key[2]
            above = [self.board.ledger.excess(lease.node, (flavor, name)) // slot[name] for _, name in short if name in slot]
            wanted = min([wanted, *above])
        while wanted > 0 and not (is_inside or is_entitled) and not self._stays_fair(lease, slot, wanted, claim, needed):
            wanted //= 2
        return {name: wanted * units for name, units in slot.items()} if wanted > 0 else {}

    def _stays_fair(self, lease: Lease, slot: Mapping[str, int], slots: int, claim: Claim, needed: _Amounts) -> bool:
        """Is the claimant's share, with all that it needs, at or below what the giver is left with?"""
        _, mine, theirs = self.board.forest.lowest_common(claim.node, lease.node)
        part = named(lease.key[2], {name: -slots * units for name, units in slot.items()})
        return self.board.share_with(mine, needed) <= self.board.share_with(theirs, part)


def _may_be_asked(lease: Lease, old_ms: int) -> bool:
    return lease.holding.since_ms <= old_ms and not lease.holding.is_fixed and not lease.has_grown
