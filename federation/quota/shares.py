"""Dominant shares: how much of what its parent could have a node borrows, divided by its weight. Exact.

    borrowed(r) = sum over flavors of max(0, use - own)
    ratio       = max over r of borrowed(r) / what the parent could hold of r       # nothing to hold: r does not count
    share       = ratio / weight; endless for a weight of 0 and a ratio above 0; 0 at a root

Only what is borrowed counts. The denominator is the parent's, so shares compare between siblings only.
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
    """The dominant share of one node."""

    ratio: Fraction | int = 0  #: Before the weight.
    weight: Fraction = Fraction(1)
    resource: str = ""  #: The dominant one; of equal ones the first by name.
    is_borrowing: bool = False  #: Possible with a ratio of 0, too: where the parent has nothing to lend.

    @property
    def is_endless(self) -> bool:
        """Weight 0, and it borrows."""
        return self.weight == 0 and self.ratio > 0

    @property
    def key(self) -> ShareKey:
        """For comparing with a sibling's."""
        if self.ratio == 0:
            return 0, 0
        if self.weight == 0:
            return 1, self.ratio
        return 0, self.ratio if self.weight == 1 else self.ratio / self.weight

    @property
    def per_mille(self) -> int | None:
        """Rounded up; None when it is endless."""
        return None if self.is_endless else ceil(self.key[1] * PER_MILLE)


NOTHING_BORROWED = Share()


def dominant_share(ledger: QuotaLedger, node: int, extra: Mapping[FlavorResource, int] | None = None) -> Share:
    """The share of a node, with so much more in use at the node itself; only flavors that the node declares count."""
    forest = ledger.forest
    if forest.parents[node] < 0:
        return NOTHING_BORROWED
    borrowed = ledger.borrowed(node, extra)
    if not borrowed:
        return NOTHING_BORROWED
    lendable = forest.lendable(forest.parents[node])
    ratio, dominant = max(
        ((Fraction(units, lendable[name]), name) for name, units in sorted(borrowed.items()) if lendable.get(name, 0) > 0),
        key=lambda share: share[0],  # of equal ones `max` takes the first, and they stand by name
        default=(0, ""),
    )
    return Share(ratio=ratio, weight=forest.weights[node], resource=dominant, is_borrowing=True)
