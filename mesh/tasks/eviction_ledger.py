"""Evictions in progress, and what they hold for their preemptors: node resources as promises, quota under a name of its own."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from mesh.core.ids import GroupId, LabelName, NodeName, PoolName, TaskId
from mesh.core.nodes import NodeTable, Units
from mesh.core.pools import PoolLedger
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupShape
from mesh.placement.groups import GroupRecord
from mesh.preemption.rules import MINUTE_MS, Candidate
from mesh.tasks.records import Eviction, TaskRecord


class EvictionLedger(Mapping[TaskId, Eviction]):
    """Owner of the evictions, read as a mapping by preemptor, of the recent preemptions, and of the search for victims in a pass.

    Args:
        table: Promises of node resources are made here.
        pools: Quota is held here.
    """

    def __init__(self, table: NodeTable, pools: PoolLedger) -> None:
        self._table = table
        self._pools = pools
        self._evictions: dict[TaskId, Eviction] = {}
        self._preemptors: dict[TaskId, TaskId] = {}  #: By victim, while the victim stops.
        self._recent: deque[tuple[int, LabelName]] = deque()  #: Preemptions of the last minute.
        self.searches = 0  #: Victim searches in this pass.
        self.candidates: tuple[Candidate, ...] | None = None  #: Running tasks as found by this pass; None: not searched yet.

    def __getitem__(self, preemptor: TaskId) -> Eviction:
        return self._evictions[preemptor]

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._evictions)

    def __len__(self) -> int:
        return len(self._evictions)

    @property
    def recent(self) -> tuple[tuple[int, LabelName], ...]:
        """Preemptions of the last minute: when, and the victim's label."""
        return tuple(self._recent)

    def of(self, preemptor: TaskId) -> Eviction | None:
        """Return the eviction for the task."""
        return self._evictions.get(preemptor)

    def of_gang(self, gang: str) -> Eviction | None:
        """Return the eviction for the gang."""
        return next((eviction for eviction in self._evictions.values() if eviction.gang == gang), None)

    def is_complete(self, preemptor: TaskId) -> bool:
        """Return whether no victim is still stopping and no group is still being removed for the preemptor."""
        eviction = self._evictions.get(preemptor)
        return eviction is not None and not eviction.victims and not eviction.groups

    def overdue(self, before_ms: int) -> Sequence[TaskId]:
        """Return the preemptors whose evictions began before this time."""
        return [preemptor for preemptor, eviction in self._evictions.items() if eviction.since_ms < before_ms]

    def recent_by_label(self, now_ms: int) -> Counter[LabelName]:
        """Return the number of preemptions of the last minute by the victim's label."""
        return Counter(label for at_ms, label in self._recent if at_ms > now_ms - MINUTE_MS)

    # -- a pass --------------------------------------------------------------------------------------------------------

    def begin_pass(self) -> None:
        """Allow new searches for victims."""
        self.searches, self.candidates = 0, None

    def count_search(self) -> None:
        """Count a search for victims."""
        self.searches += 1

    def keep_candidates(self, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
        """Keep the running tasks as found, for the other searches of this pass."""
        self.candidates = tuple(candidates)
        return self.candidates

    def forget_candidates(self) -> None:
        """Drop the running tasks as found, since much may have happened since the last pass."""
        self.candidates = None

    # -- an eviction ---------------------------------------------------------------------------------------------------

    def open(
        self,
        preemptor: TaskId,
        pool: PoolName,
        now_ms: int,
        victims: Sequence[Candidate],
        *,
        gang: str = "",
        places: Mapping[TaskId, tuple[NodeName, ...]] | None = None,
    ) -> None:
        """Begin an eviction of these victims, which the caller then orders to stop."""
        self._evictions[preemptor] = Eviction(
            preemptor=preemptor, pool=pool, since_ms=now_ms, victims={victim.task for victim in victims}, gang=gang, places=places or {}
        )
        for victim in victims:
            self._preemptors[victim.task] = preemptor
            self._recent.append((now_ms, victim.label))

    def hold_free(self, preemptor: TaskId, shapes: Mapping[TaskId, GroupShape]) -> None:
        """Hold the part of an eviction's places and quota that is free already.

        Args:
            shapes: Shape of each task that has places.
        """
        eviction, needs = self._evictions[preemptor], dict[NodeName, ResourceSet]()
        for task, nodes in eviction.places.items():
            for node, wanted in zip(nodes, shapes[task].bundles, strict=True):
                needs[node] = needs.get(node, NOTHING) + wanted
        for node, wanted in needs.items():
            self._hold_row(eviction, node, wanted)
        quota = sum((shapes[task].amounts for task in eviction.places), start=NOTHING)
        free = self._pools.pool(eviction.pool).free
        held = ResourceSet({name: min(amount, free[name]) for name, amount in quota.items()})
        if held:
            holder = f"hold:{preemptor}:"
            self._pools.reserve(eviction.pool, holder, held)
            eviction.holders.append(holder)

    def victim_stopped(self, victim: TaskId) -> Eviction | None:
        """Record that the victim has stopped. Return its eviction; None when it is no victim any more."""
        preemptor = self._preemptors.pop(victim, None)
        eviction = self._evictions.get(preemptor) if preemptor is not None else None
        if eviction is not None:
            eviction.victims.discard(victim)
        return eviction

    def hold_quota(self, preemptor: TaskId, victim: TaskId) -> None:
        """Hold the victim's quota for the preemptor."""
        holder = f"hold:{preemptor}:{victim}"
        if self._pools.move(victim, holder):
            self._evictions[preemptor].holders.append(holder)

    def hold_node(self, preemptor: TaskId, node: NodeName, amounts: ResourceSet) -> None:
        """Hold for the preemptor what is free of these amounts."""
        self._hold_row(self._evictions[preemptor], node, amounts)

    def await_group(self, preemptor: TaskId, group: GroupId) -> None:
        """Record that the group is being removed for the preemptor."""
        self._evictions[preemptor].groups.add(group)

    def group_gone(self, group: GroupRecord) -> TaskId | None:
        """Hold the resources of a removed group for the preemptor, if it was removed for one.

        Returns:
            The preemptor whose eviction may be complete now.
        """
        eviction = next((kept for kept in self._evictions.values() if group.group in kept.groups), None)
        if eviction is None:
            return None
        eviction.groups.discard(group.group)
        for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
            self._hold_row(eviction, node, bundle)
        return eviction.preemptor

    def end(self, preemptor: TaskId) -> Eviction | None:
        """Release what is held for the preemptor. Return its eviction, if there was one."""
        eviction = self._evictions.pop(preemptor, None)
        if eviction is None:
            return None
        for victim in eviction.victims:
            self._preemptors.pop(victim, None)
        for holder in eviction.holders:
            self._pools.release(holder)
        for node, vector in eviction.rows:
            if node in self._table:
                self._table.withdraw(self._table.row(node), self._table.widened(vector), _holder_of(eviction))
        return eviction

    def forget_node(self, node: NodeName) -> Sequence[TaskId]:
        """Drop what was held on a node that has left. Return the preemptors with places there, whose evictions the caller ends."""
        for eviction in self._evictions.values():
            eviction.rows = [(kept, vector) for kept, vector in eviction.rows if kept != node]
        return [preemptor for preemptor, eviction in self._evictions.items() if any(node in nodes for nodes in eviction.places.values())]

    def forget_old(self, now_ms: int) -> None:
        """Drop preemptions that are older than a minute."""
        while self._recent and self._recent[0][0] <= now_ms - MINUTE_MS:
            self._recent.popleft()

    def restore(self, eviction: Eviction) -> None:
        """Add the eviction of a snapshot, with its promises; the pools restore its quota."""
        self._evictions[eviction.preemptor] = eviction
        for victim in eviction.victims:
            self._preemptors[victim] = eviction.preemptor
        for node, vector in eviction.rows:
            if node in self._table:
                self._table.queue_for(self._table.row(node), vector, _holder_of(eviction), in_parts=True)

    def restore_recent(self, recent: Iterable[tuple[int, LabelName]]) -> None:
        """Set the preemptions of the last minute of a snapshot."""
        self._recent = deque(recent)

    # -- invariants ----------------------------------------------------------------------------------------------------

    def held_rows(self) -> Iterator[tuple[NodeName, Units]]:
        """Yield the promises of node resources."""
        for eviction in self._evictions.values():
            yield from eviction.rows

    def holders(self) -> Iterator[str]:
        """Yield the names under which the pools hold quota."""
        for eviction in self._evictions.values():
            yield from eviction.holders

    def check(self, records: Mapping[TaskId, TaskRecord]) -> Iterator[str]:
        """Yield a message per broken invariant."""
        for preemptor, eviction in self._evictions.items():
            for victim in eviction.victims:
                if self._preemptors.get(victim) != preemptor:
                    yield f"{victim} is a victim of {preemptor}, and of {self._preemptors.get(victim)}"
            if preemptor not in records:
                yield f"room is held for {preemptor}, which is over"
        for victim, preemptor in self._preemptors.items():
            if preemptor not in self._evictions:
                yield f"{victim} is a victim of {preemptor}, which has no eviction"
            if victim in records and records[victim].stopping is None:
                yield f"{victim} is a victim of {preemptor}, but was not ordered to stop"

    def _hold_row(self, eviction: Eviction, node: NodeName, amounts: ResourceSet) -> None:
        if node not in self._table:
            return
        row = self._table.row(node)
        vector = np.minimum(self._table.vector(amounts), self._table.free(slice(row, row + 1))[0])
        self._table.promise(row, vector, _holder_of(eviction), in_parts=True)
        eviction.rows.append((node, vector))


def _holder_of(eviction: Eviction) -> str:
    """Return the name under which node resources are held for the preemptor."""
    return f"hold:{eviction.preemptor}:"
