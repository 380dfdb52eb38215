"""Who gives way to a claim, and how much.

A claimant that stays within the quota of a subtree is entitled to what others outside of it have borrowed, in the nearest common
ancestor first. A claimant that borrows itself may take from a borrower only while its share stays at or below what the other is
left with. Nobody is brought below its own, except by more urgent work of the same tenant. Whose turn it is, `borrowers` tells.
Where the mesh itself is full, only leases of this mesh help, whatever quota is free elsewhere.

No two tenants can take from each other in turns: one who is entitled takes only what was borrowed and is within its own after,
and of two borrowers the one that has taken is never above the one that gave.

Source: the lease protocol's order of reclaim; Kueue's reclaim within a cohort and its final-share strategy; ADR 0018.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from federation.planning.board import Board, Claim, Lease, named
from federation.planning.borrowers import Borrowers
from federation.quota.policies import Preempt, QueueSettings, Rules
from federation.tenants import FlavorResource
from mesh.ids import MeshId

_Amounts = Mapping[FlavorResource, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Giver:
    """A lease that may have to give way."""

    lease: Lease
    sibling: int | None = None  #: Of the claimant below their common ancestor; None: the claimant is entitled, whatever the shares.
    share: int = 0  #: The claimant's with all that it needs: the sibling is not brought below it.


@dataclass(slots=True)
class Reclaiming:
    """Over one board, for one round."""

    board: Board
    rules: Rules
    borrowers: Borrowers
    settings: Mapping[str, QueueSettings]  #: By path; of a tenant without any, less urgent work gives way.
    #: Nobody gives way to so much at this leaf: what was found once in a round holds for equal claims, as targets only rise after.
    _hopeless: set[tuple[int, int, MeshId | None, tuple[tuple[FlavorResource, int], ...]]] = field(default_factory=set)

    def free(self, claim: Claim, slots: int) -> tuple[Lease, ...]:
        """Lower others' targets until so many slots fit; the leases that give way. When that cannot be, nobody does."""
        needed = claim.amounts(slots)
        mesh = claim.want.mesh if claim.want.is_crowded else None
        question = claim.node, claim.want.priority, mesh, tuple(needed.items())
        if question in self._hopeless:
            return ()
        taken: list[tuple[Lease, dict[str, int]]] = []
        givers = self._givers(claim, needed)
        for giver in givers:
            if mesh is not None and (giver.lease.key[0] != mesh or giver.lease.node == claim.node):
                continue  # Elsewhere, or the very lease that is to grow: what to stop within it the mesh decides itself.
            short = self._short_of(claim, needed, taken)
            if not short:
                break
            lease, part = giver.lease, self._part_of(giver, short, claim)
            if part:
                self.board.lower(lease, part)
                taken.append((lease, part))
        givers.close()
        if taken and not self._short_of(claim, needed, taken) and self.board.ledger.fits(claim.node, needed):
            return tuple(lease for lease, _ in taken)
        for lease, part in reversed(taken):
            self.board.lower(lease, {name: -units for name, units in part.items()})
        self._hopeless.add(question)
        return ()

    def _short_of(self, claim: Claim, needed: _Amounts, taken: list[tuple[Lease, dict[str, int]]]) -> dict[FlavorResource, int]:
        """What is still missing: of quota, or, on a mesh without room, of what others there have given."""
        if claim.want.is_crowded:
            short = {key: units - sum(part.get(key[1], 0) for _, part in taken) for key, units in needed.items()}
        else:
            short = {key: units - self.board.ledger.available(claim.node, key) for key, units in needed.items()}
        return {key: units for key, units in short.items() if units > 0}

    def _givers(self, claim: Claim, needed: _Amounts) -> Generator[_Giver, None, None]:
        """Leases that may have to give way, in order."""
        yield from (_Giver(lease=lease) for lease in self._less_urgent(claim))
        ledger, keys = self.board.ledger, tuple(needed)
        for below, ancestor in pairwise(self.board.forest.paths[claim.node]):
            if not any(ledger.would_borrow(below, key, units) for key, units in needed.items()):
                with contextlib.closing(self.borrowers.below(ancestor, claim.want.flavor, keys, but=below)) as givers:
                    yield from (_Giver(lease=lease) for lease in givers)
            elif self.rules.fair_sharing:
                yield from self._richer(claim, below, ancestor, needed)

    def _less_urgent(self, claim: Claim) -> list[Lease]:
        """Of the same tenant, unless it wants no such exchange."""
        own = self.settings.get(claim.want.tenant)
        if own is not None and own.policies.within_queue is Preempt.NEVER:
            return []
        leases = self.board.leases_of.get((claim.node, claim.want.flavor), ())
        less = (lease for lease in leases if lease.holding.priority < claim.want.priority and self.borrowers.may_be_asked(lease))
        return sorted(less, key=lambda lease: self.borrowers.rank(lease, claim.node))

    def _richer(self, claim: Claim, below: int, ancestor: int, needed: _Amounts) -> list[_Giver]:
        """Of the siblings below the ancestor whose share is not under the claimant's with all that it needs.

        That share is asked for once: what others give away does not change it.
        """
        board, keys = self.board, tuple(needed)
        share = board.share_with(below, needed)
        over, children = board.ledger.nodes_over(keys), board.forest.children
        found: list[_Giver] = []
        for sibling in children[ancestor]:
            pending = [sibling] if sibling in over and sibling != below and board.share(sibling) >= share else []
            while pending:
                node = pending.pop()
                leases = board.leases_of.get((node, claim.want.flavor), ())
                found += (_Giver(lease=lease, sibling=sibling, share=share) for lease in leases if self.borrowers.may_be_asked(lease))
                pending.extend(child for child in children[node] if child in over)
        return sorted(found, key=lambda giver: self.borrowers.rank(giver.lease, ancestor))

    def _part_of(self, giver: _Giver, short: _Amounts, claim: Claim) -> dict[str, int]:
        """What the lease gives of what is short: whole slots of its own, and not more than its tenant has borrowed."""
        lease = giver.lease
        is_inside = lease.node == claim.node  # Within a tenant priorities alone decide.
        slot = {name: units for name, units in lease.holding.slot.items() if units} or dict.fromkeys((name for _, name in short), 1)
        wanted = max((-(-units // slot[name]) for (_, name), units in short.items() if name in slot), default=0)
        wanted = min([wanted, *(lease.target.get(name, 0) // units for name, units in slot.items())])
        if not is_inside:
            flavor = lease.key[2]
            above = [self.board.ledger.excess(lease.node, (flavor, name)) // slot[name] for _, name in short if name in slot]
            wanted = min([wanted, *above])
        while wanted > 0 and not self._stays_fair(giver, slot, wanted):
            wanted //= 2
        return {name: wanted * units for name, units in slot.items()} if wanted > 0 else {}

    def _stays_fair(self, giver: _Giver, slot: Mapping[str, int], slots: int) -> bool:
        """Is the claimant entitled, or its share at or below what the giver is left with?"""
        if giver.sibling is None:
            return True
        part = named(giver.lease.key[2], {name: -slots * units for name, units in slot.items()})
        return giver.share <= self.board.share_with(giver.sibling, part)
