"""Dominant shares: what a node borrows, relative to what its parent could have, divided by its weight. Exact.

    borrowed(r) = sum over flavors of max(0, use - own)
    ratio       = max over r of borrowed(r) / what the parent could hold of r       # nothing to hold: r does not count
    share       = ratio / weight; endless for a weight of 0 and a ratio above 0; 0 at a root

Only borrowed amounts count. The denominator is the parent's, so shares compare between siblings only.
Source: Kueue `fair_sharing.go`; fractions instead of floats, so equal shares are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from federation.quota.ledger import QuotaLedger
from federation.tenants import FlavorResource

ShareKey = tuple[int, Fraction | int]  #: Orders shares; a zero weight that borrows is above all others.
PER_MILLE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Dominant share of one node."""

    ratio: Fraction | int = 0  #: Before division by the weight.
    weight: Fraction = Fraction(1)
    resource: str = ""  #: The dominant resource; among equals the first by name.
    is_borrowing: bool = False  #: Possible with a ratio of 0 if the parent has nothing to lend.

    @property
    def is_endless(self) -> bool:
        """The weight is 0, and the node borrows."""
        return self.weight == 0 and self.ratio > 0

    @property
    def key(self) -> ShareKey:
        """Sort key among siblings."""
        if self.ratio == 0:
            return 0, 0
        if self.weight == 0:
            return 1, self.ratio
        return 0, self.ratio if self.weight == 1 else self.ratio / self.weight

    @property
    def per_mille(self) -> int | None:
        """Share in per mille, rounded up; None if it is endless."""
        return None if self.is_endless else ceil(self.key[1] * PER_MILLE)


NOTHING_BORROWED = Share()


def dominant_share(ledger: QuotaLedger, node: int, extra: Mapping[FlavorResource, int] | None = None) -> Share:
    """Return the share of a node with `extra` more in use at the node itself; only flavors that the node declares count."""
    forest = ledger.forest
    if forest.parents[node] < 0:
        return NOTHING_BORROWED
    borrowed = ledger.borrowed(node, extra)
    if not borrowed:
        return NOTHING_BORROWED
    lendable = forest.lendable(forest.parents[node])
    ratio, dominant = max(
        ((Fraction(units, lendable[name]), name) for name, units in sorted(borrowed.items()) if lendable.get(name, 0) > 0),
        key=lambda share: share[0],  # among equals `max` takes the first, and they are sorted by name
        default=(0, ""),
    )
    return Share(ratio=ratio, weight=forest.weights[node], resource=dominant, is_borrowing=True)
