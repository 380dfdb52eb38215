"""Preemption by shares: from the sibling that borrows most, as long as the shares become more equal.

The search goes from the root down to the child with the highest share that still has candidates, until a queue is reached. Between a
cohort and a queue with equal shares it takes the cohort, between equal queues the one whose next candidate comes first, between equal
cohorts the first by name. A node that does not borrow, and is not on the path to the asking queue, is closed to outsiders with all below
it.

Whether a workload may be preempted is checked at the two siblings right below the lowest common ancestor of both queues, by one or two
strategies. There is no check inside the own queue, or if the asking queue stays within its own quota with the request. That is decided
before the first victim: a queue that is within its quota only because its own work was preempted goes by shares.

Two rules go beyond Kueue's (`Rules.rechecks_shares`): a victim chosen by share must leave the taker below the giver's share before, and
this is checked again at the end. Sparing victims of the own queue raises the taker's share after the first check; Kueue loops there
(#14543). With the second check, each swap lowers the largest unequal share, so no chain of swaps returns to its start.
Source: Kueue `preemption/fairsharing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from federation.quota.policies import PreemptionMode, Strategy
from federation.quota.preemption.candidates import (
    Victim,
    candidates_in,
    fill_back,
    has_displaced,
    is_within_own,
    victim_order,
)
from federation.quota.snapshot import Ask, QuotaSnapshot
from federation.quota.workloads import Running
from mesh.core.reasons import Reason

_BELOW_ALL = -1


def fair_victims(snapshot: QuotaSnapshot, ask: Ask) -> tuple[Victim, ...]:
    """Return the victims so that the request fits; empty if no preemption helps. The snapshot is unchanged afterwards."""
    if _is_unsatisfiable(snapshot, ask):
        return ()
    candidates = _candidates(snapshot, ask)
    if not candidates:
        return ()
    mark = snapshot.mark()
    snapshot.charge(ask.node, ask.amounts)
    hunt = _Hunt(snapshot, ask)
    found = hunt.first(candidates, snapshot.rules.strategies[0])
    if not found and len(snapshot.rules.strategies) > 1:
        found = hunt.second()
    victims = hunt.settled() if found else []
    snapshot.undo(mark)
    return tuple(victims)


def _is_unsatisfiable(snapshot: QuotaSnapshot, ask: Ask) -> bool:
    """Return whether no share allows any preemption. This check is far cheaper than the search for candidates.

    That is so if at every level all siblings are below the taker with its request: victims only lower their shares further.
    """
    forest, policies = snapshot.forest, snapshot.settings[ask.node].policies
    if policies.within_queue is not PreemptionMode.NEVER and any(candidates_in(snapshot, ask, ask.node, policies.within_queue)):
        return False
    if len(forest.paths[ask.node]) == 1 or policies.reclaim is PreemptionMode.NEVER:
        return True
    if not snapshot.ledger.fits(ask.node, ask.amounts, steps=1):  # No victim outside lifts the queue's own limits.
        return True
    if is_within_own(snapshot, ask, with_request=True):
        return False
    mark = snapshot.mark()
    snapshot.charge(ask.node, ask.amounts)
    found = all(
        _is_above(snapshot, snapshot.shares.rank(mine), [child for child in forest.children[above] if child != mine])
        for mine, above in pairwise(forest.paths[ask.node])
    )
    snapshot.undo(mark)
    return found


def _is_above(snapshot: QuotaSnapshot, claimant: int, siblings: list[int]) -> bool:
    if snapshot.rules.rechecks_shares:
        return all(snapshot.shares.rank(child) <= claimant for child in siblings)
    return all(snapshot.shares.rank(child) < claimant for child in siblings)


def _candidates(snapshot: QuotaSnapshot, ask: Ask) -> list[Running]:
    policies, forest = snapshot.settings[ask.node].policies, snapshot.forest
    own_queue = candidates_in(snapshot, ask, ask.node, policies.within_queue)
    found = [one for one in own_queue if not has_displaced(snapshot, ask, one)]
    if len(forest.paths[ask.node]) > 1 and policies.reclaim is not PreemptionMode.NEVER:
        is_due = is_within_own(snapshot, ask, with_request=True)
        for queue in sorted(snapshot.ledger.nodes_over(ask.needed).intersection(snapshot.running)):
            if queue != ask.node and forest.root(queue) == forest.root(ask.node):
                others = candidates_in(snapshot, ask, queue, policies.reclaim)
                found += [one for one in others if is_due or not has_displaced(snapshot, ask, one)]
    return sorted(found, key=victim_order(snapshot, ask.workload.queue))


def _permits(strategy: Strategy, claimant: int, before: int, after: int) -> bool:
    if strategy is Strategy.FINAL_SHARE:
        return claimant <= after
    return claimant < before


@dataclass(slots=True)
class _Tree:
    """Queues with their candidates, and the nodes above them; the search uses them up."""

    snapshot: QuotaSnapshot
    ask: Ask
    waiting: dict[int, list[Running]]  #: Queue to its candidates, the next one last.
    children: dict[int, list[int]]  #: Only nodes with candidates below.
    closed: set[int]

    @classmethod
    def of(cls, snapshot: QuotaSnapshot, ask: Ask, candidates: list[Running]) -> _Tree:
        """Build the tree; the candidates come in the order of victims."""
        waiting: dict[int, list[Running]] = {}
        for running in reversed(candidates):
            waiting.setdefault(snapshot.node_of(running), []).append(running)
        children: dict[int, set[int]] = {}
        for queue in waiting:
            path = snapshot.forest.paths[queue]
            for below, above in pairwise(path):
                children.setdefault(above, set()).add(below)
        names = snapshot.forest.names
        by_name = {above: sorted(below, key=names.__getitem__) for above, below in children.items()}
        return cls(snapshot, ask, waiting, by_name, set())

    def targets(self) -> Iterator[int]:
        """Yield the queues to take from, found anew each time; the caller pops from `waiting`."""
        root = self.snapshot.forest.root(self.ask.node)
        if root == self.ask.node:
            while self.waiting.get(root):
                yield root
            return
        while root not in self.closed:
            queue = self._descend(root)
            if queue is not None:
                yield queue

    def _descend(self, node: int) -> int | None:
        """Return the queue with the highest share below; None if a node had to be closed on the path."""
        while True:
            queue, queue_key = self._highest_queue(node)
            cohort, cohort_key = self._highest_cohort(node)
            if cohort is not None and cohort_key >= queue_key:
                node = cohort
            elif queue is not None:
                return queue
            else:
                self.closed.add(node)
                return None

    def _highest_queue(self, node: int) -> tuple[int | None, int]:
        order = victim_order(self.snapshot, self.ask.workload.queue)
        best, best_key = None, _BELOW_ALL
        for child in self.children.get(node, ()):
            if child in self.closed or child in self.children:
                continue
            shares, share = self.snapshot.shares, self.snapshot.shares.rank(child)
            if not self.waiting.get(child) or (not shares.is_borrowing(child) and child != self.ask.node):
                self.closed.add(child)
            elif best is None or share > best_key:
                best, best_key = child, share
            elif share == best_key and order(self.waiting[child][-1]) < order(self.waiting[best][-1]):
                best = child
        return best, best_key

    def _highest_cohort(self, node: int) -> tuple[int | None, int]:
        best, best_key = None, _BELOW_ALL
        way = self.snapshot.forest.paths[self.ask.node]
        for child in self.children.get(node, ()):
            if child in self.closed or child not in self.children:
                continue
            shares, share = self.snapshot.shares, self.snapshot.shares.rank(child)
            if not shares.is_borrowing(child) and child not in way:
                self.closed.add(child)
            elif best is None or share > best_key:
                best, best_key = child, share
        return best, best_key


class _Hunt:
    """Search for the victims of one request; the request's own use is charged meanwhile."""

    def __init__(self, snapshot: QuotaSnapshot, ask: Ask) -> None:
        self._snapshot, self._ask = snapshot, ask
        self._victims: list[Victim] = []
        self._retry: list[Running] = []
        #: Whether the queue stays within its own quota with the request; decided before its own work is preempted.
        self._is_due = not snapshot.ledger.is_over(ask.node, ask.needed)

    def first(self, candidates: list[Running], strategy: Strategy) -> bool:
        """Take victims while the strategy permits; return whether the request fits."""
        tree = _Tree.of(self._snapshot, self._ask, candidates)
        return any(self._from(tree, queue, strategy) for queue in tree.targets())

    def _from(self, tree: _Tree, queue: int, strategy: Strategy) -> bool:
        """Take at most one victim from the queue; return whether the request fits."""
        if queue == self._ask.node:
            return self._take(tree.waiting[queue].pop(), Reason.PREEMPTED_WITHIN_TENANT)
        if self._is_due:
            return self._take(tree.waiting[queue].pop(), Reason.QUOTA_RECLAIMED)
        claimant, before = self._shares(queue)
        if claimant > before:  # A victim would lower the giver's share further.
            self._retry += reversed(tree.waiting[queue])
            tree.waiting[queue].clear()
        while tree.waiting[queue]:
            running = tree.waiting[queue].pop()
            if _permits(strategy, claimant, before, self._share_without(queue, running)):
                return self._take(running, Reason.FAIR_SHARE)
            self._retry.append(running)
        return False

    def second(self) -> bool:
        """Take one more victim from each queue that the first strategy rejected; return whether the request fits."""
        tree = _Tree.of(self._snapshot, self._ask, self._retry)
        for queue in tree.targets():
            claimant, before = self._shares(queue)
            running = tree.waiting[queue].pop()
            tree.waiting[queue].clear()
            if _permits(Strategy.INITIAL_SHARE, claimant, before, before) and self._take(running, Reason.FAIR_SHARE):
                return True
        return False

    def settled(self) -> list[Victim]:
        """Return the victims that were needed; none if a victim's share check no longer holds."""
        if not self._snapshot.rules.rechecks_shares:
            return fill_back(self._snapshot, self._victims, self._fits)
        if not self._is_right(self._victims):
            return []
        kept = fill_back(self._snapshot, self._victims, lambda: self._fits() and self._is_right(self._still_out()))
        return kept if self._is_right(kept) else []

    def _still_out(self) -> list[Victim]:
        running = self._snapshot.running
        return [
            victim
            for victim in self._victims
            if victim.running.workload.workload not in running.get(self._snapshot.node_of(victim.running), {})
        ]

    def _is_right(self, victims: list[Victim]) -> bool:
        """Return whether each swap by share leaves the taker below the giver's share before, in the final state."""
        for victim in victims:
            if victim.reason is Reason.FAIR_SHARE and not victim.running.is_leaving:
                mark = self._snapshot.mark()
                _, mine, theirs = self._snapshot.forest.lowest_common(self._ask.node, self._snapshot.node_of(victim.running))
                claimant = self._snapshot.shares.rank(mine)
                self._snapshot.add(victim.running)
                had = self._snapshot.shares.rank(theirs)
                self._snapshot.undo(mark)
                if not claimant < had:
                    return False
        return True

    def _take(self, running: Running, reason: Reason) -> bool:
        self._snapshot.remove(running)
        self._victims.append(Victim(running=running, reason=reason))
        return self._fits()

    def _fits(self) -> bool:
        mark = self._snapshot.mark()
        self._snapshot.discharge(self._ask.node, self._ask.amounts)
        fits = self._snapshot.ledger.fits(self._ask.node, self._ask.amounts)
        self._snapshot.undo(mark)
        return fits

    def _shares(self, queue: int) -> tuple[int, int]:
        _, mine, theirs = self._snapshot.forest.lowest_common(self._ask.node, queue)
        return self._snapshot.shares.rank(mine), self._snapshot.shares.rank(theirs)

    def _share_without(self, queue: int, running: Running) -> int:
        mark = self._snapshot.mark()
        self._snapshot.discharge(queue, running.amounts)
        _, _, theirs = self._snapshot.forest.lowest_common(self._ask.node, queue)
        share = self._snapshot.shares.rank(theirs)
        self._snapshot.undo(mark)
        return share
