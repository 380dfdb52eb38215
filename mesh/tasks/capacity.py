"""Capacity of the mesh and who holds it: node resources, quota of pools, and placement groups.

A method either updates all three ledgers it concerns or raises before it changes any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from mesh.core.ids import GroupId, JobId, NodeName, PoolName, TaskId
from mesh.core.node_instances import InstanceHolding
from mesh.core.nodes import NodeTable, Units
from mesh.core.pools import PoolLedger, PoolSpec
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import AT_WORK
from mesh.placement.group_ledger import GroupLedger
from mesh.placement.groups import GroupRecord, GroupState, Layer
from mesh.tasks.records import TaskRecord
from mesh.tasks.task_queues import SchedulingQueues

#: Length at which the node table's log of touched rows is cut.
_TOUCHED_MAX = 1 << 16
_TRIAL = "trial"  #: Holder of the promises of a trial.


class Holds(Protocol):
    """Ledger that holds capacity for tasks that have not started."""

    def held_rows(self) -> Iterable[tuple[NodeName, Units]]:
        """Return the promises of node resources."""
        ...

    def holders(self) -> Iterable[str]:
        """Return the names under which the pools hold quota."""
        ...


class CapacityLedger:
    """Owner of node table, pools and placement groups, and of a record's node and group.

    Args:
        tasks: States of the tasks, read only.
    """

    def __init__(self, tasks: SchedulingQueues) -> None:
        self._tasks = tasks
        self.table = NodeTable()
        self.pools = PoolLedger(())
        self.groups = GroupLedger()
        self.groups_made = 0
        self._job_counts: dict[JobId, dict[NodeName, int]] = {}
        self._created: set[GroupId] = set()
        self._pauses: dict[PoolName, int] = {}  #: Until when no reserved group is ordered in a pool, since Ray refused one.

    @property
    def job_counts(self) -> Mapping[JobId, Mapping[NodeName, int]]:
        """Number of tasks of each job on each node; none is 0."""
        return self._job_counts

    def is_created(self, group: GroupId) -> bool:
        """Return whether the group exists in Ray and uses resources; other groups have a promise."""
        return group in self._created

    def is_paused(self, pool: PoolName, now_ms: int) -> bool:
        """Return whether no reserved group may be ordered in the pool now."""
        return now_ms < self._pauses.get(pool, 0)

    # -- nodes and pools -----------------------------------------------------------------------------------------------

    def add_node(self, node: NodeName, total: ResourceSet, labels: Mapping[str, str]) -> None:
        """Add a node, or change its totals and labels."""
        self.table.join(node, total, labels)

    def set_foreign_use(self, node: NodeName, amounts: ResourceSet) -> None:
        """Set what others than this mesh use of the node."""
        self.table.see_foreign(node, self.table.vector(amounts))

    def remove_node(self, node: NodeName) -> None:
        """Drop a node that has left, with all that was used and promised there."""
        self.table.leave(node)

    def trim(self) -> None:
        """Cut the node table's log, which makes users of scores compute them anew."""
        if len(self.table.touched) > _TOUCHED_MAX:
            self.table.touched.clear()
            self.table.shape_version += 1

    def configure_pool(self, spec: PoolSpec) -> None:
        """Create or change a pool."""
        self.pools.configure(spec)

    def delete_pool(self, pool: PoolName) -> None:
        """Delete a pool, at once or when it holds nothing any more."""
        self.pools.delete(pool)

    def close_pools(self) -> None:
        """Delete the pools that are closing and hold nothing any more."""
        for name in [name for name, pool in self.pools.pools.items() if pool.is_closing and pool.is_empty]:
            self.pools.delete(name)

    def pause_reserved(self, pool: PoolName, until_ms: int) -> None:
        """Order no reserved group in the pool until then."""
        self._pauses[pool] = until_ms

    def reserve_slot(self, pool: PoolName, holder: str, amounts: ResourceSet) -> None:
        """Reserve quota without a task."""
        self.pools.reserve(pool, holder, amounts)

    def commit_slot(self, pool: PoolName, holder: str) -> None:
        """Turn quota that was reserved without a task into use."""
        self.pools.commit(pool, holder)

    def release_slot(self, holder: str) -> bool:
        """Release quota without a task. Return False when nothing was held."""
        return self.pools.release(holder)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def bind_to_node(self, record: TaskRecord, row: int, amounts: ResourceSet) -> None:
        """Promise the task quota and node resources."""
        task = record.request.task
        self.pools.reserve(record.request.pool, task, amounts)
        self.table.promise(row, self.table.vector(record.request.resources), task)
        record.node, record.group = self.table.name(row), None
        self._count_for_job(record, 1)

    def bind_to_group(self, record: TaskRecord, group: GroupRecord) -> None:
        """Give the task an existing placement group. A reserved one brings its own quota."""
        task = record.request.task
        if group.layer is Layer.RESERVED:
            self.pools.move(_reserve_holder(group.group), task)
        else:
            self.pools.reserve(record.request.pool, task, group.shape.amounts)
        self.groups.take(group.group, task)
        record.node, record.group = group.nodes[0], group.group
        self._count_for_job(record, 1)

    def bind_to_new_group(self, record: TaskRecord, shape: GroupShape, rows: tuple[int, ...]) -> GroupRecord:
        """Promise the task quota and a new placement group."""
        task = record.request.task
        self.pools.reserve(record.request.pool, task, shape.amounts)
        group = self._new_group(record.request.pool, shape, rows, Layer.DYNAMIC, task)
        record.node, record.group = group.nodes[0], group.group
        self._count_for_job(record, 1)
        return group

    def start(self, record: TaskRecord) -> None:
        """Turn the task's promises into use."""
        request = record.request
        if request.task in self.pools.pool(request.pool).reservations:
            self.pools.commit(request.pool, request.task)
        if record.group is None and record.node is not None:
            self.table.start(self.table.row(record.node), self.table.vector(request.resources))

    def unbind(self, record: TaskRecord, now_ms: int, hold_for: TaskId | None) -> None:
        """Release what the task holds: quota, node resources, its group, which itself stays.

        Args:
            hold_for: Preemptor for which its group is held.
        """
        task, group = record.request.task, self.groups.records.get(record.group) if record.group is not None else None
        self._count_for_job(record, -1)
        if record.group is None:
            self._release_row(record)
        elif group is not None and group.holder == task:
            self.groups.give_back(group.group, now_ms, hold_for=hold_for)
            if group.layer is Layer.RESERVED:
                self._reserve_again(task, group)
        self.pools.release(task)
        record.node = record.group = None

    # -- placement groups ----------------------------------------------------------------------------------------------

    def add_reserved_group(self, pool: PoolName, shape: GroupShape, rows: tuple[int, ...]) -> GroupRecord:
        """Promise quota and node resources to a new group of the pool's reserved layer."""
        group = self._new_group(pool, shape, rows, Layer.RESERVED, None)
        self.pools.reserve(pool, _reserve_holder(group.group), shape.amounts)
        return group

    def group_created(self, group: GroupRecord, now_ms: int) -> None:
        """Turn the promises of a group that exists in Ray now into use."""
        for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
            self.table.start(self.table.row(node), self.table.vector(bundle))
        self.groups.ready(group.group, now_ms)
        self._created.add(group.group)

    def release_group_of(self, preemptor: TaskId, now_ms: int) -> bool:
        """Let any task take the group that is HELD for this one. Return False when there is none."""
        group = self.groups.held_by(preemptor)
        if group is None or group.state is not GroupState.HELD:
            return False
        self.groups.give_back(group.group, now_ms)
        return True

    def remove_group(self, group: GroupId) -> None:
        """Mark the group for removal."""
        self.groups.remove(group)

    def lose_group(self, group: GroupRecord) -> None:
        """Drop a lost group: free its resources, and the quota of an unused reserved one."""
        was_created = group.group in self._created
        self._created.discard(group.group)
        for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
            if node in self.table:
                row, vector = self.table.row(node), self.table.vector(bundle)
                (self.table.finish if was_created else self.table.withdraw)(row, vector, group.group)
        self.pools.release(_reserve_holder(group.group))
        self.groups.drop(group.group)

    @contextmanager
    def trial(self) -> Iterator[Callable[[int, ResourceSet], None]]:
        """Yield a function that promises amounts on a row; withdraw all of them at the end."""
        promised: list[tuple[int, Units]] = []

        def promise(row: int, amounts: ResourceSet) -> None:
            vector = self.table.vector(amounts)
            self.table.promise(row, vector, _TRIAL)
            promised.append((row, vector))

        try:
            yield promise
        finally:
            for row, vector in promised:
                self.table.withdraw(row, self.table.widened(vector), _TRIAL)

    # -- a snapshot ----------------------------------------------------------------------------------------------------

    def remember_instances(self, node: NodeName, holdings: Sequence[InstanceHolding]) -> None:
        """Let the holders get the same instances of the node again."""
        self.table.remember(node, holdings)

    def forget_remembered(self) -> None:
        """End the restoration: instances are taken by best fit from now on."""
        self.table.forget_remembered()

    def restore_counter(self, groups_made: int) -> None:
        """Set the number of groups made so far."""
        self.groups_made = groups_made

    def restore_pool(
        self, spec: PoolSpec, reservations: Mapping[str, ResourceSet], uses: Mapping[str, ResourceSet], *, is_closing: bool
    ) -> None:
        """Restore through a capacity that fits all entries, since the pool's own may have been lowered below them."""
        held = sum((*reservations.values(), *uses.values()), start=spec.capacity)
        self.pools.configure(PoolSpec(pool=spec.pool, capacity=held, groups=spec.groups))
        for holder, amounts in (*reservations.items(), *uses.items()):
            self.pools.reserve(spec.pool, holder, amounts)
        for holder in uses:
            self.pools.commit(spec.pool, holder)
        self.pools.configure(spec)
        if is_closing:
            self.pools.delete(spec.pool)

    def restore_group(self, group: GroupRecord, *, was_created: bool) -> None:
        """Restore a group with its node resources; the pools restore its quota."""
        for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
            if node in self.table:
                row, vector = self.table.row(node), self.table.vector(bundle)
                self.table.queue_for(row, vector, group.group)
                if was_created:
                    self.table.start(row, vector)
        if was_created:
            self._created.add(group.group)
        self.groups.restore(group)

    def restore_task(self, record: TaskRecord, *, is_at_work: bool) -> None:
        """Restore the node use of a task that is bound; pools and groups restore the rest."""
        self._count_for_job(record, 1)
        if record.group is None and record.node is not None and record.node in self.table:
            row, vector = self.table.row(record.node), self.table.vector(record.request.resources)
            self.table.queue_for(row, vector, record.request.task)
            if is_at_work:
                self.table.start(row, vector)

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self, records: Mapping[TaskId, TaskRecord], holds: Iterable[Holds]) -> Iterator[str]:
        """Yield a message per broken invariant of the three ledgers, and between them and their holders."""
        held = tuple(holds)
        yield from self.pools.check()
        yield from self.groups.check()
        yield from self._check_rows(records, held)
        yield from self._check_quota(records, held)

    def _check_rows(self, records: Mapping[TaskId, TaskRecord], holds: Iterable[Holds]) -> Iterator[str]:
        """Check that each node's use and load equal the sum over groups, tasks, holds and foreign use."""
        table = self.table
        used, load = np.zeros_like(table.used), np.zeros_like(table.load)
        for in_use, node, vector in self._shares(records, holds):
            if node in table:
                (used if in_use else load)[table.row(node)][: len(vector)] += vector
        if (used != table.used).any() or (load != table.load).any():
            yield f"nodes use {table.used.tolist()} and promise {table.load.tolist()}, expected {used.tolist()} and {load.tolist()}"
        if (table.left != table.total - table.used - table.load).any():
            yield f"nodes have {table.left.tolist()} left, expected total less used and promised"
        yield from table.check_instances()

    def _shares(self, records: Mapping[TaskId, TaskRecord], holds: Iterable[Holds]) -> Iterator[tuple[bool, NodeName, Units]]:
        """Yield each share of a node: whether it is in use or promised, the node, and the amounts."""
        for group in self.groups.records.values():
            for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
                yield group.group in self._created, node, self.table.vector(bundle)
        for task, record in records.items():
            if record.node is not None and record.group is None and record.request.agent is None:
                yield self._tasks.state_of(task) in AT_WORK, record.node, self.table.vector(record.request.resources)
        for each in holds:
            yield from ((False, node, vector) for node, vector in each.held_rows())
        yield from ((True, node, vector) for node, vector in self.table.foreign.items())

    def _check_quota(self, records: Mapping[TaskId, TaskRecord], holds: Iterable[Holds]) -> Iterator[str]:
        holders = {holder for pool in self.pools.pools.values() for holder in (*pool.reservations, *pool.uses)}
        for task, record in records.items():
            held = task in holders
            if held is (record.node is None) and record.request.agent is None:
                yield f"{task} {'holds' if held else 'holds no'} quota and is on node {record.node}"
        kept = {_reserve_holder(group) for group, record in self.groups.records.items() if record.state is not GroupState.TAKEN}
        orphans = {holder for holder in holders if holder.startswith("group:")} - kept
        if orphans:
            yield f"quota is held for reserved groups that are gone or taken: {sorted(orphans)}"
        lost = {holder for holder in holders if holder.startswith(("hold:", "place:"))}.difference(*(each.holders() for each in holds))
        if lost:
            yield f"quota is held for preemptions, reservations or places that are over: {sorted(lost)}"

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _new_group(self, pool: PoolName, shape: GroupShape, rows: tuple[int, ...], layer: Layer, holder: TaskId | None) -> GroupRecord:
        """Add a placement group that Ray is to create on these rows, one per bundle."""
        self.groups_made += 1
        group = GroupId(f"g{self.groups_made}")
        for bundle, row in zip(shape.bundles, rows, strict=True):
            self.table.promise(row, self.table.vector(bundle), group)
        self.groups.add(group, pool, shape, layer, tuple(map(self.table.name, rows)), holder)
        return self.groups.records[group]

    def _reserve_again(self, task: TaskId, group: GroupRecord) -> None:
        """Reserve the quota of a reserved group again after its task, if the pool still has that much."""
        holder = _reserve_holder(group.group)
        self.pools.move(task, holder)
        self.pools.release(holder)
        if self.pools.pool(group.pool).fits(group.shape.amounts):
            self.pools.reserve(group.pool, holder, group.shape.amounts)

    def _release_row(self, record: TaskRecord) -> None:
        if record.node is None or record.node not in self.table:
            return
        row, vector = self.table.row(record.node), self.table.vector(record.request.resources)
        if self._tasks.state_of(record.request.task) in AT_WORK:
            self.table.finish(row, vector, record.request.task)
        else:
            self.table.withdraw(row, vector, record.request.task)

    def _count_for_job(self, record: TaskRecord, change: int) -> None:
        job, node = record.request.job, record.node
        if job is None or node is None:
            return
        counts = self._job_counts.setdefault(job, {})
        counts[node] = counts.get(node, 0) + change
        if not counts[node]:
            del counts[node]
        if not counts:
            del self._job_counts[job]


def _reserve_holder(group: GroupId) -> str:
    """Return the name under which the pools hold the quota of an unused reserved group."""
    return f"group:{group}"
