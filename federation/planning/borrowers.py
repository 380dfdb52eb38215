"""Leases that live on what others lend, in the order in which they are asked to give it back.

Of those below one node of the tree: the lowest priority, the largest dominant share right under that node, what loses least work,
the newest grant. Who is asked, and in which order, depends on the board at that moment only: an attempt that came to nothing leaves
no trace.

To sort all borrowers for each claim would cost more than all the rest of a round. So where many children of a node have leases of a
flavor they stand in a row by their shares, which is kept: at the next question only those are placed anew whose use has changed since.
A few are sorted when asked for. The leases below a child stand in an order that holds for the whole round. A question merges these
orders only as far as it is read.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Generator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from federation.planning.board import Board, Claim, Lease, LeaseKey
from federation.quota.policies import QueueSettings, Rules
from federation.tenants import FlavorResource
from mesh.ids import FlavorName

Standing = tuple[int, int, LeaseKey]  #: Lost work, token, name: orders leases of one priority below one child; the same for a whole round.
_Head = tuple[int, Standing, int, int]  #: Share, standing, place among the leases below the child, and the child.
Way = tuple[int, ...]  #: The nodes from a lease's own up to a child of the ancestor that was asked about.
_Place = tuple[Standing, Lease, Way]
_ByChild = defaultdict[int, list[_Place]]
_BEHIND_ALL = (1, -1)  #: No child of a row; all have a share, with the sign turned, that is less.
_FEW = 8  #: So many children are sorted at each question in less time than a row of all their siblings is kept.


def _by_child() -> _ByChild:
    return defaultdict(list)


@dataclass(slots=True)
class _Below:
    """The leases of one flavor below one node."""

    by_priority: defaultdict[int, _ByChild] = field(default_factory=lambda: defaultdict(_by_child))  #: The lowest first.
    children: set[int] = field(default_factory=set)  #: Of the node, that have any.


@dataclass(slots=True)
class _Row:
    """The children of one node that borrow, the largest share first."""

    shares: dict[int, int]  #: Of each child in the order, as it stands there.
    order: list[tuple[int, int]] = field(init=False)  #: Share, with the sign turned, and the child.

    def __post_init__(self) -> None:
        self.order = sorted((-share, child) for child, share in self.shares.items())

    def place(self, child: int, share: int | None) -> None:
        """Where the child's share puts it; nowhere when it has none."""
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
    """One question, as far as it is read."""

    ancestor: int
    but: int  #: The child that does not take part.
    short: Mapping[FlavorResource, int]  #: What is still missing; whoever asks keeps it up to date.
    overs: Mapping[FlavorResource, set[int]]  #: Who borrows, by key; follows the ledger.
    above: int | None  #: The share that takes part no longer; None: all do, and are ranked again whenever that is needed.


