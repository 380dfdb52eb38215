"""Reclaim candidates: leases that live on borrowed quota, in the order of reclaim.

The order below one node of the tree: the lowest priority, the largest dominant share right under that node, the least lost work, the
newest grant. The candidates and their order depend on the planning state of that moment only: a failed attempt leaves no trace.

Sorting all borrowers for each claim would cost more than the rest of a round. So where many children of a node have leases of a flavor,
a row sorted by shares is kept, and a query moves only the children whose use has changed since the last one. A few children are sorted
on each query. The leases below a child have one order for the whole round. A query merges these orders only as far as it is read.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Generator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from federation.planning.planning_state import LeaseKey, PlannedDemand, PlannedLease, PlanningState
from federation.quota.policies import QueueSettings, Rules
from federation.tenants import FlavorResource
from mesh.core.ids import FlavorName

Standing = tuple[int, int, LeaseKey]  #: Lost work, token, key: orders leases of one priority below one child, for the whole round.
_Head = tuple[int, Standing, int, int]  #: Share, standing, index among the leases below the child, and the child.
Way = tuple[int, ...]  #: The nodes from the lease's own up to a child of the queried ancestor.
_Place = tuple[Standing, PlannedLease, Way]
_ByChild = defaultdict[int, list[_Place]]
_BEHIND_ALL = (1, -1)  #: Sorts after every child of a row, whose shares have the sign turned.
_FEW = 8  #: Up to so many children, sorting on each query is faster than keeping a row of all siblings.


def _by_child() -> _ByChild:
    return defaultdict(list)


@dataclass(slots=True)
class _Below:
    """The leases of one flavor below one node."""

    by_priority: defaultdict[int, _ByChild] = field(default_factory=lambda: defaultdict(_by_child))  #: The lowest first.
    children: set[int] = field(default_factory=set)  #: Children of the node that have any.


@dataclass(slots=True)
class _Row:
    """The children of one node that borrow, the largest share first."""

    shares: dict[int, int]  #: Share of each child in `order`.
    order: list[tuple[int, int]] = field(init=False)  #: Share with the sign turned, and the child.

    def __post_init__(self) -> None:
        self.order = sorted((-share, child) for child, share in self.shares.items())

    def place(self, child: int, share: int | None) -> None:
        """Move the child to its share's position; remove it if the share is None."""
        before = self.shares.get(child)
        if before == share:
            return
        if before is not None:
            del self.order[bisect_left(self.order, (-before, child))], self.shares[child]
        if share is not None:
            insort(self.order, (-share, child))
            self.shares[child] = share


@dataclass(slots=True)
class _Asked:
    """One query, as far as it is read."""

    ancestor: int
    but: int  #: The child that is left out.
    short: Mapping[FlavorResource, int]  #: Amounts still missing; the caller keeps them up to date.
    overs: Mapping[FlavorResource, set[int]]  #: Borrowing nodes by key; follows the ledger.
    above: int | None  #: Only children with a greater share take part; None: all do, and shares are read again as they fall.


