"""Dominant shares as whole numbers, to compare thousands of them: the order among siblings is that of the exact shares.

All children of a node are measured by what that node could hold, so their shares have a common denominator: the least common multiple of
what the node could hold of each resource, and of the numerators of the weights. The rank is the numerator.

    rank = max over r of borrowed(r) * factor(r) * factor(weight)

Source: `federation.quota.shares`, with the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from federation.quota.ledger import Amounts, QuotaLedger

_Factor = tuple[str, Sequence[int], int]  #: Resource, what every node has borrowed of it, and the factor that turns that into a share.


class ShareRanks:
    """Share ranks over one ledger."""

    def __init__(self, ledger: QuotaLedger) -> None:
        self._ledger, self._forest = ledger, ledger.forest
        self._over_keys, self._parents = ledger.over_keys, ledger.forest.parents
        self._factors: dict[int, tuple[tuple[_Factor, ...], Mapping[int, int]]] = {}  #: By parent; with the factors of weights.

    def rank(self, node: int) -> int:
        """Return the rank of a node's share; 0 at a root, and if nothing is borrowed.

        The rank is not cached: checking a cached rank would cost as much, and would slow down each charge.
        """
        if not self._over_keys[node]:
            return 0
        factors, weights = self._factors.get(self._parents[node]) or self._factors_below(self._parents[node])
        ratio = 0
        for _, borrowed, factor in factors:
            if (part := borrowed[node] * factor) > ratio:
                ratio = part
        return ratio * weights[node] if ratio else 0

    def is_borrowing(self, node: int) -> bool:
        """Return whether the node borrows anything that it declares. That is possible with rank 0 if the parent has nothing to lend."""
        if self._forest.parents[node] < 0 or not self._ledger.borrows(node):
            return False
        return self.rank(node) > 0 or self._ledger.has_borrowed(node)

    def rank_adding(self, node: int, amounts: Amounts) -> int:
        """Return the rank with these amounts more in use at the node itself, of whichever flavors."""
        return self.rank_borrowing(node, self._ledger.borrowed_more(node, amounts))

    def rank_borrowing(self, node: int, more: Mapping[str, int]) -> int:
        """Return the rank if the node borrowed so much more of each resource."""
        factors, weights = self._factors.get(self._parents[node]) or self._factors_below(self._parents[node])
        ratio = 0
        for name, borrowed, factor in factors:
            if (part := (borrowed[node] + more.get(name, 0)) * factor) > ratio:
                ratio = part
        return ratio * weights[node] if ratio else 0

    def _factors_below(self, parent: int) -> tuple[tuple[_Factor, ...], Mapping[int, int]]:
        scale = self._forest.share_scale(parent)
        factors = tuple((name, self._ledger.borrowed_by_node(name), factor) for name, factor in scale.factors.items())
        self._factors[parent] = found = factors, scale.weights
        return found