class Borrowers:
    """Over one board, for one round. What the round itself has given is not asked for, nor what is too young, nor what cannot be had."""

    def __init__(
        self,
        board: Board,
        rules: Rules,
        now_ms: int,
        settings: Mapping[str, QueueSettings],
        rows: dict[int, _Row] | None = None,
        *,
        is_of_any_age: bool = False,
    ) -> None:
        self._board, self._rules, self._now_ms, self._settings = board, rules, now_ms, settings
        self._min_run_ms = {path: known.min_run_ms for path, known in settings.items() if known.min_run_ms is not None}
        self._rows: dict[int, _Row] = {} if rows is None else rows
        self._leases: Mapping[tuple[int, FlavorName], _Below] | None = None  #: By node and flavor; gathered when first asked for.
        self._is_of_any_age = is_of_any_age

    def of_any_age(self) -> Borrowers:
        """The same, and with them what is too young. The rows are the same ones, since the board tells only once what has moved."""
        return Borrowers(self._board, self._rules, self._now_ms, self._settings, self._rows, is_of_any_age=True)

    def is_too_young(self, lease: Lease) -> bool:
        """It was first granted less than the minimum run time of its tenant ago."""
        return lease.holding.since_ms > self._now_ms - self._min_run_ms.get(lease.key[1], self._rules.min_run_ms)

    def rank(self, lease: Lease, ancestor: int) -> tuple[int, int, Standing]:
        """Where the lease stands among all below the ancestor."""
        path = self._board.forest.paths[lease.node]
        share = self._board.shares.rank(path[max(0, len(path) - len(self._board.forest.paths[ancestor]) - 1)])
        return lease.holding.priority, -share, self._standing(lease)

    def may_be_asked(self, lease: Lease) -> bool:
        """Old enough, within reach, and not just given."""
        return any(lease.target.values()) and self._could_be_asked(lease)

    def below(
        self, ancestor: int, claim: Claim, short: Mapping[FlavorResource, int], *, but: int, above: int | None = None
    ) -> Generator[tuple[Lease, Way], None, None]:
        """Those that borrow something that is short, in order, each with its way up; without what lies below the child `but`.

        What is `short` may become less while the answer is read, and then those who had only that are passed over.
        Where a node on the way is within its own of it, what is below is its own affair. Shares fall as leases give way, and those that
        follow are ranked again. With `above` shares are looked at once, before anybody gives way, and only children take part whose share
        is greater than that.
        """
        if self._leases is None:
            self._leases = self._gathered()
        there = self._leases.get((ancestor, claim.want.flavor))
        row = self._row(ancestor, there.children, above) if there is not None else []
        if there is None or not row:
            return
        overs = self._board.ledger.over(claim.slot)
        for _, lease, way in self._merged(_Asked(ancestor, but, short, overs, above), there, row):
            for key in short if not lease.has_grown else ():
                if overs[key].issuperset(way):  # The leaf and all above it borrow one and the same that is missing now.
                    yield lease, way
                    break

    def _merged(self, asked: _Asked, there: _Below, row: list[tuple[int, int]]) -> Generator[_Place, None, None]:
        """The leases below the children of a row, priority by priority, and the largest share first."""
        rank, is_ranked_again = self._board.shares.rank, asked.above is None
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
        """Those of these children of the node that borrow, by their shares now, if these are greater; where they are many, perhaps with
        siblings of theirs.
        """
        rank, over_keys, least = self._board.shares.rank, self._board.ledger.over_keys, -1 if above is None else above
        if len(children) <= _FEW:
            return sorted([(-share, child) for child in children if over_keys[child] and (share := rank(child)) > least])
        row = self._rows.get(ancestor)
        if row is None:
            row = self._rows[ancestor] = _Row({child: rank(child) for child in self._board.forest.children[ancestor] if over_keys[child]})
        for child in self._board.moved.get(ancestor, ()):
            row.place(child, rank(child) if over_keys[child] else None)
        self._board.moved[ancestor] = set()
        return row.order[: bisect_left(row.order, (-least, -1))]

    def _gathered(self) -> Mapping[tuple[int, FlavorName], _Below]:
        found: defaultdict[tuple[int, FlavorName], _Below] = defaultdict(_Below)
        open_leases = [lease for lease in self._board.leases.values() if self._could_be_asked(lease)]
        for priority, standing, lease in sorted([(lease.holding.priority, self._standing(lease), lease) for lease in open_leases]):
            path, flavor = self._board.forest.paths[lease.node], lease.key[2]
            for steps in range(1, len(path)):
                there = found[path[steps], flavor]
                there.children.add(path[steps - 1])
                there.by_priority[priority][path[steps - 1]].append((standing, lease, path[:steps]))
        return found

    def _could_be_asked(self, lease: Lease) -> bool:
        """With something left."""
        if lease.has_grown or lease.holding.is_fixed:
            return False
        return self._is_of_any_age or not self.is_too_young(lease)

    def _standing(self, lease: Lease) -> Standing:
        holding = lease.holding
        lost_ms = self._now_ms - max(holding.since_ms, holding.saved_ms or 0) if self._rules.weighs_lost_work else 0
        return lost_ms, -holding.token, lease.key