class ReclaimCandidates:
    """Reclaim candidates of one round, without leases that have grown in the round, are within their minimum run time, or are fixed."""

    def __init__(
        self,
        planning_state: PlanningState,
        rules: Rules,
        now_ms: int,
        settings: Mapping[str, QueueSettings],
        rows: dict[int, _Row] | None = None,
        *,
        is_of_any_age: bool = False,
    ) -> None:
        self._planning_state, self._rules, self._now_ms, self._settings = planning_state, rules, now_ms, settings
        self._min_run_ms = {path: known.min_run_ms for path, known in settings.items() if known.min_run_ms is not None}
        self._rows: dict[int, _Row] = {} if rows is None else rows
        self._leases: Mapping[tuple[int, FlavorName], _Below] | None = None  #: By node and flavor; built on the first query.
        self._is_of_any_age = is_of_any_age

    def of_any_age(self) -> ReclaimCandidates:
        """Return the same with leases within their minimum run time. Both share the rows, since the board reports each change once."""
        return ReclaimCandidates(self._planning_state, self._rules, self._now_ms, self._settings, self._rows, is_of_any_age=True)

    def is_too_young(self, lease: PlannedLease) -> bool:
        """Return whether the lease was first granted less than its tenant's minimum run time ago."""
        return lease.holding.since_ms > self._now_ms - self._min_run_ms.get(lease.key[1], self._rules.min_run_ms)

    def rank(self, lease: PlannedLease, ancestor: int) -> tuple[int, int, Standing]:
        """Return the lease's position in the order below the ancestor."""
        path = self._planning_state.forest.paths[lease.node]
        share = self._planning_state.shares.rank(path[max(0, len(path) - len(self._planning_state.forest.paths[ancestor]) - 1)])
        return lease.holding.priority, -share, self._standing(lease)

    def may_be_asked(self, lease: PlannedLease) -> bool:
        """Return whether the lease may be reclaimed: old enough, within reach, and without growth in this round."""
        return any(lease.target.values()) and self._could_be_asked(lease)

    def below(
        self, ancestor: int, claim: PlannedDemand, short: Mapping[FlavorResource, int], *, but: int, above: int | None = None
    ) -> Generator[tuple[PlannedLease, Way], None, None]:
        """Yield the leases that borrow a missing resource, in order, each with its path; without those below the child `but`.

        `short` may shrink while the result is read; leases that no longer borrow anything missing are then skipped. If a node on the path
        is within its own quota, the leases below it are skipped. Shares fall as leases are reclaimed, and the rest is ranked again. With
        `above` the shares are read once, before any reclaim, and only children with a greater share take part.
        """
        if self._leases is None:
            self._leases = self._gathered()
        there = self._leases.get((ancestor, claim.demand.flavor))
        row = self._row(ancestor, there.children, above) if there is not None else []
        if there is None or not row:
            return
        overs = self._planning_state.ledger.over(claim.slot)
        for _, lease, way in self._merged(_Asked(ancestor, but, short, overs, above), there, row):
            for key in short if not lease.has_grown else ():
                if overs[key].issuperset(way):  # The leaf and all nodes above it borrow the same missing resource.
                    yield lease, way
                    break

    def _merged(self, asked: _Asked, there: _Below, row: list[tuple[int, int]]) -> Generator[_Place, None, None]:
        """Yield the leases below the children of a row, priority by priority, the largest share first."""
        rank, is_ranked_again = self._planning_state.shares.rank, asked.above is None
        for by_child in there.by_priority.values():
            heads: list[_Head] = []
            for behind, child in (*(self._row(asked.ancestor, there.children) if is_ranked_again else row), _BEHIND_ALL):
                while heads and heads[0][0] < behind:
                    ranked, standing, place, first = heads[0]
                    if is_ranked_again and (fresh := -rank(first)) > ranked:
                        heapq.heapreplace(heads, (fresh, standing, place, first))
                        continue
                    leases = by_child[first]
                    if place + 1 < len(leases):
                        heapq.heapreplace(heads, (ranked, leases[place + 1][0], place + 1, first))
                    else:
                        heapq.heappop(heads)
                    yield leases[place]
                if child in by_child and child != asked.but:
                    for key in asked.short:
                        if child in asked.overs[key]:
                            heapq.heappush(heads, (behind, by_child[child][0][0], 0, child))
                            break

    def _row(self, ancestor: int, children: AbstractSet[int], above: int | None = None) -> list[tuple[int, int]]:
        """Return the borrowing children of the node by present share, if greater than `above`. A kept row may include siblings."""
        rank, over_keys, least = self._planning_state.shares.rank, self._planning_state.ledger.over_keys, -1 if above is None else above
        if len(children) <= _FEW:
            return sorted([(-share, child) for child in children if over_keys[child] and (share := rank(child)) > least])
        row = self._rows.get(ancestor)
        if row is None:
            row = self._rows[ancestor] = _Row(
                {child: rank(child) for child in self._planning_state.forest.children[ancestor] if over_keys[child]}
            )
        for child in self._planning_state.moved.get(ancestor, ()):
            row.place(child, rank(child) if over_keys[child] else None)
        self._planning_state.moved[ancestor] = set()
        return row.order[: bisect_left(row.order, (-least, -1))]

    def _gathered(self) -> Mapping[tuple[int, FlavorName], _Below]:
        found: defaultdict[tuple[int, FlavorName], _Below] = defaultdict(_Below)
        open_leases = [lease for lease in self._planning_state.leases.values() if self._could_be_asked(lease)]
        for priority, standing, lease in sorted([(lease.holding.priority, self._standing(lease), lease) for lease in open_leases]):
            path, flavor = self._planning_state.forest.paths[lease.node], lease.key[2]
            for steps in range(1, len(path)):
                there = found[path[steps], flavor]
                there.children.add(path[steps - 1])
                there.by_priority[priority][path[steps - 1]].append((standing, lease, path[:steps]))
        return found

    def _could_be_asked(self, lease: PlannedLease) -> bool:
        """Return whether the lease may be reclaimed if anything is left of it."""
        if lease.has_grown or lease.holding.is_fixed:
            return False
        return self._is_of_any_age or not self.is_too_young(lease)

    def _standing(self, lease: PlannedLease) -> Standing:
        holding = lease.holding
        lost_ms = self._now_ms - max(holding.since_ms, holding.saved_ms or 0) if self._rules.weighs_lost_work else 0
        return lost_ms, -holding.token, lease.key
