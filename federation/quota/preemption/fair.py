"""Preemption by shares: from the sibling that borrows most, as long as the shares become more equal.

The search goes from the root down to the child with the highest share that still has candidates, until a queue is reached. Between a
cohort and a queue with equal shares it takes the cohort, between equal queues the one whose next candidate comes first, between equal
cohorts the first by name. A node that does not borrow, and is not on the path to the asking queue, is closed to outsiders with all below
it.

Whether a workload may be preempted is checked at the two siblings right below the lowest common ancestor of both queues, by one or two
strategies. There is no check inside the own queue, or if the asking queue stays within its own quota with the request. That is decided
before the first victim: a queue that is within its quota only because its own work was preempted goes by shares.

Two rules go beyond Kueue's (`Rules.rechecks_shares`): a victim chosen by share must leave the preemptor below the share that the
victim's queue had, and this is checked again at the end. Sparing victims of the own queue raises the preemptor's share after the first
check; Kueue loops there (#14543). With the second check, each swap lowers the largest unequal share, so no chain of swaps returns to its
start.
Source: Kueue `preemption/fairsharing`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

from federation.quota.ledger import Amounts
from federation.quota.policies import PreemptionMode, Strategy
from federation.quota.preemption.candidates import (
    Victim,
    candidates_in,
    fill_back,
    has_displaced,
    kept_candidates,
    queues_with_candidates,
    victim_order,
)
from federation.quota.share_rows import ShareRow
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import Running
from federation.tenants import FlavorResource
from mesh.core.reasons import Reason

_BELOW_ALL = -1


def fair_victims(snapshot: QuotaSnapshot, ask: Ask) -> tuple[Victim, ...]:
    """Return the victims so that the request fits; empty if no preemption helps. The snapshot is unchanged afterwards."""
    if Outlook(snapshot, ask).is_hopeless(ask.amounts):
        return ()
    mark = snapshot.mark()
    victims = make_room(snapshot, ask)
    snapshot.undo(mark)
    return victims


def make_room(snapshot: QuotaSnapshot, ask: Ask) -> tuple[Victim, ...]:
    """Charge the request, remove the victims so that it fits, and return them; empty, with no change, if no preemption helps.

    The caller has an `Outlook` that is not hopeless.
    """
    mark = snapshot.mark()
    snapshot.charge(ask.node, ask.amounts)
    hunt = _Hunt(snapshot, ask)
    victims = hunt.settled() if any(hunt.by(strategy) for strategy in snapshot.rules.strategies) else []
    if not victims:
        snapshot.undo(mark)
    return tuple(victims)


class Outlook:
    """Whether preemption may help a request, or a greater one of the queue that lacks the same keys; for the snapshot as it is now.

    A greater request has a greater share and exceeds the same limits, so what is hopeless stays so. This is far cheaper than the search.

    Args:
        ask: The least request.
    """

    __slots__ = ("_ask", "_givers", "_is_alone", "_most", "_own", "_snapshot")

    def __init__(self, snapshot: QuotaSnapshot, ask: Ask) -> None:
        policies = snapshot.settings[ask.node].policies
        self._snapshot, self._ask = snapshot, ask
        self._own = candidates_in(snapshot, ask, ask.node, policies.within_queue)
        #: The most that the queue's own limits allow without all of these: no victim outside lifts them. Room of a mesh has no such limits.
        self._most = {} if ask.mesh else {key: self._most_of(key) for key, units in ask.amounts.items() if units}
        self._is_alone = snapshot.forest.parents[ask.node] < 0 or policies.reclaim is PreemptionMode.NEVER
        self._givers: list[tuple[int, int]] | None = None  #: A node of the path, and the greatest share of a sibling that could give.

    def is_hopeless(self, amounts: Amounts) -> bool:
        """Return whether policies or the queue's own limits forbid any preemption that helps.

        Args:
            amounts: The request, at least the least one.
        """
        ask, snapshot = self._ask, self._snapshot
        if any(amounts[key] > most for key, most in self._most.items()):
            return True
        if self._own or self._is_alone:
            return not self._own
        if self._givers is None:
            self._givers = self._find_givers()
        if not self._givers or self._is_due(amounts):
            return not self._givers
        rechecks, rank = snapshot.rules.rechecks_shares, snapshot.shares.rank_charging
        return all(share < rechecks + rank(ask.node, mine, amounts)[1] for mine, share in self._givers)

    def _most_of(self, key: FlavorResource) -> int:
        return self._snapshot.ledger.room(self._ask.node, key, steps=1) + sum(one.amounts.get(key, 0) for one in self._own)

    def _is_due(self, amounts: Amounts) -> bool:
        ledger, node = self._snapshot.ledger, self._ask.node
        return not any(ledger.would_borrow(node, key, amounts.get(key, 0)) for key in self._ask.needed)

    def _find_givers(self) -> list[tuple[int, int]]:
        """Find siblings on the path that could have to give. Without one the search takes nothing, so it would change no share."""
        snapshot, ask = self._snapshot, self._ask
        rows, flavors, is_due = snapshot.rows, {flavor for flavor, _ in ask.needed}, self._is_due(ask.amounts)
        found: list[tuple[int, int]] = []
        for mine, above in pairwise(snapshot.forest.paths[ask.node]):
            row = rows.row(above)
            if not row:
                continue
            least = _BELOW_ALL if is_due else snapshot.rules.rechecks_shares + snapshot.shares.rank_charging(ask.node, mine, ask.amounts)[1]
            users = rows.users(above, flavors)
            for minus, _, child in row:
                if -minus < least:
                    break
                if child in users and child != mine and rows.could_give_any(child, flavors):
                    found.append((mine, -minus))
                    break
        return found


@dataclass(slots=True)
class _Level:
    """Children of one node during a search, highest share first: what is left of the kept row, and a heap of those that left the row."""

    mine: int  #: The child on the path to the asking queue; -1: none is.
    heap: ShareRow
    row: ShareRow = field(default_factory=list)
    users: Collection[int] = ()  #: Children that have work of the needed flavors; others of the row are passed over.
    read: int = 0  #: Place of the first child of the row that is still in it.
    least: int | None = None  #: Value of `_Tree._least`; None: not known yet.

    def pop(self, *, in_row: bool) -> None:
        """Remove the first child."""
        if in_row:
            self.read += 1
        else:
            heappop(self.heap)

    def is_tied(self, minus: int, *, in_row: bool) -> bool:
        """Return whether another child may have the first one's share."""
        heap, read = self.heap, self.read + in_row
        if read < len(self.row) and self.row[read][0] <= minus:
            return True
        if in_row:
            return bool(heap) and heap[0][0] <= minus
        return (len(heap) > 1 and heap[1][0] <= minus) or (len(heap) > 2 and heap[2][0] <= minus)  # noqa: PLR2004  the two below the top

    def drop(self) -> None:
        """Remove all children."""
        self.heap.clear()
        self.read = len(self.row)


