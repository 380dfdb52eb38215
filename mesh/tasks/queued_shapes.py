"""Buckets of queued tasks that are alike, and all that decides which tasks are alike: settings, label rules, most requested shapes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import replace

from mesh.core.ids import JobId, LabelName, NodeName, TaskId
from mesh.core.nodes import NodeTable
from mesh.core.pools import PoolLedger, PoolSpec
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.core.shapes import GroupShape
from mesh.core.task_spec import TaskRequest, Weights
from mesh.placement.candidates import Candidates
from mesh.policies.catalogue import Catalogue, chosen
from mesh.policies.census import Census
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import NodeDemand
from mesh.tasks.queues import LabelSettings
from mesh.tasks.records import Bucket, BucketKey, LabelRules
from mesh.tasks.settings import SchedulerSettings

#: Above this number, shapes without waiting tasks are dropped.
_BUCKETS_MAX = 1_000
_ALIKE_MAX = 4_096
_CENSUS_EVERY = 1_024
_NO_RULES = LabelRules()


class QueuedShapes:
    """Owner of the buckets, of the settings and label rules that their keys depend on, and of the count of requested shapes.

    Args:
        table: Nodes, read only.
        pools: Quota, read only.
        job_counts: Number of tasks of each job on each node, read only.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        catalogue: Catalogue,
        table: NodeTable,
        pools: PoolLedger,
        job_counts: Mapping[JobId, Mapping[NodeName, int]],
    ) -> None:
        self.settings = settings
        self.labels: dict[LabelName, LabelRules] = {}
        self.common: CommonShapes | None = None  #: Most requested shapes, as last counted.
        self._catalogue = catalogue
        self._table = table
        self._pools = pools
        self._job_counts = job_counts
        self.buckets: dict[BucketKey, Bucket] = {}
        self._alike: dict[Hashable, Bucket] = {}  #: Cache by request fields, since keys are slow to build; may be cleared.
        self._census = Census()

    def bucket_for(self, request: TaskRequest) -> Bucket:
        """Return the bucket for all tasks like this one."""
        likeness = _likeness(request)
        bucket = self._alike.get(likeness)
        if bucket is None:
            if len(self._alike) >= _ALIKE_MAX:
                self._alike.clear()
            bucket = self._alike[likeness] = self._bucket_of(self._key(request), request)
        return bucket

    def bucket_of_reserve(self, spec: PoolSpec, shape: GroupShape) -> Bucket:
        """Return a bucket for a reserved group, which no task requests."""
        request = TaskRequest(task=TaskId(""), pool=spec.pool, resources=shape.bundles[0], bundles=shape.bundles, has_agent=False)
        key = replace(self._key(request), shape=shape)
        return Bucket(key=key, amounts=shape.amounts, candidates=self.candidates_of(key))

    def candidates_of(self, key: BucketKey, request: TaskRequest | None = None, bundle: int = 0) -> Candidates:
        """Return the nodes for one bundle of the shape."""
        wanted = key.shape.bundles[bundle]
        settings = self.settings
        demand = NodeDemand(
            wanted=self._table.vector(wanted),
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
            self._table,
            wanted,
            dict(key.selector),
            self._catalogue.policy(key.policy),
            demand,
            named=key.node,
            local_bytes=request.local_bytes if request is not None else None,
            job=key.job,
            job_counts=self._job_counts,
        )

    def label_settings_of_others(self) -> LabelSettings:
        """Return the settings for labels without rules of their own."""
        return LabelSettings(aging_per_s=self.settings.aging_per_s)

    def label_settings(self, label: LabelName) -> LabelSettings:
        """Return the label's queue settings."""
        rules = self.labels.get(label, _NO_RULES)
        aging = rules.aging_per_s if rules.aging_per_s is not None else self.settings.aging_per_s
        return LabelSettings(priority=rules.priority, aging_per_s=aging)

    def base_priority(self, request: TaskRequest) -> float:
        """Return P_base + P_label, which preemption compares."""
        rules = self.labels.get(request.label)
        return request.priority + (rules.priority if rules is not None else 0.0)

    # -- writes --------------------------------------------------------------------------------------------------------

    def change_settings(self, changes: Mapping[str, float]) -> None:
        """Change settings. The caller then assigns queued tasks to new buckets."""
        self.settings = self.settings.changed(changes)

    def configure_label(self, label: LabelName, rules: LabelRules) -> None:
        """Set the label's rules. The caller then assigns queued tasks to new buckets."""
        self.labels[label] = rules

    def drop_buckets(self) -> None:
        """Drop all buckets, since their keys depend on what has changed."""
        self.buckets.clear()
        self._alike.clear()

    def drop_unused(self, waiting: Callable[[], Collection[Hashable]]) -> None:
        """Drop buckets without waiting tasks when there are many buckets.

        Args:
            waiting: Returns the buckets with waiting tasks.
        """
        if len(self.buckets) > _BUCKETS_MAX:
            kept = set(map(id, waiting()))
            self.buckets = {key: bucket for key, bucket in self.buckets.items() if id(bucket) in kept}
            self._alike.clear()

    def note_attempt(self, bucket: Bucket, refusal: tuple[Reason, str] | None, epoch: int) -> bool:
        """Record why the bucket's first task does not fit; None: it was placed. Return whether this differs from the last attempt.

        Args:
            epoch: Until this epoch ends, the bucket need not be tried again.
        """
        bucket.tried_at = -1 if refusal is None else epoch
        has_changed = (refusal is None) is not (bucket.refused is None)
        bucket.refused = refusal
        return has_changed

    def note_refusal(self, bucket: Bucket, refusal: tuple[Reason, str]) -> None:
        """Replace the reason why the bucket's first task does not fit by a more precise one."""
        bucket.refused = refusal

    def note_tried(self, bucket: Bucket, epoch: int) -> None:
        """Record that the bucket need not be tried again until this epoch ends."""
        bucket.tried_at = epoch

    def retry(self, bucket: Bucket) -> None:
        """Let the pass try the bucket, whatever has become free."""
        bucket.tried_at = -1

    def count_demand(self, request: TaskRequest, arrivals: int) -> None:
        """Count the requested shape. From time to time, rescore waiting shapes by the shapes counted so far."""
        self._census.count(request.bundles[0] if request.bundles else request.resources)
        if arrivals & (arrivals - 1) == 0 or arrivals % _CENSUS_EVERY == 0:  # Often at first, then at a fixed interval.
            self.common = self._census.common(self._table.vector, self._largest_node())
            for bucket in self.buckets.values():
                bucket.candidates.know(self.common)

    def _largest_node(self) -> ResourceSet:
        """Return the largest node's total of requested resources only: unrequested memory must not count as worth preserving."""
        asked = {name for shape, _ in self._census for name in shape}
        totals = self._table.total[: len(self._table.names)]
        whole = self._table.amounts(totals[int(totals.sum(axis=1).argmax())]) if len(totals) else NOTHING
        return ResourceSet({name: amount for name, amount in whole.items() if name in asked})

    def _bucket_of(self, key: BucketKey, request: TaskRequest) -> Bucket:
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(key=key, amounts=key.shape.amounts, candidates=self.candidates_of(key, request))
        return bucket

    def _key(self, request: TaskRequest) -> BucketKey:
        spec = self._pools.pools[request.pool].spec
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

    def _weights(self, request: TaskRequest, rules: LabelRules) -> Weights:
        """Return the weights of its label, else of its workload type (rules under `workload:<type>`), else the mesh's."""
        of_type = self.labels.get(LabelName(f"workload:{request.workload_type}")) if request.workload_type else None
        changes = rules.weights or (of_type.weights if of_type is not None else {})
        return replace(self.settings.weights, **changes) if changes else self.settings.weights


def _likeness(request: TaskRequest) -> Hashable:
    """Return all that `QueuedShapes._key` reads of a request: while settings stay the same, equal values mean the same bucket."""
    return (
        *(request.label, request.pool, request.priority, request.resources, request.bundles, request.strategy, request.has_agent),
        *(request.policy, request.weights, request.workload_type, request.node, request.soft, request.job, request.role),
        request.task if request.gang else None,
        tuple(sorted(request.selector.items())) if request.selector else None,
        tuple(sorted(request.local_bytes.items())) if request.local_bytes else None,
    )
