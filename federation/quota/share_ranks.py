"""Dominant shares as whole numbers, to compare thousands of them: the order among siblings is that of the exact shares.

All children of a node are measured by what that node could hold, so their shares have a common denominator: the least common multiple of
what the node could hold of each resource, and of the numerators of the weights. The rank is the numerator.

    rank = max over r of borrowed(r) * factor(r) * factor(weight)

Source: `federation.quota.shares`, with the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from federation.quota.ledger import Amounts, QuotaLedger
from federation.tenants import FlavorResource

_Factor = tuple[str, Sequence[int], int]  #: Resource, what every node has borrowed of it, and the factor that turns that into a share.
#: Requested pair, use of every node beyond its own, and whether a node declares the pair.
_Requested = tuple[FlavorResource, Sequence[int], Sequence[bool]]
#: For each resource: what every node has borrowed, the factor, and the requested pairs. The factors of weights; and `passes_on`.
_Request = tuple[list[tuple[Sequence[int], int, list[_Requested]]], Mapping[int, int], bool]


@dataclass(frozen=True, slots=True)
class Request:
    """A request of one leaf for use that reaches all nodes above, prepared for the rank of one node of its path.

    Every node declares what is requested.
    """

    #: For each requested resource: what every node has borrowed and its factor; of the requested pair what every node uses beyond its
    #: own, and the units.
    requested: tuple[tuple[Sequence[int], int, Sequence[int], int], ...]
    others: tuple[tuple[Sequence[int], int], ...]  #: For each other resource: what every node has borrowed, and its factor.
    weights: Mapping[int, int]

    def rank(self, node: int) -> tuple[bool, int]:
        """Return the same as `ShareRanks.rank_charging`."""
        would_borrow, ratio = False, 0
        for borrowed, factor, excess, more in self.requested:
            units, after = borrowed[node], excess[node] + more
            if after > 0:
                would_borrow = True
                units += after if after < more else more  # noqa: FURB136  a call of `min` takes three times as long
            if (part := units * factor) > ratio:
                ratio = part
        for borrowed, factor in self.others:
            if (part := borrowed[node] * factor) > ratio:
                ratio = part
        return would_borrow, ratio * self.weights[node] if ratio else 0


class ShareRanks:
    """Share ranks over one ledger."""

    def __init__(self, ledger: QuotaLedger) -> None:
        self._ledger, self._forest = ledger, ledger.forest
        self._parents = ledger.forest.parents
        self._factors: dict[int, tuple[tuple[_Factor, ...], Mapping[int, int]]] = {}  #: By parent; with the factors of weights.
        #: By node: for each resource what every node has borrowed, and the factor times that of the node's weight.
        self._weighted: dict[int, tuple[tuple[Sequence[int], int], ...]] = {}
        self._requests: dict[tuple[int | FlavorResource, ...], _Request] = {}  #: By parent and requested pairs.
        #: By parent and requested amounts, for its children and all nodes above.
        self._prepared: dict[tuple[int, tuple[tuple[FlavorResource, int], ...]], tuple[Request | None, ...]] = {}

    def rank(self, node: int) -> int:
        """Return the rank of a node's share; 0 at a root, and if nothing is borrowed.

        The rank is not cached: checking a cached rank would cost as much, and would slow down each charge.
        """
        rank = 0
        for borrowed, factor in self._weighted[node] if node in self._weighted else self._weigh(node):
            if (part := borrowed[node] * factor) > rank:
                rank = part
        return rank

    def _weigh(self, node: int) -> tuple[tuple[Sequence[int], int], ...]:
        factors, weights = self._factors.get(self._parents[node]) or self._factors_below(self._parents[node])
        self._weighted[node] = found = tuple((borrowed, factor * weights[node]) for _, borrowed, factor in factors)
        return found

    def is_borrowing(self, node: int) -> bool:
        """Return whether the node borrows anything that it declares. That is possible with rank 0 if the parent has nothing to lend."""
        return self._parents[node] >= 0 and self._ledger.has_borrowed(node)

    def rank_adding(self, node: int, amounts: Amounts, times: int = 1) -> int:
        """Return the rank with these amounts more in use at the node itself, `times` times, of whichever flavors."""
        parent = self._parents[node]
        resources, weights, _ = self._requests.get((parent, *amounts)) or self._request(parent, amounts)
        ratio = 0
        for borrowed, factor, requested in resources:
            units = borrowed[node]
            for key, excess, is_declared in requested:
                before = excess[node]
                after = before + amounts[key] * times
                if (after > 0 or before > 0) and is_declared[node]:
                    units += (after if after > 0 else 0) - (before if before > 0 else 0)  # noqa: FURB136  `max` takes three times as long
            if (part := units * factor) > ratio:
                ratio = part
        return ratio * weights[node] if ratio else 0

    def rank_charging(self, leaf: int, node: int, amounts: Amounts) -> tuple[bool, int]:
        """Return what the node's share would be if the amounts, none below 0, were charged to a leaf below it, or to the node itself.

        Returns:
            Whether the node would then use more than its own of something requested, and its rank.
        """
        parent = self._parents[node]
        resources, weights, is_passed_on = self._requests.get((parent, *amounts)) or self._request(parent, amounts)
        arriving = amounts if is_passed_on or leaf == node else self._ledger.arriving(leaf, node, amounts)
        would_borrow, ratio = False, 0
        for borrowed, factor, requested in resources:
            units = borrowed[node]
            for key, excess, is_declared in requested:
                before = excess[node]
                after = before + arriving[key]
                if after > 0:
                    would_borrow = would_borrow or amounts[key] > 0
                    if is_declared[node]:
                        units += after if before < 0 else after - before
            if (part := units * factor) > ratio:
                ratio = part
        return would_borrow, ratio * weights[node] if ratio else 0

    def prepared(self, leaf: int, amounts: Amounts) -> tuple[Request | None, ...]:
        """Return the request at each node of the leaf's path below the root, from the root down.

        None where `rank_charging` is needed: a node keeps some of it or does not declare it, or it has two flavors of a resource.
        """
        return self._prepared_below(self._parents[leaf], tuple(amounts.items()))

    def _prepared_below(self, parent: int, asked: tuple[tuple[FlavorResource, int], ...]) -> tuple[Request | None, ...]:
        if parent < 0:
            return ()
        found = self._prepared.get((parent, asked))
        if found is None:
            above = self._prepared_below(self._parents[parent], asked)
            self._prepared[parent, asked] = found = *above, self._prepare(parent, dict(asked))
        return found

    def _prepare(self, parent: int, amounts: Amounts) -> Request | None:
        ledger, resources = self._ledger, {name for _, name in amounts}
        if len(resources) < len(amounts) or not ledger.passes_on(amounts):
            return None
        if not all(units > 0 and self._forest.rows(key).all_declare for key, units in amounts.items()):
            return None
        factors, weights = self._factors.get(parent) or self._factors_below(parent)
        known = {name: factor for name, _, factor in factors}  # Without those of which the parent has nothing to lend.
        requested = [
            (ledger.borrowed_by_node(key[1]), known.get(key[1], 0), ledger.excess_by_node(key), units) for key, units in amounts.items()
        ]
        others = [(borrowed, factor) for name, borrowed, factor in factors if name not in resources]
        return Request(tuple(requested), tuple(others), weights)

    def _factors_below(self, parent: int) -> tuple[tuple[_Factor, ...], Mapping[int, int]]:
        scale = self._forest.share_scale(parent)
        factors = tuple((name, self._ledger.borrowed_by_node(name), factor) for name, factor in scale.factors.items())
        self._factors[parent] = found = factors, scale.weights
        return found

    def _request(self, parent: int, amounts: Amounts) -> _Request:
        factors, weights = self._factors.get(parent) or self._factors_below(parent)
        by_resource: dict[str, tuple[Sequence[int], int, list[_Requested]]] = {
            name: (borrowed, factor, []) for name, borrowed, factor in factors
        }
        for key in amounts:
            if key[1] not in by_resource:  # The parent has nothing of it to lend.
                by_resource[key[1]] = self._ledger.borrowed_by_node(key[1]), 0, []
            by_resource[key[1]][2].append((key, self._ledger.excess_by_node(key), self._forest.rows(key).is_declared))
        found = list(by_resource.values()), weights, self._ledger.passes_on(amounts)
        asked: tuple[int | FlavorResource, ...] = (parent, *amounts)
        self._requests[asked] = found
        return found
