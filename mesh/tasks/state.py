"""The whole state of one mesh's scheduler, and the only code that changes it.

`MeshState` composes the owners of its parts. Each owner changes its own fields in its own methods and checks its own invariants;
`MeshState` itself has the methods that concern several of them. Policies read all of it, and change it by calling these methods.

Source:
    dask's `WorkerState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from mesh.core.ids import AgentId, LabelName, NodeName, TaskId
from mesh.core.random_stream import RandomStream
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import AT_WORK, TaskState
from mesh.placement.groups import GroupRecord, GroupState
from mesh.policies.catalogue import Catalogue
from mesh.preemption.rules import Scorer
from mesh.tasks.capacity import CapacityLedger
from mesh.tasks.decisions import Decision, ExplainWaiting, RemoveGroup, RequestCapacity, StopTask
from mesh.tasks.eviction_ledger import EvictionLedger
from mesh.tasks.queued_shapes import QueuedShapes
from mesh.tasks.records import Bucket, Eviction, LabelRules, TaskRecord
from mesh.tasks.reservation_ledger import JobReservationLedger, ReservationLedger
from mesh.tasks.settings import SchedulerSettings
from mesh.tasks.task_ledger import TaskLedger
from mesh.tasks.task_queues import SchedulingQueues

_BUCKETS_LOOKED_AT_EVERY = 64


class MeshState:
    """State of one scheduler.

    Invariants, see `check`: each task of `records` is in `tasks` in exactly one state; it is in `queues` exactly when it is PLACEABLE;
    it holds quota exactly from READY or SWAP until it has stopped; each ledger equals the sum over those that hold something.
    """

    def __init__(self, settings: SchedulerSettings, random_stream: RandomStream, catalogue: Catalogue, scorer: Scorer) -> None:
        self.random_stream = random_stream
        self.catalogue = catalogue
        self.scorer = scorer  #: Scores candidates for preemption.
        self.version = 0  #: Number of calls of `handle`.
        self.now_ms = 0
        self.room_epoch = 0  #: Grows when something may fit that did not.

        self.tasks = SchedulingQueues()
        self.capacity = CapacityLedger(self.tasks)
        self.table, self.pools, self.groups = self.capacity.table, self.capacity.pools, self.capacity.groups
        self.shapes = QueuedShapes(settings, catalogue, self.table, self.pools, self.capacity.job_counts)
        self.task_ledger = TaskLedger(self.shapes, self.tasks)
        self.queues, self.records, self.ended = self.task_ledger.queues, self.task_ledger.records, self.task_ledger.ended
        self.relations = self.task_ledger.relations
        self.evictions = EvictionLedger(self.table, self.pools)
        self.reservations = ReservationLedger(self.table, self.pools)
        self.job_reservations = JobReservationLedger(self.table, self.pools)

        self._orders: list[Decision] = []
        self._reported: dict[TaskId, tuple[Reason, str]] = {}
        self._demands: tuple[ResourceSet, ...] = ()  #: Last request to the autoscaler.
        self._demands_at = 0  #: Value of `task_ledger.changes` at that request.
        self._refilled_at = -1  #: `room_epoch` at the last refill of the reserved layers.
        self._node_versions: dict[NodeName, int] = {}

    @property
    def settings(self) -> SchedulerSettings:
        """Current settings."""
        return self.shapes.settings

    @property
    def orders(self) -> Sequence[Decision]:
        """Decisions of the current call of `handle`."""
        return self._orders

    @property
    def reported(self) -> Mapping[TaskId, tuple[Reason, str]]:
        """Last explanation of each waiting task."""
        return self._reported

    def node_version(self, node: NodeName) -> int:
        """Return the version of the last placement on the node."""
        return self._node_versions.get(node, 0)

    # -- one call of `handle` ------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Begin a new version without decisions."""
        self.version += 1
        self._orders = []

    def advance_to(self, at_ms: int) -> None:
        """Set the time, which never goes back."""
        self.now_ms = max(self.now_ms, at_ms)

    def order(self, decision: Decision) -> None:
        """Add a decision."""
        self._orders.append(decision)

    def end_step(self) -> list[Decision]:
        """Drop what is not needed any more, and return the decisions."""
        self.capacity.close_pools()
        self.capacity.trim()
        if self.version % _BUCKETS_LOOKED_AT_EVERY == 0:
            self.shapes.drop_unused(self.queues.buckets)
        return self._orders

    def room_came(self) -> None:
        """Record that something may fit now that did not."""
        self.room_epoch += 1

    def begin_refill(self) -> bool:
        """Return whether reserved layers may be refilled: something has become free since the last refill."""
        is_due = self._refilled_at != self.room_epoch
        self._refilled_at = self.room_epoch
        return is_due

    # -- explanations and demands --------------------------------------------------------------------------------------

    def explain(self, record: TaskRecord, reason: Reason, detail: str) -> None:
        """Explain why a task waits, if the reason or detail changed."""
        task = record.request.task
        if self._reported.get(task) != (reason, detail):
            self._reported[task] = (reason, detail)
            self.order(ExplainWaiting(version=self.version, task=task, reason=reason, detail=detail))

    def report_demand(self) -> None:
        """Request capacity from the autoscaler when the unmet demands changed."""
        if self._demands_at == self.task_ledger.changes:
            return
        self._demands_at = self.task_ledger.changes
        demands = self._unmet_demands()
        if demands != self._demands:
            self._demands = demands
            self.order(RequestCapacity(version=self.version, demands=demands))

    def _unmet_demands(self) -> tuple[ResourceSet, ...]:
        """Return the demands that fit on no node or wait for capacity: one set per task or bundle, up to the limit."""
        most, demands = self.settings.demands_sent_max, list[ResourceSet]()
        for task in self.tasks.in_state(TaskState.INFEASIBLE)[:most]:
            request = self.records[task].request
            demands.extend(request.bundles or (request.resources,))
        waiting = [bucket for bucket in self.queues.buckets() if isinstance(bucket, Bucket) and bucket.refused is not None]
        for bucket in sorted(waiting, key=attrgetter("sort_key")):
            if len(demands) < most:
                demands.extend(list(bucket.key.shape.bundles) * min(self.queues.count(bucket), most))
        return tuple(demands[:most])

    # -- configuration and nodes ---------------------------------------------------------------------------------------

    def change_settings(self, changes: Mapping[str, float]) -> None:
        """Change settings, and order and place the queued tasks by the new ones."""
        self.shapes.change_settings(changes)
        self.task_ledger.configure_labels()
        self.assign_again()

    def configure_label(self, label: LabelName, rules: LabelRules) -> None:
        """Set the label's rules, and order and place the queued tasks by them."""
        self.shapes.configure_label(label, rules)
        self.task_ledger.configure_label(label)
        self.assign_again()

    def assign_again(self) -> None:
        """Assign queued tasks to buckets by the present settings and pools."""
        self.task_ledger.assign_again()
        self.room_came()

    def remove_node(self, node: NodeName) -> None:
        """Drop a node that has left, and what is held on it. End evictions that planned a place there: they are planned again."""
        self.capacity.remove_node(node)
        for preemptor in self.evictions.forget_node(node):
            self.end_eviction(preemptor)
        self.reservations.forget_node(node)
        self.job_reservations.forget_node(node)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def bind_to_node(self, record: TaskRecord, row: int, amounts: ResourceSet) -> None:
        """Promise a queued task quota and node resources: SWAP."""
        self.capacity.bind_to_node(record, row, amounts)
        self._begin(record, TaskState.SWAP)

    def bind_to_group(self, record: TaskRecord, group: GroupRecord) -> None:
        """Give a queued task an existing placement group: SWAP. A reserved one brings its own quota."""
        self.capacity.bind_to_group(record, group)
        self._begin(record, TaskState.SWAP)

    def bind_to_new_group(self, record: TaskRecord, shape: GroupShape, rows: tuple[int, ...]) -> GroupRecord:
        """Promise a queued task quota and a new placement group: READY."""
        group = self.capacity.bind_to_new_group(record, shape, rows)
        self._begin(record, TaskState.READY)
        return group

    def start(self, record: TaskRecord) -> None:
        """Turn the task's promises into use: RUNNING. A call uses no resources; its agent does."""
        if record.request.agent is None:
            self.capacity.start(record)
        self.task_ledger.run(record)

    def note_started(self, record: TaskRecord, agent: AgentId) -> None:
        """Record that the task's agent is up, and drop the explanation of its wait."""
        self.task_ledger.note_started(record, agent, self.now_ms)
        self._reported.pop(record.request.task, None)

    def order_stop(
        self, record: TaskRecord, reason: Reason, *, keep_state: bool = True, requeue: bool = False, by: TaskId | None = None
    ) -> None:
        """Order a running task to stop. Idempotent."""
        if self.task_ledger.begin_stop(record, reason, requeue=requeue):
            self.order(
                StopTask(
                    version=self.version,
                    task=record.request.task,
                    attempt=record.attempt,
                    keep_state=keep_state,
                    grace_ms=self.settings.grace_ms,
                    reason=reason,
                    by=by,
                )
            )

    def unbind(self, record: TaskRecord, *, hold_for: TaskId | None = None) -> None:
        """Release what the task holds: quota, node resources, its group. No effect when it holds nothing.

        The group itself stays, unless it was not created yet; the caller decides what happens to it.

        Args:
            hold_for: Preemptor for which its group is held.
        """
        if record.node is None:
            return
        if record.request.agent is not None:
            self.task_ledger.end_call(record)
            return
        self._node_versions[record.node] = self.version
        if self.tasks.state_of(record.request.task) in AT_WORK:
            self.task_ledger.count_running(record, -1)
        self.capacity.unbind(record, self.now_ms, hold_for)
        self.room_came()

    def take_back(self, placed: Iterable[TaskRecord], ordered: int) -> None:
        """Queue tasks again that were placed in this step, and withdraw their orders.

        Args:
            ordered: Number of orders before they were placed. Removals of groups stay.
        """
        for record in placed:
            group = self.groups.records.get(record.group) if record.group is not None else None
            self.unbind(record)
            if group is not None and group.state is GroupState.CREATING:
                self.lose_group(group)
            self.task_ledger.take_back(record)
        self._orders[ordered:] = [order for order in self._orders[ordered:] if isinstance(order, RemoveGroup)]

    def forget(self, record: TaskRecord, to: TaskState) -> None:
        """Drop a task that is over."""
        self.task_ledger.forget(record, to)
        self._reported.pop(record.request.task, None)

    def _begin(self, record: TaskRecord, to: TaskState) -> None:
        if record.node is not None:
            self._node_versions[record.node] = self.version
        self.task_ledger.begin(record, to)

    # -- placement groups and evictions --------------------------------------------------------------------------------

    def group_created(self, group: GroupRecord) -> TaskRecord | None:
        """Turn the promises of a group that exists in Ray now into use. Return the task for which it was created, which is in SWAP."""
        self.capacity.group_created(group, self.now_ms)
        record = self.records.get(group.holder) if group.holder is not None else None
        if record is not None:
            self.task_ledger.swap(record.request.task)
        return record

    def remove_group(self, group: GroupRecord, reason: Reason) -> None:
        """Mark the group for removal and order its removal in Ray."""
        self.capacity.remove_group(group.group)
        self.order(RemoveGroup(version=self.version, group=group.group, reason=reason))

    def lose_group(self, group: GroupRecord) -> None:
        """Drop a lost group: free its resources, and the quota of an unused reserved one."""
        self.capacity.lose_group(group)
        self.room_came()

    def release_group_of(self, preemptor: TaskId) -> None:
        """Release the group that is HELD for the task; any task may take it now."""
        if self.capacity.release_group_of(preemptor, self.now_ms):
            self.room_came()

    def end_eviction(self, preemptor: TaskId) -> Eviction | None:
        """Release what is held for the preemptor. A group HELD for it stays so until the task starts or ends."""
        eviction = self.evictions.end(preemptor)
        if eviction is not None:
            self.room_came()
        return eviction

    # -- a snapshot ----------------------------------------------------------------------------------------------------

    def restore_counters(self, version: int, now_ms: int, groups_made: int) -> None:
        """Set the counters of a snapshot."""
        self.version, self.now_ms = version, now_ms
        self.capacity.restore_counter(groups_made)

    def restore_labels(self, labels: Mapping[LabelName, LabelRules]) -> None:
        """Set the rules of a snapshot's labels before any task is restored."""
        for label, rules in labels.items():
            self.shapes.configure_label(label, rules)
        self.task_ledger.configure_labels()

    def restore_task(self, record: TaskRecord, where: TaskState) -> None:
        """Add a snapshot's task after pools and groups, which restore its quota and group."""
        self.task_ledger.restore(record, where, has_pool=record.request.pool in self.pools.pools)
        if record.request.agent is None and record.node is not None:
            self._node_versions[record.node] = self.version
            self.capacity.restore_task(record, is_at_work=where in AT_WORK)

    # -- invariants ----------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Return a message per broken invariant; empty when all hold. Cost is linear in the whole state."""
        found = [
            *self.task_ledger.check(),
            *self.capacity.check(self.records, (self.evictions, self.reservations, self.job_reservations)),
            *self.evictions.check(self.records),
            *self.reservations.check(self.queues),
        ]
        for task, record in self.records.items():
            group = self.groups.records.get(record.group) if record.group is not None else None
            if record.group is not None and (group is None or group.holder != task):
                found.append(f"{task} uses group {record.group}, which is held by {group.holder if group else 'nobody'}")
        return found