class _Tree:
    """Search tree of one strategy: yields queues to take from, and uses their candidates up."""

    def __init__(self, snapshot: QuotaSnapshot, ask: Ask, *, root: int, is_due: bool) -> None:
        self._snapshot, self._ask, self._root, self._is_due = snapshot, ask, root, is_due
        self._children = snapshot.forest.children
        self._mine = {above: below for below, above in pairwise(snapshot.forest.paths[ask.node])}  #: On its path: parent to child.
        self._flavors = {flavor for flavor, _ in ask.needed}
        self._closed: set[int] = set()
        self.changed: set[int] = set()  #: Nodes whose use may have changed since their level was made.
        self._opened: set[int] = set()  #: Cohorts that had something to give when they were reached first.
        self._levels: dict[int, _Level] = {}  #: By node.
        self._waiting: dict[int, list[Running]] = {}
        self.has_given = False  #: A victim was taken from the queue that was yielded last.
        self._order = victim_order(snapshot, ask.workload.queue)
        self._others = queues_with_candidates(snapshot, ask) if ask.mesh else None  #: On one mesh they are few.

    def targets(self) -> Iterator[int]:
        """Yield the queues to take from, found anew each time; the caller takes from `waiting`.

        The way down to a queue that gave nothing is the same as before, so the search goes on right above it.
        """
        root = self._root
        if root == self._ask.node:
            while self.waiting(root):
                yield root
            return
        start = root
        while root not in self._closed:
            queue = self._descend(start)
            if queue is None:
                start = root
                continue
            self.has_given = False
            yield queue
            start = root if self.has_given else self._snapshot.forest.parents[queue]

    def note_given(self, queue: int) -> None:
        """Record that a victim is taken from the queue."""
        self.has_given = True
        self.changed.update(self._snapshot.forest.paths[queue])

    def waiting(self, queue: int) -> list[Running]:
        """Return the candidates of the queue, the next one last."""
        known = self._waiting.get(queue)
        if known is None:
            known = self._waiting[queue] = self._candidates(queue)
        return known

    def _candidates(self, queue: int) -> list[Running]:
        snapshot, ask = self._snapshot, self._ask
        policies, is_own = snapshot.settings[ask.node].policies, queue == ask.node
        if not is_own and not snapshot.ledger.is_over(queue, ask.needed):
            return []
        policy = policies.within_queue if is_own else policies.reclaim
        if snapshot.is_momentary and not is_own and not ask.mesh:
            return kept_candidates(snapshot, ask, queue, policy)
        found = candidates_in(snapshot, ask, queue, policy)
        if snapshot.has_history and (is_own or not self._is_due):
            found = [one for one in found if not has_displaced(snapshot, ask, one)]
        if len(found) > 1:
            found.sort(key=self._order, reverse=True)
        return found

    def _descend(self, node: int) -> int | None:
        """Return the queue with the highest share below; None if a node had to be closed on the path."""
        while True:
            child = self._highest(node)
            if child is None:
                self._closed.add(node)
                return None
            if not self._children[child]:
                return child
            node = child

    def _highest(self, node: int) -> int | None:  # noqa: C901  the loop of all searches; each call in it would cost as much as it does
        """Return the child with the highest share that is not closed; a cohort goes before a queue of the same share.

        Shares only fall during a search, so a child whose share has fallen moves down when it is reached.
        """
        level = self._levels[node] if node in self._levels else self._level(node)
        mine, closed, changed, rank, children = level.mine, self._closed, self.changed, self._snapshot.shares.rank, self._children
        heap, row, users, opened = level.heap, level.row, level.users, self._opened
        least = self._least(level) if level.least is None or mine in changed else level.least
        equals: ShareRow = []  #: Open queues with the highest share; or the own side alone, and siblings of the same share are dropped.
        while True:
            read = level.read
            in_row = read < len(row) and not (heap and heap[0] < row[read])
            if not in_row and not heap:
                break
            entry = row[read] if in_row else heap[0]
            minus, place, child = entry
            if equals and minus != equals[0][0]:
                break
            if child in closed or (in_row and child not in users):
                level.pop(in_row=in_row)
                continue
            if child in changed and (share := rank(child)) != -minus:
                level.pop(in_row=in_row)
                heappush(heap, (-share, place, child))
                continue
            share = -minus
            if share < least - 1:
                level.drop()  # All others are lower still, and the preemptor's own side came before.
            elif share < least and child != mine:
                level.pop(in_row=in_row)
            elif not ((share or child == mine) and child in opened) and not self._is_open(child, share, is_mine=child == mine):
                closed.add(child)
                level.pop(in_row=in_row)
            elif share >= least and not equals and (children[child] or not level.is_tied(minus, in_row=in_row)):
                return child
            else:
                level.pop(in_row=in_row)
                equals.append(entry)
        if not equals:
            return None
        for entry in equals:
            heappush(heap, entry)
        return self._first([child for _, _, child in equals])

    def _least(self, level: _Level) -> int:
        """Return the least share of a child that has to give."""
        if level.least is None or level.mine in self.changed:
            level.least = _BELOW_ALL
            if level.mine >= 0 and not self._is_due:
                level.least = self._snapshot.shares.rank(level.mine) + self._snapshot.rules.rechecks_shares
        return level.least

    def _first(self, equals: list[int]) -> int | None:
        """Return the queue whose next candidate comes first."""
        return min(equals, key=lambda queue: self._order(self.waiting(queue)[-1])) if len(equals) > 1 else next(iter(equals), None)

    def _is_open(self, child: int, share: int, *, is_mine: bool) -> bool:
        """Return whether something may be taken below the child."""
        if not share and not is_mine and not self._snapshot.shares.is_borrowing(child):
            return False
        if not self._children[child]:
            return bool(self.waiting(child))
        if child not in self._opened:  # Later on its queues are open as long as they have candidates left.
            rows = self._snapshot.rows
            if not is_mine and self._others is None and not rows.could_give_any(child, self._flavors):
                return False
            self._opened.add(child)
        return True

    def _level(self, node: int) -> _Level:
        mine = self._mine.get(node, -1)
        if self._others is None:
            rows = self._snapshot.rows
            users = rows.users(node, self._flavors)
            row = rows.row_of(node, users)
            is_apart = mine >= 0 and not (mine in users and rows.is_listed(node, mine))
            level = _Level(mine, [rows.entry(mine)] if is_apart else [], row, users)
        else:
            forest = self._snapshot.forest
            depth = len(forest.paths[node])
            paths = (forest.paths[queue] for queue in (*self._others, self._ask.node))
            below = {path[-depth - 1] for path in paths if len(path) > depth and path[-depth] == node}
            level = _Level(mine, sorted(map(self._snapshot.rows.entry, below)))
        self._levels[node] = level
        return level


