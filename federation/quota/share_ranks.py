"""Dominant shares as whole numbers, for those who compare thousands of them: the order among siblings is that of the exact shares.

All children of a node are measured by what that node could hold, so their shares have a denominator in common: the least common
multiple of what it could hold of each resource, and of what their weights are counted in. What is left of a share is its numerator.

    rank = max over r of borrowed(r) * factor(r) * factor(weight)

Source: `federation.quota.shares`, whose order this is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from federation.quota.ledger import QuotaLedger
from federation.tenants import FlavorResource

_Factor = tuple[str, Sequence[int], int]  #: Resource, what every node has borrowed of it, and the factor that makes a share of it.


class ShareRanks:
    """Over one ledger; each rank is counted anew only when the use of its node has changed."""

    def __init__(self, ledger: QuotaLedger) -> None:
        self._ledger, self._forest = ledger, ledger.forest
        self._versions, self._parents = ledger.versions, ledger.forest.parents
        self._factors: dict[int, tuple[tuple[_Factor, ...], Mapping[int, int]]] = {}  #: By parent; with the factors of weights.
        self._ranks = [0] * len(self._versions)
        self._counted_at = [0] * len(self._versions)  #: The version of the use that each rank is of; nothing was in use at the first.

    def rank(self, node: int) -> int:
        """Of the share of a node; 0 at a root, and where nothing is borrowed."""
        version = self._versions[node]
        if self._counted_at[node] != version:
            self._counted_at[node] = version
            self._ranks[node] = self._counted(node) if self._ledger.borrows(node) else 0
        return self._ranks[node]

    def is_borrowing(self, node: int) -> bool:
        """Does the node borrow anything that it declares? Possible with a rank of 0, too: where the parent has nothing to lend."""
        if self._forest.parents[node] < 0 or not self._ledger.borrows(node):
            return False
        return self.rank(node) > 0 or self._ledger.has_borrowed(node)

    def rank_with(self, node: int, extra: Mapping[FlavorResource, int]) -> int:
        """As `rank`, with so much more, or less, in use at the node itself."""
        more = self._ledger.borrowed_more(node, extra)
        factors, weights = self._factors.get(self._parents[node]) or self._factors_below(self._parents[node])
        ratio = 0
        for name, borrowed, factor in factors:
            ratio = max(ratio, (borrowed[node] + more.get(name, 0)) * factor)
        return ratio * weights[node] if ratio else 0

    def ranks_with(self, node: int, extra: Mapping[FlavorResource, int]) -> list[int]:
        """As `rank_with`, of every resource by itself, the dominant one first: between equal shares the next resource decides."""
        more = self._ledger.borrowed_more(node, extra)
        factors, weights = self._factors.get(self._parents[node]) or self._factors_below(self._parents[node])
        ranks = [(borrowed[node] + more.get(name, 0)) * factor * weights[node] for name, borrowed, factor in factors]
        return sorted(ranks, reverse=True)

    def _counted(self, node: int) -> int:
        """As `rank_with` without anything more: asked for so often that it has its own loop."""
        factors, weights = self._factors.get(self._parents[node]) or self._factors_below(self._parents[node])
        ratio = 0
        for _, borrowed, factor in factors:
            ratio = max(ratio, borrowed[node] * factor)
        return ratio * weights[node] if ratio else 0

    def _factors_below(self, parent: int) -> tuple[tuple[_Factor, ...], Mapping[int, int]]:
        scale = self._forest.share_scale(parent)
        factors = tuple((name, self._ledger.borrowed_by_node(name), factor) for name, factor in scale.factors.items())
        self._factors[parent] = found = factors, scale.weights
        return found
