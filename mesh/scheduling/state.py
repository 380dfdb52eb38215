"""The whole state of one mesh's scheduler, and the verbs that keep its ledgers in step.

Three ledgers tell who holds what: the node table (physical room), the pools (quota) and the placement groups. A verb here
writes all that it touches or raises before it has written anything, so that no path of the scheduler can leave one behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import replace

from mesh.chance import Chance
from mesh.ids import AgentId, GroupId, JobId, LabelName, NodeName, PoolName, TaskId
from mesh.nodes import NodeTable
from mesh.policies.catalogue import Catalogue, chosen
from mesh.policies.census import Census
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import Demand
from mesh.pools import PoolLedger, PoolSpec
from mesh.reasons import Reason
from mesh.resources import NOTHING, ResourceSet
from mesh.scheduling.candidates import Candidates
from mesh.scheduling.decisions import Decision
from mesh.scheduling.group_ledger import GroupLedger
from mesh.scheduling.groups import GroupRecord, Layer
from mesh.scheduling.preemption import Candidate, Scorer
from mesh.scheduling.queues import LabelQueues, LabelSettings
from mesh.scheduling.records import Bucket, BucketKey, Eviction, JobPlaces, LabelRules, Reservation, TaskRecord
from mesh.scheduling.settings import SchedulerSettings
from mesh.scheduling.shapes import GroupShape
from mesh.scheduling.task_queues import SchedulingQueues
from mesh.scheduling.tasks import AT_WORK, TaskRequest, TaskState, Weights

#: How many starts the estimate of a wait looks back on.
STARTS_KEPT = 32
#: How many ended tasks are remembered by their ids, so that a submission that comes again is known.
ENDED_KEPT = 10_000
#: The node table's log of touched rows is cut at this length.
_TOUCHED_MAX = 1 << 16
#: Beyond so many shapes those that nobody waits with are forgotten.
_BUCKETS_MAX = 1_000
_BUCKETS_LOOKED_AT_EVERY = 64
_ALIKE_MAX = 4_096
_CENSUS_EVERY = 1_024
_NO_RULES = LabelRules()


class MeshState:
    """Written by `MeshScheduler.handle` and what it calls, by nobody else.

    Invariants (checked by `mesh.scheduling.invariants.violations`): each task of `records` is in `tasks` in exactly one
    state; it is in `queues` exactly when it is PLACEABLE; it holds quota exactly from READY or SWAP until it has stopped.
    """

    def __init__(self, settings: SchedulerSettings, chance: Chance, catalogue: Catalogue, scorer: Scorer) -> None:
        self.settings = settings
        self.chance = chance
        self.catalogue = catalogue
        self.scorer = scorer  #: Of candidates for preemption.
        self.version = 0  #: Counts calls of `handle`.
        self.now_ms = 0
        self.table = NodeTable()
        self.pools = PoolLedger(())
        self.groups = GroupLedger()
        self.queues = LabelQueues(LabelSettings(aging_per_s=settings.aging_per_s))
        self.tasks = SchedulingQueues()
        self.records: dict[TaskId, TaskRecord] = {}
        self.buckets: dict[BucketKey, Bucket] = {}
        self._alike: dict[Hashable, Bucket] = {}  #: The same by what requests say, as a key takes longer to make; may forget.
        self.labels: dict[LabelName, LabelRules] = {}
        self.evictions: dict[TaskId, Eviction] = {}  #: By preemptor.
        self.reservations: dict[PoolName, Reservation] = {}  #: Room set aside for work that has waited too long; one in a pool.
        self.job_places: dict[JobId, JobPlaces] = {}  #: Where workers will start that wait for their leader.
        self.opened: dict[PoolName, Reservation] = {}  #: What they were before the pass that is under way; empty between passes.
        self.evicted: dict[TaskId, TaskId] = {}  #: Victim to preemptor, while it stops.
        self.readers: dict[TaskId, set[TaskId]] = {}  #: Task to those that come after it.
        self.gangs: dict[str, list[TaskId]] = {}  #: Members known so far.
        self.callers: dict[AgentId, list[TaskId]] = {}  #: Calls that wait for the agent.
        self.agents: dict[AgentId, TaskId] = {}  #: Agents that are up, and whose task they run.
        self.ended: dict[TaskId, TaskState] = {}  #: The last ones, oldest first.
        self.job_counts: dict[JobId, dict[NodeName, int]] = {}
        self.given_way: deque[tuple[int, LabelName]] = deque()  #: Preemptions of the last minute.
        self.running: dict[float, int] = {}  #: How many tasks that may give way run of each priority.
        self.starts: dict[PoolName, deque[int]] = {}  #: Times of the last starts.
        self.arrivals = 0
        self.groups_made = 0
        self.room_epoch = 0  #: Counts whatever may let something fit that did not.
        self.doomed: list[tuple[TaskId, tuple[Reason, str]]] = []  #: What was found out in this pass to be never.
        self.census = Census()
        self.common: CommonShapes | None = None  #: What is asked for most, as last counted.
        self.refilled_at = -1  #: The room epoch at which the reserved layers were last looked at.
        self.refusals = 0  #: Counts changes of what fits nowhere or waits.
        self.aftermath: deque[tuple[TaskRecord, TaskState, TaskId | None]] = (
            deque()
        )  #: Ends whose meaning for others is not worked out yet.
        self.evaluations = 0  #: Of preemption, in this pass.
        self.may_give_way: tuple[Candidate, ...] | None = None  #: What runs, as this pass found it; None: nobody has looked yet.
        self.reserve_rests: dict[PoolName, int] = {}  #: Until when no reserved group is ordered there: Ray has refused one.
        self.made: set[GroupId] = set()  #: Groups that Ray has made: they use room, the others are promised it.
        self.node_versions: dict[NodeName, int] = {}  #: When something was last placed there.
        self.told: dict[TaskId, tuple[Reason, str]] = {}  #: What was last said about each task that waits.
        self.demands: tuple[ResourceSet, ...] = ()  #: What the autoscaler was last told.
        self.demands_at = 0  #: The count of refusals at that time.
        self.orders: list[Decision] = []  #: Of the call of `handle` that is under way.

    # -- shapes that wait ----------------------------------------------------------------------------------------------

    def bucket_for(self, request: TaskRequest) -> Bucket:
        """The bucket of all tasks like this one."""
        likeness = _likeness(request)
        bucket = self._alike.get(likeness)
        if bucket is None:
            if len(self._alike) >= _ALIKE_MAX:
                self._alike.clear()
            bucket = self._alike[likeness] = self._bucket_of(self._key(request), request)
        return bucket

    def _bucket_of(self, key: BucketKey, request: TaskRequest) -> Bucket:
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(key=key, amounts=key.shape.amounts, candidates=self.candidates_of(key, request))
        return bucket

    def _key(self, request: TaskRequest) -> BucketKey:
        spec = self.pools.pools[request.pool].spec
        rules = self.labels.get(request.label, _NO_RULES)
        return BucketKey(
            label=request.label,
            pool=request.pool,
            shape=GroupShape(request.bundles or (request.resources,), request.strategy),
            selector=tuple(sorted({**spec.selector, **request.selector}.items())),
            policy=chosen(request.policy or rules.policy, spec.policy, has_local_bytes=bool(request.local_bytes)),
            weights=request.weights or self._weights(request, rules),
            is_urgent=spec.groups is not None and request.priority >= spec.groups.reserved_priority,
            has_agent=request.has_agent,
            node=request.node,
            soft=request.soft,
            job=request.job,
            role=request.role,
            own=request.task if request.gang else None,
            places=tuple(sorted(request.local_bytes.items())),
        )

    def bucket_of_reserve(self, spec: PoolSpec, shape: GroupShape) -> Bucket:
        """Nodes for a reserved group, which no task asks for."""
        request = TaskRequest(task=TaskId(""), pool=spec.pool, resources=shape.bundles[0], bundles=shape.bundles, has_agent=False)
        key = replace(self._key(request), shape=shape)
        return Bucket(key=key, amounts=shape.amounts, candidates=self.candidates_of(key))

    def rebuild_buckets(self) -> None:
        """Settings have changed: everything queued gets the bucket that it belongs to now."""
        self.buckets.clear()
        self._alike.clear()
        self.running.clear()
        for task in (*self.tasks.in_state(TaskState.RUNNING), *self.tasks.in_state(TaskState.BLOCKED)):
            self._count_running(self.records[task].request, 1)
        for record in self.records.values():
            record.bucket = None
            if self.queues.remove(record.request.task):
                self.enqueue(record)
        self.room_came()

    def candidates_of(self, key: BucketKey, request: TaskRequest | None = None, bundle: int = 0) -> Candidates:
        """Nodes for one bundle of the shape."""
        wanted = key.shape.bundles[bundle]
        settings = self.settings
        demand = Demand(
            wanted=self.table.vector(wanted),
            weights=key.weights,
            role=key.role,
            soft=key.soft,
            names_node=key.node is not None,
            top_k_fraction=settings.top_k_fraction,
            top_k_absolute=settings.top_k_absolute,
            spread_threshold=settings.spread_threshold,
            is_urgent=key.is_urgent,
            common=self.common,
        )
        return Candidates(
            self.table,
            wanted,
            dict(key.selector),
            self.catalogue.policy(key.policy),
            demand,
            named=key.node,
            local_bytes=request.local_bytes if request is not None else None,
            job=key.job,
            job_counts=self.job_counts,
        )

    def _weights(self, request: TaskRequest, rules: LabelRules) -> Weights:
        """Those of its label, else of its workload type (rules under `workload:<type>`), else the mesh's (seed §5.1)."""
        of_type = self.labels.get(LabelName(f"workload:{request.workload_type}")) if request.workload_type else None
        changes = rules.weights or (of_type.weights if of_type is not None else {})
        return replace(self.settings.weights, **changes) if changes else self.settings.weights

    def label_settings_of_others(self) -> LabelSettings:
        """How the queue of a label without rules of its own is ordered."""
        return LabelSettings(aging_per_s=self.settings.aging_per_s)

    def label_settings(self, label: LabelName) -> LabelSettings:
        """How the label's queue is ordered."""
        rules = self.labels.get(label, _NO_RULES)
        aging = rules.aging_per_s if rules.aging_per_s is not None else self.settings.aging_per_s
        return LabelSettings(priority=rules.priority, aging_per_s=aging)

    def base_priority(self, request: TaskRequest) -> float:
        """P_base + P_label: what preemption compares."""
        rules = self.labels.get(request.label)
        return request.priority + (rules.priority if rules is not None else 0.0)

    # -- queueing ------------------------------------------------------------------------------------------------------

    def enqueue(self, record: TaskRecord) -> None:
        """Into its place: a task that was there before gets its old one."""
        request = record.request
        if record.bucket is None:
            record.bucket = self.bucket_for(request)
        self.queues.add(
            request.task,
            bucket=record.bucket,
            label=request.label,
            priority=request.priority,
            since_ms=record.since_ms,
            arrival=record.arrival,
        )
        record.bucket.tried_at = -1

    def without_node(self, request: TaskRequest) -> TaskRequest:
        """The request of somebody whose choice of node is out of date: any node will do."""
        return replace(request, node=None, policy="" if request.policy == "node_affinity" else request.policy)

    def note_start(self, record: TaskRecord) -> None:
        """Remember when it started, for estimates."""
        self.starts.setdefault(record.request.pool, deque(maxlen=STARTS_KEPT)).append(self.now_ms)

    def count_demand(self, request: TaskRequest) -> None:
        """Learn which shapes are asked for; now and then everything that waits is scored by what has been learnt."""
        self.census.count(request.bundles[0] if request.bundles else request.resources)
        if self.arrivals & (self.arrivals - 1) == 0 or self.arrivals % _CENSUS_EVERY == 0:  # Often at first, then every so often.
            self.common = self.census.common(self.table.vector, self._largest_node())
            for bucket in self.buckets.values():
                bucket.candidates.know(self.common)

    def _largest_node(self) -> ResourceSet:
        """Of what tasks ask for: a node's memory is no reason to leave it whole for work that never names memory."""
        asked = {name for shape, _ in self.census for name in shape}
        totals = self.table.total[: len(self.table.names)]
        whole = self.table.amounts(totals[int(totals.sum(axis=1).argmax())]) if len(totals) else NOTHING
        return ResourceSet({name: amount for name, amount in whole.items() if name in asked})

    def unmet_demands(self) -> tuple[ResourceSet, ...]:
        """What fits on no node, and what waits for room: a set per task or bundle, bounded."""
        most, demands = self.settings.demands_told_max, list[ResourceSet]()
        for task in self.tasks.in_state(TaskState.INFEASIBLE)[:most]:
            request = self.records[task].request
            demands.extend(request.bundles or (request.resources,))
        waiting = [bucket for bucket in self.queues.buckets() if isinstance(bucket, Bucket) and bucket.refused is not None]
        for bucket in sorted(waiting, key=lambda bucket: repr(bucket.key)):  # Not by age, which a snapshot does not keep.
            if len(demands) < most:
                demands.extend(list(bucket.key.shape.bundles) * min(self.queues.count(bucket), most))
        return tuple(demands[:most])

    def room_came(self) -> None:
        """Something may fit now that did not."""
        self.room_epoch += 1

    # -- the ledgers together ------------------------------------------------------------------------------------------

    def bind_to_node(self, record: TaskRecord, row: int, amounts: ResourceSet) -> None:
        """Promise the task quota and room on a node."""
        task = record.request.task
        self.pools.reserve(record.request.pool, task, amounts)
        self.table.promise(row, self.table.vector(record.request.resources))
        record.node, record.group = self.table.name(row), None
        self._count_for_job(record, 1)

    def bind_to_group(self, record: TaskRecord, group: GroupRecord) -> None:
        """Give the task a placement group that stands. A reserved one brings its own quota."""
        task = record.request.task
        if group.layer is Layer.RESERVED:
            self.pools.move(reserve_holder(group.group), task)
        else:
            self.pools.reserve(record.request.pool, task, group.shape.amounts)
        self.groups.take(group.group, task)
        record.node, record.group = group.nodes[0], group.group
        self._count_for_job(record, 1)

    def bind_to_new_group(self, record: TaskRecord, shape: GroupShape, rows: tuple[int, ...]) -> GroupRecord:
        """Promise the task quota, and a placement group the room for it."""
        task = record.request.task
        self.pools.reserve(record.request.pool, task, shape.amounts)
        group = self.new_group(record.request.pool, shape, rows, Layer.DYNAMIC, task)
        record.node, record.group = group.nodes[0], group.group
        self._count_for_job(record, 1)
        return group

    def new_group(self, pool: PoolName, shape: GroupShape, rows: tuple[int, ...], layer: Layer, holder: TaskId | None) -> GroupRecord:
        """A placement group that Ray is to make on these rows, one per bundle."""
        for bundle, row in zip(shape.bundles, rows, strict=True):
            self.table.promise(row, self.table.vector(bundle))
        self.groups_made += 1
        group = GroupId(f"g{self.groups_made}")
        self.groups.add(group, pool, shape, layer, tuple(map(self.table.name, rows)), holder)
        return self.groups.records[group]

    def start(self, record: TaskRecord) -> None:
        """The task runs: what was promised to it is in use."""
        request = record.request
        if request.agent is not None:
            return  # A call takes nothing; its agent does.
        if request.task in self.pools.pool(request.pool).reservations:
            self.pools.commit(request.pool, request.task)
        self._count_running(request, 1)
        if record.group is None and record.node is not None:
            self.table.start(self.table.row(record.node), self.table.vector(request.resources))

    def restore_use(self, record: TaskRecord, *, runs: bool) -> None:
        """Count again what a task of a snapshot uses of its node; its quota and its group are counted by their own ledgers."""
        request, node = record.request, record.node
        if request.agent is not None or node is None:
            return
        self._count_for_job(record, 1)
        if runs:
            self._count_running(request, 1)
            if record.agent is not None:
                self.agents[record.agent] = request.task
        if record.group is None and node in self.table:
            row, vector = self.table.row(node), self.table.vector(request.resources)
            self.table.queue_for(row, vector)
            if runs:
                self.table.start(row, vector)

    def unbind(self, record: TaskRecord, *, hold_for: TaskId | None = None) -> None:
        """Take back what the task holds: quota, room, its place in a group. Harmless when it holds nothing.

        The group itself stays, unless it was not even made; whoever calls decides what becomes of it.
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
        """A reserved group keeps its quota when its task has ended: set aside again, where the pool still has that much."""
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
        """A placement group is gone: its room, and the quota of a reserved one that nobody uses, are free."""
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
        """Pools that are being deleted and hold nothing any more are gone."""
        for name in [name for name, pool in self.pools.pools.items() if pool.is_closing and pool.is_empty]:
            self.pools.delete(name)

    def trim(self) -> None:
        """Cut what only grows: the node table's log (whoever keeps scores makes them anew), and shapes that nobody waits with."""
        if len(self.table.touched) > _TOUCHED_MAX:
            self.table.touched.clear()
            self.table.shape_version += 1
        if len(self.buckets) > _BUCKETS_MAX and self.version % _BUCKETS_LOOKED_AT_EVERY == 0:
            waiting = set(map(id, self.queues.buckets()))
            self.buckets = {key: bucket for key, bucket in self.buckets.items() if id(bucket) in waiting}
            self._alike.clear()

    def _count_running(self, request: TaskRequest, change: int) -> None:
        if not request.preemptible:
            return
        priority = self.base_priority(request)
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


def _likeness(request: TaskRequest) -> Hashable:
    """All that `MeshState._key` reads of a request: two that are alike in it have one bucket, as long as the settings stay."""
    return (
        *(request.label, request.pool, request.priority, request.resources, request.bundles, request.strategy, request.has_agent),
        *(request.policy, request.weights, request.workload_type, request.node, request.soft, request.job, request.role),
        request.task if request.gang else None,
        tuple(sorted(request.selector.items())) if request.selector else None,
        tuple(sorted(request.local_bytes.items())) if request.local_bytes else None,
    )


def reserve_holder(group: GroupId) -> str:
    """Under which name the pool's ledger keeps the quota of a reserved placement group that nobody uses."""
    return f"group:{group}"