class _Hunt:
    """Search for the victims of one request; the request's own use is charged meanwhile."""

    def __init__(self, snapshot: QuotaSnapshot, ask: Ask) -> None:
        self._snapshot, self._ask = snapshot, ask
        self._victims: list[Victim] = []
        self._by_share: defaultdict[int, dict[str, Victim]] = defaultdict(dict)  #: Those chosen by share, by `_height` and id.
        #: Whether the queue stays within its own quota with the request; decided before its own work is preempted.
        self._is_due = not snapshot.ledger.is_over(ask.node, ask.needed)
        #: Limits of the asking queue; None: the ledger has to compare. The request is charged, so the queue uses some of each pair.
        self._bounds = None if ask.mesh else snapshot.ledger.bounds(ask.node, ask.amounts)
        self._root = self._highest_short()
        self._pairs: dict[int, tuple[int, int, int]] = {}  #: `lowest_common` of the asking queue and another.

    def by(self, strategy: Strategy) -> bool:
        """Take victims while the strategy permits; return whether the request fits."""
        tree = _Tree(self._snapshot, self._ask, root=self._root, is_due=self._is_due)
        is_first = strategy is self._snapshot.rules.strategies[0]
        for queue in tree.targets():  # noqa: SIM110  a generator under `any` takes twice as long
            if self._from(tree, queue, strategy, once=not is_first):
                return True
        return False

    def _highest_short(self) -> int:
        """Return the highest node of the path whose limits the request exceeds: work elsewhere frees nothing that it lacks."""
        path = self._snapshot.forest.paths[self._ask.node]
        if self._ask.mesh:
            return path[-1]
        if self._bounds is not None:
            return next((step for excess, step, most in self._bounds if excess[step] > most), path[0])
        ledger = self._snapshot.ledger
        return next((step for step in reversed(path) if not ledger.is_within_limits(step, self._ask.amounts)), path[0])

    def _from(self, tree: _Tree, queue: int, strategy: Strategy, *, once: bool) -> bool:
        """Take at most one victim from the queue; return whether the request fits. With `once` the queue gives no other one."""
        waiting = tree.waiting(queue)
        if queue == self._ask.node or self._is_due:
            tree.note_given(queue)
            return self._take(waiting.pop(), Reason.PREEMPTED_WITHIN_TENANT if queue == self._ask.node else Reason.QUOTA_RECLAIMED)
        mine, theirs = self._shares(queue)
        if mine > theirs:  # A victim would lower the queue's share further.
            waiting.clear()
        while waiting:
            running = waiting.pop()
            is_initial = strategy is Strategy.INITIAL_SHARE
            permits = mine < theirs if is_initial else mine <= self._share_without(queue, running)
            if once:
                waiting.clear()
            if permits:
                tree.note_given(queue)
                return self._take(running, Reason.FAIR_SHARE)
        return False

    def settled(self) -> list[Victim]:
        """Return the victims that were needed; none if a victim's share check no longer holds."""
        if not self._snapshot.rules.rechecks_shares:
            return fill_back(self._snapshot, self._victims, lambda _spared: self._fits())
        if not all(map(self._is_right, self._victims)):
            return []
        return fill_back(self._snapshot, self._victims, self._fits_rightly)

    def _fits_rightly(self, spared: Victim) -> bool:
        """Return whether the request fits and all shares are right, now that `spared` runs on.

        Its use raises the preemptor's share only above the lowest common ancestor of both, so only victims from above are checked again.
        """
        if not self._fits():
            return False
        height = self._height(spared)
        above = (victim for other, victims in self._by_share.items() if other > height for victim in victims.values())
        if not all(map(self._is_right, above)):
            return False
        self._by_share[height].pop(spared.running.workload.workload, None)
        return True

    def _height(self, victim: Victim) -> int:
        """Return the length of the path from the preemptor to the lowest common ancestor; 0 for its own work."""
        queue = self._snapshot.node_of(victim.running)
        return 0 if queue == self._ask.node else self._pair(queue)[0]

    def _is_right(self, victim: Victim) -> bool:
        """Return whether the preemptor is below the share that the victim's queue had with the victim."""
        if victim.reason is not Reason.FAIR_SHARE or victim.running.is_leaving:
            return True
        queue = self._snapshot.node_of(victim.running)
        _, mine, theirs = self._pair(queue)
        return self._snapshot.shares.rank(mine) < self._share_with(queue, theirs, victim.running.amounts)

    def _take(self, running: Running, reason: Reason) -> bool:
        self._snapshot.remove(running)
        victim = Victim(running=running, reason=reason)
        self._victims.append(victim)
        if reason is Reason.FAIR_SHARE:
            self._by_share[self._height(victim)][running.workload.workload] = victim
        return self._fits()

    def _fits(self) -> bool:
        if self._bounds is not None:
            for excess, step, most in self._bounds:  # noqa: SIM110  a generator under `all` takes twice as long
                if excess[step] > most:
                    return False
            return True
        if self._ask.mesh:
            return self._snapshot.fits(self._ask)
        return self._snapshot.ledger.is_within_limits(self._ask.node, self._ask.amounts)

    def _pair(self, queue: int) -> tuple[int, int, int]:
        found = self._pairs.get(queue)
        if found is None:
            found = self._pairs[queue] = self._snapshot.forest.lowest_common(self._ask.node, queue)
        return found

    def _shares(self, queue: int) -> tuple[int, int]:
        _, mine, theirs = self._pair(queue)
        return self._snapshot.shares.rank(mine), self._snapshot.shares.rank(theirs)

    def _share_without(self, queue: int, running: Running) -> int:
        return self._share_with(queue, self._pair(queue)[2], running.amounts, -1)

    def _share_with(self, queue: int, node: int, amounts: Amounts, times: int = 1) -> int:
        """Return the share of the node if the queue below it used so much more, `times` times."""
        ledger, shares = self._snapshot.ledger, self._snapshot.shares
        if queue == node or ledger.passes_on(amounts):
            return shares.rank_adding(node, amounts, times)
        return shares.rank_adding(node, ledger.arriving(queue, node, {key: units * times for key, units in amounts.items()}))
