"""The whole state of one mesh's scheduler, with methods that keep its ledgers consistent.

Three ledgers record who holds what: the node table (node resources), the pools (quota) and the placement groups. A method either updates
all ledgers it concerns or raises before it changes any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from mesh.core.ids import GroupId, JobId, LabelName, NodeName, PoolName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.pools import PoolLedger
from mesh.core.random_stream import RandomStream
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import AT_WORK, TaskRequest, TaskState
from mesh.placement.group_ledger import GroupLedger
from mesh.placement.groups import GroupRecord, Layer
from mesh.policies.catalogue import Catalogue
from mesh.preemption.rules import Scorer
from mesh.tasks.decisions import Decision
from mesh.tasks.eviction_ledger import EvictionLedger
from mesh.tasks.queued_shapes import QueuedShapes
from mesh.tasks.queues import LabelQueues, LabelSettings
from mesh.tasks.records import Bucket, Eviction, LabelRules, TaskRecord
from mesh.tasks.relations import TaskRelations
from mesh.tasks.reservation_ledger import JobReservationLedger, ReservationLedger
from mesh.tasks.settings import SchedulerSettings
from mesh.tasks.task_queues import SchedulingQueues

#: Number of starts used to estimate a wait.
STARTS_KEPT = 32
#: Number of ended tasks remembered by id, so that a repeated submission is recognised.
ENDED_KEPT = 10_000
#: Length at which the node table's log of touched rows is cut.
_TOUCHED_MAX = 1 << 16
_BUCKETS_LOOKED_AT_EVERY = 64


class MeshState:
    """State of one scheduler. Only `MeshScheduler.handle` and what it calls write it.

    Invariants (checked by `mesh.tasks.invariants.violations`): each task of `records` is in `tasks` in exactly one state; it is in
    `queues` exactly when it is PLACEABLE; it holds quota exactly from READY or SWAP until it has stopped.
    """

    def __init__(self, settings: SchedulerSettings, random_stream: RandomStream, catalogue: Catalogue, scorer: Scorer) -> None:
        self.random_stream = random_stream
        self.catalogue = catalogue
        self.scorer = scorer  #: Scores candidates for preemption.
        self.version = 0  #: Number of calls of `handle`.
        self.now_ms = 0
        self.table = NodeTable()
        self.pools = PoolLedger(())
        self.groups = GroupLedger()
        self.queues = LabelQueues(LabelSettings(aging_per_s=settings.aging_per_s))
        self.tasks = SchedulingQueues()
        self.records: dict[TaskId, TaskRecord] = {}
        self.evictions = EvictionLedger(self.table, self.pools)
        self.reservations = ReservationLedger(self.table, self.pools)
        self.job_reservations = JobReservationLedger(self.table, self.pools)
        self.relations = TaskRelations()
        self.ended: dict[TaskId, TaskState] = {}  #: Last ended tasks, oldest first.
        self.job_counts: dict[JobId, dict[NodeName, int]] = {}
        self.shapes = QueuedShapes(settings, catalogue, self.table, self.pools, self.job_counts)
        self.running: dict[float, int] = {}  #: Number of running preemptible tasks by priority.
        self.starts: dict[PoolName, deque[int]] = {}  #: Times of the last starts.
        self.arrivals = 0
        self.groups_made = 0
        self.room_epoch = 0  #: Grows when something may fit that did not.
        self.unschedulable: list[tuple[TaskId, tuple[Reason, str]]] = []  #: Tasks that this pass found can never be placed.
        self.refilled_at = -1  #: `room_epoch` at the last refill of the reserved layers.
        self.refusals = 0  #: Grows when the set of unplaced tasks changes.
        self.pending_ends: deque[tuple[TaskRecord, TaskState, TaskId | None]] = deque()  #: Ends whose effects on others are pending.
        self.reserve_rests: dict[PoolName, int] = {}  #: Until when no reserved group is ordered in a pool, since Ray refused one.
        self.made: set[GroupId] = set()  #: Groups that exist in Ray: they use resources; other groups have a promise.
        self.node_versions: dict[NodeName, int] = {}  #: Version of the last placement on each node.
        self.reported: dict[TaskId, tuple[Reason, str]] = {}  #: Last explanation of each waiting task.
        self.demands: tuple[ResourceSet, ...] = ()  #: Last request to the autoscaler.
        self.demands_at = 0  #: Value of `refusals` at that request.
        self.orders: list[Decision] = []  #: Decisions of the current call of `handle`.

    # -- configuration -------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> SchedulerSettings:
        """Current settings."""
        return self.shapes.settings

    def change_settings(self, changes: Mapping[str, float]) -> None:
        """Change settings, and order and place the queued tasks by the new ones."""
        self.shapes.change_settings(changes)
        self._configure_queues()
        self.rebuild_buckets()

    def configure_label(self, label: LabelName, rules: LabelRules) -> None:
        """Set the label's rules, and order and place the queued tasks by them."""
        self.shapes.configure_label(label, rules)
        self.queues.configure(label, self.shapes.label_settings(label))
        self.rebuild_buckets()

    def restore_labels(self, labels: Mapping[LabelName, LabelRules]) -> None:
        """Set the rules of a snapshot's labels before any task is restored."""
        for label, rules in labels.items():
            self.shapes.configure_label(label, rules)
        self._configure_queues()

    def _configure_queues(self) -> None:
        self.queues.configure(None, self.shapes.label_settings_of_others())
        for label in self.shapes.labels:
            self.queues.configure(label, self.shapes.label_settings(label))

    def rebuild_buckets(self) -> None:
        """Assign every queued task to its new bucket after a change of settings."""
        self.shapes.drop_buckets()
        self.running.clear()
        for task in (*self.tasks.in_state(TaskState.RUNNING), *self.tasks.in_state(TaskState.BLOCKED)):
            self._count_running(self.records[task].request, 1)
        for record in self.records.values():
            record.bucket = None
            if self.queues.remove(record.request.task):
                self.enqueue(record)
        self.room_came()

    # -- tasks and relations between them ------------------------------------------------------------------------------

    def open_needs(self, record: TaskRecord) -> bool:
        """Record the task's dependencies. Return True when one of them has not succeeded yet."""
        if not record.request.after:
            return False
        record.needs = {need for need in record.request.after if self.ended.get(need) is not TaskState.SUCCEEDED}
        self.relations.depend(record.request.task, record.needs)
        return bool(record.needs)

    def meet_need(self, record: TaskRecord, need: TaskId) -> None:
        """Record that a dependency of the task is over."""
        record.needs.discard(need)

    # -- queueing ------------------------------------------------------------------------------------------------------

    def enqueue(self, record: TaskRecord) -> None:
        """Queue the task; one that was queued before gets its old position."""
        request = record.request
        if record.bucket is None:
            record.bucket = self.shapes.bucket_for(request)
        self.queues.add(
            request.task,
            bucket=record.bucket,
            label=request.label,
            priority=request.priority,
            since_ms=record.since_ms,
            arrival=record.arrival,
        )
        record.bucket.tried_at = -1

    def retry(self, bucket: Bucket) -> None:
        """Let the next pass try the bucket, whatever has become free."""
        bucket.tried_at = -1

    def without_node(self, request: TaskRequest) -> TaskRequest:
        """Return the request without its outdated node: any node will do."""
        return replace(request, node=None, policy="" if request.policy == "node_affinity" else request.policy)

    def note_start(self, record: TaskRecord) -> None:
        """Record a start, for estimates."""
        self.starts.setdefault(record.request.pool, deque(maxlen=STARTS_KEPT)).append(self.now_ms)

    def unmet_demands(self) -> tuple[ResourceSet, ...]:
        """Return the demands that fit on no node or wait for capacity: one set per task or bundle, up to the limit."""
        most, demands = self.settings.demands_sent_max, list[ResourceSet]()
        for task in self.tasks.in_state(TaskState.INFEASIBLE)[:most]:
            request = self.records[task].request
            demands.extend(request.bundles or (request.resources,))
        waiting = [bucket for bucket in self.queues.buckets() if isinstance(bucket, Bucket) and bucket.refused is not None]
        for bucket in sorted(waiting, key=lambda bucket: repr(bucket.key)):  # Not by age, which a snapshot does not save.
            if len(demands) < most:
                demands.extend(list(bucket.key.shape.bundles) * min(self.queues.count(bucket), most))
        return tuple(demands[:most])

    def room_came(self) -> None:
        """Record that something may fit now that did not."""
        self.room_epoch += 1

    def remove_node(self, node: NodeName) -> None:
        """Drop a node that has left, and what is held on it. End evictions that planned a place there: they are planned again."""
        self.table.leave(node)
        for preemptor in self.evictions.forget_node(node):
            self.end_eviction(preemptor)
        self.reservations.forget_node(node)
        self.job_reservations.forget_node(node)

    def end_eviction(self, preemptor: TaskId) -> Eviction | None:
        """Release what is held for the preemptor. A group HELD for it stays so until the task starts or ends."""
        eviction = self.evictions.end(preemptor)
        if eviction is not None:
            self.room_came()
        return eviction

    # -- changes of several ledgers ------------------------------------------------------------------------------------

    def bind_to_node(self, record: TaskRecord, row: int, amounts: ResourceSet) -> None:
        """Promise the task quota and node resources."""
        task = record.request.task
        self.pools.reserve(record.request.pool, task, amounts)
        self.table.promise(row, self.table.vector(record.request.resources))
        record.node, record.group = self.table.name(row), None
        self._count_for_job(record, 1)

    def bind_to_group(self, record: TaskRecord, group: GroupRecord) -> None:
        """Give the task an existing placement group. A reserved one brings its own quota."""
        task = record.request.task
        if group.layer is Layer.RESERVED:
            self.pools.move(reserve_holder(group.group), task)
        else:
            self.pools.reserve(record.request.pool, task, group.shape.amounts)
        self.groups.take(group.group, task)
        record.node, record.group = group.nodes[0], group.group
        self._count_for_job(record, 1)

    def bind_to_new_group(self, record: TaskRecord, shape: GroupShape, rows: tuple[int, ...]) -> GroupRecord:
        """Promise the task quota and a new placement group."""
        task = record.request.task
        self.pools.reserve(record.request.pool, task, shape.amounts)
        group = self.new_group(record.request.pool, shape, rows, Layer.DYNAMIC, task)
        record.node, record.group = group.nodes[0], group.group
        self._count_for_job(record, 1)
        return group

    def new_group(self, pool: PoolName, shape: GroupShape, rows: tuple[int, ...], layer: Layer, holder: TaskId | None) -> GroupRecord:
        """Add a placement group that Ray is to create on these rows, one per bundle."""
        for bundle, row in zip(shape.bundles, rows, strict=True):
            self.table.promise(row, self.table.vector(bundle))
        self.groups_made += 1
        group = GroupId(f"g{self.groups_made}")
        self.groups.add(group, pool, shape, layer, tuple(map(self.table.name, rows)), holder)
        return self.groups.records[group]

    def start(self, record: TaskRecord) -> None:
        """Turn the task's promises into use."""
        request = record.request
        if request.agent is not None:
            return  # A call uses no resources; its agent does.
        if request.task in self.pools.pool(request.pool).reservations:
            self.pools.commit(request.pool, request.task)
        self._count_running(request, 1)
        if record.group is None and record.node is not None:
            self.table.start(self.table.row(record.node), self.table.vector(request.resources))

    def restore_use(self, record: TaskRecord, *, runs: bool) -> None:
        """Count the node use of a restored task; quota and groups are restored by their own ledgers."""
        request, node = record.request, record.node
        if request.agent is not None or node is None:
            return
        self._count_for_job(record, 1)
        if runs:
            self._count_running(request, 1)
            if record.agent is not None:
                self.relations.add_agent(record.agent, request.task)
        if record.group is None and node in self.table:
            row, vector = self.table.row(node), self.table.vector(request.resources)
            self.table.queue_for(row, vector)
            if runs:
                self.table.start(row, vector)

    def unbind(self, record: TaskRecord, *, hold_for: TaskId | None = None) -> None:
        """Release what the task holds: quota, node resources, its group. No effect when it holds nothing.

        The group itself stays, unless it was not created yet; the caller decides what happens to it.
        """
        if record.node is None:
            return
        if record.request.agent is not None:
            record.node = None
            return
        task, group = record.request.task, self.groups.records.get(record.group) if record.group is not None else None
        self._count_for_job(record, -1)
        if self.tasks.state_of(task) in AT_WORK:
            self._count_running(record.request, -1)
        if record.group is None:
            self._give_back_row(record)
        elif group is not None and group.holder == task:
            self.groups.give_back(group.group, self.now_ms, hold_for=hold_for)
            if group.layer is Layer.RESERVED:
                self._lay_by_quota(task, group)
        self.pools.release(task)
        record.node = record.group = None
        self.room_came()

    def _lay_by_quota(self, task: TaskId, group: GroupRecord) -> None:
        """Reserve the quota of a reserved group again after its task, if the pool still has that much."""
        holder = reserve_holder(group.group)
        self.pools.move(task, holder)
        self.pools.release(holder)
        if self.pools.pool(group.pool).fits(group.shape.amounts):
            self.pools.reserve(group.pool, holder, group.shape.amounts)

    def _give_back_row(self, record: TaskRecord) -> None:
        if record.node is None or record.node not in self.table:
            return
        row, vector = self.table.row(record.node), self.table.vector(record.request.resources)
        if self.tasks.state_of(record.request.task) in AT_WORK:
            self.table.finish(row, vector)
        else:
            self.table.withdraw(row, vector)

    def lose_group(self, group: GroupRecord) -> None:
        """Drop a lost group: free its resources, and the quota of an unused reserved one."""
        was_made = group.group in self.made
        self.made.discard(group.group)
        for bundle, node in zip(group.shape.bundles, group.nodes, strict=True):
            if node in self.table:
                row, vector = self.table.row(node), self.table.vector(bundle)
                (self.table.finish if was_made else self.table.withdraw)(row, vector)
        self.pools.release(reserve_holder(group.group))
        self.groups.drop(group.group)
        self.room_came()

    def close_pools(self) -> None:
        """Delete the pools that are closing and hold nothing any more."""
        for name in [name for name, pool in self.pools.pools.items() if pool.is_closing and pool.is_empty]:
            self.pools.delete(name)

    def trim(self) -> None:
        """Cut the node table's log, which makes users of scores compute them anew, and drop shapes without waiting tasks."""
        if len(self.table.touched) > _TOUCHED_MAX:
            self.table.touched.clear()
            self.table.shape_version += 1
        if self.version % _BUCKETS_LOOKED_AT_EVERY == 0:
            self.shapes.drop_unused(self.queues.buckets)

    def _count_running(self, request: TaskRequest, change: int) -> None:
        if not request.preemptible:
            return
        priority = self.shapes.base_priority(request)
        self.running[priority] = self.running.get(priority, 0) + change
        if not self.running[priority]:
            del self.running[priority]

    def _count_for_job(self, record: TaskRecord, change: int) -> None:
        job, node = record.request.job, record.node
        if node is not None:
            self.node_versions[node] = self.version
        if job is None or node is None:
            return
        counts = self.job_counts.setdefault(job, {})
        counts[node] = counts.get(node, 0) + change
        if not counts[node]:
            del counts[node]
        if not counts:
            del self.job_counts[job]


def reserve_holder(group: GroupId) -> str:
    """Return the name under which the pool's ledger holds the quota of an unused reserved group."""
    return f"group:{group}"
